"""Middleware of buffers: functions that may change the calls of a buffer's methods and their results."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from ding.data.buffer.buffer import Buffer, BufferedData, Middleware, each_record
from ding.data.buffer.deque_buffer import DequeBuffer
from ding.data.priority_index import PRIORITY_EPS, PriorityIndex, as_priorities
from ding.utils.default_helper import new_generator
from ding.utils.fast_copy import fastcopy
from ding.utils.object_state import generator_state, set_generator_state
from ding.utils.segment_tree import FloatArray, IntArray

__all__ = [
    "PriorityExperienceReplay",
    "clone_object",
    "group_sample",
    "padding",
    "sample_range_view",
    "staleness_check",
    "use_time_check",
]

__path__: list[str] = []  # the modules below it that DI-engine has are aliases
_COLLECTED = "train_iter_data_collected"


def _on(**handlers: Callable[..., Any]) -> Middleware:
    """Return middleware that calls `handler(chain, *args, **kwargs)` for the actions that have a handler."""

    def handle(action: str, chain: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        return handlers[action](chain, *args, **kwargs) if action in handlers else chain(*args, **kwargs)

    return handle


def clone_object() -> Middleware:
    """Return middleware that copies data when it is pushed and records when they are sampled.

    Containers, tensors and arrays are copied, other objects are shared.
    """

    def push(chain: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        return chain(*fastcopy.copy(list(args)), **fastcopy.copy(kwargs))

    def sample(chain: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        return fastcopy.copy(chain(*args, **kwargs))

    return _on(push=push, sample=sample)


def group_sample(size_in_group: int, ordered_in_group: bool = True, max_use_in_group: bool = True) -> Middleware:
    """Return middleware that reduces each sampled group to `size_in_group` records, or to all of a smaller group.

    `sample` must be called with the keyword `groupby`.

    Args:
        size_in_group: number of records.
        ordered_in_group: whether to select consecutive records instead of random ones.
        max_use_in_group: whether windows start early enough to be full; otherwise the end of the group may cut them.
    """
    rng = new_generator()

    def take(group: list[Any]) -> list[Any]:
        if not ordered_in_group:
            size = min(size_in_group, len(group))
            return [group[i] for i in rng.choice(len(group), size, replace=False).tolist()]
        starts = max(0, len(group) - size_in_group) + 1 if max_use_in_group else len(group)
        start = int(rng.integers(0, starts))
        return group[start : start + size_in_group]

    def sample(chain: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        if not kwargs.get("groupby"):
            raise ValueError("group_sample needs groups; call sample with the keyword groupby")
        return [take(group) for group in chain(*args, **kwargs)]

    return _on(sample=sample)


def padding(policy: str = "random") -> Middleware:
    """Return middleware that pads sampled groups to the length of the longest one.

    Args:
        policy: `'random'` appends copies of random records of the group, `'none'` appends records of None.

    Raises:
        ValueError: `policy` has another value.
    """
    if policy not in ("random", "none"):
        raise ValueError(f"policy = {policy!r} is not allowed; it must be 'random' or 'none'")
    rng = new_generator()

    def filler(group: list[Any]) -> BufferedData:
        if policy == "none":
            return BufferedData(data=None, index=None, meta=None)  # type: ignore[arg-type]
        record: BufferedData = fastcopy.copy(group[int(rng.integers(0, len(group)))])
        return record

    def sample(chain: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        groups = chain(*args, **kwargs)
        if not groups or isinstance(groups[0], BufferedData):
            return groups
        longest = max(map(len, groups))
        return [group + [filler(group) for _ in range(longest - len(group))] for group in groups]

    return _on(sample=sample)


def sample_range_view(buffer_: Buffer, start: int | None = None, end: int | None = None) -> Middleware:
    """Return middleware that samples from positions [start, end); negative bounds count back from the capacity.

    Raises:
        AssertionError: neither bound is given.
    """
    if start is None and end is None:
        raise AssertionError("start = None, end = None is not allowed; give start or end")

    def from_front(bound: int | None) -> int | None:
        return bound if bound is None or bound >= 0 else buffer_.size + bound

    sample_range = slice(from_front(start), from_front(end))

    def sample(chain: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        return chain(*args, **{**kwargs, "sample_range": sample_range})

    return _on(sample=sample)


def staleness_check(buffer_: Buffer, max_staleness: float = math.inf) -> Middleware:
    """Return middleware that deletes records older than `max_staleness` training iterations before each sample.

    `push` must be called with the keyword `meta={'train_iter_data_collected': n}`, `sample` with the current iteration
    as its first argument (or as `train_iter_sample_data`). The staleness of each record is in `meta['staleness']`.
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

    return _on(push=push, sample=sample)


