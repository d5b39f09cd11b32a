"""Per-env items that are rows of one stacked batch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any


class EnvBatch(dict[int, Any]):
    """`{env_id: item}`, where the items are rows, in order, of one stacked batch.

    To any reader it is the documented dict of items. A reader that works on batches takes `stacked` (an array or tensor
    [E, *item_shape], or a dict of them) and need not stack the items again; the item of a scalar per env, a batch
    [E], is an array or tensor [1]. `stacked` is None when the items cannot be stacked.

    Example:
        >>> import numpy as np
        >>> rows = np.arange(4.0).reshape(2, 2)
        >>> batch = EnvBatch([3, 7], rows, rows)
        >>> batch[7].tolist(), batch.stacked.shape
        ([2.0, 3.0], (2, 2))
    """

    __slots__ = ("stacked",)

    def __init__(self, env_ids: Iterable[int], items: Iterable[Any], stacked: Any = None) -> None:
        super().__init__(zip(env_ids, items, strict=True))
        self.stacked = stacked


class LazyEnvBatch(EnvBatch):
    """An `EnvBatch` that makes its items when one is first asked for; asking for the keys alone makes none.

    Args:
        split: returns the items, given `stacked`.

    A copy and an unpickled one are an `EnvBatch`.

    Example:
        >>> batch = LazyEnvBatch([3, 7], [10, 20], lambda stacked: [f"item {i}" for i in stacked])
        >>> list(batch), batch[7], dict(batch)
        ([3, 7], 'item 20', {3: 'item 10', 7: 'item 20'})
    """

    __slots__ = ("_split",)

    def __init__(self, env_ids: Iterable[int], stacked: Any, split: Callable[[Any], Iterable[Any]]) -> None:
        dict.__init__(self, dict.fromkeys(env_ids))
        self.stacked = stacked
        self._split: Callable[[Any], Iterable[Any]] | None = split

    def __iter__(self) -> Iterator[int]:
        # Whoever defines this is copied by `dict()`, `**` and `update()` through `keys` and `[]`, not behind its back.
        return super().__iter__()

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        return EnvBatch, (list(self), list(self.values()), self.stacked)

    def _fill(self) -> None:
        if self._split is not None:
            items = dict(zip(self.keys(), self._split(self.stacked), strict=True))
            self._split = None
            dict.update(self, items)


def _after_fill(name: str) -> Callable[..., Any]:
    method = getattr(dict, name)

    def filled(self: LazyEnvBatch, *args: Any, **kwargs: Any) -> Any:
        for batch in (self, *args):  # two batches may be compared
            if isinstance(batch, LazyEnvBatch):
                batch._fill()
        return method(self, *args, **kwargs)

    filled.__name__, filled.__doc__ = name, method.__doc__
    return filled


# All that reads or writes items.
for _name in (
    *("__getitem__", "get", "values", "items", "copy", "__repr__", "__eq__", "__ne__", "__or__", "__ror__"),
    *("__setitem__", "__delitem__", "__ior__", "update", "setdefault", "pop", "popitem", "clear"),
):
    setattr(LazyEnvBatch, _name, _after_fill(_name))
