"""An HTTP client for JSON, with one keep-alive session for each server."""

from __future__ import annotations

import json
import math
import os
import threading
from collections.abc import Callable, Mapping
from time import monotonic
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from ding.interaction.base.common import translate_dict_func
from ding.interaction.base.network import url_host
from ding.interaction.config import DEFAULT_REQUEST_RETRIES, DEFAULT_REQUEST_RETRY_WAITING, DEFAULT_REQUEST_TIMEOUT

if TYPE_CHECKING:
    import requests
    from urllib3.util import Timeout as TotalTimeout

_Reply = TypeVar("_Reply")
_Data = Mapping[str, Any] | None
_Headers = Mapping[str, str] | None
# Seconds (until the connection is open, until the reply begins).
Limits = tuple[float, float]
# The shortest time that a try gets, however close the deadline is.
LEAST_TRY_S = 0.05


class HttpEngine:
    """A client of one server, which sends JSON objects. It ignores proxies and `.netrc` of the environment.

    It is thread-safe. Subclasses may override `_data_process`, `_base_headers` and `_error_handler`.

    Args:
        path: the prefix of all paths; its leading `/` is optional.

    Example:
        >>> HttpEngine("example.com", 8000, path="root").get_url("this/is")
        'http://example.com:8000/root/this/is'
    """

    def __init__(self, host: str, port: int, https: bool = False, path: str | None = None) -> None:
        self._base_url = f"{'https' if https else 'http'}://{url_host(host)}:{port}{_rooted(path)}"
        self._lock = threading.Lock()
        self._session: requests.Session | None = None
        self._session_pid = 0
        self._closing = threading.Event()

    def get_url(self, path: str | None = None) -> str:
        """Return the URL of `path`, whose leading `/` is optional."""
        return self._base_url + _rooted(path)

    def request(
        self,
        method: str,
        path: str,
        data: _Data = None,
        headers: _Headers = None,
        params: Mapping[str, Any] | None = None,
        raise_for_status: bool = True,
        retries: int | None = None,
        retry_waiting: float | None = None,
        timeout: Limits | None = None,
        deadline: float = math.inf,
    ) -> requests.Response:
        """Send `data` as JSON and return the reply.

        Args:
            retries: how often to retry after a transport error (5 by default, also for 0); status errors are raised.
            retry_waiting: seconds between tries (1.0 by default).
            timeout: seconds (until the connection is open, until the reply begins) of each try; (5, 30) by default.
            deadline: when to give up, by `time.monotonic`.

        Raises:
            requests.RequestException: a transport error or, with `raise_for_status`, a status >= 400
                (`requests.HTTPError`). `_error_handler` may raise another exception instead.
        """
        import requests

        try:
            return retry(
                lambda: self._exchange(
                    method, path, data, headers, params, raise_for_status,
                    _limited(timeout or DEFAULT_REQUEST_TIMEOUT, deadline),
                ),
                retries or DEFAULT_REQUEST_RETRIES,
                retry_waiting or DEFAULT_REQUEST_RETRY_WAITING,
                deadline,
                self._closing,
            )  # fmt: skip
        except requests.RequestException as error:
            self._error_handler(error)

    def request_once(
        self, method: str, path: str, data: _Data = None, headers: _Headers = None, timeout: Limits | None = None
    ) -> requests.Response:
        """Send one request without retries; see `request`."""
        import requests

        try:
            return self._exchange(method, path, data, headers, None, True, timeout or DEFAULT_REQUEST_TIMEOUT)
        except requests.RequestException as error:
            self._error_handler(error)

    def close(self) -> None:
        """Close idle connections and end requests that wait to be retried. The engine may be used again afterwards."""
        with self._lock:
            session, self._session = self._session, None
            closing, self._closing = self._closing, threading.Event()
        closing.set()
        if session is not None:
            session.close()

    def _exchange(
        self,
        method: str,
        path: str,
        data: _Data,
        headers: _Headers,
        params: Mapping[str, Any] | None,
        raise_for_status: bool,
        timeout: Limits | TotalTimeout,
    ) -> requests.Response:
        import requests

        body = json.dumps(self._data_process(data or {}) or {})
        # Prepared by hand, so that the session merges in no cookies and no credentials of the environment.
        prepared = requests.Request(
            method, self.get_url(path), headers={**self._base_headers(), **(headers or {})}, data=body, params=params
        ).prepare()
        response = self._get_session().send(prepared, timeout=timeout)  # type: ignore[arg-type]  # it takes both
        if raise_for_status:
            response.raise_for_status()
        return response

    def _get_session(self) -> requests.Session:
        # A forked child must not write into the connections of its parent.
        with self._lock:
            if self._session is None or self._session_pid != os.getpid():
                self._session, self._session_pid = _new_session(), os.getpid()
            return self._session

    def _data_process(self, data: Mapping[str, Any]) -> Mapping[str, Any]:
        return data

    def _base_headers(self) -> Mapping[str, str]:
        return {}

    def _error_handler(self, err: requests.RequestException) -> NoReturn:
        raise err


