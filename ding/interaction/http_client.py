"""An HTTP client for JSON, with a keep-alive session per server, addresses of machines, and defaults of servers."""

from __future__ import annotations

import contextlib
import functools
import ipaddress
import json
import math
import socket
import threading
from collections.abc import Callable, Mapping
from time import monotonic
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar
from urllib.parse import urlsplit

if TYPE_CHECKING:
    import requests


GLOBAL_HOST = "0.0.0.0"
LOCAL_HOST = "127.0.0.1"

DEFAULT_MASTER_PORT = 7235
DEFAULT_SLAVE_PORT = 7236
DEFAULT_CHANNEL = 0

DEFAULT_REQUEST_RETRIES = 5
DEFAULT_REQUEST_RETRY_WAITING = 1.0
# Until the connection is open, and until the reply begins; replies wait for the hooks of a peer, never for tasks.
DEFAULT_REQUEST_TIMEOUT = (5.0, 30.0)

# The header in which a slave tells for how many seconds its master may be silent.
HEARTBEAT_HEADER = "Heartbeat-Span"
DEFAULT_HEARTBEAT_SPAN = 3.0
MIN_HEARTBEAT_SPAN = 0.2
DEFAULT_HEARTBEAT_TOLERANCE = 17.0
MIN_HEARTBEAT_TOLERANCE = 0.2
DEFAULT_HEARTBEAT_CHECK_SPAN = 1.0
MIN_HEARTBEAT_CHECK_SPAN = 0.1

DEFAULT_BODY_LIMIT = 64 * 2**20  # bytes
# The content type of requests of masters, and of the results of tasks; see `ding.utils.msgpack_helper`.
BINARY = "application/msgpack"


_Reply = TypeVar("_Reply")
_Data = Mapping[str, Any] | None
# Seconds (until the connection is open, until the reply begins).
Limits = tuple[float, float]


class HttpEngine:
    """A client of one server, which sends JSON objects. It ignores proxies and `.netrc` of the environment.

    It is thread-safe, and follows no redirects. Subclasses may override `_data_process`, `_base_headers` and
    `_error_handler`.

    Args:
        path: the prefix of all paths; its leading `/` is optional.

    Example:
        >>> HttpEngine("example.com", 8000, path="root").get_url("this/is")
        'http://example.com:8000/root/this/is'
    """

    def __init__(self, host: str, port: int, https: bool = False, path: str | None = None) -> None:
        self._base_url = f"{'https' if https else 'http'}://{url_host(host)}:{port}{_rooted(path)}"
        self._closing = threading.Event()

    @functools.cached_property
    def _session(self) -> requests.Session:
        import requests

        session = requests.Session()
        session.trust_env = False
        return session

    def get_url(self, path: str | None = None) -> str:
        """Return the URL of `path`, whose leading `/` is optional."""
        return self._base_url + _rooted(path)

    def request(
        self,
        method: str,
        path: str,
        data: _Data = None,
        headers: Mapping[str, str] | None = None,
        params: Mapping[str, Any] | None = None,
        raise_for_status: bool = True,
        retries: int | None = None,
        retry_waiting: float | None = None,
        timeout: Limits | None = None,
        once: bool = False,
    ) -> requests.Response:
        """Send `data` as JSON and return the reply.

        Args:
            retries: how often to retry after a transport error (5 by default, also for 0); status errors are raised.
            retry_waiting: seconds between tries (1.0 by default).
            timeout: seconds (until the connection is open, until the reply begins) of each try; (5, 30) by default.
            once: whether to send it without retries.

        Raises:
            requests.RequestException: a transport error or, with `raise_for_status`, a status >= 400
                (`requests.HTTPError`). `_error_handler` may raise another exception instead.
        """
        import requests

        def send() -> requests.Response:
            response = self._session.request(
                method,
                self.get_url(path),
                headers={**self._base_headers(), **(headers or {})},
                data=json.dumps(self._data_process(data or {}) or {}),
                params=params,
                timeout=timeout or DEFAULT_REQUEST_TIMEOUT,
                allow_redirects=False,
            )
            if raise_for_status:
                response.raise_for_status()
            return response

        try:
            waiting_s = retry_waiting or DEFAULT_REQUEST_RETRY_WAITING
            retries = 0 if once else (retries or DEFAULT_REQUEST_RETRIES)
            return retry(send, retries, waiting_s, math.inf, self._closing)
        except requests.RequestException as error:
            self._error_handler(error)

    def close(self) -> None:
        """Let idle connections go, and end requests that wait to be retried. The engine may be used again."""
        closing, self._closing = self._closing, threading.Event()
        closing.set()
        self._session.close()

    def _data_process(self, data: Mapping[str, Any]) -> Mapping[str, Any]:
        return data

    def _base_headers(self) -> Mapping[str, str]:
        return {}

    def _error_handler(self, err: requests.RequestException) -> NoReturn:
        raise err


