"""Tasks over HTTP: the coordinator is a master, its workers are slaves of `ding.interaction`."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from time import monotonic
from typing import TYPE_CHECKING, Any

from ding.interaction import Master, Slave
from ding.interaction.exception import SlaveResponseException, SlaveSlaveAlreadyConnected
from ding.interaction.master.task import TaskResultType
from ding.utils.config_helper import ConfigError
from ding.utils.registry_factory import TRANSPORT_REGISTRY
from ding.worker.transport.comm_worker import dispatch
from ding.worker.transport.transport import (
    CLOSE_S,
    COLLECTOR,
    LEARNER,
    Connector,
    Handler,
    Serve,
    Task,
    TaskName,
    Transport,
    WorkerClient,
    WorkerLost,
    error_of,
    result_of,
)

if TYPE_CHECKING:
    from ding.interaction.access import RunToken
    from ding.interaction.base import Page

_logger = logging.getLogger("ding")

# The exception in the result of a task whose slave was closed.
_CLOSED = "SlaveClosed"
# How long a worker may give no sign of life; it is asked for one every few seconds.
TOLERANCE_S = 15.0
_FIRST_WAIT_S, _LONGEST_WAIT_S = 0.05, 1.0


class WorkerSlave(Slave):
    """A slave that runs the tasks of a coordinator by calling functions.

    Args:
        callback_fn: `serve`, called with every task, or one function for each kind of task as subclasses define. The
            optional `deal_with_lost_coordinator` is called when the coordinator disconnects or is lost.
        args: positional arguments of `Slave`.
        kwargs: keyword arguments of `Slave`.
    """

    def __init__(self, *args: Any, callback_fn: Mapping[str, Callable[..., Any]], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._callback_fn = callback_fn
        self._current_task_info: dict[str, Any] = {}

    def _process_task(self, task: dict[str, Any]) -> Any:
        """Run a task.

        Raises:
            TaskFail: the name of the task is unknown, or the task failed.
        """
        if "serve" in self._callback_fn:
            return self._callback_fn["serve"](task)
        resource = {TaskName.RESOURCE: lambda task: self._callback_fn["deal_with_resource"]()}
        return dispatch(task, {**resource, **self._handlers()})

    def _handlers(self) -> dict[str, Handler]:
        """Return the handlers of tasks by name, which are used without `serve`."""
        return {}

    def _start_task(self, kind: str, task: dict[str, Any]) -> dict[str, Any]:
        """Start a task of a kind of worker, for subclasses."""
        self._current_task_info = task["task_info"]
        self._callback_fn[f"deal_with_{kind}_start"](task["task_info"])
        return {"message": f"{kind} task has started"}

    def _ids(self, *keys: str) -> dict[str, Any]:
        return {key: self._current_task_info.get(key) for key in keys}

    def _before_disconnection(self, data: Any) -> None:
        self._report_loss()

    def _lost_connection(self, master_address: str, err: Exception) -> None:
        self._report_loss()

    def _report_loss(self) -> None:
        on_lost = self._callback_fn.get("deal_with_lost_coordinator")
        if on_lost is not None:
            on_lost()


class HttpWorkerClient(WorkerClient):
    """The `WorkerClient` of a worker over HTTP."""

    def __init__(self, master: Master, name: str, host: str, port: int, in_use: set[WorkerClient]) -> None:
        super().__init__(name, in_use)
        self._where = f"{host}:{port}"
        self._connection = master.new_connection(name, host, port)
        self._closed = threading.Event()

    def connect(self, timeout_s: float) -> None:
        import requests

        deadline, wait_s = monotonic() + timeout_s, _FIRST_WAIT_S
        self._in_use.add(self)
        while True:
            try:
                self._connection.connect(deadline - monotonic())
                return
            except requests.exceptions.SSLError as e:  # a later attempt would fail as well
                raise WorkerLost(
                    f"worker {self.name} at {self._where} has another certificate than that of the run; "
                    f"do both have the same token? {e}"
                ) from e
            except (requests.ConnectionError, requests.Timeout, SlaveSlaveAlreadyConnected) as e:
                # The worker has not started yet, or is still connected to a coordinator that has ended.
                if monotonic() + wait_s > deadline or self._closed.is_set():
                    raise WorkerLost(f"worker {self.name} at {self._where} does not answer: {e}") from e
            except (requests.RequestException, SlaveResponseException) as e:
                raise WorkerLost(f"worker {self.name} at {self._where} refuses the connection: {e}") from e
            self._closed.wait(wait_s)
            wait_s = min(2 * wait_s, _LONGEST_WAIT_S)

    def run(self, task: Task, timeout_s: float) -> dict[str, Any]:
        import requests

        name = str(task.get("name"))
        try:
            kind, result = self._connection.run(dict(task), timeout_s)
        except requests.Timeout as e:
            raise WorkerLost(
                f"worker {self.name} at {self._where} has not answered the task {name} within {timeout_s:g} s: {e}"
            ) from e
        except (requests.RequestException, SlaveResponseException) as e:
            raise WorkerLost(f"worker {self.name} at {self._where} was lost during the task {name}: {e}") from e
        result = result_of(result)
        if kind is TaskResultType.COMPLETED:
            return result
        if result.get("exception") == _CLOSED:
            raise WorkerLost(f"worker {self.name} was lost during the task {name}: {result.get('message')}")
        raise error_of(self.name, name, result)

    def drop(self, reason: str) -> None:
        self._closed.set()
        self._in_use.discard(self)
        self._connection.drop(reason)

    def watch(self, on_lost: Callable[[str], Any]) -> None:
        self._connection.watch(on_lost)

    def silence_s(self) -> float | None:
        return self._connection.silence_s

    def close(self) -> None:
        self._closed.set()
        self._in_use.discard(self)
        if not self._connection.is_connected:
            return
        try:
            self._connection.disconnect(CLOSE_S)
        except Exception as e:  # the worker may have ended; the connection is closed in any case
            _logger.info("worker %s at %s could not be disconnected: %s", self.name, self._where, e)


class HttpConnector(Connector):
    """The `Connector` of a coordinator over HTTP.

    Args:
        host: the address at which the coordinator listens.
        port: the port; 0 for any free one.
        run_token: see `Master`.
    """

    def __init__(self, host: str | None, port: int, run_token: RunToken | None = None) -> None:
        super().__init__()
        self._master = Master(
            host,
            port,
            heartbeat_tolerance=TOLERANCE_S,
            request_retries=5,
            request_retry_waiting=0.1,
            run_token=run_token,
        )
        self._is_started = False

    @property
    def url(self) -> str | None:
        return f"{self._master.my_address}/" if self._is_started else None

    def serve_page(self, path: str, page: Page) -> None:
        self._master.serve_page(path, page)

    def start(self) -> None:
        self._master.start()
        self._is_started = True

    def client(self, name: str, host: str, port: int) -> WorkerClient:
        return HttpWorkerClient(self._master, name, host, port, self._clients)

    def close(self) -> None:
        super().close()
        if self._is_started:
            self._is_started = False
            self._master.close()


@TRANSPORT_REGISTRY.register("flask_fs")
class HttpTransport(Transport):
    """The transport with tasks over HTTP, and samples and weights in files of folders that all roles share."""

    name = "flask_fs"

    def connector(self, cfg: Mapping[str, Any]) -> HttpConnector:
        for kind in (LEARNER, COLLECTOR):
            for name, _, port in cfg.get(kind, {}).values():
                if not port:
                    raise ConfigError(
                        f"system.coordinator.{kind}.{name} has port {port!r}, where it cannot be reached; start {name} "
                        f"first and write the port that it reports there, or compile the config without {kind}_port=0"
                    )
        return HttpConnector(cfg.get("host"), cfg.get("port", 0), cfg.get("run_token"))

    def worker_server(self, serve: Serve, cfg: Mapping[str, Any], on_lost: Callable[[], Any]) -> WorkerSlave:
        callback_fn: dict[str, Callable[..., Any]] = {"serve": serve, "deal_with_lost_coordinator": on_lost}
        token = cfg.get("run_token")
        return WorkerSlave(cfg.get("host"), cfg.get("port", 0), callback_fn=callback_fn, run_token=token)
