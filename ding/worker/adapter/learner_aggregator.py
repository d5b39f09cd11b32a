"""Many learners that are one to their coordinator."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from easydict import EasyDict

from ding.utils.config_helper import check_config, instance_of, integer, number
from ding.utils.k8s_helper import exist_operator_server
from ding.utils.log_helper import build_logger
from ding.worker.adapter.group_run import GroupRun, merge_info
from ding.worker.adapter.learner_group import LearnerGroup
from ding.worker.transport.http_transport import WorkerSlave
from ding.worker.transport.task_slot import TaskSlot
from ding.worker.transport.tasks import (
    LEARNER_CLOSE,
    LEARNER_GET_DATA,
    LEARNER_LEARN,
    LEARNER_START,
    RESOURCE,
    Handler,
    dispatch,
    task_fail,
)
from ding.worker.transport.transport import DEFAULT_TRANSPORT, get_transport, transport_name

_RULES = {
    **{f"{end}.host": instance_of(str, optional=True) for end in ("master", "slave")},
    **{f"{end}.port": integer(0, 65535) for end in ("master", "slave")},
    "learner": instance_of(Mapping),
    "transport": transport_name,
    **dict.fromkeys(("task_timeout", "connect_timeout_s", "sync_period_s"), number(0)),
    **dict.fromkeys(("node", "partition"), lambda value: None),
}
_DEFAULTS: dict[str, Any] = {
    "learner": {},
    "transport": DEFAULT_TRANSPORT,
    # Seconds a learner may take to answer one message. A coordinator that waits longer hears whose fault it is.
    "task_timeout": 50.0,
    # Seconds within which the learners must be connected.
    "connect_timeout_s": 60.0,
    # Seconds between two looks at which learners an operator has.
    "sync_period_s": 3.0,
}
# How long a learner that went away may take to be back when a task begins.
_REJOIN_S = 5.0
_CLOSE_S = 5.0


class LearnerAggregatorSlave(WorkerSlave):
    """Answers a coordinator's tasks by calling functions.

    Args:
        callback_fn: `deal_with_get_resource()`, and `deal_with_learner_start`, `deal_with_get_data`, `deal_with_learn`
            and `deal_with_learner_close`, each of the whole task; what they return is the result. A task whose function
            is missing fails. See also `WorkerSlave`.
        args, kwargs: as for `Slave`.
    """

    def __init__(self, *args: Any, callback_fn: Mapping[str, Any] | None = None, **kwargs: Any) -> None:
        super().__init__(*args, callback_fn=callback_fn or {}, **kwargs)

    def _handlers(self) -> dict[str, Handler]:
        call = self._callback_fn
        resource = call.get("deal_with_get_resource")
        named = {
            RESOURCE: resource and (lambda task: resource()),
            LEARNER_START: call.get("deal_with_learner_start"),
            LEARNER_GET_DATA: call.get("deal_with_get_data"),
            LEARNER_LEARN: call.get("deal_with_learn"),
            LEARNER_CLOSE: call.get("deal_with_learner_close"),
        }
        return {name: handler for name, handler in named.items() if handler is not None}


class LearnerAggregator:
    """Aggregates learners: to a coordinator they are one, whose batches are as large as all of theirs together.

    A task runs on the learners that are connected when it begins; those that join later take part in the next one. When
    a learner fails, or goes away, its task fails with what it said. With the environment variable
    `KUBERNETES_SERVER_URL` learners join and leave as the operator there lists them.

    Args:
        cfg: `master` (`host` and `port` to listen at for the learners' answers) and `slave` (those to take tasks at),
            port 0 for any free one; `learner`, `{name: (name, host, port)}`. It may have `transport` ('flask_fs', or
            'local' for learners and a coordinator in this process), `task_timeout` (50.0), `connect_timeout_s` (60.0)
            and `sync_period_s` (3.0).

    Raises:
        ConfigError: a value is not allowed, or missing.

    Example:
        >>> from ding.worker.learner.comm import LocalLearner
        >>> from ding.worker.transport.local_transport import LocalHub
        >>> paths = {"path_data": "example/data", "path_policy": "example/policy"}
        >>> learners = [LocalLearner(EasyDict(paths)) for _ in range(2)]
        >>> [learner.start() for learner in learners]
        [None, None]
        >>> cfg = {"transport": "local", "learner": {str(i): (str(i), "", w.port) for i, w in enumerate(learners)}}
        >>> aggregator, hub = LearnerAggregator(cfg), LocalHub()
        >>> aggregator.start()
        >>> link = hub.link("learners", "", aggregator.port)
        >>> link.connect(timeout_s=10)
        >>> link.run({"name": "resource"}, timeout_s=10)
        {'gpu': 2}
        >>> [part.close() for part in (hub, aggregator, *learners)]
        [None, None, None, None]
    """

    _is_closed = True  # nothing is open before the constructor has done its work

    def __init__(self, cfg: Mapping[str, Any]) -> None:
        self._cfg = own = EasyDict({**_DEFAULTS, **cfg})
        check_config(own, type(self).__name__, _RULES)
        transport = get_transport(own.transport)
        if transport.needs_addresses:
            check_config(own, type(self).__name__, _RULES, required=("master.port", "slave.port"))
        self._logger: Any = build_logger("./log", "learner_aggregator", need_tb=False)[0]
        self._hub = transport.hub(own.get("master", {}))
        self._station = transport.station(self.serve, own.get("slave", {}), self.deal_with_lost_coordinator)
        self._group = LearnerGroup(self._hub, self._logger)
        self._slot = TaskSlot[GroupRun]("learner", lambda run: run.close(), own.task_timeout + _CLOSE_S)
        self._sync = self._make_sync() if exist_operator_server() else None
        self._is_closed = False

    def _make_sync(self) -> Any:
        from ding.worker.coordinator.operator_server import make_operator_server
        from ding.worker.coordinator.operator_sync import OperatorSync

        return OperatorSync(
            make_operator_server({}, "aggregator"),
            ("learner",),
            join=lambda kind, name, host, port: self._group.join(name, host, port, self._cfg.connect_timeout_s),
            leave=lambda kind, name: self._group.leave(name),
            logger=self._logger,
            period_s=self._cfg.sync_period_s,
        )

    @property
    def port(self) -> int:
        """Where it takes tasks, from `start` on."""
        return self._station.port

    def start(self) -> None:
        """Connect the learners, then begin to take tasks. Where that fails, it is closed.

        Raises:
            ConnectionError: learners of the config could not be reached, which it names; or the operator has brought
                none in time.
            OSError: a port is taken.
        """
        try:
            self._hub.start()
            self._group.join_all(list(self._cfg.learner.values()), self._cfg.connect_timeout_s)
            if self._sync is not None:
                self._sync.start()
                self._sync.wait_for(lambda: bool(self._group.seats), "a learner", self._cfg.connect_timeout_s)
            self._station.start()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End a task that runs, disconnect the learners, and take no more tasks. Bounded in time; idempotent.

        Raises:
            TaskFail: a learner could not end its task.
        """
        if self._is_closed:
            return
        self._is_closed = True
        with contextlib.ExitStack() as closing:  # from the last to the first, whatever one of them raises
            closing.callback(self._station.close)
            closing.callback(self._group.close)
            closing.callback(self._hub.close)
            if self._sync is not None:
                closing.callback(self._sync.close)
            closing.callback(self._slot.close)

    def __del__(self) -> None:
        with contextlib.suppress(Exception):  # half-built, or at interpreter exit: nobody is left to tell
            self.close()

    def serve(self, task: dict[str, Any]) -> Any:
        """Run a task of the coordinator.

        Raises:
            TaskFail: it failed; what the learners said is in the result if that is why.
        """
        handlers: dict[str, Handler] = {
            RESOURCE: self._resource_task,
            LEARNER_START: self.deal_with_learner_start,
            LEARNER_GET_DATA: self.deal_with_get_data,
            LEARNER_LEARN: self.deal_with_learn,
            LEARNER_CLOSE: self.deal_with_learner_close,
        }
        return dispatch(task, handlers)

    def _resource_task(self, task: dict[str, Any]) -> dict[str, Any]:
        batched = {"batched": True} if task.get("batched") else {}
        return {**self.deal_with_get_resource(), **batched}

    def deal_with_get_resource(self) -> dict[str, Any]:
        """As many GPUs as there are connected learners."""
        return {"gpu": len(self._group.seats)}

    def deal_with_learner_start(self, task: dict[str, Any]) -> dict[str, Any]:
        """Have all learners begin the task.

        Raises:
            TaskFail: there are none, or one cannot begin; then none does.
            ConnectionError: one of the config has gone, and is not back.
            RuntimeError: another task runs, or the aggregator is closed.
        """
        self._slot.begin(partial(self._begin, task))
        return {"message": "learner task has started"}

    def _begin(self, task: dict[str, Any]) -> GroupRun:
        configured = {str(address[0]): address for address in self._cfg.learner.values()}
        self._group.join_all([configured[name] for name in self._group.missing(list(configured))], _REJOIN_S)
        seats = self._group.seats
        if not seats:
            raise task_fail({"message": "no connected learner"})
        return GroupRun(seats, task, self._cfg.task_timeout)

    def deal_with_get_data(self, task: dict[str, Any]) -> dict[str, Any]:
        """What the learners want, together; see `GroupRun.demand`."""
        return self._slot.require().demand(task)

    def deal_with_learn(self, task: dict[str, Any]) -> dict[str, Any]:
        """Have the learners train on batches, each on its part; see `GroupRun.learn`."""
        return self._slot.require().learn(task)

    def deal_with_learner_close(self, task: dict[str, Any]) -> dict[str, Any]:
        """End the task on all learners; again, it returns the same."""
        return self._slot.end()

    def deal_with_lost_coordinator(self) -> None:
        """The coordinator has gone: end its task, in a thread. Another coordinator may come."""
        self._slot.abandon()

    @staticmethod
    def merge_info(infos: Sequence[Any]) -> Any:
        """See `ding.worker.adapter.group_run.merge_info`."""
        return merge_info(infos)
