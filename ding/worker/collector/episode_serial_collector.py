"""The serial collector that gathers a number of whole episodes."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from ding.utils.config_helper import Setting, Settings, boolean
from ding.utils.registry_factory import SERIAL_COLLECTOR_REGISTRY
from ding.worker.collector.actor import Actor, SoloActor
from ding.worker.collector.base_serial_collector import SerialCollector
from ding.worker.collector.collect_limits import EpisodeQuota, checked_n_episode, episode_data
from ding.worker.collector.rollout import RolloutListener
from ding.worker.collector.trajectory import INF, TrajectoryRecorder


@SERIAL_COLLECTOR_REGISTRY.register("episode")
class EpisodeSerialCollector(SerialCollector):
    """A serial collector of `n_episode` whole episodes a call, as lists of transitions or as train samples.

    Exactly that many episodes are played: an env that has ended one plays the next that is missing, or waits. The
    collector owns its env manager: it launches it, and closes it in `close`. On several ranks each collects
    `n_episode`; the counters are summed over the ranks once a call, so all must call `collect` equally often.

    Args:
        cfg: config, see `default_config`.
        env: an env manager that is not launched yet.
        policy: the collect mode of a policy.
        tb_logger: a TensorBoard writer shared with others; without one, one is made.
        exp_name: the experiment's folder, for the logs.
        instance_name: name in the logs and tags.

    Example:
        >>> from ding.envs import BaseEnvManager, GymnasiumEnv
        >>> from ding.policy import DQNPolicy
        >>> envs = BaseEnvManager([lambda: GymnasiumEnv({"env_id": "CartPole-v1"})] * 2)
        >>> envs.seed(0)
        >>> policy_cfg = DQNPolicy.default_config()
        >>> policy_cfg.model = {"obs_shape": 4, "action_shape": 2}
        >>> policy = DQNPolicy(policy_cfg, enable_field=["collect"])
        >>> collector = EpisodeSerialCollector(EpisodeSerialCollector.default_config(), envs, policy.collect_mode)
        >>> episodes = collector.collect(n_episode=3, policy_kwargs={"eps": 1.0})
        >>> len(episodes), [bool(episode[-1]["done"]) for episode in episodes]
        (3, [True, True, True])
        >>> collector.envstep == sum(len(episode) for episode in episodes)
        True
        >>> collector.close()
    """

    settings = Settings(
        {
            "get_train_sample": Setting(False, boolean, "Whether train samples are returned instead of episodes."),
            "reward_shaping": Setting(False, boolean, "Whether the env reshapes the rewards of each finished episode."),
        },
        SerialCollector.settings,
    )

    _quota: EpisodeQuota

    def _read_policy(self) -> None:
        policy = self._policy
        self._policy_cfg = policy.get_attribute("cfg")
        self._default_n_episode = policy.get_attribute("n_episode")
        self._unroll_len = policy.get_attribute("unroll_len")
        self._on_policy = policy.get_attribute("on_policy")
        self._traj_len = INF

    def _plugs(self, begins_episodes: bool) -> tuple[Actor, Sequence[RolloutListener]]:
        recorder = self._counter = TrajectoryRecorder(
            self._policy,
            self._env_num,
            self._traj_len,
            share_next_obs=not self._deepcopy_obs,
            make_samples=partial(episode_data, self._cfg, self._policy, env=self._env),
        )
        self._recorders = {0: recorder}
        left = () if begins_episodes else self._quota.playing
        self._quota = EpisodeQuota(lambda: len(recorder.fragments), left)
        return SoloActor(self._policy, self._transform_obs), [recorder, self._quota]

    def collect(
        self, n_episode: int | None = None, train_iter: int = 0, policy_kwargs: dict[str, Any] | None = None
    ) -> list[Any]:
        """Collect episodes, and return them in the order in which they end.

        An exception (of an env, or of the policy) loses no finished episode: the next call returns them, and the
        unfinished ones are played anew.

        Args:
            n_episode: number of episodes; None for the policy's.
            train_iter: iteration of the policy, noted in each transition as `collect_iter`.
            policy_kwargs: keyword arguments of the policy's forward, such as `eps`.

        Returns:
            `n_episode` lists of transitions; with `get_train_sample` the samples of all episodes in one list.

        Raises:
            RuntimeError: `n_episode` is given neither here nor by the policy, or no env is ready any more.
            AssertionError: `n_episode` is below the number of envs.
        """
        n_episode = checked_n_episode(n_episode, self._default_n_episode, self._env_num)
        self._quota.begin(n_episode, self._rollout.restart)
        return self._gather(self._quota, train_iter, policy_kwargs, limit=n_episode)[0]
