"""The serial collector that gathers whole episodes of two players."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ding.utils.config_helper import Setting, Settings, boolean
from ding.utils.registry_factory import SERIAL_COLLECTOR_REGISTRY
from ding.worker.collector.actor import Actor
from ding.worker.collector.collect_limits import EpisodeQuota, checked_n_episode
from ding.worker.collector.players import BattleCollector
from ding.worker.collector.rollout import RolloutListener


@SERIAL_COLLECTOR_REGISTRY.register("episode_1v1")
class BattleEpisodeSerialCollector(BattleCollector):
    """A serial collector of `n_episode` whole episodes of two policies that play against each other.

    It differs from `EpisodeSerialCollector` in that observations, rewards and infos of the envs hold one entry for each
    player, and in that an env is given the list of the two actions.

    Args:
        cfg: config, see `default_config`.
        env: an env manager that is not launched yet.
        policy: a list of the collect modes of two policies; may be given later, to `reset_policy`.
        tb_logger: a TensorBoard writer shared with others; without one, one is made.
        exp_name: the experiment's folder, for the logs.
        instance_name: name in the logs and tags.
    """

    settings = Settings(
        {"get_train_sample": Setting(False, boolean, "Whether train samples are returned instead of episodes.")},
        BattleCollector.settings,
    )
    _exact_players = 2
    _gathers_episodes = True

    _quota: EpisodeQuota

    def _plugs(self, begins_episodes: bool) -> tuple[Actor, Sequence[RolloutListener]]:
        actor, recorders = super()._plugs(begins_episodes)
        left = () if begins_episodes else self._quota.playing
        self._quota = EpisodeQuota(self._infos.episodes, left)
        return actor, [*recorders, self._quota]

    def collect(
        self, n_episode: int | None = None, train_iter: int = 0, policy_kwargs: dict[str, Any] | None = None
    ) -> tuple[list[list[Any]], list[list[Any]]]:
        """Collect episodes, and return them in the order in which they end.

        An exception loses no finished episode: the next call returns them, and the unfinished ones are played anew.

        Args:
            n_episode: number of episodes; None for that of policy 0.
            train_iter: iteration of the policies, noted in each transition as `collect_iter`.
            policy_kwargs: keyword arguments of the forward of both policies.

        Returns:
            `(data, infos)`, each a list of one list for each policy. A data list has `n_episode` lists of transitions
            or, with `get_train_sample`, the samples of all episodes; a list of infos has the env's last info of each
            episode.

        Raises:
            RuntimeError: there are no policies yet, `n_episode` is given nowhere, or no env is ready any more.
            AssertionError: `n_episode` is below the number of envs.
        """
        self._begin(train_iter)
        n_episode = checked_n_episode(n_episode, self._default_n_episode, self._env_num)
        self._quota.begin(n_episode, self._rollout.restart)
        self._rollout.run(self._quota, policy_kwargs or {})
        episodes, infos, steps = self._take(n_episode)
        self._count(steps)
        self._output_log(train_iter)
        return episodes, infos


# The name in earlier releases.
Episode1v1Collector = BattleEpisodeSerialCollector
