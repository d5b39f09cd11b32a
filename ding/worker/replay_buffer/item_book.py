"""What a prioritized buffer knows about its items, by slot, in arrays."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np

from ding.data.priority_index import PriorityIndex, Slots, as_priorities
from ding.utils.fast_copy import fastcopy
from ding.utils.segment_tree import FloatArray, IntArray
from ding.worker.replay_buffer.utils.unique_id import generate_id, parse_id

# Stands for "the item has no collect_iter"; its staleness is -1.
_NO_ITER = np.iinfo(np.int64).min


class ItemBook:
    """Unique id, use count, iteration of collection and priority of the item in each slot. Not thread-safe.

    The items themselves are never written; `fill` puts the bookkeeping into shallow copies.

    Attributes:
        unique_ids: int64 [size], the number in the id.
        use_counts: int64 [size], how often the item was sampled.
        collect_iters: int64 [size].
        priorities: priorities and weights; weight 0 means that the slot cannot be drawn.
    """

    def __init__(self, size: int, alpha: float, name: str) -> None:
        self.name = name
        self.unique_ids = np.zeros(size, dtype=np.int64)
        self.use_counts = np.zeros(size, dtype=np.int64)
        self.collect_iters = np.full(size, _NO_ITER)
        self.priorities = PriorityIndex(size, alpha)

    def read_priorities(self, items: list[dict[str, Any]]) -> FloatArray:
        """The priorities [n] that `items` bring; the largest one seen so far where they bring none.

        Raises:
            PriorityError: a priority is negative or not finite.
        """
        default = self.priorities.max_priority
        brought = [item.get("priority") for item in items]
        if all(priority is None for priority in brought):
            return np.full(len(brought), default)
        return as_priorities([default if priority is None else priority for priority in brought])

    def enter(self, slots: Slots, items: list[dict[str, Any]], priorities: FloatArray, first_id: int) -> None:
        """Begin the books of new `items` in `slots`, numbered from `first_id`."""
        self.unique_ids[slots] = np.arange(first_id, first_id + len(items))
        self.use_counts[slots] = 0
        self.collect_iters[slots] = collect_iters_of(items)
        self.priorities.set(slots, priorities)

    def staleness(self, slots: IntArray, cur_learner_iter: int) -> IntArray:
        """Learner iterations [n] since the items were collected, -1 where that is not known."""
        collected = self.collect_iters[slots]
        return np.where(collected == _NO_ITER, -1, cur_learner_iter - collected)

    def id_strings(self, slots: IntArray) -> list[str]:
        """The unique ids as the items show them."""
        prefix = generate_id(self.name, 0)[:-1]
        return [f"{prefix}{number}" for number in self.unique_ids[slots].tolist()]

    def count_use(self, slots: IntArray) -> IntArray:
        """Count one use for each occurrence in `slots`; returns the new counts [n]."""
        np.add.at(self.use_counts, slots, 1)
        counts: IntArray = self.use_counts[slots]
        return counts

    def fill(
        self, stored: list[Any], slots: IntArray, staleness: IntArray, importance: FloatArray
    ) -> list[dict[str, Any]]:
        """Shallow copies of the items in `slots`, in the order they were drawn, with the bookkeeping in them."""
        filled = []
        for slot, unique_id, priority, stale, use, weight in zip(
            slots.tolist(),
            self.id_strings(slots),
            self.priorities.priorities[slots].tolist(),
            staleness.tolist(),
            self.use_counts[slots].tolist(),
            importance.tolist(),
            strict=True,
        ):
            item = stored[slot]
            item = item.copy() if type(item) is dict else copy.copy(item)
            item["replay_unique_id"] = unique_id
            item["replay_buffer_idx"] = slot
            item["priority"] = priority
            item["staleness"] = stale
            item["use"] = use
            item["IS"] = weight
            filled.append(item)
        # Draws ascend, so repeats are neighbours; they get tensors and arrays of their own.
        for i in (np.flatnonzero(slots[1:] == slots[:-1]) + 1).tolist():
            filled[i] = fastcopy.copy(filled[i])
        return filled

    def read(self, slot: int) -> dict[str, Any]:
        """The bookkeeping of one slot, under the names the items show."""
        return {
            "replay_unique_id": generate_id(self.name, int(self.unique_ids[slot])),
            "replay_buffer_idx": slot,
            "priority": float(self.priorities.priorities[slot]),
            "use": int(self.use_counts[slot]),
        }

    def write(self, slot: int, item: dict[str, Any]) -> None:
        """Take over the bookkeeping that `item` shows for `slot`; what it does not show stays."""
        slots = np.array([slot])
        if "priority" in item:
            self.priorities.set(slots, as_priorities([item["priority"]]))
        if "collect_iter" in item:
            self.collect_iters[slots] = collect_iters_of([item])
        if "replay_unique_id" in item:
            self.unique_ids[slot] = parse_id(self.name, item["replay_unique_id"])
        if "use" in item:
            self.use_counts[slot] = item["use"]

    def clear(self) -> None:
        """Close the books of all slots."""
        self.priorities.clear()
        self.use_counts.fill(0)


def collect_iters_of(items: list[dict[str, Any]]) -> IntArray:
    """The `collect_iter` [n] of `items`; the smallest of several, and a marker where there is none."""
    values = [item.get("collect_iter", _NO_ITER) for item in items]
    if all(type(value) is int for value in values):
        return np.fromiter(values, dtype=np.int64, count=len(values))
    return np.array([_NO_ITER if value is None else np.min(np.asarray(value)) for value in values], dtype=np.int64)


def read_priority_info(info: dict[str, Any], size: int) -> tuple[list[str], IntArray, FloatArray]:
    """The ids, slots and priorities [n] of what `update` of a buffer of `size` slots is given.

    Raises:
        KeyError: an id list is missing.
        PriorityError: a priority is negative or not finite.
        ValueError: the lists differ in length.
        IndexError: a slot lies outside the buffer.
    """
    unique_ids = list(info["replay_unique_id"])
    slots = np.asarray(info["replay_buffer_idx"], dtype=np.int64).reshape(-1)
    priorities = as_priorities(info["priority"])
    if not len(unique_ids) == len(slots) == len(priorities):
        raise ValueError(
            f"{len(unique_ids)} replay_unique_id, {len(slots)} replay_buffer_idx and {len(priorities)} priority "
            "are not one for each item; give lists of one length"
        )
    if len(slots) and (slots.min() < 0 or slots.max() >= size):
        raise IndexError(f"replay_buffer_idx must be in [0, {size}), got {slots.min()} to {slots.max()}")
    return unique_ids, slots, priorities
