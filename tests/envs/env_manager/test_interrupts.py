"""An exception in a signal handler, at every point of what the managers do: the envs and the manager still agree."""

from __future__ import annotations

import itertools
import multiprocessing
import os
import sys
import threading
from types import SimpleNamespace

import numpy as np
import pytest

from ding.envs import AsyncSubprocessEnvManager, SyncSubprocessEnvManager
from ding.envs.env_manager import env_child, env_process, subprocess_env_manager
from ding.envs.env_manager.env_child import Incoming, Outgoing
from tests.envs.env_manager.scripted_env import Make, shown

TRACED = {module.__file__ for module in (env_child, env_process, subprocess_env_manager)}
FOREVER = 10**9


class Interrupt(BaseException):
    """What a signal handler raises."""


def interrupted_at(point, deed):
    """Do `deed`, and raise `Interrupt` at the given line, counted from 0, of the traced modules.

    Returns whether it came to that line.
    """
    lines = itertools.count()

    def trace(frame, event, arg):
        if frame.f_code.co_filename not in TRACED:
            return None
        if event == "line" and next(lines) == point:
            sys.settrace(None)
            raise Interrupt
        return trace

    previous = sys.gettrace()
    sys.settrace(trace)
    try:
        deed()
    except Interrupt:
        return True
    finally:
        sys.settrace(previous)
    return False


def truth(manager):
    """`{env_id: [number, episode, step]}`, as the envs say."""
    said = manager._ask(range(manager.env_num), "render", "human")
    return {env_id: [float(word) for word in text.split()[1:]] for env_id, text in said.items()}


def settled(manager):
    """What all the envs show, once they have begun their episodes."""
    while len(manager.ready_obs_id) < manager.env_num:
        assert manager.wait_another() or manager.step({}), "an env will never be ready"
    return shown(manager)


def act(manager):
    return manager.step({env_id: np.array([env_id]) for env_id in manager.ready_obs_id})


def act_and_look(manager):
    act(manager)
    settled(manager)


def look_at_envs(manager):
    truth(manager)


def reset(manager):
    manager.reset({0: {}, 1: {}})


class FailFirst:
    """A deed for `reset`: the first attempt at each new episode fails."""

    def __init__(self):
        self.failed_at = -1

    def __call__(self, env):
        if self.failed_at != env.episode:
            self.failed_at = env.episode
            raise ValueError("not yet")


def managers(make, **cfg):
    """A manager over an env whose steps all end their episodes, and one whose episode goes on."""
    deeds = {("reset", -1): FailFirst()} if cfg.get("max_retry") else {}
    envs = [Make(0, length=1, deeds=deeds), Make(1, length=FOREVER)]
    return make(envs, {"retry_waiting_time": 0, "context": "fork", "shared_memory": True, **cfg})


@pytest.fixture
def no_waiting_in_vain(monkeypatch):
    """Waiting without a reply is an error, not a delay."""
    wait, tick_s = env_process.connection.wait, 30.0

    def wait_for_something(objects, timeout_s):
        came = wait(objects, timeout_s)
        assert came or timeout_s < tick_s, "no env works on anything, but the manager waits"
        return came

    monkeypatch.setattr(env_process, "_TICK_S", tick_s)
    monkeypatch.setattr(env_process, "connection", SimpleNamespace(wait=wait_for_something))


CASES = {
    "sync step": (SyncSubprocessEnvManager, act_and_look, {}),
    "async step": (AsyncSubprocessEnvManager, act_and_look, {"wait_num": 1, "step_wait_timeout": 0}),
    "step with its reset": (AsyncSubprocessEnvManager, act_and_look, {"reset_inplace": True}),
    "without shared memory": (SyncSubprocessEnvManager, act_and_look, {"shared_memory": False}),
    "retried reset": (SyncSubprocessEnvManager, act_and_look, {"max_retry": 2}),
    "reset": (SyncSubprocessEnvManager, reset, {}),
    "call": (SyncSubprocessEnvManager, look_at_envs, {}),
}


@pytest.mark.differs(
    "Ctrl-C, or an exception in a signal handler, while an answer is being read or handled loses it: the env shows an "
    "old observation, or its pipe is out of step",
    "the answer is handled by the next call",
)
@pytest.mark.usefixtures("no_waiting_in_vain")
@pytest.mark.parametrize("make, deed, cfg", CASES.values(), ids=CASES)
def test_wherever_an_interrupt_comes_the_envs_are_as_the_manager_shows_them(make, deed, cfg):
    with managers(make, **cfg) as manager:
        manager.seed(0)
        manager.launch()
        pids = [process.pid for process in manager._processes.values()]
        for point in itertools.count():
            is_over = not interrupted_at(point, lambda: deed(manager))
            before = truth(manager)
            assert settled(manager) == truth(manager), point
            if deed is act_and_look and not is_over:
                assert manager._env_episode_count.tolist() == [before[0][1], 0], point
            assert {i: manager._seeds.next_episode(i) for i in (0, 1)} == {i: before[i][1] + 1 for i in (0, 1)}, point
            act(manager)
            after = settled(manager)
            assert after == {0: [0, before[0][1] + 1, 0], 1: [1, before[1][1], before[1][2] + 1]} == truth(manager)
            if is_over:
                break
        assert point > 50
        assert [process.pid for process in manager._processes.values()] == pids


def pipe():
    """`(source, sink)`."""
    return multiprocessing.Pipe(duplex=False)


def test_a_message_that_was_received_in_part_is_received_on():
    source, sink = pipe()
    with source, sink:
        data = b"x" * 300_000  # the pipe holds less: it is read in parts
        sender = threading.Thread(target=Outgoing(data).send, args=(sink,))
        sender.start()
        message = Incoming()
        interrupts = 0
        while interrupted_at(12, lambda: message.receive(source)):
            assert message.has_begun
            interrupts += 1
        assert interrupts > 0
        assert message.receive(source) == data
        sender.join(10)


def test_a_message_that_was_sent_in_part_is_sent_on():
    source, sink = pipe()
    with source, sink:
        os.set_blocking(sink.fileno(), False)
        data = bytes(range(256)) * 1200
        message, received = Outgoing(data), Incoming()
        with pytest.raises(BlockingIOError):  # the pipe is full
            message.send(sink)
        os.set_blocking(sink.fileno(), True)
        receiver = threading.Thread(target=received.receive, args=(source,))
        receiver.start()
        message.send(sink)
        message.send(sink)  # there is nothing left
        receiver.join(10)
        assert received.receive(source) == data
        assert not source.poll()


def test_a_pipe_that_ends_before_its_message_is_an_error():
    source, sink = pipe()
    with source:
        with sink:
            os.write(sink.fileno(), b"\0\0\0")
        message = Incoming()
        for _ in range(2):
            with pytest.raises(EOFError):
                message.receive(source)


def test_where_pipes_are_no_descriptors_messages_go_in_one_piece(monkeypatch):
    monkeypatch.setattr(env_child, "_IS_POSIX", False)
    source, sink = pipe()
    with source, sink:
        sent, received = Outgoing(b"abc"), Incoming()
        sent.send(sink)
        sent.send(sink)
        assert received.receive(source) == received.receive(source) == b"abc"
        assert not source.poll()
