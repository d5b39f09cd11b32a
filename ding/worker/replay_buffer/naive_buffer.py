"""Replay buffers that sample uniformly: items, the newest items, windows of transitions, or whole episodes."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from numbers import Real
from operator import index
from typing import Any

import numpy as np

from ding.data.column_store import own_table
from ding.data.ring import BoolArray, Slots, done_flags
from ding.utils.config_helper import NO_DEFAULT, Setting, Settings, integer, number
from ding.utils.data.samples import Items, Samples, Table, part_of, rows_of
from ding.utils.registry_factory import BUFFER_REGISTRY
from ding.utils.segment_tree import IntArray
from ding.worker.replay_buffer.base_buffer import STORAGE_SETTINGS, ColumnBuffer


@BUFFER_REGISTRY.register("naive")
class NaiveReplayBuffer(ColumnBuffer):
    """A replay buffer of items of any type, sampled uniformly. This class is thread-safe.

    Dicts are copied into columns, and sampled dicts are new objects: both belong to the caller. Items of other types
    are stored and returned as they are, unless `deepcopy` is on.

    Example:
        >>> import os, tempfile
        >>> cfg = NaiveReplayBuffer.default_config()
        >>> cfg.replay_buffer_size = 2
        >>> with NaiveReplayBuffer(cfg, exp_name=os.path.relpath(tempfile.mkdtemp())) as buffer:
        ...     _ = buffer.push([{"obs": 0}, {"obs": 1}, {"obs": 2}], cur_collector_envstep=3)
        ...     sorted(item["obs"] for item in buffer.sample(2, cur_learner_iter=0))
        [1, 2]
    """

    settings = Settings(
        {
            "type": "naive",
            "replay_buffer_size": 10000,
            "periodic_thruput_seconds": Setting(60, number(1e-3), "Seconds between two throughput reports."),
        },
        STORAGE_SETTINGS,
    )

    def push(self, data: list[Any] | Any, cur_collector_envstep: int) -> int:
        """Store one item, or each item of a list; the oldest are overwritten when the buffer is full.

        `cur_collector_envstep` is not used.

        Returns:
            The number of items that were stored.
        """
        items = self._prepare(data)
        with self._lock:
            count = self._insert(items)
            if self._store.dropped:
                self._store.report_dropped()
            return count

    def _insert(self, items: Items) -> int:
        count, size = len(items), self._store.size
        if count > size:
            return sum(self._insert(part_of(items, start, start + size)) for start in range(0, count, size))
        if count:
            _, overwritten = self._write(items)
            self._store.valid_count += count - overwritten
            self._periodic_thruput_monitor.add(pushed=count, removed=overwritten, valid=self._store.valid_count)
        return count

    def sample(
        self, size: int, cur_learner_iter: int, sample_range: slice | None = None, replace: bool = False
    ) -> list[Any] | None:
        """Sample `size` items uniformly; if there are too few, log a line and return None.

        Args:
            size: Number of items.
            cur_learner_iter: Not used.
            sample_range: Positions to sample from. Position 0 is the oldest item, so `slice(-10, None)` selects the
                ten newest.
            replace: Whether to sample with replacement. If so, a single stored item is enough.

        Raises:
            ValueError: If `size` is negative or above the capacity, or `sample_range` selects too few items.
            TypeError: If `sample_range` is not a slice.
        """
        size = self._check_size(size, can_exceed=replace)
        if size == 0:
            return []
        with self._lock:
            have = self._drawable_count()
            items: Items | None = None
            if have >= size or (replace and have > 0):
                items = self._read_drawn(self._draw(size, sample_range, replace))
                self._periodic_thruput_monitor.add(sampled=size, valid=self._store.valid_count)
        if items is None:
            self._logger.info("too few items to sample: the buffer holds %d, requested are %d", have, size)
            return None
        return self._output(items)

    def _drawable_count(self) -> int:
        """Return the number of items that `sample` draws from without a `sample_range`."""
        return self._store.valid_count

    def _read_drawn(self, slots: IntArray) -> Items:
        """Return the items in `slots` [n], which were drawn."""
        return self._store.read(slots)

    def _output(self, items: Items) -> list[Any]:
        """Return sampled items in the form in which the caller gets them; called without the lock."""
        if isinstance(items, Table):
            return Samples(items)
        return copy.deepcopy(list(items)) if self._deepcopy else list(items)

    def _draw(self, size: int, sample_range: slice | None, replace: bool) -> IntArray:
        if sample_range is None:
            if self._store.valid_count == self._store.filled == self._store.size:  # slots, as the age does not matter
                return self._choose(self._store.size, size, slice(None), replace)
            sample_range = slice(None)
        elif not isinstance(sample_range, slice):
            raise TypeError(f"sample_range = {sample_range!r} is not allowed; it must be a slice or None")
        ring = self._store
        if ring.valid_count == ring.filled:
            positions = range(ring.filled)[sample_range]
            chosen = self._choose(len(positions), size, sample_range, replace)
            slots: IntArray = ring.slots_at(positions.start + positions.step * chosen)
            return slots
        slots = ring.occupied()[sample_range]
        return slots[self._choose(len(slots), size, sample_range, replace)]

    def _choose(self, count: int, size: int, sample_range: slice, replace: bool) -> IntArray:
        """Return `size` of `count` equally likely numbers."""
        if count == 0 or (count < size and not replace):
            raise ValueError(
                f"size = {size} is not allowed: sample_range = {sample_range} selects {count} items; "
                "widen it or sample fewer"
            )
        if replace:
            return self._rng.integers(0, count, size)
        return self._rng.choice(count, size, replace=False)

    def update(self, info: dict[str, list[Any]]) -> None:
        """Log a warning and ignore `info`: this buffer has no priorities."""
        self._logger.warning("a %s has nothing to update; %s is ignored", type(self).__name__, sorted(info))

    def _remove(self, slots: IntArray) -> None:
        self._store.remove(slots, closes_gaps=True)
        self._store.valid_count = self._store.filled
        self._periodic_thruput_monitor.add(removed=len(slots), valid=self._store.valid_count)

    def clear(self) -> None:
        """Remove all items and reset `push_count` to 0."""
        with self._lock:
            removed = int(np.count_nonzero(self._store.held))
            self._store.clear()
            self._store.push_count = 0
            self._periodic_thruput_monitor.add(removed=removed, valid=self._store.valid_count)
            self._store.report_dropped()


def _function(value: Any) -> str | None:
    """Config rule (see `check_config`): return None if `value` is a function, of the number of env steps."""
    return None if callable(value) else "a function that takes the number of env steps and returns a number of items"


@BUFFER_REGISTRY.register("elastic")
class ElasticReplayBuffer(NaiveReplayBuffer):
    """A naive buffer that samples only from its `cfg.set_buffer_size(envstep)` newest items.

    The function is called at construction, with env step 0, and by each `update`. Older items stay stored, up to
    `replay_buffer_size`, and can be sampled again when the number grows.

    Raises:
        AttributeError: If the config has no `set_buffer_size`.

    Example:
        >>> import os, tempfile
        >>> cfg = ElasticReplayBuffer.default_config()
        >>> cfg.set_buffer_size = lambda envstep: 2 if envstep < 100 else 4
        >>> with ElasticReplayBuffer(cfg, exp_name=os.path.relpath(tempfile.mkdtemp())) as buffer:
        ...     _ = buffer.push([{"obs": i} for i in range(4)], cur_collector_envstep=4)
        ...     newest = sorted(item["obs"] for item in buffer.sample(2, cur_learner_iter=0))
        ...     buffer.update(100)
        ...     newest, sorted(item["obs"] for item in buffer.sample(4, cur_learner_iter=0))
        ([2, 3], [0, 1, 2, 3])
    """

    settings = Settings(
        {
            "type": "elastic",
            "set_buffer_size": Setting(
                NO_DEFAULT,
                _function,
                "Function of the env steps that returns the number of newest items to sample from.",
            ),
        },
        NaiveReplayBuffer.settings,
    )

    @classmethod
    def _check_cfg(cls, cfg: Mapping[str, Any]) -> None:
        if "set_buffer_size" not in cfg:
            raise AttributeError(
                f"{cls.__name__} needs set_buffer_size in its config: {_function(None)}, "
                "the newest items to sample from"
            )
        super()._check_cfg(cfg)

    def _begin(self) -> None:
        self._set_buffer_size = self._cfg.set_buffer_size
        self._current_buffer_size = float(self._set_buffer_size(0))

    def update(self, envstep: float) -> None:  # type: ignore[override]  # the documented signature
        """Sample from `set_buffer_size(envstep)` items after this call.

        Args:
            envstep: Number of env steps so far.

        Raises:
            TypeError: If `envstep` is not a number.
        """
        if not isinstance(envstep, Real):
            raise TypeError(f"envstep = {envstep!r} is not allowed; it must be the number of env steps so far")
        size = float(self._set_buffer_size(envstep))
        with self._lock:
            self._current_buffer_size = size

    def _drawable_count(self) -> int:
        return int(min(self._store.valid_count, self._current_buffer_size))

    def _draw(self, size: int, sample_range: slice | None, replace: bool) -> IntArray:
        if sample_range is not None:
            raise AssertionError(
                f"sample_range = {sample_range} is not allowed: an elastic buffer chooses its range; leave it out"
            )
        return super()._draw(size, slice(-self._drawable_count(), None), replace)

    def _state(self, is_copied: bool) -> dict[str, Any]:
        return {**super()._state(is_copied), "current_buffer_size": self._current_buffer_size}

    def _restore(self, state: dict[str, Any]) -> None:
        super()._restore(state)
        self._current_buffer_size = state["current_buffer_size"]


@BUFFER_REGISTRY.register("sequence")
class SequenceReplayBuffer(NaiveReplayBuffer):
    """A replay buffer that samples windows of consecutive transitions of one episode. This class is thread-safe.

    An episode ends with a transition whose `done` is true, and at the latest after `episode_length` transitions (None:
    no limit). The transitions of an episode must be pushed together and in order.

    Example:
        >>> import os, tempfile
        >>> cfg = SequenceReplayBuffer.default_config()
        >>> cfg.replay_buffer_size = 8
        >>> with SequenceReplayBuffer(cfg, exp_name=os.path.relpath(tempfile.mkdtemp())) as buffer:
        ...     _ = buffer.push([{"obs": i, "done": i == 2} for i in range(4)], cur_collector_envstep=4)
        ...     [[item["obs"] for item in window] for window in buffer.sample(1, 3, cur_learner_iter=0)]
        [[0, 1, 2]]
    """

    # Consecutive numbers of the transitions of an episode, with a gap before the next episode.
    _slot_fields = (("number", np.int64),)

    settings = Settings(
        {
            "episode_length": Setting(
                500, integer(1, optional=True), "Maximum number of transitions of an episode; None for no limit."
            )
        },
        NaiveReplayBuffer.settings,
    )

    def _begin(self) -> None:
        length = self._cfg.episode_length
        self._episode_length = None if length is None else int(length)
        self._next_number = self._steps = 0  # number of the next transition, and steps of the current episode so far

    def sample(  # type: ignore[override]  # the documented signature
        self,
        batch: int,
        sequence: int,
        cur_learner_iter: int,
        sample_range: slice | None = None,
        replace: bool = False,
    ) -> list[list[Any]] | None:
        """Sample `batch` windows.

        For each window, an episode is drawn uniformly among those that are long enough, then the window within it.
        Windows may overlap or repeat. Each window belongs to the caller.

        Args:
            batch: Number of windows.
            sequence: Length of each window, in transitions.
            cur_learner_iter: Not used.
            sample_range: Must be None.
            replace: Whether fewer than `batch` * `sequence` stored transitions are enough.

        Returns:
            `batch` lists of `sequence` transitions each. None, after a log line, if there are too few transitions or
            no episode is long enough.

        Raises:
            ValueError: If `batch` is negative, `sequence` is below 1, above `episode_length` or above the capacity, or
                `batch` * `sequence` is above the capacity without `replace`.
            NotImplementedError: If `sample_range` is given.
        """
        batch, sequence = index(batch), index(sequence)
        longest = min(self._store.size, self._episode_length or self._store.size)
        if batch < 0 or not 1 <= sequence <= longest:
            raise ValueError(
                f"batch = {batch}, sequence = {sequence} is not allowed; batch must be at least 0, sequence in "
                f"[1, {longest}], up to the smaller of episode_length and replay_buffer_size"
            )
        self._check_size(batch * sequence, can_exceed=replace)
        if sample_range is not None:
            raise NotImplementedError(
                f"sample_range = {sample_range} is not allowed: a sequence buffer samples from all its episodes; "
                "leave it out"
            )
        if batch == 0:
            return []
        with self._lock:
            windows, reason = self._draw_windows(batch, sequence, replace)
        if windows is None:
            self._logger.info("%d windows of %d transitions cannot be sampled: %s", batch, sequence, reason)
            return None
        return [self._output(window) for window in windows]

    def _draw_windows(self, batch: int, sequence: int, replace: bool) -> tuple[list[Items] | None, str]:
        """Return the windows and "", or None and the reason why there are none."""
        have, needed = self._store.valid_count, batch * sequence
        if have < needed and not replace:
            return None, f"the buffer holds {have} transitions, needed are {needed}"
        slots, starts, lengths = self._episodes()
        windows = lengths - sequence + 1
        long_enough = np.flatnonzero(windows > 0)
        if not long_enough.size:
            return None, f"the longest stored episode has {lengths.max(initial=0)}"
        chosen = long_enough[self._rng.integers(0, long_enough.size, batch)]
        first = starts[chosen] + self._rng.integers(0, windows[chosen])
        self._periodic_thruput_monitor.add(sampled=batch, valid=self._store.valid_count)
        return [self._store.read(slots[start : start + sequence]) for start in first.tolist()], ""

    def _episodes(self) -> tuple[IntArray, IntArray, IntArray]:
        """Return all occupied slots, oldest first, and the starts and lengths of the parts of episodes within them."""
        slots = self._store.occupied()
        numbers = self._store.fields["number"][slots]
        starts = np.flatnonzero(np.diff(numbers, prepend=numbers[:1] - 2) != 1)
        return slots, starts, np.diff(starts, append=len(slots))

    def _write(self, items: Items) -> tuple[Slots, int]:
        is_last = done_flags(items)
        order = np.arange(len(is_last))
        begins = np.where(np.concatenate(([False], is_last[:-1])), order, -self._steps)
        lengths = order - np.maximum.accumulate(begins) + 1  # length of its episode up to each transition
        self._steps = 0 if is_last[-1] else int(lengths[-1])
        if self._episode_length is not None:
            self._steps %= self._episode_length
            is_last |= lengths % self._episode_length == 0
        written = super()._write(items)
        self._store.fields["number"][written[0]] = self._numbers(is_last)
        return written

    def _numbers(self, is_last: BoolArray) -> IntArray:
        """Return the numbers of the next n >= 1 transitions; `is_last` [n] marks those that end an episode."""
        numbers: IntArray = self._next_number + np.arange(len(is_last)) + is_last.cumsum() - is_last
        self._next_number = int(numbers[-1]) + 1 + bool(is_last[-1])
        return numbers

    def _end_current(self) -> None:
        """End the current episode, if any, with the newest transition."""
        self._next_number += self._steps > 0
        self._steps = 0

    def _remove(self, slots: IntArray) -> None:
        removed = int(self._store.fields["number"][slots].max())
        self._steps = min(self._steps, self._next_number - 1 - removed)  # what is left of the current episode
        super()._remove(slots)

    def clear(self) -> None:
        """Remove all transitions and reset `push_count` to 0."""
        with self._lock:
            self._end_current()
            super().clear()

    def _extra_to_save(self) -> dict[str, Any]:
        slots, starts, lengths = self._episodes()
        is_last = np.zeros(len(slots), np.bool_)
        is_last[starts + lengths - 1] = True
        return {"episode_ends": is_last}

    def _insert_saved(self, items: list[Any], notes: dict[str, Any]) -> None:
        # Items of a file do not continue the current episode, and later items do not continue an episode of the file.
        self._end_current()
        super()._insert_saved(items, notes)
        self._end_current()
        if "episode_ends" in notes and items:
            is_last = notes["episode_ends"][-self._store.filled :]
            self._store.fields["number"][self._store.occupied()[-len(is_last) :]] = self._numbers(is_last)

    def _state(self, is_copied: bool) -> dict[str, Any]:
        return {**super()._state(is_copied), "next_number": self._next_number, "episode_steps": self._steps}

    def _restore(self, state: dict[str, Any]) -> None:
        super()._restore(state)
        self._next_number, self._steps = state["next_number"], state["episode_steps"]


@BUFFER_REGISTRY.register("episode")
class EpisodeReplayBuffer(NaiveReplayBuffer):
    """A naive buffer whose items are episodes: lists of transitions. This class is thread-safe.

    `push` takes a list of episodes; push a single one as `push([episode], envstep)`. The transitions of an episode are
    stored in columns. Sampled episodes are new lists, owned by the caller. To sample parts of episodes, override
    `sample`.

    Example:
        >>> import os, tempfile
        >>> cfg = EpisodeReplayBuffer.default_config()
        >>> with EpisodeReplayBuffer(cfg, exp_name=os.path.relpath(tempfile.mkdtemp())) as buffer:
        ...     _ = buffer.push([[{"obs": 0}, {"obs": 1}], [{"obs": 2}]], cur_collector_envstep=3)
        ...     buffer.episode_len, len(buffer.sample(2, cur_learner_iter=0))
        ([2, 1], 2)
    """

    _has_warned = False

    @property
    def episode_len(self) -> list[int]:
        """The lengths of the stored episodes, by slot; empty slots are skipped."""
        with self._lock:
            slots = np.flatnonzero(self._store.held)
            return [len(episode) for episode in rows_of(self._store.read(slots))]

    def _write(self, items: Items) -> tuple[Slots, int]:
        if not self._has_warned and (isinstance(items, Table) or isinstance(items[0], Mapping)):
            self._has_warned = True
            self._logger.warning(
                "an item of an episode buffer should be an episode, a list of transitions, but a dict was pushed; "
                "push one episode as push([episode], envstep), and collect with an episode collector"
            )
        episodes = []
        for episode in rows_of(items):
            # A list of dicts of equal fields becomes a table that owns its memory.
            table = Table.of(episode) if isinstance(episode, list) else None
            episodes.append(episode if table is None else own_table(table))
        return super()._write(episodes)
