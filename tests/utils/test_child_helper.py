"""What a process that was started by another does about signals, and about the other's death."""

import ctypes
import multiprocessing
import os
import signal
import sys
import threading

import pytest

from ding.utils.child_helper import (
    Commands,
    ProcessEvent,
    be_killed_with,
    die_with,
    from_lasting_thread,
)


def ended_process():
    process = multiprocessing.get_context("fork").Process(target=int)
    process.start()
    process.join()
    return process


def test_commands_end_on_request_although_this_process_ignores_the_signal():
    program = "import signal, sys; sys.exit(signal.getsignal(signal.SIGTERM) != signal.SIG_DFL)"
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        with Commands(end_s=60) as running:
            running.start("it", [sys.executable, "-c", program])
            assert running.wait() == ("it", 0)
    finally:
        signal.signal(signal.SIGTERM, before)


def in_a_process(function, *args):
    process = multiprocessing.get_context("fork").Process(target=function, args=args)
    process.start()
    return process


@pytest.mark.parametrize("farewell_s", [0, 0.05])
def test_a_parent_that_is_gone_already_is_noticed(farewell_s):
    def outlive(pid):
        die_with(pid, farewell_s)
        threading.Event().wait(60)

    process = in_a_process(outlive, ended_process().pid)
    process.join(20)
    assert process.exitcode == 1


def killed_parent(child):
    """Run `child(pid)` in a process whose parent, `pid`, is killed; returns what tells that the child has ended."""
    told, tell = multiprocessing.Pipe(duplex=False)

    def be_parent():
        in_a_process(child, os.getpid(), tell)
        threading.Event().wait(60)

    process = in_a_process(be_parent)
    tell.close()
    told.recv()
    process.kill()
    process.join()
    return told


def test_the_kernel_ends_a_process_that_holds_the_interpreter():
    def child(parent_pid, tell):
        be_killed_with(parent_pid)
        tell.send("here")
        ctypes.PyDLL(None).sleep(60)

    assert killed_parent(child).poll(20)


def test_a_process_whose_parent_has_ended_before_it_asked_ends():
    process = in_a_process(be_killed_with, ended_process().pid)
    process.join(20)
    assert process.exitcode == 1


def test_processes_are_started_from_a_thread_that_lasts():
    threads = []

    def note():
        threads.append(threading.current_thread())
        return 3

    for _ in range(2):
        caller = threading.Thread(target=lambda: threads.append(from_lasting_thread(note)))
        caller.start()
        caller.join(20)
    assert threads[1::2] == [3, 3] and threads[0] is threads[2] and threads[0].is_alive()
    assert from_lasting_thread(note) == 3 and threads[-1] is threading.main_thread()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_takes_effect_after_the_start_of_a_process_and_not_in_the_hooks_of_fork(number):
    ran = []

    class Received(Exception):
        """Raised by the handler."""

    def handle(number, frame):
        raise Received

    def start():
        signal.raise_signal(number)
        ran.append(number)

    previous = signal.signal(number, handle)
    try:
        with pytest.raises(Received):
            from_lasting_thread(start)
        assert ran == [number] and signal.getsignal(number) is handle
    finally:
        signal.signal(number, previous)


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
