"""Middleware of buffers: functions that may change the calls of a buffer's methods and their results."""

from __future__ import annotations

import heapq
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
from ding.utils.segment_tree import FloatArray

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


def use_time_check(buffer_: Buffer, max_use: float = math.inf) -> Middleware:
    """Return middleware that deletes a record after it was sampled `max_use` times.

    Sampled records have the number of uses so far in `meta['use_count']`.
    """

    def sample(chain: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        sampled, used_up = chain(*args, **kwargs), []
        for record in each_record(sampled):
            try:
                stored = buffer_.get_by_index(record.index)
            except KeyError:  # padding
                continue
            count = 1 + (stored.meta or {}).get("use_count", 0)
            for each in (stored, record):  # the sampled one may be a copy
                each.meta = each.meta if each.meta is not None else {}
                each.meta["use_count"] = count
            if count >= max_use:
                used_up.append(record.index)
        if used_up:
            buffer_.delete(used_up)
        return sampled

    return _on(sample=sample)


class PriorityExperienceReplay:
    """Middleware that samples records with probability proportional to priority ** alpha.

    A pushed record gets `meta['priority']` (its own, or the largest so far) and `meta['priority_idx']`, its slot in
    the priority index. With `IS_weight`, sampled records are shallow copies with the importance weight `priority_IS`, a
    float32 tensor [1], in `meta` and `data`.

    Args:
        buffer: the buffer that the middleware is added to.
        IS_weight: whether to compute importance weights.
        priority_power_factor: exponent alpha.
        IS_weight_power_factor: initial exponent beta of the importance weights.
        IS_weight_anneal_train_iter: number of samples until beta is 1; 0 keeps it constant.

    Attributes:
        buffer_idx: the ids of the records by their slots in the priority index.

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
        self.buffer_idx: dict[int, str] = {}
        self._slots: dict[str, int] = {}
        self._index = PriorityIndex(buffer.size, priority_power_factor)
        self._free = list(range(buffer.size))  # a heap
        for record in buffer:
            self.added(record)
        buffer.listeners.append(self)

    def __call__(self, action: str, chain: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        handle = _on(push=self.push, sample=self.sample, update=self.update, clear=self.clear)
        return handle(action, chain, *args, **kwargs)

    @property
    def max_priority(self) -> float:
        """The largest updated priority, at least 1, which is the default of new records."""
        return self._index.max_priority

    def added(self, record: BufferedData) -> None:
        """Give a record the lowest free slot, and the largest priority so far if it has none."""
        if len(self._index.weights) != self.buffer.size:  # the buffer, which was empty, has another size
            largest, self._index = self.max_priority, PriorityIndex(self.buffer.size, self._index.alpha)
            self._index.max_priority, self._free = largest, list(range(self.buffer.size))
        slot = heapq.heappop(self._free)
        self._slots[record.index], self.buffer_idx[slot] = slot, record.index
        priority = as_priorities([(record.meta or {}).get("priority")], self.max_priority)
        record.meta = {**(record.meta or {}), "priority": float(priority[0]), "priority_idx": slot}
        self._index.set_priorities(np.array([slot]), priority)

    def removed(self, records: list[BufferedData]) -> None:
        """Free the slots of records."""
        slots = [self._slots.pop(record.index) for record in records]
        for slot in slots:
            del self.buffer_idx[slot]
            heapq.heappush(self._free, slot)
        self._index.remove(np.array(slots, np.int64))

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
        return chain(data, {**(meta or {}), "priority": priority}, *args, **kwargs)

    def sample(self, chain: Callable[..., Any], size: int, *args: Any, **kwargs: Any) -> list[Any]:
        """Sample `size` records by priority, with replacement.

        Raises:
            AssertionError: the buffer is empty.
        """
        if self.buffer.count() == 0:
            raise AssertionError("an empty buffer cannot be sampled by priority; push first")
        slots = self._index.draw(size, self.rng)
        # Before the call, in which other middleware may delete what was sampled.
        importance = self._index.importance(slots, self.beta) if self.IS_weight else None
        records: list[BufferedData] = chain(*args, indices=[self.buffer_idx[slot] for slot in slots.tolist()], **kwargs)
        if importance is None:
            return records
        weights = torch.from_numpy(importance.astype(np.float32)).unsqueeze(1)
        self.beta = min(1.0, self.beta + self.beta_step)
        result = []
        for record, weight in zip(records, weights.unbind(0), strict=True):
            data = {**record.data, "priority_IS": weight} if isinstance(record.data, dict) else record.data
            result.append(BufferedData(data, record.index, {**(record.meta or {}), "priority_IS": weight}))
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
        slot = self._slots.get(index)
        if slot is not None and chain(index, data, {**meta, "priority_idx": slot}):
            self.set_priorities([index], priority)

    def set_priorities(self, indices: list[str], priorities: FloatArray) -> None:
        """Set valid `priorities` of the records with the ids `indices`; those that left the buffer are skipped.

        Of a repeated record, the last priority counts.
        """
        known = [i for i, index in enumerate(indices) if index in self._slots]
        for i in known:
            record = self.buffer.get_by_index(indices[i])
            record.meta = {**(record.meta or {}), "priority": float(priorities[i])}
        slots = np.array([self._slots[indices[i]] for i in known], np.int64)
        self._index.set_priorities(slots, priorities[known] + PRIORITY_EPS)
        self._index.note_max(priorities[known] + PRIORITY_EPS)

    def clear(self, chain: Callable[..., Any]) -> Any:
        """Clear the buffer and all priorities."""
        result = chain()
        self._index.max_priority = 1.0
        return result

    def state_dict(self) -> dict[str, Any]:
        """Return the state that is not in the records' metadata."""
        slots = np.array([self._slots[record.index] for record in self.buffer], np.int64)
        return {
            "max_priority": self.max_priority,
            "beta": self.beta,
            "rng": generator_state(self.rng),
            "slots": slots,
            "weights": self._index.weights[slots],
        }

    def load_state_dict(self, _state_dict: dict[str, Any]) -> None:
        """Restore a state for the current records of the buffer."""
        self.beta = _state_dict["beta"]
        set_generator_state(self.rng, _state_dict["rng"])
        slots = np.asarray(_state_dict["slots"], np.int64)
        self._slots = {record.index: slot for record, slot in zip(self.buffer, slots.tolist(), strict=True)}
        self.buffer_idx = {slot: index for index, slot in self._slots.items()}
        self._free = sorted(set(range(self.buffer.size)) - self.buffer_idx.keys())
        self._index.clear()
        self._index.set_weights(slots, np.asarray(_state_dict["weights"]))
        self._index.max_priority = _state_dict["max_priority"]
