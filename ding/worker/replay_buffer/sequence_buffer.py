"""A buffer that draws windows of transitions in a row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import index
from typing import Any

from ding.data.ring import BoolArray
from ding.utils.config_helper import integer
from ding.utils.registry_factory import BUFFER_REGISTRY
from ding.utils.segment_tree import IntArray
from ding.worker.replay_buffer.episode_ends import EpisodeEnds, done_flags
from ding.worker.replay_buffer.naive_buffer import NAIVE_RULES, NaiveReplayBuffer


@BUFFER_REGISTRY.register("sequence")
class SequenceReplayBuffer(NaiveReplayBuffer):
    """Replay buffer of transitions in order, drawn in windows that lie within one episode. Thread-safe.

    An episode ends with a transition whose `done` is true, and after `episode_length` transitions in any case (None:
    only `done` ends it). Whoever pushes keeps the transitions of an episode together and in order.

    Example:
        >>> import os, tempfile
        >>> cfg = SequenceReplayBuffer.default_config()
        >>> cfg.replay_buffer_size = 8
        >>> with SequenceReplayBuffer(cfg, exp_name=os.path.relpath(tempfile.mkdtemp())) as buffer:
        ...     buffer.push([{"obs": i, "done": i == 2} for i in range(4)], cur_collector_envstep=4)
        ...     [[item["obs"] for item in window] for window in buffer.sample(1, 3, cur_learner_iter=0)]
        [[0, 1, 2]]
    """

    config = {
        **NaiveReplayBuffer.config,
        # An episode has at most so many transitions.
        "episode_length": 500,
    }
    config_rules = {**NAIVE_RULES, "episode_length": integer(1, optional=True)}

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
        """Draw `batch` windows; None (and a log line) when there are too few transitions, or no episode is long enough.

        For each window an episode is drawn uniformly among those that are long enough, then the window within it. So
        windows may overlap or come up again; each is the caller's own.

        Args:
            batch: number of windows.
            sequence: transitions in a row, the length of each window.
            cur_learner_iter: not used.
            sample_range: must be None.
            replace: whether fewer than `batch` * `sequence` transitions are enough.

        Returns:
            `batch` lists of `sequence` transitions each.

        Raises:
            ValueError: there can never be such windows: `sequence` is above `episode_length`, or `batch` * `sequence`
                above the capacity.
            NotImplementedError: a `sample_range` is given.
        """
        batch, sequence = self._check_windows(batch, sequence, replace)
        if sample_range is not None:
            raise NotImplementedError("a sequence buffer draws from all its episodes; sample_range must be None")
        if batch == 0:
            return []
        with self._lock:
            windows, reason = self._draw_windows(batch, sequence, replace)
        if windows is None:
            self._logger.info("%d windows of %d transitions cannot be sampled: %s", batch, sequence, reason)
            return None
        return [self._hand_out(window) for window in windows]

    def _check_windows(self, batch: int, sequence: int, replace: bool) -> tuple[int, int]:
        batch, sequence = index(batch), index(sequence)
        longest = min(self._store.size, self._episode_length or self._store.size)
        if batch < 0 or not 1 <= sequence <= longest:
            raise ValueError(
                f"{batch} windows of {sequence} transitions are not allowed; windows must be of 1 to {longest}, the "
                "smaller of episode_length and replay_buffer_size, and at least 0 of them"
            )
        self._check_size(batch * sequence, can_exceed=replace)
        return batch, sequence

    def _draw_windows(self, batch: int, sequence: int, replace: bool) -> tuple[list[Sequence[Any]] | None, str]:
        """Windows of transitions; or None, and why."""
        have, needed = self._store.valid_count, batch * sequence
        if have < needed and not replace:
            return None, f"{have} transitions are there, {needed} are needed"
        slots = self._ends.draw(batch, sequence, self._rng)
        if slots is None:
            return None, f"the longest episode there has {max(self._ends.episodes()[1])}"
        self._count_thruput(sampled=batch)
        return [self._store.read(row) for row in slots], ""

    def _note(self, items: list[Any]) -> None:
        self._ends.expect(done_flags(items))

    def _note_kept(self, slots: IntArray, is_kept: BoolArray) -> None:
        self._ends.keep(slots, is_kept)

    def clear(self) -> None:
        """Drop all transitions and start `push_count` at 0 again."""
        with self._lock:
            super().clear()
            self._ends.clear()

    def _notes_to_save(self) -> dict[str, Any]:
        return {"episode_ends": self._ends.is_last[self._store.occupied()]}

    def _take_in_saved(self, items: list[Any], notes: dict[str, Any]) -> None:
        # What comes from a file neither goes on with the episode under way, nor is it gone on with.
        self._ends.cut()
        super()._take_in_saved(items, notes)
        self._ends.cut()
        if "episode_ends" in notes:
            self._ends.mark_newest(notes["episode_ends"])

    def _state(self, is_copied: bool) -> dict[str, Any]:
        with self._lock:
            own = {"episode_ends": self._ends.is_last.copy(), "episode_steps": self._ends.steps}
            return {**super()._state(is_copied), **own}

    def _restore(self, state: dict[str, Any]) -> None:
        """Take over a state; where it does not tell where episodes end, it is found out as at a push."""
        super()._restore(state)
        if "episode_ends" in state:
            self._ends.is_last[:] = state["episode_ends"]
            self._ends.steps = int(state["episode_steps"])
        else:
            self._ends.mark_all(done_flags(self._store.read(self._store.occupied())))