def use_time_check(buffer_: DequeBuffer, max_use: float = math.inf) -> UseTimeCheck:
    """Return middleware that deletes a record after it was sampled `max_use` times.

    Sampled records have the number of uses so far in `meta['use_count']`.
    """
    return UseTimeCheck(buffer_, max_use)


class UseTimeCheck:
    """Middleware of `use_time_check`."""

    def __init__(self, buffer: DequeBuffer, max_use: float) -> None:
        self._buffer, self._max_use = buffer, max_use

    def __call__(self, action: str, chain: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        result = chain(*args, **kwargs)
        if action == "sample":
            storage, sampled = self._buffer.storage, list(each_record(result))
            slots = storage.find_slots([record.index for record in sampled])
            found = np.array([slot for slot in slots if slot is not None], np.int64)
            counts = iter(self.count(found))
            for record, slot in zip(sampled, slots, strict=True):
                if slot is not None:  # the record may be a copy of the stored one
                    record.meta = record.meta if record.meta is not None else {}
                    record.meta["use_count"] = next(counts)
            self.delete_used_up(found)
        return result

    def count(self, slots: IntArray) -> list[int]:
        """Count one use of the records in `slots`, write the totals to their metadata, and return the totals."""
        storage = self._buffer.storage
        np.add.at(storage.fields["use"], slots, 1)
        counts: list[int] = storage.fields["use"][slots].tolist()
        storage.note(slots, "use", counts)
        return counts

    def delete_used_up(self, slots: IntArray) -> None:
        """Delete the records in `slots` that were used `max_use` times."""
        storage = self._buffer.storage
        used_up = slots[storage.fields["use"][slots] >= self._max_use]
        if used_up.size:
            self._buffer.delete(storage.ids(used_up))

    def rebuild(self) -> None:
        """Read the counts from the metadata of the current records."""
        storage = self._buffer.storage
        slots = storage.occupied()
        storage.fields["use"][slots] = [(meta or {}).get("use_count", 0) for meta in storage.metas(slots)]


class PriorityExperienceReplay:
    """Middleware that samples records with probability proportional to priority ** alpha.

    A pushed record gets `meta['priority']` (its own, or the largest so far) and `meta['priority_idx']`, its slot in
    the priority index. With `IS_weight`, sampled records are shallow copies with the importance weight `priority_IS`, a
    float32 tensor [1], in `meta` and `data`. Records that a view added or removed are detected by the next call.

    Args:
        buffer: the buffer that the middleware is added to.
        IS_weight: whether to compute importance weights.
        priority_power_factor: exponent alpha.
        IS_weight_power_factor: initial exponent beta of the importance weights.
        IS_weight_anneal_train_iter: number of samples until beta is 1; 0 keeps it constant.

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
        buffer: DequeBuffer,
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
        self._index = PriorityIndex(buffer.size, priority_power_factor)
        # The numbers in the ids of the records that the index knows, by slot, and the version of the buffer then.
        self._numbers, self._version = np.full(buffer.size, -1), -1

    def __call__(self, action: str, chain: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        handle = _on(push=self.push, sample=self.sample, update=self.update, clear=self.clear)
        return handle(action, chain, *args, **kwargs)

    @property
    def buffer_idx(self) -> dict[int, str]:
        """The ids of the records by their slots in the priority index."""
        slots = self.buffer.storage.occupied()
        return dict(zip(slots.tolist(), self.buffer.storage.ids(slots), strict=True))

    @property
    def max_priority(self) -> float:
        """The largest updated priority, at least 1, which is the default of new records."""
        return self._index.max_priority

    def push(
        self, chain: Callable[..., Any], data: Any, meta: dict[str, Any] | None = None, *args: Any, **kwargs: Any
    ) -> Any:
        """Push with the priority `meta['priority']`; without `meta`, the key `priority` is moved to it from `data`.

        Raises:
            PriorityError: the priority is negative or not finite.
        """
        if meta is None and isinstance(data, dict) and "priority" in data:
            data = dict(data)
            meta = {"priority": data.pop("priority")}
        priority = float(as_priorities([(meta or {}).get("priority")], self.max_priority)[0])
        slot = self.buffer.storage.tail
        return chain(data, {**(meta or {}), "priority": priority, "priority_idx": slot}, *args, **kwargs)

    def sample(self, chain: Callable[..., Any], size: int, *args: Any, **kwargs: Any) -> list[Any]:
        """Sample `size` records by priority, with replacement.

        Raises:
            AssertionError: the buffer is empty.
        """
        slots, weights = self.draw(size)
        records: list[BufferedData] = chain(*args, indices=self.buffer.storage.ids(slots), **kwargs)
        return records if weights is None else self.weighted(records, weights)

    def draw(self, size: int) -> tuple[IntArray, torch.Tensor | None]:
        """Draw `size` slots, with their importance weights, float32 [size, 1], if `IS_weight` is on.

        Raises:
            AssertionError: the buffer is empty.
        """
        if self.buffer.count() == 0:
            raise AssertionError("an empty buffer cannot be sampled by priority; push first")
        self._follow()
        slots = self._index.draw(size, self.rng)
        if not self.IS_weight:
            return slots, None
        weights = self._index.importance(slots, self.beta).astype(np.float32)
        self.beta = min(1.0, self.beta + self.beta_step)
        return slots, torch.from_numpy(weights).unsqueeze(1)

    @staticmethod
    def weighted(records: list[BufferedData], weights: torch.Tensor) -> list[BufferedData]:
        """Return copies of `records` with their `weights` [n, 1]."""
        result = []
        for record, row in zip(records, weights.unbind(0), strict=True):
            data = {**record.data, "priority_IS": row} if isinstance(record.data, dict) else record.data
            result.append(BufferedData(data, record.index, {**(record.meta or {}), "priority_IS": row}))
        return result

    def update(self, chain: Callable[..., Any], index: str, data: Any, meta: dict[str, Any]) -> None:
        """Update a record and set its priority to `meta['priority']`.

        Raises:
            AssertionError: `meta` has no priority.
            PriorityError: the priority is negative or not finite.
        """
        if meta is None or "priority" not in meta:
            raise AssertionError(f"meta = {meta!r} is not allowed; update needs meta['priority']")
        priority = as_priorities([meta["priority"]])
        (slot,) = self.buffer.storage.find_slots([index])
        if slot is not None and chain(index, data, {**meta, "priority_idx": slot}):
            self._set(np.array([slot]), priority)

    def set_priorities(self, slots: IntArray, priorities: FloatArray) -> None:
        """Set the priorities of the records in `slots` to valid `priorities`; of a repeated slot, the last counts."""
        self.buffer.storage.note(slots, "priority", priorities)
        self._set(slots, priorities)

    def clear(self, chain: Callable[..., Any]) -> Any:
        """Clear the buffer and all priorities."""
        self._index.clear()
        return chain()

    def rebuild(self) -> None:
        """Read the priorities of all records from their metadata; a missing one becomes the largest so far."""
        largest = self.max_priority
        self._index = PriorityIndex(self.buffer.size, self._index.alpha)
        self._index.max_priority = largest
        self._numbers, self._version = np.full(self.buffer.size, -1), -1

    def state_dict(self) -> dict[str, Any]:
        """Return the state that is not in the records' metadata."""
        self._follow()
        return {
            "max_priority": self.max_priority,
            "beta": self.beta,
            "rng": generator_state(self.rng),
            "weights": self._index.weights[self.buffer.storage.occupied()],
        }

    def load_state_dict(self, _state_dict: dict[str, Any]) -> None:
        """Restore a state for the current records of the buffer."""
        self._index.max_priority = _state_dict["max_priority"]
        self.beta = _state_dict["beta"]
        set_generator_state(self.rng, _state_dict["rng"])
        self.rebuild()
        self._follow()
        self._index.set_weights(self.buffer.storage.occupied(), np.asarray(_state_dict["weights"]))

    def _set(self, slots: IntArray, priorities: Any) -> None:
        self._follow()
        self._index.set_priorities(slots, priorities + PRIORITY_EPS)
        self._index.note_max(priorities + PRIORITY_EPS)

    def _follow(self) -> None:
        """Update the index for the records that were added and removed, also through a view."""
        storage = self.buffer.storage
        if self._version == storage.version:
            return
        if len(self._numbers) != storage.maxlen:
            self.rebuild()
        numbers = storage.fields["number"]
        changed = np.flatnonzero(self._numbers != numbers)
        self._numbers[changed] = numbers[changed]
        self._version = storage.version
        is_held = self._numbers[changed] >= 0
        self._index.remove(changed[~is_held])
        slots = changed[is_held]
        given = [(meta or {}).get("priority") for meta in storage.metas(slots)]
        priorities = as_priorities(given, self.max_priority)
        storage.note(slots, "priority", priorities)
        self._index.set_priorities(slots, priorities)
