"""The Ray cluster of a run: an existing one, or one on this machine that starts and ends with the run."""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
import shutil
import signal
import socket
import tempfile
import threading
from collections.abc import Iterator, Mapping
from functools import cache
from multiprocessing.connection import wait
from time import monotonic, sleep
from typing import Any

import ray

from ding.utils.config_helper import ConfigError
from ding.utils.data.nested import map_leaves

_logger = logging.getLogger("ding")
_TOKEN_FILE = "auth_token"
# How long processes of a stopped cluster may still write to its folder.
_REMOVE_S = 5.0
# How long connecting to the control service may take, and the pause between two attempts.
_CONNECT_S, _RETRY_S = 5.0, 1.0


class RayCluster:
    """The connection of this process to a Ray cluster.

    A process that is already connected to Ray, as in a notebook, keeps its connection. Otherwise it joins the cluster
    at `address`, or at the environment variable `RAY_ADDRESS`. Without either, it starts a cluster for this run, which
    requires a new random token (unless `RAY_AUTH_MODE` is set), reports no usage statistics, and is stopped by `close`,
    which also removes its files.

    Args:
        section: `address`, `num_cpus`, `object_store_memory` and `runtime_env`, see `ray_section`.
        num_cpus: number of CPUs of a cluster that is started here, unless the section sets it.

    Attributes:
        is_own: whether `start` has started the cluster.
    """

    def __init__(self, section: Mapping[str, Any], num_cpus: int) -> None:
        self.is_own = False
        self._section = section
        self._num_cpus = section["num_cpus"] or num_cpus
        self._opened = contextlib.ExitStack()

    def start(self) -> None:
        """Connect to the cluster, or start it.

        Raises:
            ConnectionError: there is no cluster at the address, or it refuses this process.
            ConfigError: this process is connected to another cluster than the one at `address`.
        """
        address = self._section["address"]
        if ray.is_initialized():
            if address not in (None, "auto", "local", self.address):
                raise ConfigError(
                    f"system_config.ray.address = {address!r} is not allowed: this process is already connected to the "
                    f"cluster at {self.address}; disconnect it, or leave the address out"
                )
            self._opened.callback(HeadWatch(self.address).close)
            return
        address = address or os.environ.get("RAY_ADDRESS") or "local"
        self.is_own = address == "local"
        options: dict[str, Any] = {
            "namespace": f"ding_{secrets.token_hex(8)}",
            "runtime_env": map_leaves(lambda leaf: leaf, self._section["runtime_env"]) or None,
            "logging_level": logging.ERROR,
            "log_to_driver": False,
        }
        with self._opened, _keeping_signals():
            self._set_variable("RAY_USAGE_STATS_ENABLED", "0")
            if self.is_own:
                options.update(self._local_options())
            self._opened.callback(ray.shutdown)
            ray.init(address, **options)
            self._opened.callback(HeadWatch(self.address).close)
            self._opened = self._opened.pop_all()
        _logger.info("%s Ray at %s", "started" if self.is_own else "joined", self.address)

    @property
    def address(self) -> str:
        """The address of the cluster."""
        return str(ray.get_runtime_context().gcs_address)

    def _local_options(self) -> dict[str, Any]:
        # Not in the folder of the experiment: paths of sockets must be short.
        folder = tempfile.mkdtemp(prefix=f"ding_ray_{os.getpid()}_")
        self._opened.callback(_remove, folder)
        if "RAY_AUTH_MODE" not in os.environ:
            path = os.path.join(folder, _TOKEN_FILE)
            with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
                file.write(_token())
            self._opened.callback(os.environ.pop, "RAY_AUTH_MODE", None)  # Ray sets it
            self._set_variable("RAY_AUTH_TOKEN_PATH", path)
        self._set_variable("RAY_worker_niceness", "0")  # Ray's default of 15 lets workers yield to all other processes
        return {
            "num_cpus": self._num_cpus,
            "object_store_memory": self._section["object_store_memory"],
            "include_dashboard": False,
            "_temp_dir": folder,
        }

    def _set_variable(self, name: str, value: str) -> None:
        """Set an environment variable until `close`, unless it is set."""
        if name not in os.environ:
            os.environ[name] = value
            self._opened.callback(os.environ.pop, name, None)

    def close(self) -> None:
        """Disconnect, and stop a cluster that `start` has started. Further calls do nothing."""
        self._opened.close()


class HeadWatch:
    """A thread that warns when a cluster's control service ends: a minute later, Ray ends this process silently.

    It keeps a connection to the service, which is closed when the service ends.

    Args:
        address: host and port of the service.
    """

    def __init__(self, address: str) -> None:
        self._address = address
        self._woken, self._wake = socket.socketpair()
        self._is_closed = False
        self._thread = threading.Thread(target=self._watch, name="ray_head_watch", daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        host, _, port = self._address.rpartition(":")
        is_lost = False
        while not self._is_closed:
            try:
                with socket.create_connection((host.strip("[]"), int(port)), timeout=_CONNECT_S) as connection:
                    if is_lost:
                        _logger.warning("the control service of Ray at %s answers again", self._address)
                    is_lost = False
                    self._wait_for_end(connection)
            except OSError as e:
                if not is_lost:
                    _logger.error(
                        "the control service (GCS) of Ray at %s has ended (%s): unless it returns, Ray ends this "
                        "process after about a minute, and the run with it",
                        *(self._address, e),
                    )
                is_lost = True
            wait([self._woken], _RETRY_S)

    def _wait_for_end(self, connection: socket.socket) -> None:
        """Wait until the service closes the connection, which it also does with a connection that is not used."""
        while wait([connection, self._woken]) == [connection] and connection.recv(4096):
            pass

    def close(self) -> None:
        """Stop watching. Further calls do nothing."""
        if self._is_closed:
            return
        self._is_closed = True
        self._wake.send(b"end")
        self._thread.join(_CONNECT_S + _RETRY_S)
        self._wake.close()
        self._woken.close()


@cache
def _token() -> str:
    """Return the token of all clusters that this process starts, as Ray reads it once per process."""
    return secrets.token_hex(32)


@contextlib.contextmanager
def _keeping_signals() -> Iterator[None]:
    """Restore the handler of SIGTERM at the end of the block, as Ray replaces it."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handler = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, handler)


def _remove(folder: str) -> None:
    deadline = monotonic() + _REMOVE_S
    while os.path.exists(folder) and monotonic() < deadline:
        shutil.rmtree(folder, ignore_errors=True)
        sleep(0.05)
