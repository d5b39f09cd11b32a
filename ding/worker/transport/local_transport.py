"""Tasks between roles in one process, for tests and for debugging a run; samples and weights are in folders."""

from __future__ import annotations

import itertools
import queue
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import TimeoutError as FutureTimeout
from typing import Any

from ding.interaction.exception import TaskFail, failure_for, failure_of
from ding.utils.msgpack_helper import pack, unpack
from ding.utils.registry_factory import TRANSPORT_REGISTRY
from ding.worker.transport.transport import (
    Answer,
    Connector,
    Launch,
    Serve,
    Task,
    Transport,
    WorkerClient,
    WorkerGone,
    WorkerLost,
    error_of,
    result_of,
)

LOCAL_HOST = "local"

# Reentrant: the garbage collector may run while it is held, and finalizing a worker closes its server.
_lock = threading.RLock()
_servers: dict[int, LocalWorkerServer] = {}
_free_ports = itertools.count(1)


class LocalWorkerServer:
    """The server of one worker, which runs its tasks in a thread, one after the other.

    Tasks and results are packed, so that code for this transport works over HTTP, too.

    Args:
        serve: runs a task and returns its result.
        port: identifies the server within the process; 0 for a free number.
        close_timeout_s: how long `close` waits for accepted tasks.
    """

    def __init__(self, serve: Serve, port: int = 0, close_timeout_s: float = 10.0) -> None:
        self.port = port
        self._close_timeout_s = close_timeout_s
        self._serve = serve
        self._tasks: queue.SimpleQueue[tuple[bytes, Answer] | None] = queue.SimpleQueue()
        self._pending: set[Answer] = set()  # answers to accepted tasks
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start to accept tasks.

        Raises:
            OSError: another server has this port.
        """
        with _lock:
            self.port = self.port or next(port for port in _free_ports if port not in _servers)
            if self.port in _servers:
                raise OSError(f"port {self.port} belongs to another server of this process")
            _servers[self.port] = self
        self._thread = threading.Thread(target=self._work, name=f"local_worker_{self.port}", daemon=True)
        self._thread.start()

    def submit(self, task: bytes) -> Answer:
        """Queue a packed task, and return its future answer.

        Raises:
            WorkerLost: the server is closed.
        """
        answer = Answer()
        with _lock:
            if _servers.get(self.port) is not self:
                raise WorkerLost(f"the local server {self.port} is closed")
            self._pending.add(answer)
            self._tasks.put((task, answer))
        return answer

    def _work(self) -> None:
        while (entry := self._tasks.get()) is not None:
            task, answer = entry
            if not answer.done():  # otherwise it was given up
                try:
                    answer.succeed(pack(self._serve(unpack(task)) or {}))
                except TaskFail as e:
                    answer.fail(TaskFail(result=_packable(e.result)))
                except BaseException as e:  # the waiting caller receives any error
                    answer.fail(TaskFail(result=failure_of(e)))
            self._pending.discard(answer)

    def close(self, timeout_s: float | None = None) -> None:
        """Accept no more tasks; wait for the accepted ones for `timeout_s` seconds, then give them up.

        Further calls do nothing.
        """
        with _lock:
            if _servers.get(self.port) is not self:
                return
            del _servers[self.port]
            self._tasks.put(None)
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(self._close_timeout_s if timeout_s is None else timeout_s)
            for answer in self._pending.copy():
                answer.fail(WorkerLost(f"the local server {self.port} was closed during a task"))


def _packable(result: Any) -> Any:
    try:
        return unpack(pack(result))
    except (TypeError, ValueError) as e:
        return failure_for(f"the result cannot be sent: {e}", type(e).__name__)


class LocalWorkerClient(WorkerClient):
    """The `WorkerClient` of a worker in this process."""

    def __init__(self, name: str, port: int, in_use: set[WorkerClient]) -> None:
        super().__init__(name, in_use)
        self._port = port
        self._server: LocalWorkerServer | None = None
        self._answer: Answer | None = None

    def connect(self, timeout_s: float) -> None:
        with _lock:
            self._server = _servers.get(self._port)
        if self._server is None:
            raise WorkerGone(f"there is no worker {self.name} at the local port {self._port}")
        self._in_use.add(self)

    def run(self, task: Task, timeout_s: float) -> dict[str, Any]:
        server, name = self._server, str(task.get("name"))
        if server is None:
            raise WorkerLost(f"worker {self.name} is not connected")
        answer = self._answer = server.submit(pack(task))
        if self._server is None:  # closed in between: no other thread would end the wait
            answer.fail(WorkerLost(f"worker {self.name} was disconnected"))
        try:
            result = unpack(answer.result(timeout_s))
        except TaskFail as e:
            raise error_of(self.name, name, e.result) from e
        except FutureTimeout as e:
            raise WorkerLost(f"worker {self.name} has not answered the task {name} within {timeout_s:g} s") from e
        return result_of(result)

    def drop(self, reason: str) -> None:
        self._server = None
        self._in_use.discard(self)
        if self._answer is not None:
            self._answer.fail(WorkerLost(f"worker {self.name} was disconnected"))


class LocalConnector(Connector):
    """The `Connector` to workers in this process; it does not listen."""

    def client(self, name: str, host: str, port: int) -> LocalWorkerClient:
        return LocalWorkerClient(name, port, self._clients)


@TRANSPORT_REGISTRY.register("local")
class LocalTransport(Transport):
    """The transport with tasks within one process, and samples and weights in files."""

    name = "local"
    launch = Launch.THREAD

    def connector(self, cfg: Mapping[str, Any]) -> LocalConnector:
        return LocalConnector()

    def worker_server(self, serve: Serve, cfg: Mapping[str, Any], on_lost: Callable[[], Any]) -> LocalWorkerServer:
        return LocalWorkerServer(serve, cfg.get("port", 0), cfg.get("close_timeout_s", 10.0))
