"""Padding of sampled groups to one length."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ding.data.buffer.buffer import BufferedData, Middleware
from ding.data.random_source import new_generator
from ding.utils.fast_copy import fastcopy


def padding(policy: str = "random") -> Middleware:
    """Middleware that pads sampled groups to the length of the longest one.

    Args:
        policy: `'random'` appends copies of random records of the group, `'none'` appends records of None.

    Raises:
        ValueError: If `policy` has another value.
    """
    if policy not in ("random", "none"):
        raise ValueError(f"policy = {policy!r} is not allowed; it must be 'random' or 'none'")
    rng = new_generator()

    def filler(group: list[Any]) -> BufferedData:
        if policy == "none":
            return BufferedData(data=None, index=None, meta=None)  # type: ignore[arg-type]
        record: BufferedData = fastcopy.copy(group[int(rng.integers(0, len(group)))])
        return record

    def handle(action: str, chain: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        sample = chain(*args, **kwargs)
        if action != "sample" or not sample or isinstance(sample[0], BufferedData):
            return sample
        longest = max(len(group) for group in sample)
        return [group + [filler(group) for _ in range(longest - len(group))] for group in sample]

    return handle
