"""The commander that trains one policy on collected samples."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from time import monotonic
from typing import Any, ClassVar, NamedTuple

from easydict import EasyDict

from ding.utils.config_helper import check_values, integer
from ding.utils.log_helper import build_logger
from ding.utils.registry_factory import COMMANDER_REGISTRY
from ding.utils.system_helper import get_task_uid
from ding.worker.coordinator.base_parallel_commander import BaseCommander, Task, TaskConfigs
from ding.worker.transport.transport import COLLECTOR

_EVALUATOR = "evaluator"
_EVALUATOR_RULES = {"patience": integer(1, optional=True)}
# Key in a finished task -> key in the logs.
REPORTED = {
    "real_episode_count": "episode_count",
    "step_count": "step_count",
    "avg_step_per_episode": "avg_step_per_episode",
    "avg_time_per_step": "avg_time_per_step",
    "avg_time_per_episode": "avg_time_per_episode",
    "reward_mean": "reward_mean",
    "reward_std": "reward_std",
}


class Training(NamedTuple):
    """The ids of the running learner task."""

    task_id: str
    policy_id: str
    buffer_id: str


@COMMANDER_REGISTRY.register("solo")
class SoloCommander(BaseCommander):
    """The commander that trains one policy on collected samples, until an evaluation reaches `env.stop_value`.

    The first collector task is an evaluation, and so is the next one whenever `eval_interval` seconds, or
    `eval_interval_env_step` env steps, have passed since the last evaluation began, unless it still runs. When the
    learner has trained all its iterations, its last weights are evaluated, after an evaluation that still runs; then
    the run ends. It also ends when
    `policy.eval.evaluator.patience` evaluations in a row had no better mean return than the best one. A subclass may
    define the policies of a task (`_collector_cfg`), and further conditions for the end of the run (`_reaches_goal`).

    Args:
        cfg: the compiled main config.

    Raises:
        ConfigError: a value in the commander section or the patience is not allowed, or a number of episodes is missing
            in `env`.
    """

    # The prefix of the ids of evaluation tasks.
    _eval_prefix = "collector_task"
    # Added to the log line of the evaluation that ends the run.
    _goal_note = ""
    _saved: ClassVar[tuple[str, ...]] = (
        "_is_trained",
        "_learner_info",
        "_evaluator_info",
        "_best_return",
        "_idle_evaluations",
        "_last_eval_step",
    )

    def __init__(self, cfg: Mapping[str, Any]) -> None:
        self._cfg = EasyDict(cfg)
        own = self._open_spaces(self._cfg.policy.other.commander)
        self._eval_interval, self._eval_steps = own.eval_interval, own.eval_interval_env_step or math.inf
        self._stop_value = self._cfg.env.get("stop_value")
        patience = self._cfg.policy.get("eval", {}).get("evaluator", {}).get("patience")
        check_values({"patience": patience}, "the section policy.eval.evaluator", _EVALUATOR_RULES)
        self._patience: float = math.inf if patience is None else patience
        self._task_configs = TaskConfigs(cfg)
        from ding.policy.base_policy import create_policy  # here: importing the workers loads no policies

        policy: Any = create_policy(self._cfg.policy, enable_field=["command"])
        self._policy = policy.command_mode
        folder = os.path.join(".", self._cfg.exp_name, "log", "commander")
        self._texts: dict[str, Any] = {
            kind: build_logger(folder, f"commander_{kind}", need_tb=False)[0] for kind in (COLLECTOR, _EVALUATOR)
        }
        self._tb_logger: Any = build_logger(folder, "commander", need_text=False)[1]
        self._training: Training | None = None
        self._is_trained = False
        self._learner_info: list[dict[str, Any]] = [{"learner_step": 0}]  # the newest report
        self._evaluator_info: list[dict[str, Any]] = []
        self._best_return = -math.inf
        self._idle_evaluations = 0  # number of evaluations since the best mean return
        self._last_eval_time: float | None = None
        self._last_eval_step = 0
        self._evaluating: set[str] = set()
        self._last_evaluation: str | None = None  # the task for the final weights
        self._collecting: dict[str, str] = {}  # tasks, and the buffers they fill
        self._end_flag = False

    def _collector_cfg(self, task_id: str, is_eval: bool, setting: Mapping[str, Any], training: Training) -> EasyDict:
        """Return the config of the collector for a task."""
        return self._task_configs.collector_cfg(is_eval, setting, self._task_configs.policy_cfg(), training.policy_id)

    def _take_collected(self, task_id: str, finished_task: Mapping[str, Any]) -> None:
        """Process the result of a collecting task."""

    @property
    def envstep(self) -> int:
        """Env steps of all collecting tasks so far."""
        return self.env_steps.total

    @property
    def evaluations(self) -> list[dict[str, Any]]:
        """The results of all evaluations, in order."""
        return self._evaluator_info

    def get_collector_task(self) -> Task | None:
        training = self._training
        if self._end_flag or training is None or not self._collector_task_space.acquire_space():
            return None
        is_eval = self._should_evaluate()
        if self._is_trained and not is_eval:
            self._collector_task_space.release_space()
            return None
        task_id = f"{self._eval_prefix if is_eval else 'collector_task'}_{get_task_uid()}"
        setting = self._policy.get_setting_collect({**self._learner_info[-1], "envstep": self.envstep})
        cfg = self._collector_cfg(task_id, is_eval, setting, training)
        if is_eval:
            self._last_eval_time, self._last_eval_step = monotonic(), self.envstep
            self._evaluating.add(task_id)
            self._last_evaluation = task_id if self._is_trained else None
        else:
            self._collecting[task_id] = training.buffer_id
        return {"task_id": task_id, "buffer_id": training.buffer_id, "collector_cfg": cfg}

    def _should_evaluate(self) -> bool:
        if self._evaluating:
            return False
        if self._is_trained:
            return self._last_evaluation is None
        if self._last_eval_time is None or self.envstep - self._last_eval_step >= self._eval_steps:
            return True
        return bool(monotonic() - self._last_eval_time > self._eval_interval)

    def get_learner_task(self) -> Task | None:
        if self._end_flag or self._is_trained or not self._learner_task_space.acquire_space():
            return None
        ids = Training(*(f"{kind}_{get_task_uid()}" for kind in ("learner_task", "policy", "buffer")))
        self._training = ids
        return self._task_configs.learner_task(ids.task_id, ids.policy_id, ids.buffer_id)

    def finish_collector_task(self, task_id: str, finished_task: Mapping[str, Any]) -> bool:
        """Process the result of a collector task.

        Returns:
            Whether the run may end: an evaluation has reached the goal, the patience is exhausted, or the learner is
            done.
        """
        self._collector_task_space.release_space()
        self._collecting.pop(task_id, None)
        self._evaluating.discard(task_id)
        if not finished_task["eval_flag"]:
            self._report(COLLECTOR, finished_task)
            self._take_collected(task_id, finished_task)
            return False
        self._report(_EVALUATOR, finished_task)
        self._evaluator_info.append(dict(finished_task))
        is_solved = is_idle = False
        if finished_task["real_episode_count"]:
            self._compare(finished_task["reward_mean"])
            is_solved = self._reaches_goal(finished_task)
            is_idle = self._idle_evaluations >= self._patience
        self.is_solved = self.is_solved or is_solved
        if is_idle and not is_solved and not self._end_flag:
            self.end_reason = f"no better mean return in {self._idle_evaluations} evaluations"
            self._texts[_EVALUATOR].info("%s: the run ends", self.end_reason)
        self._end_flag = self._end_flag or is_solved or is_idle or task_id == self._last_evaluation
        return self._end_flag

    def _compare(self, mean_return: float) -> None:
        """Count the evaluations since the best mean return, for the patience."""
        if mean_return > self._best_return:
            self._best_return, self._idle_evaluations = float(mean_return), 0
        elif not math.isnan(mean_return):
            self._idle_evaluations += 1

    def _reaches_goal(self, finished_task: Mapping[str, Any]) -> bool:
        """Return whether the mean return of an evaluation has reached `env.stop_value`; if so, log it."""
        reward, stop_value = finished_task["reward_mean"], self._stop_value
        if stop_value is None or reward < stop_value:
            return False
        message = "the mean return %.4f has reached stop_value %s%s: the run ends"
        self._texts[_EVALUATOR].info(message, reward, stop_value, self._goal_note)
        return True

    def _report(self, kind: str, finished_task: Mapping[str, Any]) -> None:
        if not finished_task["real_episode_count"]:
            return  # aborted early: there is nothing to average
        text = self._texts[kind]
        train_iter = self._train_iter_of(finished_task)
        values = {shown: finished_task[key] for key, shown in REPORTED.items()}
        values.update(self._further_values(finished_task))
        text.info(text.get_tabulate_vars_hor({"train_iter": train_iter, **values}))
        for key, value in values.items():
            self._tb_logger.add_scalar(f"{kind}_iter/{key}", value, train_iter)
            self._tb_logger.add_scalar(f"{kind}_step/{key}", value, finished_task.get("env_step", self.envstep))

    def _train_iter_of(self, finished_task: Mapping[str, Any]) -> int:
        """Return the iteration of the weights that were used."""
        return int(finished_task["train_iter"])

    def _further_values(self, finished_task: Mapping[str, Any]) -> Mapping[str, float]:
        """Return further values of a finished task for the logs."""
        return {}

    def finish_learner_task(self, task_id: str, finished_task: Mapping[str, Any]) -> str | None:
        """Note that the learner is done, and that only an evaluation of its last weights follows."""
        self._is_trained = True
        return super().finish_learner_task(task_id, finished_task)

    def is_collector_task_useless(self, task_id: str) -> bool:
        """Return whether the task collects for a learner that is done or gone."""
        buffer_id = self._collecting.get(task_id)
        is_fed = not self._is_trained and self._training is not None and self._training.buffer_id == buffer_id
        return buffer_id is not None and not is_fed

    def notify_fail_learner_task(self, task: Mapping[str, Any]) -> None:
        super().notify_fail_learner_task(task)
        if self._training is not None and self._training.task_id == task.get("task_id"):
            self._training = None  # no task may wait for weights and a buffer that will not exist
            self._last_eval_time = None

    def notify_fail_collector_task(self, task: Mapping[str, Any]) -> None:
        super().notify_fail_collector_task(task)
        task_id = task.get("task_id", "")
        self._collecting.pop(task_id, None)
        if task_id in self._evaluating:  # it must be repeated
            self._evaluating.discard(task_id)
            self._last_eval_time = None
        if task_id == self._last_evaluation:
            self._last_evaluation = None

    def update_learner_info(self, task_id: str, info: Mapping[str, Any]) -> None:
        """Keep the newest report, without the priorities, which belong to the buffer."""
        self._learner_info = [{key: value for key, value in info.items() if key != "priority_info"}]

    def state_dict(self) -> dict[str, Any]:
        """Return the running training, its progress, and the results of evaluations.

        A running evaluation is repeated after resuming, and so is one that ended the run.
        """
        last, is_due = self._last_eval_time, bool(self._evaluating) or self._end_flag
        return {
            **super().state_dict(),
            "training": None if self._training is None else list(self._training),
            "seconds_since_evaluation": None if is_due or last is None else monotonic() - last,
        }

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> list[str]:
        """Resume the training of a `state_dict`."""
        problems = super().load_state_dict(state_dict)
        training, since = state_dict["training"], state_dict["seconds_since_evaluation"]
        self._training = None if training is None else Training(*training)
        if self._training is not None and not self._is_trained:
            self._learner_task_space.acquire_space()
        self._last_eval_time = None if since is None else monotonic() - since
        return problems

    def close(self) -> None:
        """Close the TensorBoard log."""
        self._tb_logger.close()
