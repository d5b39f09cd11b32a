"""The operator that runs the workers of a job: its client, and workers that join and leave as it lists them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from time import monotonic
from typing import TYPE_CHECKING, Any

from ding.interaction.base import get_values_from_response
from ding.interaction.http_client import HttpEngine, literal
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
            all requests may raise it. The message contains the URL.

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
        self._engine = HttpEngine(host, port or (443 if https else 80), https, api_version)
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
            reason = f"the operator at {response.url} answered with no envelope of success, code and data"
            raise requests.RequestException(f"{reason}: {response.text[:_SHOWN]!r}", response=response) from e
        return bool(success), int(code), str(message), {} if data is None else data


def make_operator_server(cfg: Mapping[str, Any], worker_type: str) -> OperatorServer:
    """Return a client of the operator that `cfg` or the environment names; see `get_operator_server_kwargs`.

    Raises:
        ConfigError: neither gives an address.
    """
    server = OperatorServer(**get_operator_server_kwargs(cfg))
    server.set_worker_type(worker_type)
    return server


WorkerId = tuple[str, str]  # the kind of a worker of an operator, and its name, `host:port`


class OperatorSync:
    """The synchronisation of the connected workers with the operator's list, which it requests periodically.

    New workers are connected, each in a thread of its own, so that one that does not answer delays no other; those that
    are no longer listed are disconnected. A worker that could not join, or was lost, is reported to the operator, and
    tried again as long as it is listed. While the operator fails, the workers stay as they are.

    Args:
        kinds: the kinds of workers to manage.
        join: connects a worker, called with kind, name, host and port; raises if that fails.
        leave: disconnects a worker that has joined, called with kind and name.
        logger: a text logger.
        period_s: seconds from one request to the next.
        reports_failures: whether failed workers are reported to the operator.
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
    ) -> None:
        self._operator, self._kinds = operator, kinds
        self._join, self._leave = join, leave
        self._logger, self._period_s, self._reports_failures = logger, period_s, reports_failures
        self._known: set[WorkerId] = set()  # all that were ever listed
        self._joining: set[WorkerId] = set()
        self._joined: set[WorkerId] = set()
        self._failed: set[WorkerId] = set()
        self._changed = threading.Condition()
        self._is_closing = False
        self._problem = ""  # the last error of the operator or of a worker
        self._threads = DaemonThreads()

    def request_replicas(self, data: Mapping[str, Any], timeout_s: float) -> None:
        """Request the initial workers; repeat the request while the operator is not up yet, or fails.

        Raises:
            ConnectionError: the operator has not agreed in time.
        """
        import requests

        deadline = monotonic() + timeout_s
        while True:
            try:
                self._checked(self._operator.post_replicas(data))
                return
            except requests.RequestException as e:
                # After a timeout it may have created them: a second request could create twice as many.
                is_final = isinstance(e, requests.ReadTimeout) or monotonic() + RETRY_S > deadline
                if is_final or self._wait(RETRY_S):
                    raise ConnectionError(f"the operator has given no replicas within {timeout_s:g} s: {e}") from e

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
        """Report a lost worker to the operator, unless it has left; see `WorkerSupervisor`.

        Returns:
            False if the operator has never listed it: a worker of the config does not return.
        """
        self._settle((kind, name), self._failed)
        return (kind, name) in self._known

    def close(self) -> None:
        """Stop, in bounded time: a request in progress is not waited for. Further calls do nothing."""
        with self._changed:
            self._is_closing = True
            self._changed.notify_all()
        self._operator.close()
        self._threads.join(JOIN_S)

    def _run(self) -> None:
        is_failing = False
        while not self._is_closing:
            try:
                self._synchronise()
                is_failing = False
            except Exception as e:  # of the operator, whatever it answers
                self._problem = str(e)
                if not is_failing and not self._is_closing:
                    self._logger.error("the workers are left as they are: %r", e)
                is_failing = True
            self._wait(self._period_s)

    def _wait(self, timeout_s: float) -> bool:
        """Wait for `timeout_s` seconds, or until `close` is called; return whether it was."""
        with self._changed:
            return self._changed.wait_for(lambda: self._is_closing, timeout_s)

    def _synchronise(self) -> None:
        """Report failed workers, and compare the operator's list with the connected workers."""
        failed = self._failed.copy()
        if failed and self._reports_failures:
            pods = {kind: sorted(_pod(name) for k, name in failed if k == kind) for kind in self._kinds}
            self._checked(self._operator.post_replicas_failed(**{f"{kind}s": names for kind, names in pods.items()}))
        data = self._checked(self._operator.get_replicas())
        listed = {(kind, name) for kind in self._kinds for name in data.get(f"{kind}s") or ()}
        with self._changed:
            if self._is_closing:
                return
            self._known |= listed
            self._failed -= failed  # one that is listed is tried again
            new, gone = listed - self._joining - self._joined - self._failed, self._joined - listed
            self._joining |= new
            self._joined -= gone
        for kind, name in new:
            self._threads.start(f"operator_{kind}", self._do_join, kind, name)
        for kind, name in gone:
            self._leave(kind, name)
            self._logger.info("%s %s is no longer listed, and has left", kind, name)

    def _checked(self, reply: Reply) -> Any:
        success, code, message, data = reply
        if not success:
            import requests

            raise requests.RequestException(f"the operator at {self._operator.url} refuses (code {code}): {message}")
        return data

    def _do_join(self, kind: str, name: str) -> None:
        state = self._joined
        host, _, port = name.rpartition(":")
        try:
            self._join(kind, name, host, int(port))
        except Exception as e:  # whatever it is, the operator replaces the worker
            state, self._problem = self._failed, f"{kind} {name} could not be connected: {e}"
            if not self._is_closing:
                self._logger.error("%s", self._problem)
        self._settle((kind, name), state)

    def _settle(self, worker: WorkerId, state: set[WorkerId]) -> None:
        """Note that a worker has joined or failed, unless it has left, or was lost right after it joined."""
        with self._changed:
            if worker in self._joining or worker in self._joined:
                self._joining.discard(worker)
                self._joined.discard(worker)
                state.add(worker)
            self._changed.notify_all()


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
        join, leave, logger: see `OperatorSync`.

    Raises:
        ConfigError: a value is not allowed, or there is no address.
    """

    def __init__(
        self,
        cfg: Mapping[str, Any],
        join: Callable[[str, str, str, int], None],
        leave: Callable[[str, str], None],
        logger: Any,
    ) -> None:
        check_config(cfg, "operator_server", _OPERATOR_SETTINGS.rules())
        self._cfg = {**_OPERATOR_SETTINGS.config(), **cfg}
        operator, period_s = make_operator_server(cfg, "coordinator"), self._cfg["sync_period_s"]
        super().__init__(operator, (LEARNER, COLLECTOR), join, leave, logger, period_s, reports_failures=True)

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


def _pod(name: str) -> str:
    """Return the name of a worker's pod, which is `pod` in `pod.namespace:port`."""
    host = name.rpartition(":")[0] or name
    return host.rpartition(".")[0] or host if literal(host) is None else host
