"""What a process that was started by another does about signals, and about the other's death."""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import select
import signal
import sys
import threading
from multiprocessing.connection import wait

import pytest

from ding.utils import child_helper
from ding.utils.child_helper import (
    Commands,
    ProcessEvent,
    be_killed_with,
    descriptor_of,
    die_with,
    from_lasting_thread,
    reset_inherited,
)


def ended_process():
    process = multiprocessing.get_context("fork").Process(target=int)
    process.start()
    process.join()
    return process


def waiting_process():
    """A process that ends when it is told to, and the function that tells it."""
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("fork").Process(target=theirs.recv)
    process.start()
    return process, lambda: ours.send(None)


def test_settling_in_leaves_signals_to_the_parent(monkeypatch):
    signal.signal(signal.SIGUSR1, lambda *args: None)
    monkeypatch.setattr(child_helper.gc, "freeze", lambda: None)
    monkeypatch.setattr(child_helper.faulthandler, "enable", lambda file: None)
    kept = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGCHLD)}
    reset_inherited()
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    assert signal.getsignal(signal.SIGUSR1) is signal.SIG_IGN
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    monkeypatch.setattr(sys, "__stderr__", None)
    reset_inherited()
    for number, handler in {**kept, signal.SIGUSR1: signal.SIG_DFL}.items():
        signal.signal(number, handler)


def test_commands_end_on_request_although_this_process_ignores_the_signal():
    program = "import signal, sys; sys.exit(signal.getsignal(signal.SIGTERM) != signal.SIG_DFL)"
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        with Commands(end_s=60) as running:
            running.start("it", [sys.executable, "-c", program])
            assert running.wait() == ("it", 0)
    finally:
        signal.signal(signal.SIGTERM, before)


def test_a_command_may_take_its_time_to_end():
    program = """
import os, signal, sys
signal.signal(signal.SIGTERM, lambda *_: print("told", flush=True))
signal.signal(signal.SIGUSR1, lambda *_: sys.exit(3))
print(os.getpid(), flush=True)
while True:
    signal.pause()
"""
    lines, is_ready = [], threading.Event()

    def on_line(line):
        lines.append(line)
        is_ready.set()
        if line == "told":
            os.kill(int(lines[0]), signal.SIGUSR1)

    with Commands() as running:
        running.start("it", [sys.executable, "-c", program], on_line)
        assert is_ready.wait(60)
    assert running.wait() == ("it", 3) and lines[1:] == ["told"]


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


def test_a_process_that_holds_the_interpreter_after_the_death_of_its_parent_ends_too():
    def outlive(pid):
        is_noticed, end_later = threading.Event(), child_helper.faulthandler.dump_traceback_later

        def note(*args, **kwargs):
            end_later(*args, **kwargs)
            is_noticed.set()

        child_helper.faulthandler.dump_traceback_later = note
        die_with(pid, 0.5)
        is_noticed.wait()
        ctypes.PyDLL(None).sleep(60)

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


def test_where_the_kernel_cannot_a_thread_ends_the_process(monkeypatch):
    monkeypatch.setattr(child_helper, "_prctl", None)

    def child(parent_pid, tell):
        be_killed_with(parent_pid)
        tell.send("here")
        threading.Event().wait(60)

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


def test_an_error_of_what_starts_in_the_lasting_thread_is_raised():
    errors = []

    def call():
        try:
            from_lasting_thread(lambda: 1 / 0)
        except ZeroDivisionError as e:
            errors.append(e)

    caller = threading.Thread(target=call)
    caller.start()
    caller.join(20)
    assert len(errors) == 1


def test_a_forked_process_has_a_lasting_thread_of_its_own():
    def call():
        caller = threading.Thread(target=lambda: results.append(from_lasting_thread(os.getpid)))
        caller.start()
        caller.join(20)

    def child(tell):
        results.clear()
        call()
        tell.send(results)

    results = []
    call()
    told, tell = multiprocessing.Pipe(duplex=False)
    process = in_a_process(child, tell)
    assert results == [os.getpid()] and told.recv() == [process.pid]
    process.join()


@pytest.mark.parametrize("error", [AttributeError, PermissionError])
def test_where_there_are_no_descriptors_there_is_none(error, monkeypatch):
    def refuse(pid):
        raise error

    monkeypatch.setattr(os, "pidfd_open", refuse)
    assert descriptor_of(1) is None


def test_a_descriptor_tells_that_a_process_has_ended():
    process, let_end = waiting_process()
    descriptor = descriptor_of(process.pid)
    assert select.select([descriptor], [], [], 0)[0] == []
    let_end()
    assert select.select([descriptor], [], [], 20)[0] == [descriptor]
    os.close(descriptor)
    process.join()


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
