"""Threads that end by themselves are waited for together."""

import queue
import threading

import pytest

from ding.utils.system_helper import DaemonThreads

PATIENCE_S = 20.0


@pytest.fixture
def threads():
    return DaemonThreads()


def test_each_act_runs_in_a_daemon_thread_of_its_name(threads):
    seen = []
    for number in range(3):
        threads.start(f"t{number}", lambda n: seen.append((n, threading.current_thread())), number)
    assert threads.join(PATIENCE_S)
    assert sorted((n, thread.name, thread.daemon) for n, thread in seen) == [(n, f"t{n}", True) for n in range(3)]


def test_all_are_waited_for_within_one_limit(threads):
    go, waits = threading.Event(), []
    for number in range(3):
        threads.start(f"t{number}", go.wait, PATIENCE_S)
    for thread in threads._threads:
        thread.join = lambda timeout, join=thread.join: (waits.append(timeout), join(timeout))
    assert threads.join(0.05) is False
    assert waits[0] <= 0.05 and waits[1:] == [0.0, 0.0]
    go.set()
    assert threads.join(PATIENCE_S)


def test_a_thread_may_wait_for_the_others(threads):
    told, go = [], threading.Event()
    threads.start("waiter", lambda: (go.wait(PATIENCE_S), told.append(threads.join(PATIENCE_S))))
    threads.start("other", go.wait, PATIENCE_S)
    go.set()
    assert threads.join(PATIENCE_S) and told == [True]


def test_ended_threads_are_forgotten_also_after_an_error(threads, monkeypatch):
    raised = queue.SimpleQueue()
    monkeypatch.setattr(threading, "excepthook", raised.put)
    threads.start("fails", [].pop)
    threads.start("ends", int)
    assert raised.get(timeout=PATIENCE_S).exc_type is IndexError
    assert threads.join(PATIENCE_S) and threads._threads == set()


def test_without_threads_there_is_nothing_to_wait_for(threads):
    assert threads.join(0)
