"""Unique ids of the items of a buffer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, overload

from ding.utils.segment_tree import IntArray


def generate_id(name: str, n: int) -> str:
    """Returns the id of the n-th item stored by the buffer `name`.

    Example:
        >>> generate_id("demo", 3)
        'demo_3'
    """
    return f"{name}_{n}"


def parse_id(name: str, unique_id: object) -> int:
    """Returns the number in an id that `generate_id` returned, for any buffer name.

    Raises:
        ValueError: If `unique_id` is not such an id.
    """
    _, _, digits = str(unique_id).rpartition("_")
    if not digits.isdecimal():
        raise ValueError(f"replay_unique_id = {unique_id!r} is not allowed; it must look like {generate_id(name, 0)!r}")
    return int(digits)


class UniqueIds(Sequence[str]):
    """The ids of sampled items, formatted on access. `update` of the same buffer reads `numbers` directly.

    Args:
        name: Name of the buffer.
        numbers: int64 [n], the numbers in the ids.

    Example:
        >>> import numpy as np
        >>> UniqueIds("demo", np.array([3, 5]))[1]
        'demo_5'
    """

    def __init__(self, name: str, numbers: IntArray) -> None:
        self.name, self.numbers = name, numbers

    def __len__(self) -> int:
        return len(self.numbers)

    @overload
    def __getitem__(self, key: int) -> str: ...
    @overload
    def __getitem__(self, key: slice) -> UniqueIds: ...
    def __getitem__(self, key: int | slice) -> str | UniqueIds:
        if isinstance(key, slice):
            return UniqueIds(self.name, self.numbers[key])
        return generate_id(self.name, int(self.numbers[key]))

    def __iter__(self) -> Iterator[str]:
        prefix = generate_id(self.name, 0)[:-1]
        return (f"{prefix}{number}" for number in self.numbers.tolist())

    def __eq__(self, other: object) -> bool:
        return list(self) == (list(other) if isinstance(other, UniqueIds) else other)

    __hash__ = None  # type: ignore[assignment]

    def __reduce__(self) -> tuple[Any, ...]:
        return list, (list(self),)
