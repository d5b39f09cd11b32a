"""The slots of a prioritized buffer as code outside sees them: items with their current bookkeeping."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from threading import RLock
from typing import Any, overload

import numpy as np

from ding.worker.replay_buffer.item_book import ItemBook
from ding.worker.replay_buffer.ring import Ring


class SlotView(Sequence[Any]):
    """A live sequence over the slots of a ring: None, or the item with its current id, priority and use count.

    Reading makes an `ItemView`, whose writes reach the books. Assigning None empties a slot and takes it out of the
    draw, assigning an item fills it; neither changes the buffer's count of valid items.
    """

    def __init__(self, ring: Ring, book: ItemBook, lock: RLock) -> None:
        self._ring, self._book, self._lock = ring, book, lock

    def __len__(self) -> int:
        return self._ring.size

    @overload
    def __getitem__(self, key: int) -> Any: ...
    @overload
    def __getitem__(self, key: slice) -> list[Any]: ...
    def __getitem__(self, key: int | slice) -> Any:
        if isinstance(key, slice):
            return [self[slot] for slot in range(len(self))[key]]
        with self._lock:
            slot = range(len(self))[key]
            item = self._ring.slots[slot]
            return None if item is None else ItemView(item, slot, self)

    def __setitem__(self, key: int, item: dict[str, Any] | None) -> None:
        with self._lock:
            slot = range(len(self))[key]
            if item is None:
                self._ring.slots[slot] = None
                self._book.priorities.remove(np.array([slot]))
                return
            priority = self._book.priorities.max_priority
            self._book.write(slot, {"priority": priority, **item})
            self._ring.slots[slot] = dict(item)

    def show(self, slot: int) -> dict[str, Any]:
        """The bookkeeping of `slot`."""
        return self._book.read(slot)

    def store(self, slot: int, item: dict[str, Any], changes: dict[str, Any]) -> None:
        """Write `changes` to the stored `item` and to the books, if `slot` still holds it."""
        with self._lock:
            if self._ring.slots[slot] is item:
                self._book.write(slot, changes)
                item.update(changes)


class ItemView(dict[str, Any]):
    """One stored item with its bookkeeping; a key that is set is set in the buffer too."""

    def __init__(self, stored: dict[str, Any], slot: int, slots: SlotView) -> None:
        super().__init__(stored)
        super().update(slots.show(slot))
        self._stored, self._slot, self._slots = stored, slot, slots

    def __setitem__(self, key: str, value: Any) -> None:
        self.update({key: value})

    def update(self, *args: Any, **kwargs: Any) -> None:
        """Set several keys."""
        changes = dict(*args, **kwargs)
        self._slots.store(self._slot, self._stored, changes)
        super().update(changes)

    def setdefault(self, key: str, default: Any = None) -> Any:
        """The value of `key`, set to `default` when missing."""
        if key not in self:
            self[key] = default
        return self[key]

    def __reduce__(self) -> tuple[type[dict[str, Any]], tuple[Iterable[tuple[str, Any]]]]:
        return dict, (list(self.items()),)
