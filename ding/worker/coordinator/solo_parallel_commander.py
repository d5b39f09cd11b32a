"""The commander for one policy: collect, train, evaluate now and then, end at the stop value."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from easydict import EasyDict

from ding.utils.registry_factory import COMMANDER_REGISTRY
from ding.worker.coordinator.training_commander import Training, TrainingCommander


@COMMANDER_REGISTRY.register("solo")
class SoloCommander(TrainingCommander):
    """Trains one policy; the run ends with an evaluation that reaches `env.stop_value`. See `TrainingCommander`.

    Args:
        cfg: the compiled main config.

    Raises:
        ConfigError: a value in the commander section is not allowed, or a number of episodes is missing in `env`.
    """

    def _collector_cfg(self, task_id: str, is_eval: bool, setting: Mapping[str, Any], training: Training) -> EasyDict:
        return self._forms.collector_cfg(is_eval, setting, self._forms.policy_cfg(), training.policy_id)

    def _reaches_goal(self, finished_task: Mapping[str, Any]) -> bool:
        is_good_enough = self._has_stop_value(finished_task)
        if is_good_enough:
            self._tell_solved(finished_task)
        return is_good_enough
