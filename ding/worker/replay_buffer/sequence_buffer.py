"""A replay buffer that samples windows of consecutive transitions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import index
from typing import Any

from ding.data.ring import BoolArray
from ding.utils.config_helper import Setting, Settings, integer
from ding.utils.registry_factory import BUFFER_REGISTRY
from ding.utils.segment_tree import IntArray
from ding.worker.replay_buffer.episode_ends import EpisodeEnds, done_flags
from ding.worker.replay_buffer.naive_buffer import NaiveReplayBuffer


@BUFFER_REGISTRY.register("sequence")
class SequenceReplayBuffer(NaiveReplayBuffer):
    """Replay buffer that samples windows of consecutive transitions of one episode. Thread-safe.

    An episode ends with a transition whose `done` is true, and at the latest after `episode_length` transitions (None:
    no limit). The transitions of an episode must be pushed together and in order.

    Example:
        >>> import os, tempfile
        >>> cfg = SequenceReplayBuffer.default_config()
        >>> cfg.replay_buffer_size = 8
        >>> with SequenceReplayBuffer(cfg, exp_name=os.path.relpath(tempfile.mkdtemp())) as buffer:
        ...     buffer.push([{"obs": i, "done": i == 2} for i in range(4)], cur_collector_envstep=4)
        ...     [[item["obs"] for item in window] for window in buffer.sample(1, 3, cur_learner_iter=0)]
        [[0, 1, 2]]
    """

    settings = Settings(
        {
            "episode_length": Setting(
                500, integer(1, optional=True), "Maximum number of transitions of an episode; None for no limit."
            )
        },
        NaiveReplayBuffer.settings,
    )

    def __init__(
        self,
        cfg: Mapping[str, Any],
        tb_logger: Any = None,
        exp_name: str = "default_experiment",
        instance_name: str = "buffer",
    ) -> None:
        super().__init__(cfg, tb_logger, exp_name, instance_name)
        length = self._cfg.episode_length
        self._episode_length = None if length is None else int(length)
        self._ends = EpisodeEnds(self._store, self._episode_length)

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
        Windows may overlap or repeat. Each belongs to the caller.

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
        batch, sequence = self._check_windows(batch, sequence, replace)
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

    def _check_windows(self, batch: int, sequence: int, replace: bool) -> tuple[int, int]:
        batch, sequence = index(batch), index(sequence)
        longest = min(self._store.size, self._episode_length or self._store.size)
        if batch < 0 or not 1 <= sequence <= longest:
            raise ValueError(
                f"batch = {batch}, sequence = {sequence} is not allowed; batch must be at least 0, sequence in "
                f"[1, {longest}], up to the smaller of episode_length and replay_buffer_size"
            )
        self._check_size(batch * sequence, can_exceed=replace)
        return batch, sequence

    def _draw_windows(self, batch: int, sequence: int, replace: bool) -> tuple[list[Sequence[Any]] | None, str]:
        """Returns the windows and "", or None and the reason."""
        have, needed = self._store.valid_count, batch * sequence
        if have < needed and not replace:
            return None, f"the buffer holds {have} transitions, needed are {needed}"
        slots = self._ends.draw(batch, sequence, self._rng)
        if slots is None:
            return None, f"the longest stored episode has {max(self._ends.episodes()[1])}"
        self._count_thruput(sampled=batch)
        return [self._store.read(row) for row in slots], ""

    def _before_insert(self, items: list[Any]) -> None:
        self._ends.mark_next(done_flags(items))

    def _before_compaction(self, slots: IntArray, is_kept: BoolArray) -> None:
        self._ends.compact(slots, is_kept)

    def clear(self) -> None:
        """Remove all transitions and reset `push_count` to 0."""
        with self._lock:
            super().clear()
            self._ends.clear()

    def _extra_to_save(self) -> dict[str, Any]:
        return {"episode_ends": self._ends.is_last[self._store.occupied()]}

    def _insert_saved(self, items: list[Any], notes: dict[str, Any]) -> None:
        # Items of a file do not continue the current episode, and later items do not continue that of the file.
        self._ends.end_current()
        super()._insert_saved(items, notes)
        self._ends.end_current()
        if "episode_ends" in notes:
            self._ends.mark_newest(notes["episode_ends"])

    def _state(self, is_copied: bool) -> dict[str, Any]:
        with self._lock:
            own = {"episode_ends": self._ends.is_last.copy(), "episode_steps": self._ends.steps}
            return {**super()._state(is_copied), **own}

    def _restore(self, state: dict[str, Any]) -> None:
        """Restore a state. Episode ends that it does not hold are found as in `push`."""
        super()._restore(state)
        if "episode_ends" in state:
            self._ends.is_last[:] = state["episode_ends"]
            self._ends.steps = int(state["episode_steps"])
        else:
            self._ends.mark_all(done_flags(self._store.read(self._store.occupied())))
