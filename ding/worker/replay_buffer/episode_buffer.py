"""A buffer whose items are whole episodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ding.data.column_copies import own_samples
from ding.utils.data.samples import Samples
from ding.utils.registry_factory import BUFFER_REGISTRY
from ding.worker.replay_buffer.naive_buffer import NaiveReplayBuffer


@BUFFER_REGISTRY.register("episode")
class EpisodeReplayBuffer(NaiveReplayBuffer):
    """Naive buffer of whole episodes: an item is a list of transitions. Thread-safe.

    A list that is pushed is a list of episodes, so one episode goes in as `push([episode], envstep)`. The transitions
    of an episode are stored in columns. Sampled episodes are lists of the caller's own. For pieces of episodes,
    override `sample`.

    Example:
        >>> import os, tempfile
        >>> cfg = EpisodeReplayBuffer.default_config()
        >>> with EpisodeReplayBuffer(cfg, exp_name=os.path.relpath(tempfile.mkdtemp())) as buffer:
        ...     buffer.push([[{"obs": 0}, {"obs": 1}], [{"obs": 2}]], cur_collector_envstep=3)
        ...     buffer.episode_len, len(buffer.sample(2, cur_learner_iter=0))
        ([2, 1], 2)
    """

    # Whether it was said that an item is no episode.
    _has_warned = False

    @property
    def episode_len(self) -> list[int]:
        """The lengths of the stored episodes, in the order of their slots; empty slots are left out."""
        with self._lock:
            slots = np.flatnonzero(self._store.held)
            return [len(episode) for episode in self._store.read(slots)]

    def _note(self, items: list[Any]) -> None:
        if not self._has_warned and isinstance(items[0], Mapping):
            self._has_warned = True
            self._logger.warning(
                "an item of an episode buffer should be a whole episode, a list of transitions, but a dict was pushed; "
                "push one episode as push([episode], envstep), and collect with a collector of episodes"
            )

    def _put(self, items: list[Any]) -> tuple[int, Sequence[Any]]:
        return super()._put([_packed(item) for item in items])

    def _set_slot(self, slot: int, item: Any) -> None:
        super()._set_slot(slot, _packed(item))


def _packed(episode: Any) -> Any:
    """An episode in columns of its own, where it is a list of dicts that fit together."""
    samples = Samples.of(episode) if isinstance(episode, list) else None
    return episode if samples is None else own_samples(samples)
