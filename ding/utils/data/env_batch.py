"""Per-env items that are rows of one stacked batch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any


class EnvBatch(dict[int, Any]):
    """`{env_id: item}`, where the items are rows, in order, of one stacked batch.

    To any reader it is the documented dict of items. A reader that works on batches takes `stacked` and need not stack
    the items again; then they are never made. Once an item was looked at the items are all there is, and `stacked` is
    None: whoever changes an item changes what counts. Asking for the keys alone is no look at an item.

    Args:
        env_ids: the keys, in order.
        items: the items in the same order, or a function that returns them, called when one is first looked at.
        stacked: an array or tensor [E, *item_shape], or a dict of them; the item of a scalar per env, a batch [E], is
            an array or tensor [1]. None where the items cannot be stacked.

    A copy and an unpickled one have the items only.

    Example:
        >>> import numpy as np
        >>> rows = np.arange(4.0).reshape(2, 2)
        >>> batch = EnvBatch([3, 7], lambda: list(rows), rows)
        >>> list(batch), batch.stacked.shape, batch[7].tolist(), batch.stacked
        ([3, 7], (2, 2), [2.0, 3.0], None)
    """

    __slots__ = ("_items", "stacked")

    def __init__(
        self, env_ids: Iterable[int], items: Iterable[Any] | Callable[[], Iterable[Any]], stacked: Any = None
    ) -> None:
        super().__init__(dict.fromkeys(env_ids))
        self.stacked = stacked
        self._items: Any = items

    def __iter__(self) -> Iterator[int]:
        # Whoever defines this is copied by `dict()`, `**` and `update()` through `keys` and `[]`, not behind its back.
        return super().__iter__()

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        return EnvBatch, (list(self), list(self.values()))

    def _look(self) -> None:
        items = self._items
        if items is not None:
            dict.update(self, list(zip(self.keys(), items() if callable(items) else items, strict=True)))
            self._items = self.stacked = None


def _after_look(name: str) -> Callable[..., Any]:
    method = getattr(dict, name)

    def looked(self: EnvBatch, *args: Any, **kwargs: Any) -> Any:
        for batch in (self, *args):  # two batches may be compared
            if isinstance(batch, EnvBatch):
                batch._look()
        return method(self, *args, **kwargs)

    looked.__name__, looked.__doc__ = name, method.__doc__
    return looked


# All that reads or writes items.
for _name in (
    *("__getitem__", "get", "values", "items", "copy", "__repr__", "__eq__", "__ne__", "__or__", "__ror__"),
    *("__setitem__", "__delitem__", "__ior__", "update", "setdefault", "pop", "popitem", "clear"),
):
    setattr(EnvBatch, _name, _after_look(_name))
