"""The parts of a config that go into the tasks for collectors and learners."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from easydict import EasyDict

from ding.utils.config_helper import ConfigError

_EPISODES = ("collector_episode_num", "evaluator_episode_num")


class TaskForms:
    """Fills in tasks from the main config of an experiment, which it leaves alone.

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
        """The env section for one kind of task: its episode number becomes that of the env manager."""
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
        """The config of a parallel collector; `policy` is the config of one, or a list of them."""
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
        """A copy of the policy section."""
        return copy.deepcopy(self._cfg.policy)

    def learner_task(self, task_id: str, policy_id: str, buffer_id: str) -> dict[str, Any]:
        """A task for a learner."""
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
