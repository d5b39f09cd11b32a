"""The interface and the base of serial collectors, their factories, and what evaluators share with them."""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Protocol

import torch
from easydict import EasyDict

from ding.envs.env_manager.block import StackedFormat
from ding.utils.config_helper import Configurable, Setting, Settings, boolean, check_section, integer
from ding.utils.import_helper import import_module
from ding.utils.log_helper import shown
from ding.utils.object_state import SavedAttributes
from ding.utils.pytorch_ddp_dist_helper import allreduce_data, get_rank, get_world_size
from ding.utils.registry_factory import SERIAL_COLLECTOR_REGISTRY
from ding.worker.collector.actor import Actor, SoloActor
from ding.worker.collector.rollout import Quota, Rollout, RolloutListener
from ding.worker.collector.statistics import STATISTICS, EpisodeStatistics
from ding.worker.collector.trajectory import (
    INF,
    CachePool,
    TrajBuffer,
    TrajectoryRecorder,
    to_tensor_transitions,
)
from ding.worker.worker_log import WorkerLog

__all__ = [
    "INF",
    "CachePool",
    "ISerialCollector",
    "TrajBuffer",
    "create_serial_collector",
    "get_serial_collector_cls",
    "to_tensor_transitions",
]


class ISerialCollector(Configurable, ABC):
    """The interface of collectors that gather data in this process: a policy acts in the envs of a manager."""

    @abstractmethod
    def reset_env(self, _env: Any = None) -> None:
        """Take over and launch a new env manager; with None reset the present one."""
        raise NotImplementedError

    @abstractmethod
    def reset_policy(self, _policy: Any = None) -> None:
        """Take over a new policy (the collect mode); with None reset the present one."""
        raise NotImplementedError

    @abstractmethod
    def reset(self, _policy: Any = None, _env: Any = None) -> None:
        """Reset env and policy, or take over new ones, and start counting from zero."""
        raise NotImplementedError

    @abstractmethod
    def collect(self, per_collect_target: Any) -> Any:
        """Gather the given amount of data and return it."""
        raise NotImplementedError

    @property
    @abstractmethod
    def envstep(self) -> int:
        """Env steps taken so far."""
        raise NotImplementedError


def create_serial_collector(cfg: EasyDict, **kwargs: Any) -> ISerialCollector:
    """Import the modules in `cfg.import_names`, then build the collector registered as `cfg.type`.

    Raises:
        AttributeError: `cfg` has no `type`.
        KeyError: nothing is registered under that type.
    """
    import_module(cfg.get("import_names", []))
    collector: ISerialCollector = SERIAL_COLLECTOR_REGISTRY.build(cfg.type, cfg=cfg, **kwargs)
    return collector


def get_serial_collector_cls(cfg: EasyDict) -> type[ISerialCollector]:
    """Import the modules in `cfg.import_names`, then look up the collector class registered as `cfg.type`.

    Raises:
        AssertionError: `cfg` has no `type`.
        KeyError: nothing is registered under that type.
    """
    import_module(cfg.get("import_names", []))
    if "type" not in cfg:
        raise AssertionError(f"the collector config needs a 'type', one of {sorted(SERIAL_COLLECTOR_REGISTRY)}: {cfg}")
    collector_cls: type[ISerialCollector] = SERIAL_COLLECTOR_REGISTRY.get(cfg.type)
    return collector_cls


