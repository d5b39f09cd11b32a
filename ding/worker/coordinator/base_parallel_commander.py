"""Commanders of parallel training, which create the tasks and decide what follows from a finished one."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from easydict import EasyDict

from ding.utils.config_helper import (
    NO_DEFAULT,
    ConfigError,
    Configurable,
    Setting,
    Settings,
    anything,
    check_section,
    integer,
    number,
)
from ding.utils.default_helper import LimitedSpaceContainer
from ding.utils.import_helper import import_module
from ding.utils.object_state import SavedAttributes
from ding.utils.registry_factory import COMMANDER_REGISTRY
from ding.worker.coordinator.limiter import SERIAL, samples_per_insert
from ding.worker.coordinator.run_monitor import EnvSteps

Task = dict[str, Any]  # a task for a worker
# Importing this module registers all commanders of the package.
_ONE_VS_ONE = "ding.worker.coordinator.one_vs_one_parallel_commander"
_EPISODES = ("collector_episode_num", "evaluator_episode_num")


class TaskConfigs:
    """A factory of the configs of tasks, made from the main config of an experiment, which stays unchanged.

    Args:
        cfg: the compiled main config.

    Raises:
        ConfigError: `env.collector_episode_num` or `env.evaluator_episode_num`, the number of episodes that each env
            plays in one task, is missing or below 1.
    """

    def __init__(self, cfg: Mapping[str, Any]) -> None:
        self._cfg = EasyDict(cfg)
        self._env_cfgs = {is_eval: self._env_cfg(is_eval) for is_eval in (False, True)}

    def _env_cfg(self, is_eval: bool) -> EasyDict:
        """Return the env section for one kind of task, with the number of episodes in the env manager's section."""
        env = copy.deepcopy(self._cfg.env)
        key = _EPISODES[is_eval]
        episodes = env.get(key)
        if not isinstance(episodes, (int, float)) or isinstance(episodes, bool) or episodes < 1:
            raise ConfigError(
                f"env.{key} = {episodes!r} is not allowed; it must be the number (at least 1) of episodes that each "
                f"env plays in one {'evaluation' if is_eval else 'collecting'} task"
            )
        for name in _EPISODES:
            env.pop(name, None)
        env.manager = EasyDict({**env.get("manager", {}), "episode_num": episodes})
        return env

    def collector_cfg(
        self, is_eval: bool, collect_setting: Mapping[str, Any], policy: Any, policy_update_path: Any
    ) -> EasyDict:
        """Return the config of a parallel collector; `policy` is the config of one, or a list of them."""
        cfg = copy.deepcopy(self._cfg.policy.collect.collector)
        cfg.collect_setting = copy.deepcopy(dict(collect_setting))
        cfg.eval_flag = is_eval
        cfg.policy = policy
        cfg.policy_update_path = policy_update_path
        evaluator = self._cfg.policy.get("eval", {}).get("evaluator", {})
        if is_eval and "max_episode_steps" in evaluator:
            cfg.max_episode_steps = evaluator.max_episode_steps
        cfg.env = self._env_cfgs[is_eval]
        cfg.exp_name = self._cfg.exp_name
        return cfg

    def policy_cfg(self) -> EasyDict:
        """Return a copy of the policy section."""
        return copy.deepcopy(self._cfg.policy)

    def learner_task(self, task_id: str, policy_id: str, buffer_id: str) -> dict[str, Any]:
        """Return a task for a learner."""
        policy = self.policy_cfg()
        learner_cfg = copy.deepcopy(policy.learn.learner)
        learner_cfg.exp_name = self._cfg.exp_name
        return {
            "task_id": task_id,
            "policy_id": policy_id,
            "buffer_id": buffer_id,
            "learner_cfg": learner_cfg,
            "replay_buffer_cfg": copy.deepcopy(policy.other.replay_buffer),
            "policy": policy,
        }


