"""What a prioritized buffer keeps about the item in each slot, and how that is shown in items."""

from __future__ import annotations

import copy
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ding.data.column_store import ColumnStore
from ding.data.priority_index import PriorityIndex, Slots, as_priorities
from ding.data.ring import BoolArray
from ding.utils.data.samples import Column, Kind, Samples, node_items
from ding.utils.segment_tree import FloatArray, IntArray
from ding.worker.replay_buffer.utils.unique_id import UniqueIds, parse_id

# The keys that `sample` adds. Of an item that brings some of them, the priority alone counts.
BOOKKEEPING_KEYS = ("replay_unique_id", "replay_buffer_idx", "priority", "staleness", "use", "IS")
# Fields of the store, by slot.
BOOKKEEPING_FIELDS = (("unique_id", np.int64), ("use", np.int64), ("priority", np.float64))
# The number in the id of a slot without an item.
_NO_ID = -1


class Bookkeeping:
    """Id, use count and priority of the item in each slot of a store. Not thread-safe.

    Args:
        store: has the `BOOKKEEPING_FIELDS`.
        name: what ids begin with.
        alpha: exponent of the priorities.

    Attributes:
        index: draws slots by their priorities; a weight of 0 means that the slot cannot be drawn.
        next_unique_id: the number in the id of the next item.
    """

    def __init__(self, store: ColumnStore, name: str, alpha: float) -> None:
        self._store, self._name = store, name
        self.index = PriorityIndex(store.size, alpha)
        self.next_unique_id = 0
        self.unique_ids.fill(_NO_ID)

    @property
    def unique_ids(self) -> IntArray:
        """The numbers in the ids [size]."""
        numbers: IntArray = self._store.field("unique_id")
        return numbers

    @property
    def use_count(self) -> IntArray:
        """How often the items were sampled [size]."""
        counts: IntArray = self._store.field("use")
        return counts

    @property
    def priorities(self) -> FloatArray:
        """The priorities [size]; stale where the weight is 0."""
        priorities: FloatArray = self._store.field("priority")
        return priorities

    def priorities_of(self, items: Sequence[Any]) -> FloatArray:
        """The priorities [n] that items bring; the largest one seen so far where they bring none.

        Raises:
            PriorityError: one is negative or not finite.
        """
        default = self.index.max_priority
        columns = items.columns if isinstance(items, Samples) else None
        if columns is None:
            brought = [item.get("priority") for item in items]
        elif "priority" not in columns:
            return np.full(len(items), default)
        elif isinstance(columns["priority"], Column) and columns["priority"].kind is not Kind.OBJECT:
            return as_priorities(columns["priority"].values())
        else:
            brought = node_items(columns["priority"])
        return as_priorities([default if priority is None else priority for priority in brought])

    def begin(self, slots: Slots, priorities: FloatArray) -> None:
        """Begin with new items in `slots` [n]."""
        count = len(priorities)
        self.unique_ids[slots] = np.arange(self.next_unique_id, self.next_unique_id + count)
        self.use_count[slots] = 0
        self._set_priorities(slots, priorities)
        self.next_unique_id += count

    def _set_priorities(self, slots: Slots, priorities: FloatArray) -> None:
        self.priorities[slots] = self.index.set(slots, priorities)

    def count_live(self, slots: Slots) -> int:
        """How many of `slots` can be drawn."""
        return int(np.count_nonzero(self.index.weights[slots]))

    def retire(self, slots: IntArray) -> None:
        """Take items out of the draw, which stay in their `slots`."""
        self.index.remove(slots)
        self.priorities[slots] = 0.0

    def remove(self, slots: IntArray) -> None:
        """End with the items in `slots`."""
        self.index.remove(slots)
        self.unique_ids[slots] = _NO_ID

    def clear(self) -> None:
        """End with all items, and forget the largest priority; ids go on."""
        self.index.clear()
        self.use_count.fill(0)
        self.unique_ids.fill(_NO_ID)

    def is_known(self, slots: IntArray, unique_ids: Sequence[str]) -> BoolArray:
        """Whether each of `slots` [n] still holds the item of that id."""
        held = self.unique_ids[slots]
        known: BoolArray
        if isinstance(unique_ids, UniqueIds) and unique_ids.name == self._name:
            known = held == unique_ids.numbers
        else:
            shown = UniqueIds(self._name, held)
            known = np.fromiter(map(operator.eq, shown, unique_ids), np.bool_, len(slots))
        return known

    # ---- as items show it

    def shown(self, slots: IntArray, records: np.ndarray) -> dict[str, Column]:
        """The columns [n] that items in `slots` show, of their `records` of the store."""
        return {
            "replay_unique_id": Column(Kind.OBJECT, UniqueIds(self._name, records["unique_id"])),
            "replay_buffer_idx": Column(Kind.INT, slots),
            "priority": Column(Kind.FLOAT, records["priority"]),
            "use": Column(Kind.INT, records["use"]),
        }

    def is_shown_by(self, slot: int, item: dict[str, Any]) -> bool:
        """Whether `item` shows what is still in `slot`."""
        unique_id = parse_id(self._name, item["replay_unique_id"])
        return bool(self._store.held[slot]) and bool(self.unique_ids[slot] == unique_id)

    def set_shown(self, slot: int, shown: dict[str, Any]) -> None:
        """Take over what is shown for `slot`."""
        if "replay_unique_id" in shown:
            self.unique_ids[slot] = parse_id(self._name, shown["replay_unique_id"])
        if "priority" in shown:
            self._set_priorities(np.array([slot]), as_priorities([shown["priority"]]))
        if "use" in shown:
            self.use_count[slot] = shown["use"]

    # ---- states

    def state(self, slots: IntArray) -> dict[str, Any]:
        """The state of the items in `slots` [n], in plain values and arrays."""
        return {
            "use_count": self.use_count[slots],
            "unique_ids": self.unique_ids[slots],
            "priorities": self.priorities[slots],
            "weights": self.index.weights[slots],
            "max_priority": self.index.max_priority,
            "next_unique_id": self.next_unique_id,
        }

    def load(self, slots: IntArray, state: dict[str, Any], shown: Sequence[Any]) -> None:
        """Take over the state of the items in `slots`; in one without ids, `shown` items have the bookkeeping."""
        self.clear()
        if "unique_ids" in state:
            self.unique_ids[slots], self.use_count[slots] = state["unique_ids"], state["use_count"]
            self.priorities[slots] = state["priorities"]
            self.index.set_weights(slots, np.asarray(state["weights"]))
        else:
            self.unique_ids[slots] = [parse_id(self._name, item["replay_unique_id"]) for item in shown]
            self.use_count[slots] = [item.get("use", 0) for item in shown]
            priorities = self.priorities_of(shown)
            self._set_priorities(slots, priorities)
            self.retire(slots[priorities == 0.0])
        self.next_unique_id = int(state["next_unique_id"])
        self.index.max_priority = float(state["max_priority"])


