"""An event between processes."""

import multiprocessing
import os
import signal
import threading
from multiprocessing.connection import wait

import pytest

from ding.utils.child_helper import ProcessEvent


@pytest.fixture
def event():
    event = ProcessEvent()
    yield event
    event.close()


def test_it_stays_set(event):
    assert (event.is_set(), event.wait(0)) == (False, False)
    event.set()
    event.set()
    assert (event.is_set(), event.wait(0), event.wait()) == (True, True, True)


def test_its_reader_can_be_waited_for_together_with_others(event):
    other = ProcessEvent()
    event.set()
    assert wait([other.reader, event.reader], 20) == [event.reader]
    other.close()


def test_several_threads_wake_up(event):
    results = []
    threads = [threading.Thread(target=lambda: results.append(event.wait(20))) for _ in range(3)]
    for thread in threads:
        thread.start()
    event.set()
    for thread in threads:
        thread.join(20)
    assert results == [True, True, True]


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_it_passes_between_processes(event, method):
    answer = ProcessEvent()
    process = multiprocessing.get_context(method).Process(target=_answer, args=(event, answer))
    process.start()
    event.set()
    assert answer.wait(60)
    process.join(20)
    answer.close()


def _answer(event, answer):
    if event.wait(60):
        answer.set()


def test_a_process_that_is_killed_while_it_waits_spoils_nothing(event):
    waits = ProcessEvent()

    def wait_for_it():
        waits.set()
        event.wait()

    process = multiprocessing.get_context("fork").Process(target=wait_for_it)
    process.start()
    assert waits.wait(20)
    os.kill(process.pid, signal.SIGKILL)
    process.join(20)
    event.set()
    assert event.wait(20)
    waits.close()
