"""Copies of pushed and sampled data."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ding.data.buffer.buffer import Middleware
from ding.utils.fast_copy import fastcopy


def clone_object() -> Middleware:
    """Middleware that copies data when it is pushed and records when they are sampled.

    Containers, tensors and arrays are copied, other objects are shared.
    """

    def handle(action: str, chain: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        if action == "push":
            return chain(*fastcopy.copy(list(args)), **fastcopy.copy(kwargs))
        if action == "sample":
            return fastcopy.copy(chain(*args, **kwargs))
        return chain(*args, **kwargs)

    return handle
