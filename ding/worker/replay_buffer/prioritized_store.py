"""A ring of items together with the books on them."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ding.data.priority_index import Slots
from ding.utils.segment_tree import IntArray
from ding.worker.replay_buffer.item_book import ItemBook
from ding.worker.replay_buffer.ring import Ring
from ding.worker.replay_buffer.utils.unique_id import parse_id


class PrioritizedStore:
    """Puts items into the ring and takes them out, and keeps the books in step. Not thread-safe.

    Methods that take items out return them.

    Attributes:
        next_unique_id: the number of the next item; goes on after `clear`.
    """

    def __init__(self, ring: Ring, alpha: float, name: str) -> None:
        self.ring = ring
        self.book = ItemBook(ring.size, alpha, name)
        self.next_unique_id = 0

    def put(self, items: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Write `items` from the tail on; returns those they replace.

        Raises:
            PriorityError: an item brings a priority that is negative or not finite; nothing is written.
        """
        ring, book = self.ring, self.book
        priorities = book.read_priorities(items)
        replaced: list[dict[str, Any]] = []
        for start in range(0, len(items), ring.size):
            chunk = items[start : start + ring.size]
            slots = ring.next_slots(len(chunk))
            ring.valid_count += len(chunk) - self._count_live(slots)
            book.enter(slots, chunk, priorities[start : start + ring.size], self.next_unique_id)
            replaced += ring.put(chunk)
            self.next_unique_id += len(chunk)
        return replaced

    def is_live(self, slots: IntArray, unique_ids: list[str]) -> npt.NDArray[np.bool_]:
        """Whether each of `slots` can be drawn and still holds the item of that id."""
        live: npt.NDArray[np.bool_] = self.book.priorities.weights[slots] > 0
        held = self.book.id_strings(slots)
        return live if held == unique_ids else live & [a == b for a, b in zip(held, unique_ids, strict=True)]

    def live_slots(self) -> IntArray:
        """The slots that can be drawn, in order of writing."""
        slots = self.ring.occupied()
        return slots[self.book.priorities.weights[slots] > 0]

    def remove(self, slots: IntArray) -> list[dict[str, Any]]:
        """Empty `slots`."""
        stored = self.ring.slots
        removed = [stored[slot] for slot in slots.tolist()]
        for slot in slots.tolist():
            stored[slot] = None
        self.ring.valid_count -= self._count_live(slots)
        self.book.priorities.remove(slots)
        self.ring.skip_empty_head()
        return removed

    def retire(self, slots: IntArray) -> None:
        """Take `slots` out of the draw for good; the items stay until they are overwritten."""
        self.ring.valid_count -= self._count_live(slots)
        self.book.priorities.remove(slots)
        self.book.priorities.priorities[slots] = 0.0

    def clear(self) -> list[dict[str, Any]]:
        """Empty all slots; `next_unique_id` and the count of pushes go on."""
        removed = [item for item in self.ring.slots if item is not None]
        self.ring.clear()
        self.book.clear()
        return removed

    def stale_slots(self, cur_learner_iter: int, max_staleness: float) -> IntArray:
        """The slots from the head on whose staleness is at least `max_staleness`.

        Items are in order of collection, so the first fresh one ends the search.
        """
        ring, stale, slot = self.ring, [], self.ring.head
        for _ in range(ring.filled):
            if ring.slots[slot] is not None:
                if self.book.staleness(np.array([slot]), cur_learner_iter)[0] < max_staleness:
                    break
                stale.append(slot)
            slot = (slot + 1) % ring.size
            if slot == ring.tail:
                break
        return np.array(stale, dtype=np.int64)

    def show(self, slot: int) -> dict[str, Any] | None:
        """A copy of the item in `slot` with its bookkeeping, None for an empty slot."""
        item = self.ring.slots[slot]
        return None if item is None else {**item, **self.book.read(slot)}

    def snapshot(self) -> dict[str, Any]:
        """The items with their bookkeeping by slot, the counters and the weights, in plain values and arrays."""
        ring, priorities = self.ring, self.book.priorities
        return {
            "data": [self.show(slot) for slot in range(ring.size)],
            "use_count": self.book.use_counts.copy(),
            "tail": ring.tail,
            "head": ring.head,
            "max_priority": priorities.max_priority,
            "next_unique_id": self.next_unique_id,
            "valid_count": ring.valid_count,
            "push_count": ring.push_count,
            "sum_tree": priorities.sum_tree.leaves.copy(),
            "min_tree": priorities.min_tree.leaves.copy(),
        }

    def freeze(self) -> dict[str, Any]:
        """A `snapshot` with the stored items themselves, and their bookkeeping by slot in arrays.

        Nothing but copying is done here, for a lock is held meanwhile; `without_gaps` does the rest.
        """
        ring, priorities = self.ring, self.book.priorities
        return {
            "data": list(ring.slots),
            "books": {
                "unique_ids": self.book.unique_ids.copy(),
                "use_counts": self.book.use_counts.copy(),
                "priorities": priorities.priorities.copy(),
                "weights": priorities.weights.copy(),
            },
            "tail": ring.tail,
            "head": ring.head,
            "max_priority": priorities.max_priority,
            "next_unique_id": self.next_unique_id,
            "valid_count": ring.valid_count,
            "push_count": ring.push_count,
        }

    @staticmethod
    def without_gaps(frozen: dict[str, Any]) -> dict[str, Any]:
        """What `freeze` has returned, with the bookkeeping of occupied slots only."""
        slots = np.array([slot for slot, item in enumerate(frozen["data"]) if item is not None], dtype=np.int64)
        books = {name: values[slots] for name, values in frozen["books"].items()}
        return {**frozen, "books": {"slots": slots, **books}}

    def restore(self, state: dict[str, Any]) -> None:
        """Take over what `snapshot` or `without_gaps` has returned.

        The weights of a snapshot are those of its `sum_tree`, or come from the priorities.

        Raises:
            ValueError: it is of a ring of another size.
        """
        self.ring.load(state["data"], state["tail"], state["valid_count"], state["push_count"], state.get("head"))
        self.book.clear()
        self.next_unique_id = state["next_unique_id"]
        if "books" in state:
            self._restore_books(state["books"])
        else:
            self._restore_shown(state)
        self.book.priorities.max_priority = float(state["max_priority"])

    def _restore_books(self, books: dict[str, Any]) -> None:
        slots, book = books["slots"], self.book
        book.enter(slots, [self.ring.slots[slot] for slot in slots.tolist()], books["priorities"], first_id=0)
        book.unique_ids[slots], book.use_counts[slots] = books["unique_ids"], books["use_counts"]
        book.priorities.set_weights(slots, books["weights"])
        book.priorities.priorities[slots] = books["priorities"]  # as they were: 0 where an item is retired

    def _restore_shown(self, state: dict[str, Any]) -> None:
        """The bookkeeping that the items of a snapshot show."""
        book, occupied = self.book, self.ring.occupied()
        items = [self.ring.slots[slot] for slot in occupied.tolist()]
        book.enter(occupied, items, book.read_priorities(items), first_id=0)
        book.unique_ids[occupied] = [parse_id(book.name, item["replay_unique_id"]) for item in items]
        book.use_counts[occupied] = [state["use_count"][slot] for slot in occupied.tolist()]
        weights = state.get("sum_tree")
        if isinstance(weights, np.ndarray):
            retired = occupied[weights[occupied] == 0]
            book.priorities.set_weights(occupied, weights[occupied])
            book.priorities.priorities[retired] = 0.0

    def _count_live(self, slots: Slots) -> int:
        return int(np.count_nonzero(self.book.priorities.weights[slots]))