def retry(
    send: Callable[[], _Reply], retries: int, waiting_s: float, deadline: float, closing: threading.Event
) -> _Reply:
    """Return what `send` returns, and retry after transport errors until `closing` is set or the deadline is near.

    No other try can succeed if the server's certificate cannot be verified, or the server does not speak TLS.
    """
    import requests

    lost = (requests.ConnectionError, requests.Timeout, requests.exceptions.ChunkedEncodingError)
    while True:
        try:
            return send()
        except lost as error:
            retries -= 1
            is_final = isinstance(error, requests.exceptions.SSLError) or retries < 0
            if is_final or monotonic() + waiting_s >= deadline or closing.wait(waiting_s):
                raise


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
                return {name: value(*args) for name, value in headers.items()}

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


_Address = ipaddress.IPv4Address | ipaddress.IPv6Address
# Reserved for documentation (RFC 5737): no machine has it, so packets to it take the default route.
_ELSEWHERE = "203.0.113.1"


def get_host_ip() -> str:
    """Return the address at which other machines reach this one, without sending anything; 127.0.0.1 if offline."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe, contextlib.suppress(OSError):
        probe.connect((_ELSEWHERE, 9))
        return str(probe.getsockname()[0])
    try:
        return socket.gethostbyname(socket.gethostname())
    except OSError:
        return LOCAL_HOST


def split_http_address(address: str, default_port: int | None = None) -> tuple[str | None, int, bool, str]:
    """Return `(host, port, https, path)` of an HTTP address.

    The port is the one in the address, else `default_port`, else 443 for https and 80 otherwise. The path is empty or
    begins with `/`. The host is None if the address has no scheme.

    Raises:
        ValueError: the port is not an integer in [0, 65535].

    Example:
        >>> split_http_address("https://example.com:8000/this/is")
        ('example.com', 8000, True, '/this/is')
    """
    parts = urlsplit(address)
    https = parts.scheme == "https"
    port = parts.port if parts.port is not None else default_port
    if port is None:
        port = 443 if https else 80
    return parts.hostname, port, https, parts.path


def literal(host: str) -> _Address | None:
    """Return the IP address that the text `host` is (with or without the brackets of IPv6); None for a name."""
    try:
        address = ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return None
    mapped = getattr(address, "ipv4_mapped", None)
    return mapped or address


def resolve(host: str) -> list[_Address]:
    """Return the addresses of `host`; an empty list if it cannot be resolved."""
    try:
        found = socket.getaddrinfo(host.strip("[]"), None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return []
    addresses = (literal(str(entry[4][0]).split("%")[0]) for entry in found)
    return [address for address in addresses if address is not None]


def is_loopback(host: str) -> bool:
    """Return whether all addresses of `host` can be reached from this machine only."""
    addresses = resolve(host)
    return bool(addresses) and all(address.is_loopback for address in addresses)


def is_wildcard(host: str) -> bool:
    """Return whether binding to `host` means all interfaces."""
    address = literal(host)
    return address is not None and address.is_unspecified


def url_host(host: str) -> str:
    """Return `host` as it is written in a URL: IPv6 addresses in brackets."""
    return f"[{host}]" if ":" in host and not host.startswith("[") else host
