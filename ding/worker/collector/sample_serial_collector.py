"""The serial collector that gathers a number of train samples."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from easydict import EasyDict

from ding.utils.config_helper import boolean, check_config, integer
from ding.utils.default_helper import one_time_warning
from ding.utils.pytorch_ddp_dist_helper import allreduce_data
from ding.utils.registry_factory import SERIAL_COLLECTOR_REGISTRY
from ding.worker.collector.actor import SoloActor, StateActor
from ding.worker.collector.base_serial_collector import ISerialCollector
from ding.worker.collector.rollout import Rollout
from ding.worker.collector.serial_worker import SerialWorker
from ding.worker.collector.statistics import EpisodeStatistics
from ding.worker.collector.trajectory import INF, TrajectoryCutter

_ENV_FIRST = "set an env first (reset_env): the length of trajectory pieces depends on the number of envs"


class SampleQuota:
    """Step every ready env until the cutter has made `n_sample` samples."""

    def __init__(self, cutter: TrajectoryCutter, n_sample: int) -> None:
        self._cutter = cutter
        self._n_sample = n_sample

    def is_filled(self) -> bool:
        return len(self._cutter.samples) >= self._n_sample

    def choose(self, ready_obs: Mapping[int, Any]) -> Mapping[int, Any]:
        return ready_obs


@SERIAL_COLLECTOR_REGISTRY.register("sample")
class SampleSerialCollector(SerialWorker, ISerialCollector):
    """Collects `n_sample` train samples a call: single transitions, or sequences for recurrent policies.

    The collector owns its env manager: it launches it, and closes it with itself. On several ranks each collects
    `n_sample`; the counters are summed over the ranks once a call, so all must call `collect` equally often.

    Args:
        cfg: config, see `default_config`.
        env: an env manager that is not launched yet.
        policy: the collect mode of a policy.
        tb_logger: a TensorBoard writer shared with others; without one, one is made.
        exp_name: the experiment's folder, for the logs.
        instance_name: name in the logs and tags.
    """

    config: dict[str, Any] = {"deepcopy_obs": False, "transform_obs": False, "collect_print_freq": 100}

    def __init__(
        self,
        cfg: EasyDict,
        env: Any = None,
        policy: Any = None,
        tb_logger: Any = None,
        exp_name: str = "default_experiment",
        instance_name: str = "collector",
    ) -> None:
        rules = {"deepcopy_obs": boolean, "transform_obs": boolean, "collect_print_freq": integer(1)}
        check_config(cfg, type(self).__name__, rules, required=rules)
        self._deepcopy_obs = cfg.deepcopy_obs
        self._transform_obs = cfg.transform_obs
        self._collect_print_freq = cfg.collect_print_freq
        self._is_live = False
        self._open(cfg, tb_logger, exp_name, instance_name)
        self.reset(policy, env)
        self._is_live = True

    def reset_env(self, _env: Any = None) -> None:
        """Take over and launch `_env`, closing the env manager it replaces; with None reset the present one."""
        if _env is None:
            self._env.reset()
        else:
            self._replace_env(_env)
        if self._policy is not None:
            self._prepare()  # what is under way belongs to the episodes before the reset

    def reset_policy(self, _policy: Any = None) -> None:
        """Take over `_policy`, throwing away what the old one has under way, and reset it; with None only reset.

        Raises:
            AssertionError: no env was ever set.
        """
        if self._env is None:
            raise AssertionError(_ENV_FIRST)
        if _policy is not None:
            self._policy = _policy
            self._prepare()
        self._policy.reset()

    def reset(self, _policy: Any = None, _env: Any = None) -> None:
        """Take over what is given, reset what is not, and zero all counters, `envstep` too.

        Raises:
            AssertionError: a policy is given, but no env was ever set.
            AttributeError: env or policy is missing.
        """
        if _env is not None:
            self._replace_env(_env)
        elif self._is_live:
            self._env.reset()
        if self._env is None and _policy is not None:
            raise AssertionError(_ENV_FIRST)
        if _policy is not None:
            self._policy = _policy
        if self._env is None or self._policy is None:
            raise AttributeError(f"{type(self).__name__} needs an env manager and a policy, got {_env} and {_policy}")
        self._prepare()
        self._policy.reset()
        self._total_envstep_count = 0
        self._total_episode_count = 0
        self._total_train_sample_count = 0
        self._total_duration = 0.0
        self._last_train_iter = 0
        self._end_flag = False

    def _prepare(self) -> None:
        """Build all that depends on the policy and on the number of envs."""
        policy = self._policy
        self._policy_cfg = policy.get_attribute("cfg")
        self._default_n_sample = policy.get_attribute("n_sample")
        collect_cfg = self._policy_cfg.get("collect") or {}
        self._traj_len_inf = collect_cfg.get("traj_len_inf", self._policy_cfg.traj_len_inf)
        self._unroll_len = policy.get_attribute("unroll_len")
        self._on_policy = policy.get_attribute("on_policy")
        if self._default_n_sample is None or self._traj_len_inf:
            self._traj_len: float = INF
        else:
            self._traj_len = max(self._unroll_len, math.ceil(self._default_n_sample / self._env_num))
        self._statistics = EpisodeStatistics()
        self._cutter = TrajectoryCutter(
            policy,
            self._env_num,
            self._traj_len,
            share_next_obs=not self._deepcopy_obs,
            with_env_id=self._policy_cfg.type == "ngu_command",
            on_samples=self._statistics.on_samples,
        )
        self._traj_buffer = self._cutter.buffers
        self._actor = StateActor(policy) if self._policy_cfg.type == "dreamer_command" else SoloActor(policy)
        self._rollout = Rollout(
            self._env,
            self._actor,
            [self._cutter, self._statistics],
            float_obs=self._transform_obs,
            share_next_obs=not self._deepcopy_obs,
            info=self._logger.info,
        )

    @property
    def envstep(self) -> int:
        """Env steps so far, over all ranks; grows at the end of each `collect`."""
        return self._total_envstep_count

    @envstep.setter
    def envstep(self, value: int) -> None:
        self._total_envstep_count = value

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

        An exception (of an env, or of the policy) loses no sample: those made before it come with the next call.

        Args:
            n_sample: number of samples; None for the policy's.
            train_iter: iteration of the policy, noted in each transition as `collect_iter`.
            drop_extra: return `n_sample` samples, not the few more that the last round may have made.
            random_collect: a random policy acts (it is handed no latent state).
            record_random_collect: False to leave the finished episodes out of the logs.
            policy_kwargs: keyword arguments of the policy's forward, such as `eps`.
            level_seeds: indexable by env id; noted in each transition as `seed`.

        Raises:
            RuntimeError: `n_sample` is given neither here nor by the policy, or no env is ready any more.
            ValueError: `n_sample` is below 1.
        """
        n_sample = self._checked(n_sample)
        self._cutter.collect_iter = train_iter
        self._cutter.level_seeds = level_seeds
        self._rollout.actor = SoloActor(self._policy) if random_collect else self._actor
        self._rollout.run(SampleQuota(self._cutter, n_sample), policy_kwargs or {})
        samples, steps = self._cutter.take()
        self._count(len(samples), steps)
        if record_random_collect:
            self._output_log(train_iter)
        else:
            self._statistics.clear_summary()
        if self._on_policy:
            # Fragments of this policy version must not be finished by the next one.
            self._cutter.clear()
        return samples[:n_sample] if drop_extra else samples

    def _checked(self, n_sample: int | None) -> int:
        if n_sample is None:
            n_sample = self._default_n_sample
        if n_sample is None:
            raise RuntimeError("collect needs n_sample: give it to collect(), or set policy.collect.n_sample")
        if n_sample < 1:
            raise ValueError(f"n_sample = {n_sample} is not allowed; it must be at least 1")
        if n_sample % self._env_num != 0:
            one_time_warning(
                f"n_sample {n_sample} is not a multiple of the {self._env_num} envs: each collect makes extra samples"
            )
        return n_sample

    def _count(self, samples: int, steps: int) -> None:
        episodes, seconds = self._statistics.take_finished()
        if self._world_size > 1:
            counts = torch.tensor([samples, steps, episodes, seconds], dtype=torch.float64)
            samples, steps, episodes, seconds = allreduce_data(counts, "sum").tolist()
        self._total_train_sample_count += int(samples)
        self._total_envstep_count += int(steps)
        self._total_episode_count += int(episodes)
        self._total_duration += seconds

    def _output_log(self, train_iter: int) -> None:
        if self._rank != 0:
            self._statistics.clear_summary()
            return
        is_due = train_iter - self._last_train_iter >= self._collect_print_freq
        if not is_due or not self._statistics.summary_count:
            return
        self._last_train_iter = train_iter
        values = {
            **self._statistics.summary(),
            "total_envstep_count": self._total_envstep_count,
            "total_train_sample_count": self._total_train_sample_count,
            "total_episode_count": self._total_episode_count,
        }
        self._statistics.clear_summary()
        self._logger.info("collect end:\n%s", "\n".join(f"{key}: {value}" for key, value in values.items()))
        assert self._log is not None
        self._log.scalars(values, train_iter=train_iter)
        by_step = {key: value for key, value in values.items() if key != "total_envstep_count"}
        self._log.scalars(by_step, envstep=self._total_envstep_count)
