"""Per-slot metadata of a prioritized buffer: ids, use counts, priorities and staleness."""

from __future__ import annotations

import copy
import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ding.data.column_store import ColumnStore
from ding.data.priority_index import PriorityIndex, Slots, as_priorities
from ding.data.ring import BoolArray
from ding.utils.data.samples import Column, Kind, Node, Samples, node_items
from ding.utils.segment_tree import FloatArray, IntArray
from ding.worker.replay_buffer.utils import UniqueIds, parse_id

# The keys that `sample` adds. When an item with such keys is pushed, only `priority` is used.
METADATA_KEYS = ("replay_unique_id", "replay_buffer_idx", "priority", "staleness", "use", "IS")
# Fields of the store, by slot.
METADATA_FIELDS = (("unique_id", np.int64), ("use", np.int64), ("priority", np.float64))
# The id number of an empty slot.
_NO_ID = -1
# `collect_iter` of an item without one; its staleness is -1.
_NO_ITER = np.iinfo(np.int64).min


class ItemMetadata:
    """Id, use count and priority of the item in each slot of a store. Not thread-safe.

    Args:
        store: Must have the `METADATA_FIELDS`.
        name: Prefix of the ids.
        alpha: Exponent of the priorities.

    Attributes:
        index: Draws slots by priority. A slot of weight 0 cannot be drawn.
        next_unique_id: The number in the id of the next item.
    """

    def __init__(self, store: ColumnStore, name: str, alpha: float) -> None:
        self._store, self._name = store, name
        self.index = PriorityIndex(store.size, alpha)
        self.next_unique_id = 0
        self.unique_ids.fill(_NO_ID)

    @property
    def unique_ids(self) -> IntArray:
        """int64 [size]: the numbers in the ids."""
        numbers: IntArray = self._store.field("unique_id")
        return numbers

    @property
    def use_count(self) -> IntArray:
        """int64 [size]: how often each item was sampled."""
        counts: IntArray = self._store.field("use")
        return counts

    @property
    def priorities(self) -> FloatArray:
        """float64 [size]: the priorities; undefined where the weight is 0."""
        priorities: FloatArray = self._store.field("priority")
        return priorities

    def priorities_of(self, items: Sequence[Any]) -> FloatArray:
        """Returns the `priority` [n] of each item; the largest one so far for an item without it.

        Raises:
            PriorityError: If a priority is negative or not finite.
        """
        default = self.index.max_priority
        columns = items.columns if isinstance(items, Samples) else None
        if columns is None:
            given = [item.get("priority") for item in items]
        elif "priority" not in columns:
            return np.full(len(items), default)
        elif isinstance(columns["priority"], Column) and columns["priority"].kind is not Kind.OBJECT:
            return as_priorities(columns["priority"].values())
        else:
            given = node_items(columns["priority"])
        return as_priorities([default if priority is None else priority for priority in given])

    def begin(self, slots: Slots, priorities: FloatArray) -> None:
        """Reset the metadata of `slots` [n] for new items with these priorities [n]."""
        count = len(priorities)
        self.unique_ids[slots] = np.arange(self.next_unique_id, self.next_unique_id + count)
        self.use_count[slots] = 0
        self._set_priorities(slots, priorities)
        self.next_unique_id += count

    def _set_priorities(self, slots: Slots, priorities: FloatArray) -> None:
        self.priorities[slots] = self.index.set(slots, priorities)

    def count_live(self, slots: Slots) -> int:
        """Returns how many of `slots` can be drawn."""
        return int(np.count_nonzero(self.index.weights[slots]))

    def retire(self, slots: IntArray) -> None:
        """Exclude `slots` from the draw; their items stay stored."""
        self.index.remove(slots)
        self.priorities[slots] = 0.0

    def remove(self, slots: IntArray) -> None:
        """Remove the metadata of the items in `slots`."""
        self.index.remove(slots)
        self.unique_ids[slots] = _NO_ID

    def clear(self) -> None:
        """Remove the metadata of all items and reset the largest priority. Ids continue."""
        self.index.clear()
        self.use_count.fill(0)
        self.unique_ids.fill(_NO_ID)

    def is_known(self, slots: IntArray, unique_ids: Sequence[str]) -> BoolArray:
        """Returns bool [n]: whether each of `slots` [n] still holds the item with that id."""
        held = self.unique_ids[slots]
        known: BoolArray
        if isinstance(unique_ids, UniqueIds) and unique_ids.name == self._name:
            known = held == unique_ids.numbers
        else:
            shown = UniqueIds(self._name, held)
            known = np.fromiter(map(operator.eq, shown, unique_ids), np.bool_, len(slots))
        return known

    # ---- metadata as keys of items

    def as_columns(self, slots: IntArray, records: np.ndarray) -> dict[str, Column]:
        """Returns the metadata columns [n] of the items in `slots`, from their `records` of the store."""
        return {
            "replay_unique_id": Column(Kind.OBJECT, UniqueIds(self._name, records["unique_id"])),
            "replay_buffer_idx": Column(Kind.INT, slots),
            "priority": Column(Kind.FLOAT, records["priority"]),
            "use": Column(Kind.INT, records["use"]),
        }

    def is_current(self, slot: int, item: dict[str, Any]) -> bool:
        """Returns whether `slot` still holds the item that `item` was read from."""
        unique_id = parse_id(self._name, item["replay_unique_id"])
        return bool(self._store.held[slot]) and bool(self.unique_ids[slot] == unique_id)

    def set_from_item(self, slot: int, item: dict[str, Any]) -> None:
        """Set the metadata of `slot` to the values in `item`; missing keys leave it unchanged."""
        if "replay_unique_id" in item:
            self.unique_ids[slot] = parse_id(self._name, item["replay_unique_id"])
        if "priority" in item:
            self._set_priorities(np.array([slot]), as_priorities([item["priority"]]))
        if "use" in item:
            self.use_count[slot] = item["use"]

    # ---- states

    def state(self, slots: IntArray) -> dict[str, Any]:
        """Returns the metadata of the items in `slots` [n], in plain values and arrays."""
        return {
            "use_count": self.use_count[slots],
            "unique_ids": self.unique_ids[slots],
            "priorities": self.priorities[slots],
            "weights": self.index.weights[slots],
            "max_priority": self.index.max_priority,
            "next_unique_id": self.next_unique_id,
        }

    def load(self, slots: IntArray, state: dict[str, Any], items: Sequence[Any]) -> None:
        """Restore the metadata of the items in `slots`; from keys of `items` if `state` has no ids."""
        self.clear()
        if "unique_ids" in state:
            self.unique_ids[slots], self.use_count[slots] = state["unique_ids"], state["use_count"]
            self.priorities[slots] = state["priorities"]
            self.index.set_weights(slots, np.asarray(state["weights"]))
        else:
            self.unique_ids[slots] = [parse_id(self._name, item["replay_unique_id"]) for item in items]
            self.use_count[slots] = [item.get("use", 0) for item in items]
            priorities = self.priorities_of(items)
            self._set_priorities(slots, priorities)
            self.retire(slots[priorities == 0.0])
        self.next_unique_id = int(state["next_unique_id"])
        self.index.max_priority = float(state["max_priority"])


