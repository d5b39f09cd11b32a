"""Selection of records from each sampled group."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ding.data.buffer.buffer import Middleware
from ding.data.random_source import new_generator


def group_sample(size_in_group: int, ordered_in_group: bool = True, max_use_in_group: bool = True) -> Middleware:
    """Middleware that reduces each sampled group to `size_in_group` records, or all records of a smaller group.

    `sample` must be called with the keyword `groupby`.

    Args:
        size_in_group: Number of records.
        ordered_in_group: Whether to select consecutive records instead of random ones.
        max_use_in_group: Whether windows start early enough to be full; otherwise the end of the group may cut them.
    """
    rng = new_generator()

    def take(group: list[Any]) -> list[Any]:
        if not ordered_in_group:
            size = min(size_in_group, len(group))
            return [group[i] for i in rng.choice(len(group), size, replace=False).tolist()]
        starts = max(0, len(group) - size_in_group) + 1 if max_use_in_group else len(group)
        start = int(rng.integers(0, starts))
        return group[start : start + size_in_group]

    def handle(action: str, chain: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        if action != "sample":
            return chain(*args, **kwargs)
        if not kwargs.get("groupby"):
            raise ValueError("group_sample needs groups; call sample with the keyword groupby")
        return [take(group) for group in chain(*args, **kwargs)]

    return handle
