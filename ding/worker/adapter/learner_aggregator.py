"""An aggregator, which presents several learners to a coordinator as one."""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, wait
from functools import partial
from typing import Any

from easydict import EasyDict

from ding.interaction.exception import TaskFail
from ding.utils.config_helper import NO_DEFAULT, Setting, Settings, check_section, instance_of, integer, number
from ding.utils.log_helper import build_logger
from ding.utils.system_helper import exist_operator_server
from ding.worker.coordinator.operator_server import OperatorSync, make_operator_server
from ding.worker.learner.checkpoint import NORMALIZATION
from ding.worker.transport.chunk import pack_batches, split, unpack_batches
from ding.worker.transport.comm_worker import TaskSlot, WorkerTask, dispatch, task_fail
from ding.worker.transport.http_transport import WorkerSlave
from ding.worker.transport.transport import (
    DEFAULT_TRANSPORT,
    LEARNER_CLOSE,
    LEARNER_GET_DATA,
    LEARNER_LEARN,
    LEARNER_START,
    RESOURCE,
    Connector,
    Handler,
    Task,
    TaskFailed,
    WorkerClient,
    WorkerLost,
    connect,
    connect_all,
    get_transport,
    transport_name,
)

Address = tuple[str, str, int]

# Seconds for the other learners to answer after one has failed; they may be waiting for it.
GRACE_S = 1.0


class LearnerHandle:
    """A connected learner, to which messages are sent in threads, one after the other.

    Attributes:
        is_lost: whether it is disconnected.
    """

    def __init__(self, name: str, client: WorkerClient) -> None:
        self.name = name
        self.is_lost = False
        self._client = client
        self._turn = threading.Lock()

    def run(self, task: Task, timeout_s: float) -> Future[dict[str, Any]]:
        """Have the learner run `task`; see `WorkerClient.run`. One that does not answer in time counts as lost."""
        future: Future[dict[str, Any]] = Future()
        args = (task, timeout_s, future)
        threading.Thread(target=self._run, args=args, name=f"aggregator_{self.name}", daemon=True).start()
        return future

    def _run(self, task: Task, timeout_s: float, future: Future[dict[str, Any]]) -> None:
        try:
            with self._turn:
                if self.is_lost:
                    raise WorkerLost(f"the learner {self.name} is disconnected")
                future.set_result(self._client.run(task, timeout_s))
        except BaseException as e:  # passed on to the waiting caller
            if isinstance(e, WorkerLost):
                self.close()
            future.set_exception(e)

    def close(self) -> None:
        """Disconnect; running and waiting messages end with `WorkerLost`. Further calls do nothing."""
        if not self.is_lost:
            self.is_lost = True
            self._client.close()


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


def ask_all(
    calls: Sequence[tuple[LearnerHandle, Task]], timeout_s: float, message: str | None = None, to_the_end: bool = False
) -> list[dict[str, Any]]:
    """Have each learner run its task, all concurrently, and return the results in order.

    Args:
        timeout_s: seconds for all learners to answer.
        message: the error message if a learner fails; None for the message of the first learner that failed.
        to_the_end: whether to wait for all learners even if one has failed.

    Raises:
        TaskFail: a learner failed, is lost, or did not answer; its `traceback` has all errors.
    """
    futures = [handle.run(task, timeout_s) for handle, task in calls]
    left = wait(futures, timeout_s, "ALL_COMPLETED" if to_the_end else FIRST_EXCEPTION).not_done
    if left:
        wait(left, GRACE_S)
    errors = {
        handle.name: future.exception() if future.done() else None
        for (handle, _), future in zip(calls, futures, strict=True)
    }
    failures = {name: error for name, error in errors.items() if error is not None}
    if not failures:
        late = [(handle.name, task["name"]) for (handle, task), f in zip(calls, futures, strict=True) if not f.done()]
        failures = {
            name: WorkerLost(f"the learner {name} has not answered the task {task_name} within {timeout_s:g} s")
            for name, task_name in late
        }
    if failures:
        name, error = next(iter(failures.items()))
        details = error.result if isinstance(error, TaskFailed) else {}
        message = message or f"the learner {name}: {details.get('message') or error}"
        result = {
            "message": message,
            "exception": details.get("exception") or type(error).__name__,
            "traceback": "\n".join(map(str, failures.values())),
        }
        raise TaskFail(result=result, message=message)
    return [future.result() for future in futures]


# Keys whose values are equal for all learners of a task.
_OF_THE_FIRST = ("learner_step", "buffer_id", "task_id", "learner_done", "averages")


