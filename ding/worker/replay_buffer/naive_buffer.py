"""A buffer that keeps the newest items and draws uniformly."""

from __future__ import annotations

import copy
from importlib import import_module
from typing import Any

import numpy as np
import numpy.typing as npt

from ding.data.random_source import generator_state, set_generator_state
from ding.utils.config_helper import boolean, integer, number
from ding.utils.registry_factory import BUFFER_REGISTRY
from ding.utils.segment_tree import IntArray
from ding.worker.replay_buffer.ring_buffer import RingBuffer

BoolArray = npt.NDArray[np.bool_]

NAIVE_RULES = {
    "replay_buffer_size": integer(1),
    "deepcopy": boolean,
    "enable_track_used_data": boolean,
    "periodic_thruput_seconds": number(1e-3),
}

# What DI-engine has in its module of this name, and what is built here on the naive buffer.
_ELSEWHERE = {
    "ElasticReplayBuffer": "ding.worker.replay_buffer.elastic_buffer",
    "SequenceReplayBuffer": "ding.worker.replay_buffer.sequence_buffer",
}


@BUFFER_REGISTRY.register("naive")
class NaiveReplayBuffer(RingBuffer):
    """Replay buffer without priorities: a ring of items of any type, drawn uniformly. Thread-safe.

    Sampled items are the stored objects themselves unless `deepcopy` is on.

    Example:
        >>> import os, tempfile
        >>> cfg = NaiveReplayBuffer.default_config()
        >>> cfg.replay_buffer_size = 2
        >>> with NaiveReplayBuffer(cfg, exp_name=os.path.relpath(tempfile.mkdtemp())) as buffer:
        ...     buffer.push([{"obs": 0}, {"obs": 1}, {"obs": 2}], cur_collector_envstep=3)
        ...     sorted(item["obs"] for item in buffer.sample(2, cur_learner_iter=0))
        [1, 2]
    """

    config = {
        "type": "naive",
        "replay_buffer_size": 10000,
        "deepcopy": False,
        "enable_track_used_data": False,
        "periodic_thruput_seconds": 60,
    }
    config_rules = NAIVE_RULES

    def push(self, data: list[Any] | Any, cur_collector_envstep: int) -> None:
        """Store one item, or each item of a list; the oldest are overwritten when the buffer is full.

        `cur_collector_envstep` is not used.
        """
        with self._lock:
            self._take_in(self._prepare(data))

    def _take_in(self, items: list[Any]) -> int:
        ring = self._ring
        replaced_count = 0
        for start in range(0, len(items), ring.size):
            chunk = items[start : start + ring.size]
            self._note(chunk)
            replaced = ring.put(chunk)
            ring.valid_count += len(chunk) - len(replaced)
            replaced_count += len(replaced)
            self._drop(replaced)
        self._count_thruput(pushed=len(items), removed=replaced_count)
        return len(items)

    def _note(self, items: list[Any]) -> None:
        """Take note of the items that the ring takes in next."""

    def sample(
        self, size: int, cur_learner_iter: int, sample_range: slice | None = None, replace: bool = False
    ) -> list[Any] | None:
        """Draw `size` items uniformly; None (and a log line) when there are too few.

        Args:
            size: number of items.
            cur_learner_iter: not used.
            sample_range: restricts the draw; positions count from the oldest item to the newest, so `slice(-10, None)`
                are the ten newest.
            replace: whether an item may come up more than once; then too few items are only those of an empty buffer.

        Raises:
            ValueError: `size` is negative or above the capacity, or `sample_range` holds too few items.
            TypeError: `sample_range` is no slice.
        """
        size = self._check_size(size, can_exceed=replace)
        if size == 0:
            return []
        with self._lock:
            have = self._drawable_count()
            if have >= size or (replace and have > 0):
                slots = self._draw(size, sample_range, replace)
                items: list[Any] = [self._ring.slots[slot] for slot in slots.tolist()]
                self._count_thruput(sampled=size)
            else:
                items = []
        if not items:
            self._logger.info("too few items to sample: %d are there, %d are asked for", have, size)
            return None
        return self._hand_out(items)

    def _drawable_count(self) -> int:
        """How many items `sample` draws from, when no range is given."""
        return self._ring.valid_count

    def _hand_out(self, items: list[Any]) -> list[Any]:
        """Stored items as the caller gets them; called without the lock."""
        return copy.deepcopy(items) if self._deepcopy else items

    def _draw(self, size: int, sample_range: slice | None, replace: bool) -> IntArray:
        if sample_range is None:
            sample_range = slice(None)
        elif not isinstance(sample_range, slice):
            raise TypeError(f"sample_range = {sample_range!r} is not allowed; it must be a slice or None")
        ring = self._ring
        if ring.valid_count == ring.filled:
            positions = range(ring.filled)[sample_range]
            chosen = self._choose(len(positions), size, sample_range, replace)
            return ring.positions_to_slots(positions.start + positions.step * chosen)
        slots = ring.occupied()[sample_range]
        return slots[self._choose(len(slots), size, sample_range, replace)]

    def _choose(self, count: int, size: int, sample_range: slice, replace: bool) -> IntArray:
        if count == 0 or (count < size and not replace):
            raise ValueError(f"{size} items are asked for, but sample_range = {sample_range} holds {count}")
        if replace:
            return self._rng.integers(0, count, size)
        return self._rng.choice(count, size, replace=False)

    def update(self, info: dict[str, list[Any]]) -> None:
        """Do nothing but say so: items of this buffer carry nothing that could be updated."""
        self._logger.warning("a %s has nothing to update; %s is ignored", type(self).__name__, sorted(info))

    def _remove(self, slots: IntArray) -> None:
        # The others move together, for a ring with gaps is drawn from slowly.
        ring, occupied = self._ring, self._ring.occupied()
        is_kept = ~np.isin(occupied, slots)
        removed = [ring.slots[slot] for slot in slots.tolist()]
        self._note_kept(occupied, is_kept)
        ring.refill([ring.slots[slot] for slot in occupied[is_kept].tolist()])
        self._drop(removed)
        self._count_thruput(removed=len(removed))

    def _note_kept(self, slots: IntArray, is_kept: BoolArray) -> None:
        """Take note that of the items in `slots` [n] only some are kept, and move to the first slots."""

    def clear(self) -> None:
        """Drop all items and start `push_count` at 0 again."""
        with self._lock:
            dropped = [item for item in self._ring.slots if item is not None]
            self._ring.clear()
            self._ring.push_count = 0
            self._drop(dropped)
            self._count_thruput(removed=len(dropped))

    def state_dict(self) -> dict[str, Any]:
        """A snapshot: the items by slot (not copied), the counters and the random state."""
        with self._lock:
            return {
                "data": list(self._ring.slots),
                "tail": self._ring.tail,
                "valid_count": self._ring.valid_count,
                "push_count": self._ring.push_count,
                "rng": generator_state(self._rng),
            }

    def load_state_dict(self, _state_dict: dict[str, Any]) -> None:
        """Take over a state; one with `data` alone is a list of items to push.

        Raises:
            AssertionError: `data` is missing.
            ValueError: the state is of a buffer of another size.
        """
        if "data" not in _state_dict:
            raise AssertionError(f"a buffer state needs the key 'data'; it has {sorted(_state_dict)}")
        state = _state_dict
        with self._lock:
            if set(state) == {"data"}:
                self._take_in([item for item in state["data"] if item is not None])
                return
            self._ring.load(state["data"], state["tail"], state["valid_count"], state["push_count"])
            if "rng" in state:
                set_generator_state(self._rng, state["rng"])


def shallow_copies(items: list[Any]) -> list[Any]:
    """`items` with each dict copied; the copies share what the dicts hold."""
    return [item.copy() if isinstance(item, dict) else item for item in items]


def __getattr__(name: str) -> Any:
    if name in _ELSEWHERE:
        return getattr(import_module(_ELSEWHERE[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
