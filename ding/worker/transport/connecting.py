"""Connecting to workers: one, or all of a config at the same time."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from time import monotonic
from typing import Any

from ding.worker.transport.link import Hub, Link
from ding.worker.transport.tasks import RESOURCE


def connect(hub: Hub, name: str, host: str, port: int, timeout_s: float) -> tuple[Link, dict[str, Any]]:
    """A link to the worker at that address, and what it answers when it is asked for its resources.

    Raises:
        WorkerLost: it has not answered in time, or refuses.
        TaskFailed: it cannot tell its resources.
    """
    deadline = monotonic() + timeout_s
    link = hub.link(name, host, port)
    try:
        link.connect(timeout_s)
        return link, link.run({"name": RESOURCE, "batched": True}, max(0.1, deadline - monotonic()))
    except BaseException:
        link.close()
        raise


def connect_all(attempts: Mapping[str, Callable[[], Any]], timeout_s: float) -> None:
    """Make all attempts at the same time.

    Args:
        attempts: by name of the worker, what connects it within `timeout_s`, or raises.

    Raises:
        ConnectionError: some have failed; it names them all.
    """
    failed: dict[str, str] = {}

    def attempt(name: str, act: Callable[[], Any]) -> None:
        try:
            act()
        except Exception as e:
            failed[name] = str(e)

    threads = [
        threading.Thread(target=attempt, args=item, name=f"connect_{item[0]}", daemon=True) for item in attempts.items()
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        raise ConnectionError(
            f"no connection within {timeout_s:g} s to "
            + "; ".join(f"{name}: {reason}" for name, reason in sorted(failed.items()))
        )
