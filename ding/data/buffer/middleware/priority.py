"""Prioritized sampling (arXiv:1511.05952) of records."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import torch

from ding.data.buffer.buffer import Buffer, BufferedData
from ding.data.buffer.record_columns import WeightedData
from ding.data.priority_index import PRIORITY_EPS, PriorityIndex, as_priorities
from ding.data.random_source import generator_state, new_generator, set_generator_state
from ding.utils.segment_tree import IntArray


class PriorityExperienceReplay:
    """Middleware that samples records with probability proportional to priority ** alpha.

    A pushed record gets `meta['priority']` (its own, or the largest so far) and `meta['priority_idx']`, its slot in
    the priority index. With `IS_weight`, sampled records are shallow copies with the importance weight `priority_IS`, a
    float32 tensor [1], in `meta` and `data`. Records that a view added or removed are detected by the next call.

    Args:
        buffer: The buffer that the middleware is added to.
        IS_weight: Whether to compute importance weights.
        priority_power_factor: Exponent alpha.
        IS_weight_power_factor: Initial exponent beta of the importance weights.
        IS_weight_anneal_train_iter: Number of samples until beta is 1; 0 keeps it constant.

    Attributes:
        buffer_idx: Maps slots of the priority index to ids of records.

    Example:
        >>> from ding.data.buffer.deque_buffer import DequeBuffer
        >>> buffer = DequeBuffer(4)
        >>> buffer = buffer.use(PriorityExperienceReplay(buffer))
        >>> record = buffer.push({"obs": 0, "priority": 2.0})
        >>> sampled = buffer.sample(1)[0]
        >>> sampled.meta["priority"], sampled.data["priority_IS"]
        (2.0, tensor([1.]))
    """

    def __init__(
        self,
        buffer: Buffer,
        IS_weight: bool = True,
        priority_power_factor: float = 0.6,
        IS_weight_power_factor: float = 0.4,
        IS_weight_anneal_train_iter: int = int(1e5),
    ) -> None:
        self.buffer = buffer
        self.IS_weight = IS_weight
        self.beta = IS_weight_power_factor
        self.beta_step = (1 - self.beta) / IS_weight_anneal_train_iter if IS_weight_anneal_train_iter else 0.0
        self.rng = new_generator()
        self.buffer_idx: dict[int, str] = {}
        self._index = PriorityIndex(buffer.size, priority_power_factor)
        self._free: list[int] = []
        self._pending: list[tuple[int, float]] = []

    def __call__(self, action: str, chain: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        handlers: dict[str, Callable[..., Any]] = {
            "push": self.push,
            "sample": self.sample,
            "update": self.update,
            "delete": self.delete,
            "clear": self.clear,
        }
        handler = handlers.get(action)
        return chain(*args, **kwargs) if handler is None else handler(chain, *args, **kwargs)

    @property
    def max_priority(self) -> float:
        """The largest updated priority, at least 1: the default of new records."""
        return self._index.max_priority

    def push(
        self, chain: Callable[..., Any], data: Any, meta: dict[str, Any] | None = None, *args: Any, **kwargs: Any
    ) -> Any:
        """Push with the priority `meta['priority']`. Without `meta`, the key `priority` is moved from `data` to it.

        Raises:
            PriorityError: If the priority is negative or not finite.
        """
        if meta is None and isinstance(data, dict) and "priority" in data:
            data = dict(data)
            meta = {"priority": data.pop("priority")}
        priority = (meta or {}).get("priority")
        priority = self.max_priority if priority is None else float(as_priorities([priority])[0])
        leaving = self._leaving_slot()
        slot = leaving if leaving is not None else self._free.pop() if self._free else len(self.buffer_idx)
        record = chain(data, {**(meta or {}), "priority": priority, "priority_idx": slot}, *args, **kwargs)
        if isinstance(record, BufferedData):
            self.buffer_idx[slot] = record.index
            self._pending.append((slot, priority))
        elif leaving is None:  # inner middleware did not push the record
            self._free.append(slot)
        return record

    def _leaving_slot(self) -> int | None:
        """Returns the slot of the record that the next push removes; None if the buffer is not full."""
        if not self._has_all_slots():
            self.rebuild()
        if self.buffer.count() < self.buffer.size:
            return None
        slot = self._slot_of(self.buffer.get(0))
        if slot is None:
            self.rebuild()
            slot = self._slot_of(self.buffer.get(0))
        return slot

    def sample(self, chain: Callable[..., Any], size: int, *args: Any, **kwargs: Any) -> list[Any]:
        """Sample `size` records by priority, with replacement.

        Raises:
            AssertionError: If the buffer is empty.
        """
        if self.buffer.count() == 0:
            raise AssertionError("an empty buffer cannot be sampled by priority; push first")
        if not self._has_all_slots():
            self.rebuild()
        self._settle()
        slots = self._index.draw(size, self.rng)
        ids = [self.buffer_idx[slot] for slot in slots.tolist()]
        records: list[BufferedData] = chain(*args, indices=ids, **kwargs)
        if self.IS_weight:
            records = self._weighted(records, slots)
            self.beta = min(1.0, self.beta + self.beta_step)
        return records

    def _weighted(self, records: list[BufferedData], slots: IntArray) -> list[BufferedData]:
        importance = self._index.importance(slots, self.beta).astype(np.float32)
        weights = torch.from_numpy(importance).unsqueeze(1)
        result = []
        for i, (record, row) in enumerate(zip(records, weights.unbind(0), strict=True)):
            meta = {**(record.meta or {}), "priority_IS": row}
            if isinstance(record, BufferedData) and record.source is not None:
                result.append(BufferedData.deferred(WeightedData(record, weights), i, record.index, meta))
                continue
            data = {**record.data, "priority_IS": row} if isinstance(record.data, dict) else record.data
            result.append(BufferedData(data, record.index, meta))
        return result

    def update(self, chain: Callable[..., Any], index: str, data: Any, meta: dict[str, Any]) -> None:
        """Update a record and set its priority to `meta['priority']`.

        Raises:
            AssertionError: If `meta` has no priority.
            PriorityError: If the priority is negative or not finite.
        """
        if meta is None or "priority" not in meta:
            raise AssertionError(f"meta = {meta!r} is not allowed; update needs meta['priority']")
        priority = as_priorities([meta["priority"]])
        slot = self._slot_of_id(index)
        if slot is not None and chain(index, data, {**meta, "priority_idx": slot}):
            self._set(np.array([slot]), priority)

    def update_priorities(self, indices: list[str], priorities: Any) -> None:
        """Set the priorities of many records at once. Skips unknown ids; the last priority of a repeated id counts.

        Raises:
            PriorityError: If a priority is negative or not finite.
            ValueError: If the number of priorities is not that of the ids.
        """
        slots, kept = [], []
        for record, priority in zip(self.buffer.find(indices), as_priorities(priorities).tolist(), strict=True):
            slot = None if record is None else self._slot_of(record)
            if record is not None and record.meta is not None and slot is not None:
                record.meta["priority"] = priority
                slots.append(slot)
                kept.append(priority)
        self._set(np.array(slots, dtype=np.int64), np.array(kept))

    def delete(self, chain: Callable[..., Any], indices: str | Iterable[str], *args: Any, **kwargs: Any) -> Any:
        """Delete the record(s) with the id(s) `indices`."""
        ids = [indices] if isinstance(indices, str) else list(indices)
        found = [self._slot_of(record) for record in self.buffer.find(ids) if record is not None]
        slots = {slot for slot in found if slot is not None}
        result = chain(ids, *args, **kwargs)
        self._settle()
        for slot in slots:
            del self.buffer_idx[slot]
            self._free.append(slot)
        self._index.remove(np.array(sorted(slots), dtype=np.int64))
        return result

    def clear(self, chain: Callable[..., Any]) -> Any:
        """Clear the buffer and all priorities."""
        self._forget()
        return chain()

    def rebuild(self) -> None:
        """Assign new slots to all records. Their priorities are those in `meta`, or the largest so far."""
        largest = self.max_priority
        self._forget()
        self._index = PriorityIndex(self.buffer.size, self._index.alpha)
        self._index.max_priority = largest
        for slot, record in enumerate(self.buffer):
            meta = record.meta if record.meta is not None else {}
            if meta.get("priority") is None:
                meta["priority"] = largest
            meta["priority_idx"] = slot
            record.meta = meta
            self.buffer_idx[slot] = record.index
            self._pending.append((slot, meta["priority"]))

    def state_dict(self) -> dict[str, Any]:
        """Returns the state that is not in the records' metadata, and the slots of the records."""
        self._settle()
        slots = np.array(list(self.buffer_idx), np.int64)
        return {
            "max_priority": self.max_priority,
            "beta": self.beta,
            "rng": generator_state(self.rng),
            "slots": slots,
            "ids": list(self.buffer_idx.values()),
            "weights": self._index.weights[slots],
            "free": list(self._free),
        }

    def load_state_dict(self, _state_dict: dict[str, Any]) -> None:
        """Restore a state for the current records of the buffer."""
        self._index.max_priority = _state_dict["max_priority"]
        self.beta = _state_dict["beta"]
        set_generator_state(self.rng, _state_dict["rng"])
        self.rebuild()
        if "slots" in _state_dict:
            self._restore_slots(_state_dict)

    def _restore_slots(self, state: dict[str, Any]) -> None:
        """Assign the saved slots to the records: draws depend on their order."""
        slots: list[int] = state["slots"].tolist()
        slot_of = dict(zip(state["ids"], slots, strict=True))
        if {record.index for record in self.buffer} != slot_of.keys():
            return
        for record in self.buffer:
            record.meta = {**(record.meta or {}), "priority_idx": slot_of[record.index]}
        self._forget()
        self._index.max_priority = state["max_priority"]
        self.buffer_idx.update(zip(slots, state["ids"], strict=True))
        self._index.set_weights(state["slots"], state["weights"])
        self._free = list(state["free"])

    def _has_all_slots(self) -> bool:
        """Returns whether all records have slots. Records without one are the newest, so only the last is checked."""
        count = self.buffer.count()
        if count != len(self.buffer_idx) or self.buffer.size != len(self._index.weights):
            return False
        return count == 0 or self._slot_of(self.buffer.get(count - 1)) is not None

    def _slot_of(self, record: BufferedData) -> int | None:
        slot: int = (record.meta or {}).get("priority_idx", -1)
        return slot if self.buffer_idx.get(slot) == record.index else None

    def _slot_of_id(self, index: str) -> int | None:
        (record,) = self.buffer.find([index])
        return None if record is None else self._slot_of(record)

    def _set(self, slots: IntArray, priorities: Any) -> None:
        self._settle()
        self._index.set(slots, priorities + PRIORITY_EPS)
        self._index.note_max(priorities + PRIORITY_EPS)

    def _settle(self) -> None:
        """Write the priorities of pushed records to the index."""
        if self._pending:
            slots, priorities = zip(*self._pending, strict=True)
            self._pending = []
            self._index.set(np.array(slots), as_priorities(priorities))

    def _forget(self) -> None:
        self._pending, self._free = [], []
        self.buffer_idx.clear()
        self._index.clear()