def retry(
    send: Callable[[], _Reply], retries: int, waiting_s: float, deadline: float, closing: threading.Event
) -> _Reply:
    """Return what `send` returns, and retry after transport errors until `closing` is set or the deadline is near."""
    while True:
        try:
            return send()
        except Exception as error:
            retries -= 1
            if not may_pass(error) or retries < 0 or monotonic() + waiting_s >= deadline or closing.wait(waiting_s):
                raise


def _limited(timeout: Limits, deadline: float) -> Limits | TotalTimeout:
    """Return `timeout`, limited to the time until `deadline` for both steps together."""
    if deadline == math.inf:
        return timeout
    from urllib3.util import Timeout as TotalTimeout

    return TotalTimeout(connect=timeout[0], read=timeout[1], total=max(LEAST_TRY_S, deadline - monotonic()))


def may_pass(error: Exception) -> bool:
    """Return whether a request or its reply got lost on the way, so that another try may succeed.

    No other try can succeed if the server's certificate cannot be verified, or the server does not speak TLS.
    """
    import requests

    lost = (requests.ConnectionError, requests.Timeout, requests.exceptions.ChunkedEncodingError)
    return isinstance(error, lost) and not isinstance(error, requests.exceptions.SSLError)


def _new_session() -> requests.Session:
    """Return a session that ignores proxies and passwords of the environment, and closes its connections.

    An adapter of requests leaves closing to the garbage collector, which cannot do it while a response is referenced,
    for example by a status error.
    """
    import requests
    from requests.adapters import HTTPAdapter

    class ClosingAdapter(HTTPAdapter):
        def close(self) -> None:
            pools = self.poolmanager.pools
            for key in list(pools.keys()):
                pool = pools.get(key)
                if pool is not None:
                    pool.close()
            super().close()

    session = requests.Session()
    session.trust_env = False
    for prefix in ("http://", "https://"):
        session.mount(prefix, ClosingAdapter())
    return session


def get_http_engine_class(
    headers: Mapping[str, Callable[..., str]],
    data_processor: Callable[..., Mapping[str, Any]] | None = None,
    http_error_gene: Callable[[requests.HTTPError], Exception] | None = None,
) -> Callable[..., type[HttpEngine]]:
    """Return a function that makes subclasses of `HttpEngine`; its arguments are passed to the functions in `headers`.

    Args:
        headers: functions that return the values of headers, called for each request; headers given to `request`
            take precedence.
        data_processor: takes the given object, and returns the object to send.
        http_error_gene: takes a status error and returns the exception to raise; transport errors are raised unchanged.

    Example:
        >>> engine_class = get_http_engine_class(headers={"Token": lambda token: token})("secret")
        >>> engine_class("127.0.0.1", 7235).get_url("ping")
        'http://127.0.0.1:7235/ping'
    """

    def make(*args: Any) -> type[HttpEngine]:
        class _HttpEngine(HttpEngine):
            def _base_headers(self) -> Mapping[str, str]:
                return translate_dict_func(headers)(*args)

            def _data_process(self, data: Mapping[str, Any]) -> Mapping[str, Any]:
                return data if data_processor is None else data_processor(data)

            def _error_handler(self, err: requests.RequestException) -> NoReturn:
                import requests

                if http_error_gene is not None and isinstance(err, requests.HTTPError):
                    raise http_error_gene(err) from err
                raise err

        return _HttpEngine

    return make


def _rooted(path: str | None) -> str:
    """Return `path` with one leading `/` and no trailing one; `''` for None."""
    stripped = (path or "").strip("/")
    return f"/{stripped}" if stripped else ""