class BaseCommander(SavedAttributes, Configurable, ABC):
    """Base of the commanders, which decide which tasks a coordinator runs.

    Only `get_collector_task` is required; the other methods have defaults.

    The coordinator calls all methods under one lock, and requests a task when a worker is free.

    Another commander of this type resumes from the state, which must not change afterwards: that of the attributes in
    `_saved`, see `SavedAttributes`. If it is empty, the run begins anew, except for the counters. The state is loaded
    before any other method is called. The coordinator restores the learner tasks that ran or waited, so they must not
    be given again; collector tasks that ran are lost.

    Example:
        >>> class EndsAtOnce(BaseCommander):
        ...     def __init__(self):
        ...         self._open_spaces({"collector_task_space": 1})
        ...     def get_collector_task(self):
        ...         return {"task_id": "only"} if self._collector_task_space.acquire_space() else None
        ...     def finish_collector_task(self, task_id, finished_task):
        ...         return True
        >>> commander = EndsAtOnce()
        >>> commander.get_collector_task(), commander.get_collector_task()
        ({'task_id': 'only'}, None)
    """

    # Whether an evaluation has reached the goal of the run.
    is_solved = False
    # Why the run ends when the commander ends it, unless it is solved.
    end_reason = "the training is complete"
    # The env steps of the run's collecting tasks, which the coordinator counts.
    env_steps: EnvSteps

    settings = Settings(
        {
            "collector_task_space": Setting(1, integer(0), "Maximum number of concurrent collector tasks."),
            "learner_task_space": Setting(1, integer(0), "Maximum number of concurrent learner tasks."),
            "eval_interval": Setting(60, number(0), "Seconds from the start of one evaluation to that of the next."),
            "eval_interval_env_step": Setting(
                None,
                integer(1, optional=True),
                "Env steps after which the next evaluation begins even within `eval_interval`; None for no such limit.",
            ),
            "samples_per_insert": Setting(
                SERIAL,
                samples_per_insert,
                "Samples that the learner draws for each collected one; 'serial' for the ratio of a serial run, "
                "`update_per_collect * batch_size / n_sample`; None for no limit.",
            ),
            "insert_tolerance": Setting(
                None,
                integer(1, optional=True),
                "Samples by which collectors may be ahead of that ratio; None for two chunks of each collector, or two "
                "batches.",
            ),
            "min_samples": Setting(1, integer(1), "Number of collected samples before the learner's first batch."),
            "path_policy": Setting(NO_DEFAULT, anything, "Folder of the weights; set by compilation."),
            "league": Setting(NO_DEFAULT, anything, "Settings of the league, for `one_vs_one`."),
        }
    )

    def _open_spaces(self, cfg: Mapping[str, Any]) -> EasyDict:
        """Check the commander section, and create the counters of running tasks."""
        check_section(cfg, type(self))
        own = EasyDict({**self.config, **cfg})
        self.env_steps = EnvSteps()
        self._collector_task_space = LimitedSpaceContainer(0, own.collector_task_space)
        self._learner_task_space = LimitedSpaceContainer(0, own.learner_task_space)
        return own

    @abstractmethod
    def get_collector_task(self) -> Task | None:
        """Return the next task for a collector, or None if there is none at present."""

    def get_learner_task(self) -> Task | None:
        """Return the next task for a learner, or None if there is none at present."""
        return None

    def judge_collector_finish(self, task_id: str, info: Mapping[str, Any]) -> bool:
        """Return whether the collector that sent `info` is done with its task."""
        return bool(info.get("collector_done", False))

    def judge_learner_finish(self, task_id: str, info: Mapping[str, Any]) -> bool:
        """Return whether the learner that sent `info` is done with its task."""
        return bool(info.get("learner_done", False))

    def finish_collector_task(self, task_id: str, finished_task: Mapping[str, Any]) -> bool | None:
        """Process the result of a collector task; return True if the whole run may end."""
        self._collector_task_space.release_space()
        return None

    def finish_learner_task(self, task_id: str, finished_task: Mapping[str, Any]) -> str | None:
        """Process the result of a learner task; return the id of the buffer to close."""
        self._learner_task_space.release_space()
        buffer_id: str | None = finished_task.get("buffer_id")
        return buffer_id

    def notify_fail_collector_task(self, task: Mapping[str, Any]) -> None:
        """Handle that a collector task was not run, or was aborted."""
        self._collector_task_space.release_space()

    def notify_fail_learner_task(self, task: Mapping[str, Any]) -> None:
        """Handle that a learner task was not run, or was aborted."""
        self._learner_task_space.release_space()

    def update_learner_info(self, task_id: str, info: Mapping[str, Any]) -> None:
        """Process the report of a learner about an iteration."""
        return

    def update_collector_info(self, task_id: str, info: Mapping[str, Any]) -> None:
        """Process the progress of a running collector task: `cur_episode`, `cur_step` and `cur_sample`."""
        return

    def is_collector_task_useless(self, task_id: str) -> bool:
        """Return whether further results of a running collector task are useless; it is then ended as if it were done.

        This is called after each message of the task.
        """
        return False

    def increase_collector_task_space(self) -> None:
        """Handle that an operator has brought a collector."""
        self._collector_task_space.increase_space()

    def decrease_collector_task_space(self) -> None:
        """Handle that a collector of an operator has left, or was lost."""
        self._collector_task_space.decrease_space()

    def close(self) -> None:  # noqa: B027 overriding it is optional
        """End; no other method is called afterwards."""


