"""The client of the operator that runs the workers of a job."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from ding.interaction.base.app import get_values_from_response
from ding.interaction.base.engine import HttpEngine
from ding.utils.k8s_helper import get_operator_server_kwargs

if TYPE_CHECKING:
    import requests

_WORKER_TYPES = ("coordinator", "aggregator")
# Until the connection stands, and until the reply begins; it may have pods made first.
TIMEOUT = (5.0, 30.0)
# Asking for the replicas is tried again after a transport error.
_RETRIES, RETRY_WAIT_S = 2, 0.2
_SHOWN = 200  # characters of a reply in an error

Reply = tuple[bool, int, str, Any]


class OperatorServer:
    """Asks an operator for replicas: collectors and learners, each in a pod of its own. Thread-safe.

    All requests return `(success, code, message, data)`. A request for a change is sent once, as the operator may have
    made it even if its reply is lost.

    Args:
        port: 80 by default, with `https` 443.
        api_version: prefix of the paths.
        namespace, name: namespace and name of the pod of this process.

    Raises:
        requests.RequestException: the operator cannot be reached, answers with an error status or not in the form that
            is agreed on; applies to all requests. The message contains method, URL and status.

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
        """The replicas of this process, or of the one called `name`: `data` is `{'collectors': ids, 'learners': ids}`.

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
        return self._values(lambda: self._engine.request_once(method, path, body, timeout=TIMEOUT))

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
    """The operator given by `cfg` and the environment; see `get_operator_server_kwargs`.

    Raises:
        ConfigError: neither gives an address.
    """
    server = OperatorServer(**get_operator_server_kwargs(cfg))
    server.set_worker_type(worker_type)
    return server