class SerialWorker(SavedAttributes):
    """The owner of an env manager and logs; `close` closes both. A half-built worker closes quietly."""

    _needs_policy = True  # whether the constructor needs a policy
    _end_flag = True
    _env: Any = None
    _env_num = 0
    _policy: Any = None
    _log: WorkerLog | None = None
    _actor = SoloActor(None)  # acts in no env yet
    _rank = 0
    _world_size = 1

    def _open(self, cfg: Any, tb_logger: Any, exp_name: str, instance_name: str) -> None:
        """Keep the config and the rank, and open the logs; only rank 0 writes to TensorBoard."""
        self._cfg = cfg
        self._exp_name = exp_name
        self._instance_name = instance_name
        self._rank, self._world_size = get_rank(), get_world_size()
        self._log = WorkerLog(exp_name, instance_name, tb_logger, is_monitor=self._rank == 0)
        self._logger = self._log.text
        self._tb_logger = self._log.tb
        self._end_flag = False

    def _replace_env(self, env: Any, launch: bool = True) -> None:
        """Take over `env`, launch it, and close the env manager it replaces.

        Raises:
            TypeError: `env` returns stacked batches, as the managers for middleware do, instead of `{env_id: item}`.
        """
        if isinstance(env, StackedFormat):
            raise TypeError(
                f"{type(self).__name__} needs an env manager that returns observations and timesteps by env; "
                f"{type(env).__name__} stacks them: set env_manager.type to 'base' or 'subprocess', without '_v2'"
            )
        if launch:
            env.launch()
        if self._env is not None and self._env is not env:
            self._env.close()
        self._env = env
        self._env_num = env.env_num
        self._end_flag = False

    def _check_complete(self, _policy: Any, _env: Any) -> None:
        """Raise an AttributeError if there is no env, or no policy, after these were given."""
        if self._env is None or (self._policy is None and self._needs_policy):
            raise AttributeError(
                f"{type(self).__name__} needs an env manager and a policy, got {shown(_env, str)} and "
                f"{shown(_policy, str)}"
            )

    def _acting_policies(self) -> list[Any]:
        """Return the policies that act, one for each player."""
        return [self._policy]

    def _checked_policy(self, policy: Any) -> Any:
        """Check the policy, and return it in the form in which it is kept."""
        return policy

    def _reset_policies(self) -> None:
        for policy in self._acting_policies():
            policy.reset()

    def _sum_over_ranks(self, *values: float) -> list[float]:
        """Return each value summed over all ranks, in one reduction; all ranks must call this together."""
        if self._world_size == 1:
            return [float(value) for value in values]
        total: list[float] = allreduce_data(torch.tensor(values, dtype=torch.float64), "sum").tolist()
        return total

    def close(self) -> None:
        """Close the env manager; flush the TensorBoard writer, and close it unless it was passed in.

        Further calls do nothing.
        """
        if self._end_flag:
            return
        self._end_flag = True
        if self._env is not None:
            self._env.close()
        if self._log is not None:
            self._log.close()

    def __del__(self) -> None:
        # At interpreter exit the attributes may be gone already, and there is no caller to raise an error to.
        with contextlib.suppress(Exception):
            self.close()


_ENV_FIRST = "set an env first (reset_env): the length of fragments depends on the number of envs"
_REQUIRED = ("deepcopy_obs", "transform_obs", "collect_print_freq")

LOGGED_COUNTS = (
    "episode_count",
    "envstep_count",
    "avg_envstep_per_episode",
    "avg_envstep_per_sec",
    "avg_episode_per_sec",
    "collect_time",
)
LOGGED_TOTALS = ("total_envstep_count", "total_episode_count", "total_duration")

# The version of the states of collectors; it changes with their content.
_FORMAT = 6


class Counter(Protocol):
    """The interface of a listener that counts the env steps which the collector has not added to its totals yet."""

    steps: int


