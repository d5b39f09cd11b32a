"""Sampling from a fixed range of positions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ding.data.buffer.buffer import Buffer, Middleware


def sample_range_view(buffer_: Buffer, start: int | None = None, end: int | None = None) -> Middleware:
    """Middleware that samples from positions [start, end). Negative bounds count back from the capacity.

    Raises:
        AssertionError: If neither bound is given.
    """
    if start is None and end is None:
        raise AssertionError("start = None, end = None is not allowed; give start or end")

    def from_front(bound: int | None) -> int | None:
        return bound if bound is None or bound >= 0 else buffer_.size + bound

    sample_range = slice(from_front(start), from_front(end))

    def handle(action: str, chain: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        if action == "sample":
            return chain(*args, **{**kwargs, "sample_range": sample_range})
        return chain(*args, **kwargs)

    return handle
