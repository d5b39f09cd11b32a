"""The serial collector that gathers a number of train samples."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ding.utils.config_helper import Settings
from ding.utils.data.samples import part_of
from ding.utils.registry_factory import SERIAL_COLLECTOR_REGISTRY
from ding.worker.collector.actor import Actor, SoloActor, StateActor
from ding.worker.collector.base_serial_collector import SerialCollector
from ding.worker.collector.collect_limits import FIXED_ROLLOUT, checked_n_sample, fragment_settings
from ding.worker.collector.rollout import RolloutListener
from ding.worker.collector.trajectory import INF, TrajectoryRecorder

_LOGGED = (
    "episode_count",
    "envstep_count",
    "train_sample_count",
    "avg_envstep_per_episode",
    "avg_sample_per_episode",
    "avg_envstep_per_sec",
    "avg_train_sample_per_sec",
    "avg_episode_per_sec",
    "reward_mean",
    "reward_std",
    "reward_max",
    "reward_min",
    "total_envstep_count",
    "total_train_sample_count",
    "total_episode_count",
)


@SERIAL_COLLECTOR_REGISTRY.register("sample")
class SampleSerialCollector(SerialCollector):
    """A serial collector of `n_sample` train samples a call: single transitions, or sequences for recurrent policies.

    The collector owns its env manager: it launches it, and closes it in `close`. On several ranks each collects
    `n_sample`; the counters are summed over the ranks once a call, so all must call `collect` equally often.

    Samples are made from fragments: at most `ceil(n_sample / env_num)` steps of an episode in a row. The next collect
    completes those that are unfinished; if the policy is on-policy, they are dropped. With `fixed_rollout` fragments
    end with the collect, and every step becomes a sample.

    Args:
        cfg: config, see `default_config`.
        env: an env manager that is not launched yet.
        policy: the collect mode of a policy.
        tb_logger: a TensorBoard writer shared with others; without one, one is made.
        exp_name: the experiment's folder, for the logs.
        instance_name: name in the logs and tags.
    """

    settings = Settings({"fixed_rollout": FIXED_ROLLOUT}, SerialCollector.settings)
    _counts_at_once = False

    def _read_policy(self) -> None:
        policy = self._policy
        self._policy_cfg = policy.get_attribute("cfg")
        self._default_n_sample = policy.get_attribute("n_sample")
        self._unroll_len = policy.get_attribute("unroll_len")
        self._on_policy = policy.get_attribute("on_policy")
        sizes = self._default_n_sample, self._unroll_len, self._env_num
        self._traj_len, self._fixed_rollout = fragment_settings(self._cfg, self._policy_cfg, *sizes)

    def _plugs(self, begins_episodes: bool) -> tuple[Actor, Sequence[RolloutListener]]:
        from ding.policy.modes import takes_env_id, takes_state  # here: importing the workers loads no policies

        policy = self._policy
        recorder = self._counter = TrajectoryRecorder(
            policy,
            self._env_num,
            INF if self._fixed_rollout else self._traj_len,
            fixed_rollout=self._fixed_rollout,
            share_next_obs=not self._deepcopy_obs,
            with_env_id=takes_env_id(policy),
            episodes=self._statistics,
            frame_stack=getattr(self._env, "frame_stack", 1),
        )
        self._recorders = {0: recorder}
        make_actor = StateActor if takes_state(policy) else SoloActor
        self._actor = make_actor(policy, self._transform_obs)
        return self._actor, [recorder]

    def collect(
        self,
        n_sample: int | None = None,
        train_iter: int = 0,
        drop_extra: bool = True,
        random_collect: bool = False,
        record_random_collect: bool = True,
        policy_kwargs: dict[str, Any] | None = None,
        level_seeds: Any = None,
    ) -> list[Any]:
        """Collect train samples; a round over the ready envs is always finished.

        An exception (of an env, or of the policy) loses no sample: the next call returns those made before it.

        With `fixed_rollout` it collects steps, and `n_sample` is rounded up to a multiple of `env_num`. Each env takes
        `n_sample / env_num` steps, and none is extra, if all envs answer in each round. Steps that an abnormal step
        voids are made up for.

        Args:
            n_sample: number of samples; None for the policy's.
            train_iter: iteration of the policy, noted in each transition as `collect_iter`.
            drop_extra: return exactly `n_sample` samples, without the few more that the last round may have made.
            random_collect: whether a random policy acts (it is passed no latent state).
            record_random_collect: False leaves the finished episodes out of the logs.
            policy_kwargs: keyword arguments of the policy's forward, such as `eps`.
            level_seeds: seeds, indexed by env id, that are noted in each transition as `seed`.

        Raises:
            RuntimeError: `n_sample` is given neither here nor by the policy, or no env is ready any more.
            ValueError: `n_sample` is below 1.
        """
        n_sample = checked_n_sample(n_sample, self._default_n_sample, self._env_num, self._fixed_rollout)
        recorder = self._recorders[0]
        recorder.level_seeds, recorder.target = level_seeds, n_sample
        self._rollout.actor = SoloActor(self._policy, self._transform_obs) if random_collect else self._actor
        samples = self._gather(recorder, train_iter, policy_kwargs, is_logged=record_random_collect)[0]
        if self._on_policy:
            recorder.clear()  # fragments of this version must not be finished by the next one
        return part_of(samples, 0, n_sample) if drop_extra and len(samples) > n_sample else samples

    def _log_keys(self) -> Sequence[str]:
        return _LOGGED
