"""One view of plain and grouped samples."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ding.data.buffer.buffer import BufferedData


def each_record(sample: list[Any]) -> Iterator[BufferedData]:
    """All records of a sample, whether it is a list of records or of groups of records."""
    for item in sample:
        if isinstance(item, BufferedData):
            yield item
        else:
            yield from item
