"""Connecting to all workers at the same time."""

import threading
import time

import pytest

from ding.worker.transport.transport import connect_all

DEADLINE_S = 60


def test_no_attempt_waits_for_another():
    together = threading.Barrier(5, timeout=DEADLINE_S)
    connect_all({f"worker{i}": together.wait for i in range(5)}, DEADLINE_S)
    assert not together.broken


def test_an_attempt_that_hangs_is_named_when_the_time_is_up():
    go, begin = threading.Event(), time.monotonic()
    attempts = {"good": lambda: None, "hangs": lambda: go.wait(DEADLINE_S)}
    with pytest.raises(ConnectionError, match=r"^no connection within 0\.1 s to hangs: it has not answered$"):
        connect_all(attempts, 0.1)
    assert time.monotonic() - begin < DEADLINE_S / 2
    go.set()
