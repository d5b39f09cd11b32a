"""What a process that was started by another does about signals, and about the other's death."""

import multiprocessing
import os
import select
import signal
import sys
import threading
from types import SimpleNamespace

import pytest

from ding.utils import child_helper
from ding.utils.child_helper import death_of, descriptor_of, die_with, settle_in


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
    settle_in()
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    assert signal.getsignal(signal.SIGUSR1) is signal.SIG_IGN
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    monkeypatch.setattr(sys, "__stderr__", None)
    settle_in()
    for number, handler in {**kept, signal.SIGUSR1: signal.SIG_DFL}.items():
        signal.signal(number, handler)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize("farewell", [None, "say", "fail"])
def test_a_parent_that_is_gone_already_is_noticed(farewell, monkeypatch):
    said, exits, ended = [], [], threading.Event()

    def say():
        said.append(farewell)
        if farewell == "fail":
            raise SystemExit

    process = ended_process()
    monkeypatch.setattr(child_helper.os, "_exit", lambda code: (exits.append(code), ended.set()))
    die_with(process.pid, say if farewell else None, farewell_s=0)
    assert ended.wait(20)
    for thread in threading.enumerate():
        if thread.name == "parent-watch":
            thread.join(20)
    assert exits == [1]
    assert said == ([farewell] if farewell else [])


def test_a_process_is_waited_for_through_its_descriptor():
    process, let_end = waiting_process()
    waiter = threading.Thread(target=death_of(process.pid))
    waiter.start()
    assert waiter.is_alive()
    let_end()
    waiter.join(20)
    assert not waiter.is_alive()
    process.join()


@pytest.mark.parametrize("error", [AttributeError, PermissionError])
def test_where_there_are_no_descriptors_it_is_the_parent_of_multiprocessing_that_is_waited_for(error, monkeypatch):
    def refuse(pid):
        raise error

    monkeypatch.setattr(os, "pidfd_open", refuse)
    parent = SimpleNamespace(join=lambda: "ended")
    monkeypatch.setattr(child_helper.multiprocessing, "parent_process", lambda: parent)
    assert death_of(1)() == "ended"
    assert descriptor_of(1) is None


def test_a_descriptor_tells_that_a_process_has_ended():
    process, let_end = waiting_process()
    descriptor = descriptor_of(process.pid)
    assert select.select([descriptor], [], [], 0)[0] == []
    let_end()
    assert select.select([descriptor], [], [], 20)[0] == [descriptor]
    os.close(descriptor)
    process.join()
