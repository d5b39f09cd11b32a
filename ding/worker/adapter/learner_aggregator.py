"""An aggregator, which presents several learners to a coordinator as one."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from easydict import EasyDict

from ding.utils.config_helper import NO_DEFAULT, Setting, Settings, check_section, instance_of, integer, number
from ding.utils.log_helper import build_logger
from ding.utils.system_helper import exist_operator_server
from ding.worker.coordinator.operator_server import OperatorSync, make_operator_server
from ding.worker.learner.comm.learner_group import GroupTask, LearnerHandle, merge_info
from ding.worker.transport.comm_worker import TaskServer, TaskSlot, task_fail
from ding.worker.transport.http_transport import WorkerSlave
from ding.worker.transport.transport import (
    DEFAULT_TRANSPORT,
    Connector,
    Handler,
    TaskName,
    connect,
    connect_all,
    get_transport,
    transport_name,
)

Address = tuple[str, str, int]


class LearnerGroup:
    """The connected learners, which may join and leave at any time. This class is thread-safe.

    Args:
        connector: connects to the learners; the caller closes it.
        logger: a text logger.
    """

    def __init__(self, connector: Connector, logger: Any) -> None:
        self._connector, self._logger = connector, logger
        self._handles: dict[str, LearnerHandle | None] = {}  # None for one that is being connected
        self._lock = threading.Lock()
        self._is_closed = False

    @property
    def handles(self) -> list[LearnerHandle]:
        """The connected learners in the order of the first requests to join."""
        with self._lock:
            return [handle for handle in self._handles.values() if handle is not None and not handle.is_lost]

    def join_all(self, addresses: Sequence[Address], timeout_s: float) -> None:
        """Connect learners concurrently.

        Raises:
            ConnectionError: some learners cannot be reached in time; the message names all of them.
        """
        with self._lock:
            for name, _, _ in addresses:
                self._handles.setdefault(str(name), None)
        attempts = {str(address[0]): partial(self.join, *address, timeout_s) for address in addresses}
        connect_all(attempts, timeout_s)

    def join(self, name: str, host: str, port: int, timeout_s: float) -> None:
        """Connect a learner.

        Raises:
            WorkerLost, TaskFailed: see `connect`.
        """
        client, resource = connect(self._connector, str(name), host, int(port), timeout_s)
        handle = LearnerHandle(str(name), client)
        with self._lock:
            replaced = handle if self._is_closed else self._handles.get(handle.name)
            self._handles[handle.name] = handle
        if replaced is not None:
            replaced.close()
        self._logger.info("the learner %s at %s:%s is connected: %s", name, host, port, resource)

    def leave(self, name: str) -> None:
        """Disconnect a learner, if connected."""
        with self._lock:
            handle = self._handles.pop(name, None)
        if handle is not None:
            handle.close()
            self._logger.info("the learner %s has left", name)

    def close(self) -> None:
        """Disconnect all learners; call it after closing the connector. Further calls do nothing."""
        with self._lock:
            self._is_closed = True
        for handle in self.handles:
            handle.close()


# Seconds for a lost learner to reconnect when a task starts.
REJOIN_S = 5.0
_CLOSE_S = 5.0


class LearnerAggregatorSlave(WorkerSlave):
    """A slave that answers a coordinator's tasks by calling functions.

    Args:
        callback_fn: `deal_with_get_resource()`, and `deal_with_learner_start`, `deal_with_get_data`, `deal_with_learn`
            and `deal_with_learner_close`, which take the task. Their return value is the result. A task without a
            function fails. See also `WorkerSlave`.
        args, kwargs: as for `Slave`.
    """

    def __init__(self, *args: Any, callback_fn: Mapping[str, Any] | None = None, **kwargs: Any) -> None:
        super().__init__(*args, callback_fn=callback_fn or {}, **kwargs)

    def _handlers(self) -> dict[str, Handler]:
        call = self._callback_fn
        resource = call.get("deal_with_get_resource")
        named = {
            TaskName.RESOURCE: resource and (lambda task: resource()),
            TaskName.LEARNER_START: call.get("deal_with_learner_start"),
            TaskName.LEARNER_GET_DATA: call.get("deal_with_get_data"),
            TaskName.LEARNER_LEARN: call.get("deal_with_learn"),
            TaskName.LEARNER_CLOSE: call.get("deal_with_learner_close"),
        }
        return {name: handler for name, handler in named.items() if handler is not None}


class LearnerAggregator(TaskServer[GroupTask]):
    """An aggregator of learners: a coordinator sees one learner, whose batch size is the sum of theirs.

    A task runs on the learners that are connected when it starts; learners that join later take part in the next task.
    If a learner fails or is lost, the task fails with its error. With the environment variable
    `KUBERNETES_SERVER_URL`, learners join and leave as the operator lists them.

    Args:
        cfg: `master` (`host` and `port` for the learners' answers) and `slave` (`host` and `port` for tasks), with
            port 0 for a free one; `learner`, `{name: (name, host, port)}`. Optional: `transport` ('flask_fs', or
            'local' for learners and a coordinator in this process), `task_timeout` (50.0), `connect_timeout_s` (60.0)
            and `sync_period_s` (3.0).

    Raises:
        ConfigError: a value is not allowed, or missing.

    Example:
        >>> from ding.worker.learner.comm.comm_learner import CommLearner
        >>> from ding.worker.transport.local_transport import LocalConnector
        >>> cfg = {"type": "local", "path_data": "example/data", "path_policy": "example/policy"}
        >>> learners = [CommLearner(EasyDict(cfg)) for _ in range(2)]
        >>> [learner.start() for learner in learners]
        [None, None]
        >>> cfg = {"transport": "local", "learner": {str(i): (str(i), "", w.port) for i, w in enumerate(learners)}}
        >>> aggregator, connector = LearnerAggregator(cfg), LocalConnector()
        >>> aggregator.start()
        >>> client = connector.client("learners", "", aggregator.port)
        >>> client.connect(timeout_s=10)
        >>> client.run({"name": "resource"}, timeout_s=10)
        {'gpu': 2}
        >>> [part.close() for part in (connector, aggregator, *learners)]
        [None, None, None, None]
    """

    settings = Settings(
        {
            "learner": Setting({}, instance_of(Mapping), "Addresses of the learners: `{name: (name, host, port)}`."),
            "transport": Setting(DEFAULT_TRANSPORT, transport_name, "Transport that connects the learners."),
            "task_timeout": Setting(
                50.0, number(0), "Seconds for a learner to answer one message, fewer than the coordinator waits."
            ),
            "connect_timeout_s": Setting(60.0, number(0), "Seconds for the learners to connect."),
            "sync_period_s": Setting(
                3.0, number(0), "Seconds between two requests for the operator's list of learners."
            ),
            "master.host": Setting(NO_DEFAULT, instance_of(str, optional=True), "Address at which learners answer."),
            "master.port": Setting(NO_DEFAULT, integer(0, 65535), "Port of `master.host`; 0 for a free one."),
            "slave.host": Setting(
                NO_DEFAULT, instance_of(str, optional=True), "Address to which the coordinator sends tasks."
            ),
            "slave.port": Setting(NO_DEFAULT, integer(0, 65535), "Port of `slave.host`; 0 for a free one."),
            "node": Setting(NO_DEFAULT, None, "Kept for compatibility."),
            "partition": Setting(NO_DEFAULT, None, "Kept for compatibility."),
        }
    )

    _is_closed = True  # until the constructor has finished

    def __init__(self, cfg: Mapping[str, Any]) -> None:
        self._cfg = own = EasyDict({**self.settings.config(), **cfg})
        check_section(own, type(self))
        transport = get_transport(own.transport)
        self._logger: Any = build_logger("./log", "learner_aggregator", need_tb=False)[0]
        self._connector = transport.connector(own.get("master", {}))
        self._server = transport.worker_server(self.serve, own.get("slave", {}), self.deal_with_lost_coordinator)
        self._group = LearnerGroup(self._connector, self._logger)
        self._slot = TaskSlot[GroupTask]("learner", lambda task: task.close(), own.task_timeout + _CLOSE_S)
        self._sync: OperatorSync | None = None
        if exist_operator_server():
            self._sync = OperatorSync(
                make_operator_server({}, "aggregator"),
                ("learner",),
                join=lambda kind, name, host, port: self._group.join(name, host, port, own.connect_timeout_s),
                leave=lambda kind, name: self._group.leave(name),
                logger=self._logger,
                period_s=own.sync_period_s,
            )
        self._is_closed = False

    def start(self) -> None:
        """Connect the learners, then accept tasks; close the aggregator if that fails.

        Raises:
            ConnectionError: a learner of the config cannot be reached, or the operator provides none in time.
            OSError: a port is in use.
        """
        try:
            self._connector.start()
            self._group.join_all(list(self._cfg.learner.values()), self._cfg.connect_timeout_s)
            if self._sync is not None:
                self._sync.start()
                self._sync.wait_for(lambda: bool(self._group.handles), "a learner", self._cfg.connect_timeout_s)
            self._server.start()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End a running task, disconnect the learners and stop accepting tasks, in bounded time.

        Further calls do nothing.

        Raises:
            TaskFail: a learner could not end its task.
        """
        if self._is_closed:
            return
        self._is_closed = True
        with contextlib.ExitStack() as closing:  # in reverse order, even if one raises
            closing.callback(self._server.close)
            closing.callback(self._group.close)
            closing.callback(self._connector.close)
            if self._sync is not None:
                closing.callback(self._sync.close)
            closing.callback(self._slot.close)

    def _handlers(self) -> dict[str, Handler]:
        return {
            TaskName.RESOURCE: lambda task: self.deal_with_get_resource(),
            TaskName.LEARNER_START: self.deal_with_learner_start,
            TaskName.LEARNER_GET_DATA: lambda task: self._slot.require().demand(task),
            TaskName.LEARNER_LEARN: lambda task: self._slot.require().learn(task),
            TaskName.LEARNER_CLOSE: lambda task: self._slot.end(),
        }

    def deal_with_get_resource(self) -> dict[str, Any]:
        """Return the number of connected learners as the number of GPUs."""
        return {"gpu": len(self._group.handles)}

    def deal_with_learner_start(self, task: dict[str, Any]) -> dict[str, Any]:
        """Start the task on all learners.

        Raises:
            TaskFail: no learner is connected, or one cannot start; then the others end the task, too.
            ConnectionError: a learner of the config is lost and does not reconnect.
            RuntimeError: another task is running, or the aggregator is closed.
        """
        self._slot.begin(partial(self._begin, task))
        return {"message": "learner task has started"}

    def _begin(self, task: dict[str, Any]) -> GroupTask:
        connected = {handle.name for handle in self._group.handles}
        missing = [address for address in self._cfg.learner.values() if str(address[0]) not in connected]
        self._group.join_all(missing, REJOIN_S)
        handles = self._group.handles
        if not handles:
            raise task_fail({"message": "no connected learner"})
        return GroupTask(handles, task, self._cfg.task_timeout)

    merge_info = staticmethod(merge_info)