class StalenessTracker:
    """Computes the staleness of stored items: learner iterations since their `collect_iter`. Not thread-safe.

    Args:
        store: Holds the items.
        max_staleness: An item of at least this staleness is stale. May be infinite.
    """

    def __init__(self, store: ColumnStore, max_staleness: float) -> None:
        self._store, self._max_staleness = store, max_staleness
        self._other_iters: IntArray | None = None  # by slot, if `collect_iter` is not a column of plain ints
        self._oldest_iter = math.inf  # a lower bound of all `collect_iter`

    def record(self, slots: IntArray | slice, items: Sequence[Any]) -> None:
        """Record the `collect_iter` of items that were just written to `slots`."""
        columns = self._store.columns
        if columns is not None and "collect_iter" not in columns:
            return
        collected = _plain_collect_iters(columns)
        if collected is None:
            if self._other_iters is None:
                slots = np.flatnonzero(self._store.held)
                items = self._store.read(slots)
                self._other_iters = np.full(self._store.size, _NO_ITER)
            collected = self._other_iters
            collected[slots] = [_least(item.get("collect_iter")) for item in items]
        if math.isinf(self._max_staleness):
            return
        known = collected[slots]
        self._oldest_iter = min(self._oldest_iter, known.min(initial=np.iinfo(np.int64).max, where=known != _NO_ITER))

    def clear(self) -> None:
        """Remove the records of all items."""
        self._other_iters, self._oldest_iter = None, math.inf

    def staleness(self, slots: IntArray, columns: dict[str, Node] | None, cur_learner_iter: int) -> IntArray:
        """Returns the staleness [n] of the items in `slots`, whose columns are `columns`; -1 if unknown."""
        return self._staleness(slots, _plain_collect_iters(columns), cur_learner_iter)

    def _staleness(self, slots: IntArray, collected: IntArray | None, cur_learner_iter: int) -> IntArray:
        """As `staleness`, from the plain ints `collected` [n], or from the recorded ones if None."""
        if collected is not None:
            return cur_learner_iter - collected
        if self._other_iters is None:
            return np.full(len(slots), -1)
        iters = self._other_iters[slots]
        return np.where(iters == _NO_ITER, -1, cur_learner_iter - iters)

    def stale_slots(self, cur_learner_iter: int) -> IntArray:
        """Returns the slots of all stale items."""
        if cur_learner_iter - self._oldest_iter < self._max_staleness:
            return np.arange(0)
        slots = np.flatnonzero(self._store.held)
        collected = _plain_collect_iters(self._store.columns)
        staleness = self._staleness(slots, None if collected is None else collected[slots], cur_learner_iter)
        is_stale = staleness >= self._max_staleness
        self._oldest_iter = cur_learner_iter - int(staleness[~is_stale].max(initial=-1))
        stale: IntArray = slots[is_stale]
        return stale


