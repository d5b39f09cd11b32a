"""Ids of the items of a buffer."""

from __future__ import annotations


def generate_id(name: str, n: int) -> str:
    """The id of the n-th item that the buffer `name` took in.

    Example:
        >>> generate_id("demo", 3)
        'demo_3'
    """
    return f"{name}_{n}"


def parse_id(name: str, unique_id: object) -> int:
    """The number in an id that `generate_id` made, whichever buffer it was made for.

    Raises:
        ValueError: `unique_id` is no such id.
    """
    _, _, digits = str(unique_id).rpartition("_")
    if not digits.isdecimal():
        raise ValueError(f"replay_unique_id = {unique_id!r} is not allowed; it must look like {generate_id(name, 0)!r}")
    return int(digits)
