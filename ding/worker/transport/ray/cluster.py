"""The Ray cluster of a run: joined, or started on this machine and ended with the run."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import secrets
import shutil
import signal
import tempfile
import threading
from collections.abc import Iterator, Mapping
from functools import cache
from time import monotonic, sleep
from typing import Any

import psutil
import ray

from ding.utils.config_helper import ConfigError

_logger = logging.getLogger("ding")
_TOKEN_FILE = "auth_token"
_FOLDER = re.compile(r"ding_ray_(?P<pid>[0-9]+)_.+")
# How long processes of a Ray that was ended may still write into its folder.
_REMOVE_S = 5.0


class RayCluster:
    """The connection of this process to a Ray cluster.

    A process that is connected to Ray by now, as in a notebook, stays so. Otherwise the cluster at `address` is joined,
    or that of the environment variable `RAY_ADDRESS`. Without any, a Ray is started for this run alone: it asks for a
    token that is drawn anew (unless `RAY_AUTH_MODE` says how it authenticates), reports no usage, and ends at `close`,
    with its files.

    Args:
        section: `address`, `num_cpus`, `object_store_memory` and `runtime_env`, see `ray_section`.
        num_cpus: how many CPUs a Ray of one's own counts unless the section says so.

    Attributes:
        is_own: whether `start` has started the Ray.
    """

    def __init__(self, section: Mapping[str, Any], num_cpus: int) -> None:
        self.is_own = False
        self._section = section
        self._num_cpus = section["num_cpus"] or num_cpus
        self._opened = contextlib.ExitStack()

    def start(self) -> None:
        """Connect.

        Raises:
            ConnectionError: there is no cluster at the address, or it refuses this process.
            ConfigError: this process is connected, but not to the cluster at `address`.
        """
        address = self._section["address"]
        if ray.is_initialized():
            self._check_connected(address)
            return
        address = address or os.environ.get("RAY_ADDRESS") or "local"
        self.is_own = address == "local"
        options: dict[str, Any] = {
            "namespace": f"ding_{secrets.token_hex(8)}",
            "runtime_env": _plain(self._section["runtime_env"]) or None,
            "logging_level": logging.ERROR,
            "log_to_driver": False,
        }
        with self._opened, _keeping_signals():
            self._set_variable("RAY_USAGE_STATS_ENABLED", "0")
            if self.is_own:
                options.update(self._local_options())
            self._opened.callback(ray.shutdown)
            ray.init(address, **options)
            self._opened = self._opened.pop_all()
        _logger.info("%s Ray at %s", "started" if self.is_own else "joined", self.address)

    @property
    def address(self) -> str:
        """Where the cluster is reached."""
        return str(ray.get_runtime_context().gcs_address)

    def _check_connected(self, address: str | None) -> None:
        if address not in (None, "auto", "local", self.address):
            raise ConfigError(
                f"system_config.ray.address = {address!r} is not allowed: this process is connected to the cluster at "
                f"{self.address}"
            )

    def _local_options(self) -> dict[str, Any]:
        _sweep()
        # Paths of sockets must be short, so it lies in no folder of the experiment.
        folder = tempfile.mkdtemp(prefix=f"ding_ray_{os.getpid()}_")
        self._opened.callback(_remove, folder)
        if "RAY_AUTH_MODE" not in os.environ:
            path = os.path.join(folder, _TOKEN_FILE)
            with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
                file.write(_token())
            self._opened.callback(os.environ.pop, "RAY_AUTH_MODE", None)  # Ray sets it, to 'token'
            self._set_variable("RAY_AUTH_TOKEN_PATH", path)
        self._set_variable("RAY_worker_niceness", "0")  # by default 15: workers would yield to all other processes
        return {
            "num_cpus": self._num_cpus,
            "object_store_memory": self._section["object_store_memory"],
            "include_dashboard": False,
            "_temp_dir": folder,
        }

    def _set_variable(self, name: str, value: str) -> None:
        """Set an environment variable until `close`, unless the user has set it."""
        if name not in os.environ:
            os.environ[name] = value
            self._opened.callback(os.environ.pop, name, None)

    def close(self) -> None:
        """Disconnect, and end the Ray that `start` has started. Idempotent."""
        self._opened.close()


@cache
def _token() -> str:
    """Ray reads a token once in a process, so every Ray that this process starts has the same."""
    return secrets.token_hex(32)


def _plain(value: Any) -> Any:
    """`value` with plain dicts for other mappings."""
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list) else value


@contextlib.contextmanager
def _keeping_signals() -> Iterator[None]:
    """Ray sets a handler for SIGTERM; put back the one that was there."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handler = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, handler)


def _sweep() -> None:
    """Remove what runs that were killed have left."""
    root = tempfile.gettempdir()
    with os.scandir(root) as entries:
        for entry in entries:
            match = _FOLDER.fullmatch(entry.name)
            if match is None or psutil.pid_exists(int(match["pid"])):
                continue
            with contextlib.suppress(OSError):
                if entry.stat(follow_symlinks=False).st_uid == os.getuid():
                    shutil.rmtree(entry.path)


def _remove(folder: str) -> None:
    deadline = monotonic() + _REMOVE_S
    while True:
        try:
            shutil.rmtree(folder)
        except FileNotFoundError:
            return
        except OSError as e:
            if monotonic() > deadline:
                _logger.warning("%s is left behind: %s", folder, e)
                return
            sleep(0.05)
        else:
            return
