"""Processes, threads and the network seen from here."""

from __future__ import annotations

import contextlib
import os
import random
import socket
import threading
import time
import uuid
from typing import Any

# Below the local ports of connections: from 32768 on under Linux, from 49152 on elsewhere.
_LASTING_PORTS = range(16384, 32768)


def get_ip() -> str:
    """The address that this machine's name resolves to; 127.0.0.1 where it resolves to nothing."""
    try:
        return socket.gethostbyname(socket.gethostname())
    except OSError:
        return "127.0.0.1"


def get_pid() -> int:
    """The number of this process."""
    return os.getpid()


def get_task_uid() -> str:
    """A name that no other task has: `<uuid4>_<last six characters of the time>`."""
    return f"{uuid.uuid4()}_{str(time.time())[-6:]}"


def find_free_port(host: str) -> int:
    """Returns a TCP port that is free on the interface of `host` at the moment; it is not reserved.

    The port lies outside the range from which systems draw the local ports of connections, so that no connection
    takes it before it is used.

    Raises:
        OSError: `host` is not an address of this machine.
    """
    family, kind, protocol, _, address = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)[0]

    def bound(port: int) -> int:
        with socket.socket(family, kind, protocol) as probe:
            probe.bind((address[0], port, *address[2:]))
            return int(probe.getsockname()[1])

    for port in random.SystemRandom().sample(_LASTING_PORTS, 100):
        with contextlib.suppress(OSError):
            return bound(port)
    return bound(0)


class PropagatingThread(threading.Thread):
    """A thread whose `join` returns the result of its target, or raises what stopped it.

    Example:
        >>> thread = PropagatingThread(target=sum, args=([1, 2],))
        >>> thread.start()
        >>> thread.join()
        3
    """

    def run(self) -> None:
        """Run the target; called by `start`."""
        self.ret: Any = None
        self.exc: BaseException | None = None
        try:
            # Not Thread.run: it drops the result.
            target = self._target  # type: ignore[attr-defined]
            self.ret = target(*self._args, **self._kwargs) if target is not None else None  # type: ignore[attr-defined]
        except Exception as error:
            self.exc = error

    def join(self, timeout: float | None = None) -> Any:
        """Wait for the end (at most `timeout` seconds) and return the result of the target, None while it runs.

        Raises:
            RuntimeError: the target raised; its exception is the cause.
        """
        super().join(timeout)
        if self.is_alive():
            return None
        if self.exc is not None:
            raise RuntimeError(f"Exception in thread({self.ident}): {self.exc!r}") from self.exc
        return self.ret