class ItemView(dict[str, Any]):
    """One stored item with its bookkeeping; of a key that is set, `on_change(view, changes)` is told before."""

    def __init__(self, item: dict[str, Any], on_change: Callable[[dict[str, Any], dict[str, Any]], None]) -> None:
        super().__init__(item)
        self._on_change = on_change

    def __setitem__(self, key: str, value: Any) -> None:
        self.update({key: value})

    def update(self, *args: Any, **kwargs: Any) -> None:
        """Set several keys."""
        changes = dict(*args, **kwargs)
        self._on_change(self, changes)
        super().update(changes)

    def setdefault(self, key: str, default: Any = None) -> Any:
        """The value of `key`, set to `default` when missing."""
        if key not in self:
            self[key] = default
        return self[key]

    def __reduce__(self) -> tuple[type[dict[str, Any]], tuple[list[tuple[str, Any]]]]:
        return dict, (list(self.items()),)


def without_bookkeeping(items: list[Any]) -> list[Any]:
    """Items without the keys that `sample` adds; in columns, where they have the same keys then."""
    columns = items.columns if isinstance(items, Samples) else None
    if columns is not None:
        if columns.keys().isdisjoint(BOOKKEEPING_KEYS) or columns.keys() <= set(BOOKKEEPING_KEYS):
            return items
        return Samples({key: node for key, node in columns.items() if key not in BOOKKEEPING_KEYS})
    if all(item.keys().isdisjoint(BOOKKEEPING_KEYS) for item in items):
        return items
    items = [copy.copy(item) for item in items]
    for item in items:
        for key in BOOKKEEPING_KEYS:
            item.pop(key, None)
    return items


def read_priority_info(info: dict[str, Any], size: int) -> tuple[Sequence[str], IntArray, FloatArray]:
    """The ids, slots and priorities [n] of what `update` of a buffer of `size` slots is given.

    Raises:
        KeyError: an id list is missing.
        PriorityError: a priority is negative or not finite.
        ValueError: the lists differ in length.
        IndexError: a slot lies outside the buffer.
    """
    unique_ids = info["replay_unique_id"]
    unique_ids = unique_ids if isinstance(unique_ids, UniqueIds) else list(unique_ids)
    slots = np.asarray(info["replay_buffer_idx"], dtype=np.int64).reshape(-1)
    priorities = as_priorities(info["priority"])
    if not len(unique_ids) == len(slots) == len(priorities):
        raise ValueError(
            f"{len(unique_ids)} replay_unique_id, {len(slots)} replay_buffer_idx and {len(priorities)} priority "
            "are not one for each item; give lists of one length"
        )
    unsigned = slots.view(np.uint64)  # a negative one is very large
    if len(slots) and unsigned[unsigned.argmax()] >= size:
        raise IndexError(f"replay_buffer_idx must be in [0, {size}), got {slots.min()} to {slots.max()}")
    return unique_ids, slots, priorities