class ItemView(dict[str, Any]):
    """A stored item with its metadata. Setting keys first calls `on_change(view, changes)`."""

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
        """Returns the value of `key`, set to `default` if missing."""
        if key not in self:
            self[key] = default
        return self[key]

    def __reduce__(self) -> tuple[type[dict[str, Any]], tuple[list[tuple[str, Any]]]]:
        return dict, (list(self.items()),)


def without_metadata(items: list[Any]) -> list[Any]:
    """Returns `items` without the keys that `sample` adds; copies if an item has one."""
    columns = items.columns if isinstance(items, Samples) else None
    if columns is not None:
        if columns.keys().isdisjoint(METADATA_KEYS) or columns.keys() <= set(METADATA_KEYS):
            return items
        return Samples({key: node for key, node in columns.items() if key not in METADATA_KEYS})
    if all(item.keys().isdisjoint(METADATA_KEYS) for item in items):
        return items
    items = [copy.copy(item) for item in items]
    for item in items:
        for key in METADATA_KEYS:
            item.pop(key, None)
    return items


def read_priority_info(info: dict[str, Any], size: int) -> tuple[Sequence[str], IntArray, FloatArray]:
    """Returns the ids, slots and priorities [n] in `info`, the argument of `update` of a buffer of `size` slots.

    Raises:
        KeyError: If `replay_unique_id` or `replay_buffer_idx` is missing.
        PriorityError: If a priority is negative or not finite.
        ValueError: If the lists differ in length.
        IndexError: If a slot lies outside the buffer.
    """
    unique_ids = info["replay_unique_id"]
    unique_ids = unique_ids if isinstance(unique_ids, UniqueIds) else list(unique_ids)
    slots = np.asarray(info["replay_buffer_idx"], dtype=np.int64).reshape(-1)
    priorities = as_priorities(info["priority"])
    if not len(unique_ids) == len(slots) == len(priorities):
        raise ValueError(
            f"{len(unique_ids)} replay_unique_id, {len(slots)} replay_buffer_idx and {len(priorities)} priority "
            "are not allowed; they must have one entry for each item"
        )
    unsigned = slots.view(np.uint64)  # negative slots become very large
    if len(slots) and unsigned[unsigned.argmax()] >= size:
        raise IndexError(f"replay_buffer_idx must be in [0, {size}), got {slots.min()} to {slots.max()}")
    return unique_ids, slots, priorities


def _plain_collect_iters(columns: dict[str, Node] | None) -> IntArray | None:
    """Returns the values of the column `collect_iter` if they are plain ints, else None."""
    column = None if columns is None else columns.get("collect_iter")
    if isinstance(column, Column) and column.kind is Kind.INT and not column.steps:
        data: IntArray = column.data
        return data
    return None


def _least(collect_iter: Any) -> int:
    """Returns the `collect_iter` of an item: the smallest of several, `_NO_ITER` for None."""
    return _NO_ITER if collect_iter is None else int(np.min(np.asarray(collect_iter)))
