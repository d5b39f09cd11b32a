"""Per-env items as rows of one stacked batch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any


class EnvBatch(dict[int, Any]):
    """A dict `{env_id: item}` whose items are the rows, in order, of one stacked batch.

    Code that works on batches reads `stacked`, so that the items need not be created. The first access to an item
    creates all items and sets `stacked` to None, because items may be changed. Access to the keys does not. Copies and
    unpickled objects have only items.

    Args:
        env_ids: The keys, in order.
        items: The items in the same order, or a function that returns them, called on first access.
        stacked: An array or tensor [E, *item_shape], or a dict of them. For a batch [E] of scalars, an item is an array
            or tensor [1]. None if the items cannot be stacked.

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
        # Because this is overridden, `dict()`, `**` and `update()` copy through `keys` and `[]`.
        return super().__iter__()

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        return EnvBatch, (list(self), list(self.values()))

    def _create_items(self) -> None:
        items = self._items
        if items is not None:
            dict.update(self, list(zip(self.keys(), items() if callable(items) else items, strict=True)))
            self._items = self.stacked = None


def _with_items(name: str) -> Callable[..., Any]:
    method = getattr(dict, name)

    def on_items(self: EnvBatch, *args: Any, **kwargs: Any) -> Any:
        for batch in (self, *args):  # two batches may be compared
            if isinstance(batch, EnvBatch):
                batch._create_items()
        return method(self, *args, **kwargs)

    on_items.__name__, on_items.__doc__ = name, method.__doc__
    return on_items


# All methods that read or write items.
for _name in (
    *("__getitem__", "get", "values", "items", "copy", "__repr__", "__eq__", "__ne__", "__or__", "__ror__"),
    *("__setitem__", "__delitem__", "__ior__", "update", "setdefault", "pop", "popitem", "clear"),
):
    setattr(EnvBatch, _name, _with_items(_name))