def merge_info(infos: Sequence[Any]) -> Any:
    """Merge one info of each learner, in the order of the learners.

    Scalars (None, int, float, str) become a list; lists and tuples are concatenated; dicts are merged by key, including
    keys that only some of them have. In a dict, `learner_step`, `buffer_id`, `task_id`, `learner_done` and `averages`
    are taken from the first learner.

    Raises:
        TypeError: the infos have different or unsupported types.
        ValueError: `infos` is empty.

    Example:
        >>> merge_info([{"learner_step": 5, "priority": [1.0], "loss": 3}, {"learner_step": 5, "priority": [2.0]}])
        {'learner_step': 5, 'priority': [1.0, 2.0], 'loss': [3]}
    """
    if not infos:
        raise ValueError("infos is empty: there is nothing to merge")
    if all(info is None or isinstance(info, (int, float, str)) for info in infos):
        return list(infos)
    for kind in (list, tuple):
        if all(isinstance(info, kind) for info in infos):
            return kind(itertools.chain.from_iterable(infos))
    if all(isinstance(info, Mapping) for info in infos):
        keys = dict.fromkeys(itertools.chain.from_iterable(infos))
        values = {key: [info[key] for info in infos if key in info] for key in keys}
        return {key: own[0] if key in _OF_THE_FIRST else merge_info(own) for key, own in values.items()}
    kinds = ", ".join(sorted({type(info).__name__ for info in infos}))
    raise TypeError(f"infos of the type {kinds} cannot be merged; they must all be scalars, lists, tuples or dicts")


_DONE = "learner_done"
# Seconds for the learners that started a task to end it if another learner could not start it.
START_GRACE_S = 2.0


class _Learner:
    """A learner that runs the task of a group, and how far it is.

    Attributes:
        batch_size, capacity: the size and the number of batches that it requests.
        infos: its infos that the group has not reported yet.
        batches_done: the number of batches that it has read.
        silence_s: seconds without progress, as of the last request.
        is_done: whether it has reported its last info.
        is_closed: whether it has ended the task.
    """

    def __init__(self, handle: LearnerHandle) -> None:
        self.handle = handle
        self.batch_size = self.capacity = self.batches_done = 0
        self.silence_s = 0.0
        self.infos: deque[dict[str, Any]] = deque()
        self.is_done = self.is_closed = False

    def take_demand(self, reply: Mapping[str, Any]) -> None:
        self.batch_size, self.capacity = reply["batch_size"], reply["batch_num"]
        self.silence_s = float(reply.get("silence_s", 0.0))
        self.take_infos(reply)

    def take_infos(self, reply: Mapping[str, Any]) -> None:
        infos = reply.get("infos", ())  # a learner that ends may have none
        self.batches_done += reply.get("batches_done", 0)
        self.infos.extend(infos)
        self.is_done = self.is_done or any(info.get(_DONE) for info in infos)
        if self.is_done:
            self.capacity = 0


