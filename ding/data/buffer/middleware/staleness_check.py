"""A limit on the staleness of records."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from ding.data.buffer.buffer import Buffer, Middleware

_COLLECTED = "train_iter_data_collected"


def staleness_check(buffer_: Buffer, max_staleness: float = math.inf) -> Middleware:
    """Middleware that deletes records older than `max_staleness` training iterations before each sample.

    `push` must be called with the keyword `meta={'train_iter_data_collected': n}`, `sample` with the current iteration
    as its first argument (or as `train_iter_sample_data`). Sets `meta['staleness']` of each record.
    """

    def push(chain: Callable[..., Any], data: Any, *args: Any, **kwargs: Any) -> Any:
        meta = kwargs.get("meta")
        if meta is None or _COLLECTED not in meta:
            raise AssertionError(f"push needs the keyword meta={{{_COLLECTED!r}: iteration}}, got meta = {meta!r}")
        return chain(data, *args, **kwargs)

    def sample(chain: Callable[..., Any], train_iter_sample_data: int, *args: Any, **kwargs: Any) -> Any:
        stale = []
        for record in buffer_:
            meta = record.meta or {}
            meta["staleness"] = train_iter_sample_data - meta[_COLLECTED]
            if meta["staleness"] > max_staleness:
                stale.append(record.index)
        if stale:
            buffer_.delete(stale)
        return chain(*args, **kwargs)

    def handle(action: str, chain: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        if action == "push":
            return push(chain, *args, **kwargs)
        if action == "sample":
            return sample(chain, *args, **kwargs)
        return chain(*args, **kwargs)

    return handle
