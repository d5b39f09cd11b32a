"""The interface of learner workers that a coordinator drives."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

from easydict import EasyDict

from ding.utils.pytorch_ddp_dist_helper import dist_finalize, dist_init
from ding.utils.system_helper import get_task_uid
from ding.utils.time_helper import EasyTimer
from ding.worker.learner.base_learner import BaseLearner, create_learner
from ding.worker.learner.learner_hook import LearnerHook
from ding.worker.transport.imports import check_task
from ding.worker.transport.transport import comm_class


class BaseCommLearner(ABC):
    """Base of the learner workers.

    A worker builds a learner for each task, and passes data, weights and infos between it and the coordinator.

    Args:
        cfg: the worker's section of the system config; with `multi_gpu` it joins the process group. Tasks may import
            the modules in `import_names` and `task_import_names` only.
    """

    def __init__(self, cfg: EasyDict) -> None:
        self._cfg = cfg
        self._learner_uid = get_task_uid()
        self._timer = EasyTimer()
        self._multi_gpu = bool(cfg.get("multi_gpu", False))
        self._rank, self._world_size = self._place() if self._multi_gpu else (0, 1)
        self._end_flag = True

    def _place(self) -> tuple[int, int]:
        """Join the process group, and return the rank of this process and the world size."""
        return dist_init()

    @abstractmethod
    def send_policy(self, state_dict: dict[str, Any]) -> None:
        """Send the weights, `{'model': ..., 'iter': ...}`, to the collectors; hooks of the learner call it."""

    @abstractmethod
    def get_data(self, batch_size: int) -> list[Any]:
        """Return the next batch, as samples or functions that load samples; the dataloader of the learner calls it."""

    @abstractmethod
    def send_learn_info(self, learn_info: dict[str, Any]) -> None:
        """Send the progress of the learner to the coordinator; hooks of the learner call it."""

    def start(self) -> None:
        """Begin to take tasks."""
        self._end_flag = False

    def close(self) -> None:
        """Take no more tasks, and leave the process group. Further calls do nothing."""
        self._end_flag = True
        if self._multi_gpu:
            self._multi_gpu = False
            dist_finalize()

    @property
    @abstractmethod
    def hooks4call(self) -> list[LearnerHook]:
        """The hooks that call `send_policy` and `send_learn_info` of the learner."""

    def _create_learner(self, task_info: Mapping[str, Any]) -> BaseLearner:
        """Return the learner of a task, with its policy and a dataloader that calls `get_data`.

        Raises:
            PermissionError: the task needs a permission that the config of this worker does not give.
        """
        check_task(task_info, self._cfg)
        cfg = EasyDict(task_info["learner_cfg"])
        exp_name = cfg.get("exp_name", "default_experiment")
        learner = create_learner(cfg, dist_info=[self._rank, self._world_size], exp_name=exp_name)
        try:
            self._equip(learner, task_info)
        except BaseException:
            learner.close()
            raise
        return learner

    def _equip(self, learner: BaseLearner, task_info: Mapping[str, Any]) -> None:
        self._connect(learner)
        from ding.policy.base_policy import create_policy  # here: importing the workers loads no policies

        policy: Any = create_policy(EasyDict(task_info["policy"]), enable_field=["learn"])
        learner.policy = policy.learn_mode
        learner.setup_dataloader()

    def _connect(self, learner: BaseLearner) -> None:
        """Set `get_data`, `send_policy` and `send_learn_info` of the learner."""
        for name in ("get_data", "send_policy", "send_learn_info"):
            setattr(learner, name, getattr(self, name))


def create_comm_learner(cfg: EasyDict) -> BaseCommLearner:
    """Return the comm learner of the type `cfg.type`, after importing `cfg.import_names`.

    The name of a transport is a type, too: that of a `CommLearner` with this transport.

    Raises:
        KeyError: no comm learner is registered under that type, and it names no transport.
    """
    learner: BaseCommLearner = comm_class("learner", cfg)(cfg=cfg)
    return learner
