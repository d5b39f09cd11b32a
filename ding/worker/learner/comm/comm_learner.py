"""The learner workers of parallel training, for any transport."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from easydict import EasyDict

from ding.interaction.exception import failure_for
from ding.utils.config_helper import NO_DEFAULT, Setting, Settings, anything, boolean, integer, number
from ding.utils.registry_factory import COMM_LEARNER_REGISTRY
from ding.worker.learner.base_learner import BaseLearner
from ding.worker.learner.comm.base_comm_learner import BaseCommLearner
from ding.worker.learner.comm.chunk_source import ChunkReader, ChunkSource, Rows
from ding.worker.learner.comm.learner_task import (
    Group,
    LearnerQueue,
    LearnerTask,
    SendLearnInfoHook,
    SendPolicyHook,
    TaskBatches,
)
from ding.worker.learner.comm.resume import ResumeSaver, resume
from ding.worker.learner.learner_hook import LearnerHook
from ding.worker.transport.chunk import unpack_batches
from ding.worker.transport.comm_worker import WORKER_SETTINGS, CommWorker, task_fail, worker_thread
from ding.worker.transport.stores import name_under
from ding.worker.transport.transport import Handler, TaskName, transport_name

_PORT = integer(0, 65535)


def _ports(value: Any) -> str | None:
    """Config rule, see `check_config`: return None if `value` is a port or a list of ports, else what is allowed."""
    ports = value if isinstance(value, (list, tuple)) else [value]
    is_fit = len(ports) and all(_PORT(port) is None for port in ports)
    return None if is_fit else "an integer in [0, 65535], or a list of such integers"


class CommLearner(CommWorker[LearnerTask], BaseCommLearner):
    """A learner worker, which runs the learner of one task at a time in a thread.

    The next batches are loaded while the learner trains. A task with `resume` continues from the state of its last
    learner. See also `CommWorker`.

    Args:
        cfg: as for `BaseCommLearner`, and `type`, the name of the transport; `path_data`, `path_policy`, `port`;
            `prefetch_batches` (64), `prefetch_s` (0.1), `read_timeout_s` (5.0), `cache_bytes` (256 MiB),
            `send_policy_interval_s` (0.25), `max_policy_lag` (32), `checkpoint_interval_s` (30.0), `max_bad_batches`
            (100), `rank_timeout_s` (300.0), `data_wait_s` (1.0), `data_timeout_s` (600.0) and `close_timeout_s` (30.0).

    Raises:
        ConfigError: a value is not allowed, or missing.

    Example:
        >>> from easydict import EasyDict
        >>> from ding.worker.transport.local_transport import LocalConnector
        >>> learner = CommLearner(EasyDict(type="local", path_data="example/data", path_policy="example/policy"))
        >>> connector = LocalConnector()
        >>> learner.start()
        >>> client = connector.client("learner0", "", learner.port)
        >>> client.connect(timeout_s=10)
        >>> client.run({"name": "resource"}, timeout_s=10)
        {'gpu': 1}
        >>> connector.close(), learner.close()
        (None, None)
    """

    kind = "learner"
    settings = Settings(
        {
            "prefetch_batches": Setting(64, integer(1), "Maximum number of batches that are loaded in advance."),
            "prefetch_s": Setting(
                0.1, number(0), "Seconds for which loaded batches should last; a slow learner requests fewer."
            ),
            "read_timeout_s": Setting(5.0, number(0), "Seconds to wait for a late file of samples."),
            "cache_bytes": Setting(256 * 2**20, integer(0), "Bytes of the cache of sample files."),
            "send_policy_interval_s": Setting(
                0.25, number(0), "Least seconds between two writes of the weights, within `max_policy_lag` iterations."
            ),
            "max_policy_lag": Setting(
                32, integer(1), "Iterations after which the weights are written even within `send_policy_interval_s`."
            ),
            "checkpoint_interval_s": Setting(
                30.0, number(0), "Seconds between checkpoints to resume from if the learner is lost; 0 for none."
            ),
            "max_bad_batches": Setting(
                100, integer(1), "Number of consecutive batches without a readable sample that is an error."
            ),
            "rank_timeout_s": Setting(
                300.0, number(0), "Seconds for joining the ranks of a learner on Ray, and for each operation of them."
            ),
            "port": Setting(NO_DEFAULT, _ports, "Port of the worker, or a list with one for each rank."),
            "multi_gpu": Setting(NO_DEFAULT, boolean, "Whether the learner has several ranks."),
            "gpu_num": Setting(NO_DEFAULT, anything, "Number of GPUs."),
            "aggregator": Setting(NO_DEFAULT, anything, "Whether the learner belongs to an aggregator."),
            "rank": Setting(NO_DEFAULT, anything, "Rank of this process."),
            "peers": Setting(NO_DEFAULT, anything, "The other ranks."),
        },
        WORKER_SETTINGS,
    )

    def __init__(self, cfg: EasyDict) -> None:
        super().__init__(cfg)
        self._task = self._open_task([], {})
        self._single: SingleBatches | None = None  # if a subclass takes one batch at a time
        self._send_policy_freq = 1

    def _own_port(self) -> int:
        port = self._cfg.get("port", 0)
        if isinstance(port, (list, tuple)):
            port = port[self._rank]
        elif port:
            port += self._rank
        return int(port)

    def _open_task(self, policy_names: list[str], task_info: Mapping[str, Any]) -> LearnerTask:
        cfg = self._cfg
        queue = LearnerQueue(int(cfg.prefetch_batches), cfg.prefetch_s)
        # Ranks that skip a batch would leave the others waiting for their gradients.
        max_bad = int(cfg.max_bad_batches) if self._world_size == 1 else 0
        reading_threads = (task_info.get("learner_cfg", {}).get("dataloader") or {}).get("num_workers", 0)
        reader = ChunkReader(self._sample_store, int(cfg.cache_bytes))
        source = ChunkSource(reader, cfg.read_timeout_s, queue.wait_closed, reading_threads)
        return LearnerTask(task_info, source, self._policy_store, policy_names, queue, max_bad)

    @property
    def _learner(self) -> BaseLearner | None:
        """The learner of the current task, if any."""
        return None if self._slot.task is None else self._slot.task.learner

    def _handlers(self) -> dict[str, Handler]:
        return {
            **super()._handlers(),
            TaskName.LEARNER_START: self._start_task,
            TaskName.LEARNER_GET_DATA: self._get_data_task,
            TaskName.LEARNER_LEARN: self._learn_task,
            TaskName.LEARNER_CLOSE: self._close_task,
        }

    def _start_task(self, task: dict[str, Any]) -> dict[str, Any]:
        self.deal_with_learner_start(task["task_info"])
        return {"message": "learner task has started"}

    def _get_data_task(self, task: dict[str, Any]) -> dict[str, Any]:
        own = self._slot.require()
        own.take_normalization(task)
        return self._progress(own) if self._single is None else {**self._single.ask(), **own.ids}

    def _progress(self, task: LearnerTask) -> dict[str, Any]:
        """Wait until the learner wants batches, or has an info; return the number of batches, and the infos."""
        queue = task.queue
        count = queue.wait_for_capacity(self._cfg.data_wait_s)
        demand = {**_demand(task), "batch_num": count}
        infos, done = queue.take()
        return {**demand, "infos": infos, "batches_done": done, "silence_s": queue.silence_s(), **task.ids}

    def _learn_task(self, task: dict[str, Any]) -> dict[str, Any]:
        own = self._slot.require()
        own.take_normalization(task)
        if self._single is not None:
            return {**self._single.learn(task), **own.ids}
        own.queue.put(unpack_batches(task))
        if task.get("demand"):  # saves the coordinator a message: the answer has the next demand
            return self._progress(own)
        infos, done = own.queue.take()
        return {"infos": infos, "batches_done": done, **own.ids}

    def _close_task(self, task: dict[str, Any]) -> dict[str, Any]:
        own = self._slot.task
        if own is not None and task.get("drain"):  # learners that train together must end after the same batch
            own.queue.wait_trained(self._cfg.close_timeout_s / 2)
        return self.deal_with_learner_close()

    def deal_with_resource(self) -> dict[str, Any]:
        """Return the resources of this worker."""
        return {"gpu": self._world_size}

    def deal_with_learner_start(self, task_info: dict[str, Any]) -> None:
        """Build the learner of a task, and start it in a thread.

        Raises:
            RuntimeError: another task is running, or the worker is closed.
            ValueError: the task names weights outside `path_policy`.
        """
        self._slot.begin(partial(self._begin, task_info))

    def _begin(self, task_info: dict[str, Any]) -> LearnerTask:
        names = [task_info["policy_id"], task_info.get("league_save_checkpoint_path")]
        names = [name_under(self._cfg.path_policy, name) for name in names if name]
        cfg = task_info["learner_cfg"]
        self._send_policy_freq = cfg.get("send_policy_freq", 1)
        hooks = self.hooks4call
        if self._overrides(CommLearner, "deal_with_get_data", "deal_with_learner_learn"):
            self._single = SingleBatches(self.deal_with_get_data, self.deal_with_learner_learn)
        task = self._task = self._open_task(names, task_info)
        group = task.group = self._join_group(task_info)
        try:
            learner = task.learner = self._create_learner(task_info)
        except BaseException:
            if group is not None:
                group.leave()
            raise
        for hook in hooks:
            learner.register_hook(hook)
        task.source.warn = learner.logger.warning
        task.saver = ResumeSaver(learner, names[0] if names else "policy", self._cfg.checkpoint_interval_s)
        learner.batch_source = TaskBatches(learner, task.queue, hooks, task.saver)
        # The error is reported before other ranks notice that this one has left.
        on_failure = None if group is None else group.leave
        task.thread = worker_thread("learner_start", learner.start, task.queue, on_failure)
        task.thread.start()
        return task

    def _join_group(self, task_info: Mapping[str, Any]) -> Group | None:
        """Return the process group of a task; None if it has none, or if all tasks of this process use the same."""
        return None

    def _equip(self, learner: BaseLearner, task_info: Mapping[str, Any]) -> None:
        super()._equip(learner, task_info)
        learner.ckpt_extra = {"task_id": task_info.get("task_id"), "batches": 0, "iterations": 0}
        group, trust_pickle = self._task.group, bool(self._cfg.get("trust_pickle", False))
        if task_info.get("resume") and (group is None or group.rank == 0):
            version = None
            with contextlib.suppress(FileNotFoundError):
                version = self._policy_store.read(task_info["policy_id"])
            resume(learner, None if version is None else version.state, trust_pickle)
        if group is not None:
            group.share(learner, trust_pickle)

    def _connect(self, learner: BaseLearner) -> None:
        task = self._task
        # Of its task, so that a learner that outlives its task cannot affect the next one.
        for name in ("get_data", "send_policy", "send_learn_info"):
            setattr(learner, name, getattr(self if self._overrides(CommLearner, name) else task, name))
        learner.on_averages = task.add_averages

    def deal_with_get_data(self) -> dict[str, Any]:
        """Wait until the learner wants a batch, and return `batch_size` and `cur_learner_iter`."""
        task = self._slot.require()
        task.queue.wait_for_capacity(self._cfg.data_timeout_s)
        return _demand(task)

    def deal_with_learner_learn(self, data: Rows) -> dict[str, Any]:
        """Train on one batch, given as metadata, and return the last info.

        A batch with unreadable files is not trained on, and the info has no priorities.

        Raises:
            TaskFail: the learner has failed, or is not done in time.
        """
        task, limit_s = self._slot.require(), self._cfg.data_timeout_s
        task.queue.put([data])
        if not task.queue.wait_trained(limit_s):
            raise task_fail(failure_for(f"the learner has reported nothing for {limit_s:g} s", "TimeoutError"))
        infos, _ = task.queue.take()
        return infos[-1] if infos else {**task.learner.learn_info, "priority_info": {}, **task.losses}

    def deal_with_learner_close(self) -> dict[str, Any]:
        """End the learner, if one runs, after its final checkpoint, and return the infos that were not taken yet.

        Raises:
            TimeoutError: the thread of the learner does not end.
        """
        return self._slot.end()

    def _end(self, task: LearnerTask) -> dict[str, Any]:
        task.learner.stop()
        task.stop()
        try:
            self._join(task, "its policy")
        finally:
            task.close()
            task.learner.close()
        if task.group is not None:
            task.group.leave()
        task.saver.tidy()
        infos, done = task.queue.rest()
        return {**task.ids, "infos": infos, "batches_done": done}

    def get_data(self, batch_size: int) -> list[Callable[[], Any]]:
        """Return the next batch, by the current task; see `LearnerTask`."""
        return self._task.get_data(batch_size)

    def send_policy(self, state_dict: dict[str, Any]) -> None:
        """Write the weights, by the current task; see `LearnerTask`."""
        self._task.send_policy(state_dict)

    def send_learn_info(self, learn_info: dict[str, Any]) -> None:
        """Queue an info, by the current task; see `LearnerTask`."""
        self._task.send_learn_info(learn_info)

    @property
    def hooks4call(self) -> list[LearnerHook]:
        """New hooks, which call `send_policy` and `send_learn_info`."""
        sending = {
            "send_policy_freq": self._send_policy_freq,
            "send_policy_interval_s": self._cfg.send_policy_interval_s,
            "max_policy_lag": self._cfg.max_policy_lag,
        }
        return [
            SendPolicyHook("send_policy", 100, position="before_run"),
            SendPolicyHook("send_policy", 100, position="after_iter", ext_args=sending),
            SendPolicyHook("send_policy", 100, position="after_run"),
            SendLearnInfoHook("send_learn_info", 100, position="after_iter"),
            SendLearnInfoHook("send_learn_info", 100, position="after_run"),
        ]


class SingleBatches:
    """The messages of a learner whose methods take one batch at a time.

    Args:
        get_data: returns `batch_size` and `cur_learner_iter`; called once for each batch.
        learn: trains on a batch, and returns the info.
    """

    def __init__(self, get_data: Callable[[], dict[str, Any]], learn: Callable[[Rows], dict[str, Any]]) -> None:
        self._get_data, self._learn = get_data, learn
        self._demand: dict[str, Any] | None = None  # for a batch that has not come yet

    def ask(self) -> dict[str, Any]:
        """Return the reply to a request for the demand."""
        if self._demand is None:
            self._demand = self._get_data()
        return {**self._demand, "batch_num": 1, "infos": [], "batches_done": 0}

    def learn(self, task: Mapping[str, Any]) -> dict[str, Any]:
        """Train on the batch in a task, and return the reply, which demands no other batch yet."""
        demand, self._demand = self.ask(), None
        (batch,) = unpack_batches(task)
        return {**demand, "batch_num": 0, "infos": [self._learn(list(batch))], "batches_done": 1}


def _demand(task: LearnerTask) -> dict[str, Any]:
    batch_size = task.learner.policy.get_attribute("batch_size")
    return {"batch_size": batch_size, "cur_learner_iter": task.learner.last_iter.val}


# The name of a transport is a type, too.
COMM_LEARNER_REGISTRY.derive = lambda name: CommLearner if transport_name(name) is None else None