class GroupTask(WorkerTask):
    """A task on a fixed group of learners.

    Each batch is split into one part per learner, in order. All learners get the same number of batches, so learners
    that average their gradients stay synchronized. The group reports an info once all learners have reported theirs.

    Args:
        handles: the learners, at least one.
        task: the start task with its `task_info`.
        timeout_s: seconds for a learner to answer a message.
    """

    def __init__(self, handles: Sequence[LearnerHandle], task: Task, timeout_s: float) -> None:
        super().__init__(task.get("task_info") or {})
        self._timeout_s = timeout_s
        self._learners = [_Learner(handle) for handle in handles]
        self._batches_done = 0
        self._has_failed = self._has_ended = False
        try:
            self._ask([task] * len(self._learners), message="one of learner can't start_task")
        except TaskFail:  # some may have started
            wait(
                [learner.handle.run({"name": LEARNER_CLOSE}, self._timeout_s) for learner in self._learners],
                START_GRACE_S,
            )
            raise

    def demand(self, task: Task) -> dict[str, Any]:
        """Return the request of the group: the sum of the batch sizes, and the smallest number of batches."""
        asked = [learner for learner in self._learners if not learner.is_done]
        return self._request([task] * len(asked), asked)

    def _request(self, tasks: Sequence[Task], asked: Sequence[_Learner]) -> dict[str, Any]:
        replies = self._ask(tasks, asked)
        for learner, reply in zip(asked, replies, strict=True):
            learner.take_demand(reply)
        requested = {"batch_size": sum(learner.batch_size for learner in self._learners)}
        if any(learner.is_done for learner in self._learners):
            self._end([learner for learner in self._learners if not learner.is_done])
        first = replies[0] if replies else {}
        # The others wait for the slowest learner.
        silence_s = max((learner.silence_s for learner in self._learners if not learner.is_done), default=0.0)
        reported = {"cur_learner_iter": first.get("cur_learner_iter", 0), "silence_s": silence_s}
        return {**reported, **requested, "batch_num": self._capacity, **self._new_infos()}

    @property
    def _capacity(self) -> int:
        return min(learner.capacity for learner in self._learners)

    def learn(self, task: Task) -> dict[str, Any]:
        """Send each learner its part of each batch, and return the next request of the group.

        Raises:
            ValueError: the number or the size of the batches differs from the request.
        """
        batches = unpack_batches(task)
        if len(batches) > self._capacity:
            raise ValueError(f"the learners requested {self._capacity} batches at most, but got {len(batches)}")
        sizes = [learner.batch_size for learner in self._learners]
        by_learner = zip(*(split(batch, sizes) for batch in batches), strict=True)
        more = {key: task[key] for key in (NORMALIZATION,) if key in task}
        return self._request(
            [{"name": LEARNER_LEARN, "demand": True, **pack_batches(parts), **more} for parts in by_learner],
            self._learners,
        )

    def close(self) -> dict[str, Any]:
        """End the task on all connected learners, and return the remaining infos.

        Unless a learner has failed, the learners first train on the batches they have, so that none of them waits for
        the gradients of another.

        Raises:
            TaskFail: a learner could not end the task.
        """
        self._end([learner for learner in self._learners if not learner.is_closed and not learner.handle.is_lost])
        return self._new_infos()

    def _end(self, chosen: Sequence[_Learner]) -> None:
        task = {"name": LEARNER_CLOSE, "drain": not self._has_failed}
        for learner, reply in zip(chosen, self._ask([task] * len(chosen), chosen, to_the_end=True), strict=True):
            learner.take_infos(reply)
            learner.is_done = learner.is_closed = True

    def _ask(self, tasks: Sequence[Task], chosen: Sequence[_Learner] | None = None, **how: Any) -> list[dict[str, Any]]:
        calls = [(t.handle, task) for t, task in zip(self._learners if chosen is None else chosen, tasks, strict=True)]
        try:
            return ask_all(calls, self._timeout_s, **how)
        except TaskFail:
            self._has_failed = True
            raise

    def _new_infos(self) -> dict[str, Any]:
        """Return the merged new infos of all learners, and the number of batches that all of them have read.

        The last info of one learner is the last of the group: the others cannot continue without that learner.
        """
        infos: list[dict[str, Any]] = []
        while not self._has_ended and all(learner.infos for learner in self._learners):
            heads = [learner.infos.popleft() for learner in self._learners]
            self._has_ended = any(info.get(_DONE) for info in heads)
            infos.append(_merged(heads, self._has_ended))
        left = [learner.infos[-1] for learner in self._learners if learner.infos]
        if left and not self._has_ended and all(learner.is_done for learner in self._learners):  # some reported fewer
            self._has_ended = True
            infos.append(_merged(left, True))
        done = min(learner.batches_done for learner in self._learners) - self._batches_done
        self._batches_done += done
        return {"infos": infos, "batches_done": done, **self.ids}


def _merged(infos: Sequence[dict[str, Any]], is_last: bool) -> dict[str, Any]:
    merged: dict[str, Any] = merge_info(infos)
    return {**merged, _DONE: True} if is_last else merged


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
            RESOURCE: resource and (lambda task: resource()),
            LEARNER_START: call.get("deal_with_learner_start"),
            LEARNER_GET_DATA: call.get("deal_with_get_data"),
            LEARNER_LEARN: call.get("deal_with_learn"),
            LEARNER_CLOSE: call.get("deal_with_learner_close"),
        }
        return {name: handler for name, handler in named.items() if handler is not None}


class LearnerAggregator:
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

    @property
    def port(self) -> int:
        """The port for tasks; valid after `start`."""
        return self._server.port

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

    def __del__(self) -> None:
        with contextlib.suppress(Exception):  # partly built, or at interpreter exit
            self.close()

    def serve(self, task: dict[str, Any]) -> Any:
        """Run a task of the coordinator.

        Raises:
            TaskFail: the task failed; its result has the learners' errors, if any.
        """
        handlers: dict[str, Handler] = {
            RESOURCE: lambda task: self.deal_with_get_resource(),
            LEARNER_START: self.deal_with_learner_start,
            LEARNER_GET_DATA: self.deal_with_get_data,
            LEARNER_LEARN: self.deal_with_learn,
            LEARNER_CLOSE: self.deal_with_learner_close,
        }
        return dispatch(task, handlers)

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

    def deal_with_get_data(self, task: dict[str, Any]) -> dict[str, Any]:
        """Return the request of the learners; see `GroupTask.demand`."""
        return self._slot.require().demand(task)

    def deal_with_learn(self, task: dict[str, Any]) -> dict[str, Any]:
        """Send the learners their parts of the batches; see `GroupTask.learn`."""
        return self._slot.require().learn(task)

    def deal_with_learner_close(self, task: dict[str, Any]) -> dict[str, Any]:
        """End the task on all learners; later calls do nothing and return the same."""
        return self._slot.end()

    def deal_with_lost_coordinator(self) -> None:
        """End the task of a lost coordinator in a thread; another coordinator may connect."""
        self._slot.abandon()

    @staticmethod
    def merge_info(infos: Sequence[Any]) -> Any:
        """Merge one info of each learner; see `ding.worker.adapter.learner_aggregator.merge_info`."""
        return merge_info(infos)
