"""Types for annotations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeVar

SequenceType = TypeVar("SequenceType", list[Any], tuple[Any, ...], NamedTuple, Sequence[Any])
"""A list, a tuple or a named tuple, the same one throughout a signature."""