class SerialCollector(SerialWorker, ISerialCollector):
    """Base of the serial collectors; a subclass chooses actor and listeners of the rollout, and what `collect` returns.

    The collector owns its env manager: it launches it, and closes it in `close`. On several ranks each collects its
    own share; the counters are summed over the ranks once a call, so all must call `collect` equally often.

    Args:
        cfg: config, see `default_config`.
        env: an env manager that is not launched yet.
        policy: the collect mode of a policy (for battles a list of them).
        tb_logger: a TensorBoard writer shared with others; without one, one is made.
        exp_name: the experiment's folder, for the logs.
        instance_name: name in the logs and tags.
    """

    settings = Settings(
        {
            "deepcopy_obs": Setting(
                False, boolean, "Kept for compatibility: observations are always copied, and only once."
            ),
            "transform_obs": Setting(False, boolean, "Kept for compatibility."),
            "collect_print_freq": Setting(100, integer(1), "Number of collections between two reports in the log."),
        }
    )
    _saved: ClassVar[tuple[str, ...]] = (
        "_total_envstep_count",
        "_total_episode_count",
        "_total_train_sample_count",
        "_total_duration",
        "_last_train_iter",
    )
    _players: int | None = None  # number of players; None if infos are not by player
    _is_prepared = False

    _rollout: Rollout
    _statistics: EpisodeStatistics
    _recorders: dict[int, TrajectoryRecorder]  # by player, of those whose data is collected
    _counter: Counter | None = None  # None while there is no policy
    _counts_at_once = True  # whether `envstep` changes with each step, not only after a collect
    _total_envstep_count = 0

    def __init__(
        self,
        cfg: EasyDict,
        env: Any = None,
        policy: Any = None,
        tb_logger: Any = None,
        exp_name: str = "default_experiment",
        instance_name: str = "collector",
    ) -> None:
        check_section(cfg, type(self), required=_REQUIRED)
        self._deepcopy_obs = cfg.deepcopy_obs
        self._transform_obs = cfg.transform_obs
        self._collect_print_freq = cfg.collect_print_freq
        self._is_live = False
        self._open(cfg, tb_logger, exp_name, instance_name)
        self.reset(policy, env)
        self._is_live = True

    def reset_env(self, _env: Any = None) -> None:
        """Take over and launch `_env`, and close the env manager it replaces; with None reset the present one.

        Episodes begin anew, and the policy is reset.
        """
        if _env is None:
            self._env.reset()
        else:
            self._replace_env(_env)
        if self._policy is not None:
            self._prepare(begins_episodes=True)
            self._reset_policies()

    def reset_policy(self, _policy: Any = None) -> None:
        """Take over and reset `_policy`, and drop unfinished data of the old one; with None only reset the present one.

        Raises:
            AssertionError: no env was ever set.
        """
        if self._env is None:
            raise AssertionError(_ENV_FIRST)
        if _policy is not None:
            self._policy = self._checked_policy(_policy)
            self._prepare(begins_episodes=False)
        self._reset_policies()

    def reset(self, _policy: Any = None, _env: Any = None) -> None:
        """Use the given policy and env, reset those that are not given, and zero all counters, `envstep` too.

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
            self._policy = self._checked_policy(_policy)
        self._check_complete(_policy, _env)
        self._is_prepared = False
        if self._policy is not None:
            self._prepare(begins_episodes=True)
            self._reset_policies()
        self._total_envstep_count = 0
        self._total_episode_count = 0
        self._total_train_sample_count = 0
        self._total_duration = 0.0
        self._last_train_iter = 0
        self._end_flag = False

    def _prepare(self, begins_episodes: bool) -> None:
        """Build everything that depends on the policy and on the number of envs.

        Args:
            begins_episodes: whether the envs have been reset or replaced; otherwise their episodes continue.
        """
        self._read_policy()
        self._total_envstep_count = self.envstep  # with what the present counter has counted
        if not self._is_prepared or self._statistics.players != self._players:
            self._statistics = EpisodeStatistics(self._players, self._env_num)
        elif begins_episodes:
            self._statistics.begin_episodes(self._env_num)
        actor, listeners = self._plugs(begins_episodes or not self._is_prepared)
        # The statistics come first: an episode that they reject ends for no listener.
        listeners = [self._statistics, *listeners]
        if self._is_prepared and not begins_episodes:
            self._rollout.replace(actor, listeners)
            return
        self._is_prepared = True
        self._rollout = Rollout(self._env, actor, listeners, info=self._logger.info)

    @abstractmethod
    def _read_policy(self) -> None:
        """Read the settings of the policy that collecting depends on."""

    @abstractmethod
    def _plugs(self, begins_episodes: bool) -> tuple[Actor, Sequence[RolloutListener]]:
        """Build the actor and the listeners, among them recorders and counter; the statistics exist already."""

    def _gather(
        self,
        quota: Quota,
        train_iter: int,
        policy_kwargs: Mapping[str, Any] | None,
        limit: int | None = None,
        is_logged: bool = True,
    ) -> dict[int, list[Any]]:
        """Collect until `quota` is filled, and return the data of each player, with a `limit` of so many episodes.

        Without `is_logged` the finished episodes are left out of the logs.
        """
        for recorder in self._recorders.values():
            recorder.collect_iter = train_iter
        self._rollout.run(quota, policy_kwargs or {})
        assert self._counter is not None
        steps = self._counter.steps
        data = {player: recorder.take(limit)[0] for player, recorder in self._recorders.items()}
        self._counter.steps = 0
        self._count(steps, sum(map(len, data.values())))
        if is_logged:
            self._output_log(train_iter)
        else:
            self._statistics.clear_summary()
        return data

    def state_dict(self) -> dict[str, Any]:
        """Return counts, statistics and unfinished data between two collects, in plain values.

        The states of envs and policy are not included.
        """
        return {
            **super().state_dict(),
            "format": _FORMAT,
            "rollout": self._rollout.state_dict() if self._is_prepared else None,
            "actor": self._actor.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> list[str]:
        """Restore a state of `state_dict` of a collector of this kind; envs and policy must be restored before.

        An episode whose env does not continue stays unfinished, and the policy is reset for that env.

        Returns:
            The reasons why it is not restored exactly, a sentence for each.

        Raises:
            ValueError: the collector has no policy yet, or the state is from a collector of another kind or version.
        """
        if state.get("format") != _FORMAT:
            raise ValueError(
                f"the state of {type(self).__name__} is of another version of this package, and cannot be loaded"
            )
        problems: list[str] = []
        if state["rollout"] is not None:
            if not self._is_prepared:
                raise ValueError(f"{type(self).__name__} has no policy yet: give it one with reset_policy first")
            if state["actor"]:  # empty of a policy without states
                problems += self._actor.load_state_dict(state["actor"])
            problems += self._rollout.load_state_dict(state["rollout"])
        return problems + super().load_state_dict(state)

    @property
    def _traj_buffer(self) -> dict[int, Any]:
        """Copies of the transitions that are not samples yet, `{env_id: TrajBuffer}`, as DI-engine has it."""
        return {env_id: self._recorders[0].under_way(env_id) for env_id in range(self._env_num)}

    @property
    def envstep(self) -> int:
        """Env steps so far, over all ranks; those of other ranks, and of `sample` collectors, count after a collect."""
        counter = self._counter if self._counts_at_once else None
        return self._total_envstep_count + (0 if counter is None else counter.steps)

    @envstep.setter
    def envstep(self, value: int) -> None:
        self._total_envstep_count += value - self.envstep

    def _count(self, steps: int, samples: int) -> None:
        """Add the steps and samples of a collect to the totals over all ranks."""
        episodes, seconds = self._statistics.take_finished()
        totals = self._sum_over_ranks(samples, steps, episodes, seconds)
        self._total_train_sample_count += int(totals[0])
        self._total_envstep_count += int(totals[1])
        self._total_episode_count += int(totals[2])
        self._total_duration += totals[3]

    def _output_log(self, train_iter: int) -> None:
        """Log the episodes since the last output, if there are some and `collect_print_freq` iterations have passed."""
        statistics = self._statistics
        if self._rank != 0:
            statistics.clear_summary()
            return
        is_due = train_iter - self._last_train_iter >= self._collect_print_freq
        if not is_due or not statistics.summary_count:
            return
        self._last_train_iter = train_iter
        known = {
            **statistics.summary(),
            "total_envstep_count": self._total_envstep_count,
            "total_train_sample_count": self._total_train_sample_count,
            "total_episode_count": self._total_episode_count,
            "total_duration": self._total_duration,
        }
        values = {key: known[key] for key in self._log_keys()}
        statistics.clear_summary()
        self._logger.info("collect end:\n%s", "\n".join(f"{key}: {value}" for key, value in values.items()))
        assert self._log is not None
        self._log.scalars(values, train_iter, self._total_envstep_count, iter_only=("total_envstep_count",))

    def _log_keys(self) -> Sequence[str]:
        """Return the names of the logged values, in order."""
        rewards = [f"{name}_{which}" for name in self._statistics.reward_names for which in STATISTICS]
        return *LOGGED_COUNTS, *rewards, *LOGGED_TOTALS
