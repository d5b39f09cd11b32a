"""Helpers for processes, threads and the network."""

from __future__ import annotations

import contextlib
import functools
import os
import random
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Mapping
from time import monotonic
from typing import Any
from urllib.parse import urlsplit

from ding.utils.config_helper import ConfigError

# Below the local ports of connections, which start at 32768 on Linux and at 49152 on other systems.
_SERVER_PORTS = range(16384, 32768)


def get_ip() -> str:
    """Return the address of this machine's host name, or 127.0.0.1 if it cannot be resolved."""
    try:
        return socket.gethostbyname(socket.gethostname())
    except OSError:
        return "127.0.0.1"


def get_pid() -> int:
    """Return the id of this process."""
    return os.getpid()


def get_task_uid() -> str:
    """Return a unique task name: `<uuid4>_<last six characters of the time>`."""
    return f"{uuid.uuid4()}_{str(time.time())[-6:]}"


def find_free_port(host: str) -> int:
    """Return a TCP port that is currently free on the interface of `host`, without reserving it.

    The port is outside of the range from which systems draw the local ports of connections, so that no connection
    takes it before it is used.

    Raises:
        OSError: `host` is not an address of this machine.
    """
    family, kind, protocol, _, address = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)[0]

    def bound(port: int) -> int:
        with socket.socket(family, kind, protocol) as probe:
            probe.bind((address[0], port, *address[2:]))
            return int(probe.getsockname()[1])

    for port in random.SystemRandom().sample(_SERVER_PORTS, 100):
        with contextlib.suppress(OSError):
            return bound(port)
    return bound(0)


class PropagatingThread(threading.Thread):
    """A thread whose `join` returns the result of its target, or raises its error.

    Example:
        >>> thread = PropagatingThread(target=sum, args=([1, 2],))
        >>> thread.start()
        >>> thread.join()
        3
    """

    def __init__(
        self,
        group: None = None,
        target: Callable[..., Any] | None = None,
        name: str | None = None,
        args: Iterable[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        *,
        daemon: bool | None = None,
    ) -> None:
        super().__init__(group, name=name, daemon=daemon)
        self._call = None if target is None else functools.partial(target, *args, **(kwargs or {}))
        self.ret: Any = None
        self.exc: BaseException | None = None

    def run(self) -> None:
        """Run the target; called by `start`."""
        try:
            self.ret = None if self._call is None else self._call()
        except Exception as error:  # `join` raises it
            self.exc = error

    def join(self, timeout: float | None = None) -> Any:
        """Wait at most `timeout` seconds for the end, and return the target's result, or None if it is still running.

        Raises:
            RuntimeError: the target raised an exception, which is the cause.
        """
        super().join(timeout)
        if self.is_alive():
            return None
        if self.exc is not None:
            raise RuntimeError(f"Exception in thread({self.ident}): {self.exc!r}") from self.exc
        return self.ret


class DaemonThreads:
    """A thread-safe group of daemon threads that end by themselves, and can be waited for together.

    Example:
        >>> threads = DaemonThreads()
        >>> threads.start("greeter", print, "hello")
        hello
        >>> threads.join(timeout_s=1.0)
        True
    """

    def __init__(self) -> None:
        self._threads: set[threading.Thread] = set()
        self._lock = threading.Lock()

    def start(self, name: str, act: Callable[..., Any], *args: Any) -> None:
        """Call `act(*args)` in a thread of that name."""

        def run() -> None:
            try:
                act(*args)
            finally:
                with self._lock:
                    self._threads.discard(threading.current_thread())

        thread = threading.Thread(target=run, name=name, daemon=True)
        with self._lock:
            self._threads.add(thread)
            thread.start()

    def join(self, timeout_s: float) -> bool:
        """Wait at most `timeout_s` seconds for all threads but the caller's, and return whether they have ended."""
        deadline = monotonic() + timeout_s
        with self._lock:
            others = self._threads - {threading.current_thread()}
        for thread in others:
            thread.join(max(0.0, deadline - monotonic()))
        return not any(thread.is_alive() for thread in others)


_URL = "KUBERNETES_SERVER_URL"
_NAMESPACE = "default"
_NAME = "dijob-example-coordinator"
_API_VERSION = "/v1alpha1"


def exist_operator_server() -> bool:
    """Return whether the environment variable `KUBERNETES_SERVER_URL` is set."""
    return bool(os.environ.get(_URL))


def get_operator_server_kwargs(cfg: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of `OperatorServer`: `host`, `port`, `api_version`, `namespace` and `name`.

    Args:
        cfg: may have `system_addr`, which is `host:port` or a URL, and `api_version`. They override the environment
            variables `KUBERNETES_SERVER_URL` and `KUBERNETES_SERVER_API_VERSION`. Namespace and name are those of
            `KUBERNETES_POD_NAMESPACE` and `KUBERNETES_POD_NAME`. Requests use plain HTTP whatever the URL's scheme.

    Raises:
        ConfigError: the address is missing or invalid.

    Example:
        >>> get_operator_server_kwargs({"system_addr": "https://10.0.0.1:8080", "api_version": "v1"})["host"]
        '10.0.0.1'
    """
    address = cfg.get("system_addr") or os.environ.get(_URL)
    if not address:
        raise ConfigError(f"the operator has no address; set system_addr or the variable {_URL} to host:port")
    parts = urlsplit(address if "://" in address else f"http://{address}")
    try:
        port = parts.port or (443 if parts.scheme == "https" else 80)
    except ValueError:  # it is not a number, or out of range
        port = None
    if not parts.hostname or port is None:
        raise ConfigError(f"system_addr = {address!r} is not allowed; it must be host:port, or a URL")
    return {
        "host": parts.hostname,
        "port": port,
        "api_version": cfg.get("api_version") or os.environ.get("KUBERNETES_SERVER_API_VERSION", _API_VERSION),
        "namespace": os.environ.get("KUBERNETES_POD_NAMESPACE", _NAMESPACE),
        "name": os.environ.get("KUBERNETES_POD_NAME", _NAME),
    }
