"""A signal at every point of what the managers do, whose handler raises: the envs and the manager still agree."""

from __future__ import annotations

import itertools
import signal
import sys
import threading
from types import SimpleNamespace

import numpy as np
import pytest

from ding.envs import AsyncSubprocessEnvManager, BaseEnvManager, GymnasiumEnv, SyncSubprocessEnvManager
from ding.envs.env_manager import env_child, env_process, subprocess_env_manager
from ding.envs.env_manager.env_process import Undisturbed
from tests.envs.env_manager.scripted_env import Make, shown
from tests.envs.toys import Toy

TRACED = {module.__file__ for module in (env_child, env_process, subprocess_env_manager)}
FOREVER = 10**9


class Interrupt(BaseException):
    """What a signal handler raises."""


@pytest.fixture
def handled():
    """Signals whose handler, which is returned, raises `Interrupt`."""

    def handle(signum, frame):
        raise Interrupt

    previous = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    yield handle
    for number, handler in previous.items():
        signal.signal(number, handler)


def interrupted_at(point, deed):
    """Do `deed`, and send this process SIGINT at the given line, counted from 0, of the traced modules.

    Returns whether it came to that line.
    """
    lines = itertools.count()

    def trace(frame, event, arg):
        if frame.f_code.co_filename not in TRACED:
            return None
        if event == "line" and next(lines) == point:
            sys.settrace(None)
            signal.raise_signal(signal.SIGINT)
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
    "SIGINT, SIGTERM and SIGALRM wait until it is handled; a second one comes at once",
)
@pytest.mark.usefixtures("no_waiting_in_vain", "handled")
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


def test_signals_in_a_block_come_at_its_end_and_the_second_of_a_kind_at_once(handled):
    steps = []
    with pytest.raises(Interrupt):
        with Undisturbed():
            signal.raise_signal(signal.SIGINT)
            signal.raise_signal(signal.SIGTERM)
            steps.append("goes on")
        steps.append("never")
    with pytest.raises(Interrupt), Undisturbed():
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
        steps.append("never")
    assert steps == ["goes on"]
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == [handled] * 2


def test_a_handler_that_raises_at_the_end_of_a_block_keeps_none_of_the_others_from_running():
    came = []

    def note(number, frame):
        came.append(number)
        raise Interrupt

    both = (signal.SIGINT, signal.SIGTERM)
    before = [signal.signal(number, note) for number in both]
    try:
        with pytest.raises(Interrupt), Undisturbed():
            for number in both:
                signal.raise_signal(number)
        assert sorted(came) == sorted(both)
    finally:
        for number, handler in zip(both, before, strict=True):
            signal.signal(number, handler)


def test_a_signal_of_an_inner_block_waits_for_the_end_of_the_outer_one(handled):
    steps = []
    with pytest.raises(Interrupt), Undisturbed():
        with Undisturbed():
            signal.raise_signal(signal.SIGINT)
        steps.append("goes on")
    assert steps == ["goes on"]


def test_in_other_threads_nothing_is_deferred(handled):
    seen = []

    def look():
        with Undisturbed():
            seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=look)
    thread.start()
    thread.join(10)
    assert seen == [handled]


def test_an_env_that_was_interrupted_in_its_step_begins_anew_and_the_others_go_on():
    """Nobody knows how far it has come: its last observation may be one that it is no longer at."""
    interrupts = iter([Interrupt()])

    class Interrupted(Toy):
        def step(self, action):
            answer = super().step(action)
            if self.count == 2 and (error := next(interrupts, None)) is not None:
                raise error
            return answer

    envs = [lambda: GymnasiumEnv({"env": lambda: Toy(9)}), lambda: GymnasiumEnv({"env": lambda: Interrupted(9)})]
    with BaseEnvManager([*envs, envs[0]], {}) as manager:
        manager.launch()
        manager.step({0: 0, 1: 0, 2: 0})
        moves = manager.moves.copy()
        with pytest.raises(Interrupt):
            manager.step({0: 0, 1: 0, 2: 0})
        assert (manager.moves - moves).tolist() == [1, 1, 0] and sorted(manager.ready_obs) == [0, 2]
        manager.reset({1: None})
        seen = manager.step({0: 0, 1: 0, 2: 0})
        assert [seen[env_id].obs.tolist() for env_id in range(3)] == [[0.0, 3.0], [1.0, 1.0], [0.0, 2.0]]
