"""A replay buffer of whole episodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ding.data.columns import own_samples
from ding.data.priority_index import Slots
from ding.utils.data.samples import Node, Samples
from ding.utils.registry_factory import BUFFER_REGISTRY
from ding.worker.replay_buffer.naive_buffer import NaiveReplayBuffer


@BUFFER_REGISTRY.register("episode")
class EpisodeReplayBuffer(NaiveReplayBuffer):
    """Naive buffer whose items are episodes: lists of transitions. Thread-safe.

    `push` takes a list of episodes; push a single one as `push([episode], envstep)`. The transitions of an episode are
    stored in columns. Sampled episodes are new lists, owned by the caller. To sample parts of episodes, override
    `sample`.

    Example:
        >>> import os, tempfile
        >>> cfg = EpisodeReplayBuffer.default_config()
        >>> with EpisodeReplayBuffer(cfg, exp_name=os.path.relpath(tempfile.mkdtemp())) as buffer:
        ...     buffer.push([[{"obs": 0}, {"obs": 1}], [{"obs": 2}]], cur_collector_envstep=3)
        ...     buffer.episode_len, len(buffer.sample(2, cur_learner_iter=0))
        ([2, 1], 2)
    """

    _has_warned = False

    @property
    def episode_len(self) -> list[int]:
        """The lengths of the stored episodes, by slot; empty slots are skipped."""
        with self._lock:
            slots = np.flatnonzero(self._store.held)
            return [len(episode) for episode in self._store.read(slots)]

    def _before_insert(self, items: list[Any]) -> None:
        if not self._has_warned and isinstance(items[0], Mapping):
            self._has_warned = True
            self._logger.warning(
                "an item of an episode buffer should be an episode, a list of transitions, but a dict was pushed; "
                "push one episode as push([episode], envstep), and collect with an episode collector"
            )

    def _write(self, items: list[Any], columns: dict[str, Node] | None, count: int) -> tuple[Slots, int, Sequence[Any]]:
        return super()._write([_packed(item) for item in items], None, count)


def _packed(episode: Any) -> Any:
    """Return an episode as columns that own their memory, if it is a list of dicts with matching fields."""
    samples = Samples.of(episode) if isinstance(episode, list) else None
    return episode if samples is None else own_samples(samples)
