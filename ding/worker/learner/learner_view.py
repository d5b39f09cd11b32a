"""The properties of a learner that hooks and pipelines use."""

from __future__ import annotations

from typing import Any

from easydict import EasyDict

from ding.torch_utils.checkpoint_helper import CountVar
from ding.torch_utils.data_helper import build_log_buffer
from ding.utils.autolog import TickTime
from ding.utils.showing import only_shows
from ding.worker.learner.learner_log import LogEntries, TickMonitor, get_simple_monitor_type
from ding.worker.worker_log import WorkerLog

# With one value a tick, averages are over the last 11.
_MONITOR_EXPIRE_TICKS = 10


class LearnerView:
    """The state and the properties of a learner; `BaseLearner` adds the training loop."""

    # A class attribute, so that `close` works after a failed construction.
    _log: WorkerLog | None = None

    def __init__(
        self, cfg: EasyDict, rank: int, world_size: int, exp_name: str, instance_name: str, tb_logger: Any
    ) -> None:
        self._cfg = cfg
        self._rank, self._world_size = rank, world_size
        self._exp_name = exp_name
        self._instance_name = instance_name
        is_multitask = cfg.get("is_multitask_pipeline", False)
        self.only_monitor_rank0: bool = cfg.get("only_monitor_rank0", True) and not is_multitask
        # How many checkpoints iteration_<n> to keep; None for all.
        self.keep_checkpoints: int | None = cfg.get("keep_checkpoints")
        self._log = WorkerLog(exp_name, instance_name, tb_logger, is_monitor=self.is_monitor)
        self._logger = self._log.text
        self._tb_logger = self._log.tb
        self._log_buffer: dict[str, Any] = {kind: build_log_buffer() for kind in LogEntries._fields}
        self._last_iter = CountVar(0)
        self._collector_envstep = 0
        self._priority_info: dict[str, Any] = {}
        self._ckpt_name: str | None = None
        # Added to each checkpoint if not empty; for the pipeline, not for the policy.
        self.ckpt_extra: dict[str, Any] = {}
        # Batches that another learner trained on in the run that `start` continues.
        self.trained_before = 0
        self._learner_done = False
        self._policy: Any = None
        self._monitor: TickMonitor | None = None

    def info(self, s: str) -> None:
        """Write `s` to the text log, prefixed with the rank."""
        self._logger.info(f"[RANK{self._rank}]: {s}")

    def debug(self, s: str) -> None:
        """Write `s` to the text log at level DEBUG, prefixed with the rank."""
        self._logger.debug(f"[RANK{self._rank}]: {s}")

    @property
    def policy(self) -> Any:
        """The learn mode of a policy, or None. Assigning one creates a new monitor."""
        return self._policy

    @policy.setter
    def policy(self, _policy: Any) -> None:
        self._policy = _policy
        if self.is_monitor:
            self._monitor = get_simple_monitor_type(_policy.monitor_vars())(TickTime(), _MONITOR_EXPIRE_TICKS)
        if self._cfg.get("log_policy", True):
            with only_shows(f"info() of the policy {type(_policy).__name__}"):
                self.info(_policy.info())

    @property
    def monitor(self) -> TickMonitor:
        """The averages of the logged scalars.

        Raises:
            AttributeError: the learner has no policy, or this rank does not monitor.
        """
        if self._monitor is None:
            raise AttributeError("the learner has no monitor: assign a policy first, on a rank that monitors")
        return self._monitor

    @property
    def is_monitor(self) -> bool:
        """Whether this rank logs averages and TensorBoard: rank 0, or every rank unless `only_monitor_rank0`."""
        return self._rank == 0 or not self.only_monitor_rank0

    @property
    def learn_info(self) -> dict[str, Any]:
        """`learner_step` (iterations so far), `priority_info`, and `learner_done` (whether `start` has finished)."""
        return {
            "learner_step": self._last_iter.val,
            "priority_info": self._priority_info,
            "learner_done": self._learner_done,
        }

    @property
    def priority_info(self) -> dict[str, Any]:
        """The argument of a buffer's `update`: `priority`, `replay_buffer_idx` and `replay_unique_id`.

        Empty if the last `train` returned no priorities.
        """
        return self._priority_info

    @priority_info.setter
    def priority_info(self, _priority_info: dict[str, Any]) -> None:
        self._priority_info = _priority_info

    @property
    def last_iter(self) -> CountVar:
        """The iteration counter; hooks may set it."""
        return self._last_iter

    @property
    def train_iter(self) -> int:
        """Iterations so far; in an `after_iter` hook the index of the current iteration, from 0."""
        return self._last_iter.val

    @property
    def collector_envstep(self) -> int:
        """Env steps that were collected when the last batch was sampled; 0 if unknown."""
        return self._collector_envstep

    @collector_envstep.setter
    def collector_envstep(self, value: int) -> None:
        self._collector_envstep = value

    @property
    def log_buffer(self) -> dict[str, Any]:
        """The log of the current iteration: a dict each for `scalar`, `scalars` and `histogram`."""
        return self._log_buffer

    @log_buffer.setter
    def log_buffer(self, _log_buffer: dict[str, Any]) -> None:
        self._log_buffer = _log_buffer

    @property
    def ckpt_name(self) -> str | None:
        """The file name of the next checkpoint; None for `iteration_<n>.pth.tar`."""
        return self._ckpt_name

    @ckpt_name.setter
    def ckpt_name(self, _ckpt_name: str | None) -> None:
        self._ckpt_name = _ckpt_name

    @property
    def worker_log(self) -> WorkerLog:
        """The text and TensorBoard logs; `scalars` writes under both axes."""
        assert self._log is not None
        return self._log

    @property
    def logger(self) -> Any:
        """The text logger."""
        return self._logger

    @property
    def tb_logger(self) -> Any:
        """The TensorBoard writer; None on a rank that does not monitor."""
        return self._tb_logger

    @property
    def exp_name(self) -> str:
        """The folder of the experiment."""
        return self._exp_name

    @property
    def instance_name(self) -> str:
        """The name of this learner within the experiment."""
        return self._instance_name

    @property
    def rank(self) -> int:
        """The index of this process in distributed training, from 0."""
        return self._rank

    @property
    def world_size(self) -> int:
        """The number of processes in distributed training."""
        return self._world_size
