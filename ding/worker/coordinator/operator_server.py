"""The operator that runs the workers of a job: its client, and workers that join and leave as it lists them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from enum import Enum, auto
from time import monotonic
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from ding.interaction.base import get_values_from_response
from ding.interaction.http_client import HttpEngine, literal, split_http_address
from ding.utils.config_helper import NO_DEFAULT, Setting, Settings, check_config, instance_of, integer, number
from ding.utils.system_helper import DaemonThreads, get_operator_server_kwargs
from ding.worker.transport.transport import COLLECTOR, LEARNER

if TYPE_CHECKING:
    import requests

_WORKER_TYPES = ("coordinator", "aggregator")
# Until the connection stands, and until the reply begins; the operator may create pods first.
TIMEOUT = (5.0, 30.0)
# Asking for the replicas is tried again after a transport error.
_RETRIES, RETRY_WAIT_S = 2, 0.2
_SHOWN = 200  # characters of a reply in an error
# Seconds from a failed request for workers to the next one; and how long `close` waits for threads.
RETRY_S, JOIN_S = 2.0, 2.0

Reply = tuple[bool, int, str, Any]


class OperatorServer:
    """A client of an operator, from which it requests collectors and learners, each in a pod.

    This class is thread-safe.

    All requests return `(success, code, message, data)`. A request for a change is sent once, as the operator may have
    made it even if its reply is lost.

    Args:
        port: the port; by default 80, or 443 with `https`.
        api_version: prefix of the paths.
        namespace, name: namespace and name of the pod of this process.

    Raises:
        requests.RequestException: the operator cannot be reached, or answers with an error status or in a wrong form;
            all requests may raise it. The message contains method, URL and status.

    Example:
        >>> server = OperatorServer("operator.example.com", 8080, namespace="default", name="job-coordinator")
        >>> server.set_worker_type("coordinator")
        >>> server.api_version
        'v1alpha1'
    """

    def __init__(
        self,
        host: str,
        port: int | None = None,
        api_version: str = "v1alpha1",
        https: bool = False,
        namespace: str | None = None,
        name: str | None = None,
    ) -> None:
        self._engine = _OperatorEngine(host, port or (443 if https else 80), https, api_version)
        self._api_version = api_version
        self._namespace, self._name = namespace, name
        self._worker_type: str | None = None

    @property
    def api_version(self) -> str:
        """The prefix of the paths."""
        return self._api_version

    @property
    def url(self) -> str:
        """The address of the operator."""
        return self._engine.get_url()

    def set_worker_type(self, worker_type: str) -> None:
        """Set the type of this process: 'coordinator' or 'aggregator'.

        Raises:
            AssertionError: the type is unknown.
        """
        if worker_type not in _WORKER_TYPES:
            raise AssertionError(
                f"the worker type {worker_type!r} is not allowed; it must be one of {', '.join(_WORKER_TYPES)}"
            )
        self._worker_type = worker_type

    def get_replicas(self, name: str | None = None) -> Reply:
        """Return the replicas of this process, or of `name`: `data` is `{'collectors': ids, 'learners': ids}`.

        Raises:
            AssertionError: neither `name` was given, nor the type of this process set.
        """
        if name is None and self._worker_type is None:
            raise AssertionError("call set_worker_type first, or give a name")
        whose: dict[str | None, str | None] = {self._worker_type: self._name} if name is None else {"name": name}
        params = {str(key): value for key, value in {"namespace": self._namespace, **whose}.items()}
        return self._values(
            lambda: self._engine.request(
                "GET", "replicas", params=params, retries=_RETRIES, retry_waiting=RETRY_WAIT_S, timeout=TIMEOUT
            )
        )

    def post_replicas(self, data: Mapping[str, Any]) -> Reply:
        """Request replicas: `data` contains their number (`replicas`) and resources for `collectors` and `learners`."""
        return self._change("POST", "replicas", data)

    def post_replicas_failed(self, collectors: Sequence[str] = (), learners: Sequence[str] = ()) -> Reply:
        """Report pods that have failed; the operator replaces them."""
        return self._change("POST", "replicas/failed", {"collectors": list(collectors), "learners": list(learners)})

    def delete_replicas(self, n_collectors: int = 0, n_learners: int = 0) -> Reply:
        """Release replicas."""
        counts = {"collectors": {"replicas": n_collectors}, "learners": {"replicas": n_learners}}
        return self._change("DELETE", "replicas", counts)

    def close(self) -> None:
        """Close idle connections, and end retries."""
        self._engine.close()

    def _change(self, method: str, path: str, data: Mapping[str, Any]) -> Reply:
        body = {**data, "namespace": self._namespace, "coordinator": self._name}
        return self._values(lambda: self._engine.request(method, path, body, timeout=TIMEOUT, once=True))

    def _values(self, request: Callable[[], requests.Response]) -> Reply:
        import requests

        response = request()
        try:
            _, success, code, message, data = get_values_from_response(response)
        except (ValueError, KeyError) as e:
            reason = f"the operator at {_place(response.request)} answered with no envelope of success, code and data"
            raise requests.RequestException(f"{reason}: {response.text[:_SHOWN]!r}", response=response) from e
        return bool(success), int(code), str(message), {} if data is None else data


class _OperatorEngine(HttpEngine):
    """An engine whose errors name the request."""

    def _base_headers(self) -> Mapping[str, str]:
        return {"Content-Type": "application/json"}

    def _error_handler(self, err: requests.RequestException) -> NoReturn:
        import requests

        response = err.response
        if response is None:
            raise type(err)(
                f"the operator at {_place(err.request)} does not answer: {err}", request=err.request
            ) from err
        reason = f"the operator at {_place(response.request)} answered with the status {response.status_code}"
        raise requests.HTTPError(f"{reason}: {response.text[:_SHOWN]!r}", response=response) from err


def _place(request: Any) -> str:
    return "an unknown place" if request is None else f"{request.url} ({request.method})"


def make_operator_server(cfg: Mapping[str, Any], worker_type: str) -> OperatorServer:
    """Return a client of the operator that `cfg` or the environment names; see `get_operator_server_kwargs`.

    Raises:
        ConfigError: neither gives an address.
    """
    server = OperatorServer(**get_operator_server_kwargs(cfg))
    server.set_worker_type(worker_type)
    return server


class WorkerId(NamedTuple):
    """The id of a worker of an operator; its name, `host:port`, is its address."""

    kind: str
    name: str


class _State(Enum):
    JOINING = auto()
    JOINED = auto()
    LEAVING = auto()
    FAILED = auto()


class OperatorSync:
    """The synchronisation of the connected workers with the operator's list, which it requests periodically.

    New workers are connected, and those that are no longer listed disconnected, each in a thread of its own, so that
    one that does not answer delays no other. A worker that could not join, or was lost, is reported to the operator,
    and tried again as long as it is listed. While the operator fails, the workers stay as they are.

    Args:
        kinds: the kinds of workers to manage.
        join: connects a worker, called with kind, name, host and port; raises if that fails.
        leave: disconnects a worker that has joined, called with kind and name.
        logger: a text logger.
        period_s: seconds from one request to the next.
        reports_failures: whether failed workers are reported to the operator.
        on_error: called with an error that ends the synchronisation.
    """

    def __init__(
        self,
        operator: OperatorServer,
        kinds: Sequence[str],
        join: Callable[[str, str, str, int], None],
        leave: Callable[[str, str], None],
        logger: Any,
        period_s: float,
        reports_failures: bool = False,
        on_error: Callable[[Exception], None] | None = None,
    ) -> None:
        self._operator, self._kinds = operator, kinds
        self._join, self._leave = join, leave
        self._logger, self._period_s = logger, period_s
        self._reports_failures, self._on_error = reports_failures, on_error
        self._states: dict[WorkerId, _State] = {}
        self._known: set[WorkerId] = set()  # all that were ever listed
        self._changed = threading.Condition()
        self._is_closing = False
        self._problem = ""  # the last error of the operator or of a worker
        self._threads = DaemonThreads()

    def request_replicas(self, data: Mapping[str, Any], timeout_s: float) -> None:
        """Request the initial workers; repeat the request while the operator is not up yet, or fails.

        Raises:
            ConnectionError: the operator has not agreed in time, or refuses.
        """
        deadline = monotonic() + timeout_s
        while not self._has_agreed(data):
            if monotonic() + RETRY_S > deadline or self._wait(RETRY_S):
                raise ConnectionError(f"the operator has given no replicas within {timeout_s:g} s: {self._problem}")

    def _has_agreed(self, data: Mapping[str, Any]) -> bool:
        import requests

        try:
            self._checked(self._operator.post_replicas(data))
        except requests.ReadTimeout as e:  # it may have created them: a second request could create twice as many
            raise ConnectionError(str(e)) from e
        except requests.RequestException as e:
            if e.response is not None and 400 <= e.response.status_code < 500:
                raise ConnectionError(str(e)) from e
            self._problem = str(e)
            return False
        return True

    def start(self) -> None:
        """Start the thread."""
        self._threads.start("period_sync", self._run)

    def wait_for(self, has_enough: Callable[[], bool], what: str, timeout_s: float) -> None:
        """Wait until `has_enough()`, which is checked whenever a worker has joined.

        Raises:
            ConnectionError: it still returns False after `timeout_s`, or at `close`.
        """
        with self._changed:
            self._changed.wait_for(lambda: has_enough() or self._is_closing, timeout_s)
        if not has_enough():
            problem = f": {self._problem}" if self._problem else ""
            raise ConnectionError(
                f"the operator at {self._operator.url} has not brought {what} within {timeout_s:g} s{problem}"
            )

    def lost(self, kind: str, name: str, error: Exception) -> bool:
        """Report a lost worker to the operator, unless it is leaving; see `WorkerSupervisor`.

        Returns:
            False if the operator has never listed it: a worker of the config does not return.
        """
        with self._changed:
            worker = WorkerId(kind, name)
            if self._states.get(worker, _State.LEAVING) is not _State.LEAVING:
                self._states[worker] = _State.FAILED
            return worker in self._known

    def close(self) -> None:
        """Stop, in bounded time: a request in progress is not waited for. Further calls do nothing."""
        with self._changed:
            self._is_closing = True
            self._changed.notify_all()
        self._operator.close()
        self._threads.join(JOIN_S)

    def _run(self) -> None:
        import requests

        is_failing = False
        try:
            while not self._is_closing:
                try:
                    self._synchronise()
                    is_failing = False
                except (requests.RequestException, ValueError) as e:
                    self._problem = str(e)
                    if not is_failing and not self._is_closing:
                        self._logger.error("the workers are left as they are: %s", e)
                    is_failing = True
                self._wait(self._period_s)
        except Exception as e:  # the thread has no caller
            self._logger.exception("the synchronisation with the operator has ended")
            if self._on_error is not None and not self._is_closing:
                self._on_error(e)

    def _wait(self, timeout_s: float) -> bool:
        """Wait for `timeout_s` seconds, or until `close` is called; return whether it was."""
        with self._changed:
            return self._changed.wait_for(lambda: self._is_closing, timeout_s)

    def _synchronise(self) -> None:
        """Report failed workers, and compare the operator's list with the connected workers.

        Raises:
            requests.RequestException: the operator fails.
            ValueError: the list contains an invalid name.
        """
        with self._changed:
            failed = {worker for worker, state in self._states.items() if state is _State.FAILED}
        if failed and self._reports_failures:
            pods = {kind: sorted(_pod(worker.name) for worker in failed if worker.kind == kind) for kind in self._kinds}
            self._checked(self._operator.post_replicas_failed(**{f"{kind}s": names for kind, names in pods.items()}))
        data = self._checked(self._operator.get_replicas())
        listed: dict[WorkerId, tuple[str, int]] = {}
        for kind in self._kinds:
            names = data.get(f"{kind}s") or () if isinstance(data, Mapping) else None
            if not isinstance(names, (Mapping, list, tuple)) or not all(isinstance(name, str) for name in names):
                raise ValueError(f"the operator at {self._operator.url} lists no valid {kind}s: {str(data)[:_SHOWN]}")
            listed |= {WorkerId(kind, name): _address(name) for name in names}
        with self._changed:
            self._known.update(listed)
            for worker in failed:  # one that is listed is tried again
                del self._states[worker]
            if self._is_closing:
                return
            for worker in listed.keys() - self._states.keys():
                self._states[worker] = _State.JOINING
                self._threads.start(f"operator_{worker.kind}", self._do_join, worker, *listed[worker])
            for worker in self._states.keys() - listed.keys():
                if self._states[worker] is _State.JOINED:
                    self._states[worker] = _State.LEAVING
                    self._threads.start(f"operator_{worker.kind}", self._do_leave, worker)

    def _checked(self, reply: Reply) -> Any:
        success, code, message, data = reply
        if not success:
            import requests

            raise requests.RequestException(f"the operator at {self._operator.url} refuses (code {code}): {message}")
        return data

    def _do_join(self, worker: WorkerId, host: str, port: int) -> None:
        state = _State.JOINED
        try:
            self._join(worker.kind, worker.name, host, port)
        except Exception as e:  # whatever it is, the operator replaces the worker
            state, self._problem = _State.FAILED, f"{worker.kind} {worker.name} could not be connected: {e}"
            if not self._is_closing:
                self._logger.error("%s", self._problem)
        with self._changed:
            if self._states.get(worker) is _State.JOINING:  # otherwise it was lost right after it joined
                self._states[worker] = state
            self._changed.notify_all()

    def _do_leave(self, worker: WorkerId) -> None:
        try:
            self._leave(*worker)
            self._logger.info("%s %s is no longer listed, and has left", *worker)
        except Exception:  # the thread has no caller
            self._logger.exception("%s %s could not be disconnected", *worker)
        with self._changed:
            del self._states[worker]


_OPERATOR_SETTINGS = Settings(
    {
        "system_addr": Setting(NO_DEFAULT, instance_of(str, optional=True), "Address of the operator."),
        "api_version": Setting(NO_DEFAULT, instance_of(str, optional=True), "Version of its API."),
        "init_replicas_request": Setting(NO_DEFAULT, instance_of(Mapping), "The request for the initial workers."),
        "collector_target_num": Setting(0, integer(0), "Number of collectors to wait for at the start."),
        "learner_target_num": Setting(0, integer(0), "Number of learners to wait for at the start."),
        "sync_period_s": Setting(1.0, number(0.01), "Seconds between two requests for the operator's list."),
    }
)


class OperatorWorkers(OperatorSync):
    """The collectors and learners that an operator brings to a coordinator.

    Args:
        cfg: may contain `system_addr` and `api_version`, see `get_operator_server_kwargs`; `init_replicas_request`, the
            request for the initial workers; `collector_target_num` and `learner_target_num` (0), how many must be
            connected before `connect` returns; `sync_period_s` (1.0).
        join, leave, logger, on_error: see `OperatorSync`.

    Raises:
        ConfigError: a value is not allowed, or there is no address.
    """

    def __init__(
        self,
        cfg: Mapping[str, Any],
        join: Callable[[str, str, str, int], None],
        leave: Callable[[str, str], None],
        logger: Any,
        on_error: Callable[[Exception], None],
    ) -> None:
        check_config(cfg, "operator_server", _OPERATOR_SETTINGS.rules())
        self._cfg = {**_OPERATOR_SETTINGS.config(), **cfg}
        operator, period_s = make_operator_server(cfg, "coordinator"), self._cfg["sync_period_s"]
        super().__init__(operator, (LEARNER, COLLECTOR), join, leave, logger, period_s, True, on_error)

    def connect(self, count: Callable[[str], int], timeout_s: float) -> None:
        """Request workers, and wait until enough of both kinds are connected.

        Args:
            count: takes a kind, and returns the number of connected workers of it.
            timeout_s: how long the operator may take for each of the two steps.

        Raises:
            ConnectionError: the operator refuses, or has not brought them in time.
        """
        request = self._cfg.get("init_replicas_request")
        if request:
            self.request_replicas(request, timeout_s)
        self.start()
        wanted = {kind: int(self._cfg[f"{kind}_target_num"]) for kind in (LEARNER, COLLECTOR)}
        what = " and ".join(f"{number} {kind}s" for kind, number in wanted.items())
        self.wait_for(lambda: all(count(kind) >= number for kind, number in wanted.items()), what, timeout_s)


def _address(name: str) -> tuple[str, int]:
    """Return the address of a worker.

    Raises:
        ValueError: the name is not an address.
    """
    try:
        host, port, _, path = split_http_address(f"http://{name}", default_port=0)
    except ValueError:
        host, port, path = None, 0, ""
    if not host or not port or path or "@" in name:
        raise ValueError(f"the operator lists {name!r}, which is no worker; it must be host:port")
    return host, port


def _pod(name: str) -> str:
    """Return the name of a worker's pod, which is `pod` in `pod.namespace:port`."""
    host = name.rpartition(":")[0] or name
    return host.rpartition(".")[0] or host if literal(host) is None else host
