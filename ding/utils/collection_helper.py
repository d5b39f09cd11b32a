"""Helpers on iterables."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


def iter_mapping(iter_: Iterable[Item], mapping: Callable[[Item], Result]) -> Iterator[Result]:
    """Yield `mapping(item)` for each item, one at a time, as they are asked for."""
    for item in iter_:
        yield mapping(item)