@COMMANDER_REGISTRY.register("naive")
class NaiveCommander(BaseCommander):
    """A commander for tests, which gives one task after another: it never evaluates and never ends a run.

    Args:
        cfg: the compiled main config.
    """

    def __init__(self, cfg: Mapping[str, Any]) -> None:
        self._cfg = EasyDict(cfg)
        self._open_spaces(self._cfg.policy.other.commander)
        self._task_configs = TaskConfigs(cfg)
        self._collector_task_count = 0
        self._learner_task_count = 0
        self._collector_task_finish_count = 0
        self._learner_task_finish_count = 0
        self._learner_info: dict[str, list[Any]] = defaultdict(list)

    def get_collector_task(self) -> Task | None:
        if not self._collector_task_space.acquire_space():
            return None
        self._collector_task_count += 1
        collector_cfg = self._task_configs.collector_cfg(
            False, {"eps": 0.9}, self._task_configs.policy_cfg(), "test.pth"
        )
        return {
            "task_id": f"collector_task_id{self._collector_task_count}",
            "buffer_id": "test",
            "collector_cfg": collector_cfg,
        }

    def get_learner_task(self) -> Task | None:
        if not self._learner_task_space.acquire_space():
            return None
        self._learner_task_count += 1
        return self._task_configs.learner_task(f"learner_task_id{self._learner_task_count}", "test.pth", "test")

    def finish_collector_task(self, task_id: str, finished_task: Mapping[str, Any]) -> None:
        super().finish_collector_task(task_id, finished_task)
        self._collector_task_finish_count += 1

    def finish_learner_task(self, task_id: str, finished_task: Mapping[str, Any]) -> str | None:
        self._learner_task_finish_count += 1
        return super().finish_learner_task(task_id, finished_task)

    def update_learner_info(self, task_id: str, info: Mapping[str, Any]) -> None:
        self._learner_info[task_id].append(info)


def create_parallel_commander(cfg: Mapping[str, Any]) -> BaseCommander:
    """Return the commander that `cfg.policy.other.commander.type` names, after importing its `import_names`.

    Args:
        cfg: the compiled main config.

    Raises:
        KeyError: no commander is registered under that type.
    """
    section = EasyDict(cfg).policy.other.commander
    commander: BaseCommander = get_parallel_commander_cls(section)(cfg=cfg)
    return commander


def get_parallel_commander_cls(cfg: Mapping[str, Any]) -> type:
    """Return the commander class registered as `cfg['type']`, after importing `cfg['import_names']`.

    Raises:
        KeyError: no commander is registered under that type.
    """
    import_module([_ONE_VS_ONE, *cfg.get("import_names", [])])
    commander_cls: type = COMMANDER_REGISTRY.get(cfg["type"])
    return commander_cls
