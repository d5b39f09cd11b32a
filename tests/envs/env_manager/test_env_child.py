"""The process of an env, run here in a thread: what it answers, and when it ends."""

from __future__ import annotations

import multiprocessing
import pickle
import signal
import sys
import threading
import time
from types import SimpleNamespace

import numpy as np
import pytest

from ding.envs.env_manager import env_child
from ding.envs.env_manager.base_env_manager import call_with_timeout
from ding.envs.env_manager.env_child import (
    ChildPlan,
    EnvHost,
    EnvServer,
    SharedObs,
    encode,
    pack_array,
    run_child,
    seed_globals,
    use_one_thread,
)
from tests.envs.env_manager.scripted_env import Make, Raise, ScriptedEnv, be_abnormal


def plan_for(env_fn, **kwargs):
    defaults = {
        "shared_obs": SharedObs.for_space(None, True),
        "replay_path": None,
        "step_timeout": None,
        "parent_pid": 0,
    }
    return ChildPlan(env_id=0, env_fn=env_fn, **{"reset_timeout": None, **defaults, **kwargs})


class Talk:
    """Requests and answers of an `EnvServer` in a thread."""

    def __init__(self, plan):
        self.their_source, self.sink = multiprocessing.Pipe(duplex=False)
        self.source, self.their_sink = multiprocessing.Pipe(duplex=False)
        self.errors = []
        self.thread = threading.Thread(target=self.serve, args=(plan,))
        self.thread.start()

    def serve(self, plan):
        try:
            EnvServer(plan, self.their_source, self.their_sink).serve()
        except EOFError as e:
            self.errors.append(e)
        finally:
            self.their_source.close()
            self.their_sink.close()

    def hear(self):
        return list(pickle.loads(self.source.recv_bytes()))

    def ask(self, method, *args):
        if method != "make":
            self.sink.send_bytes(encode((method, args)))
        return self.hear()

    def end(self):
        self.sink.close()
        self.source.close()
        self.thread.join(20)
        assert not self.thread.is_alive()


@pytest.fixture
def talk():
    talks = []

    def begin(env_fn, **kwargs):
        talks.append(Talk(plan_for(env_fn, **kwargs)))
        return talks[-1]

    yield begin
    for each in talks:
        each.end()


def step(action=0, auto_reset=False, seed=None):
    return "step", pack_array(np.array([action])), auto_reset, seed


def test_failures_are_answers_and_the_env_goes_on(talk):
    deeds = {("step", 0): Raise(ValueError("broken")), ("step", 2): be_abnormal}
    child = talk(Make(0, length=2, deeds=deeds))
    child.ask("make")
    child.ask("reset", None, None)
    is_good, failure, more = child.ask(*step(auto_reset=True))
    assert (is_good, failure.method, failure.class_name, more) == (False, "step", "ValueError", False)
    assert "ValueError: broken" in failure.text
    assert child.ask(*step())[0]
    is_good, (_, (_, done, info)), more = child.ask(*step(auto_reset=True))
    assert (is_good, done, info["abnormal"], more) == (True, True, True, False)  # no reset follows
    assert child.ask("nothing_of_the_kind")[1].class_name == "AttributeError"
    child.sink.send_bytes(b"no pickle")
    is_good, failure, _ = child.hear()
    assert (is_good, failure.method) == (False, "reading a request")


def test_the_env_is_closed_when_the_connection_ends(talk):
    env = ScriptedEnv()
    child = talk(lambda: env)
    child.ask("make")
    child.end()
    assert env.calls["close"] == 0
    assert len(child.errors) == 1


def test_time_limits_break_off_what_they_are_for():
    env = ScriptedEnv(deeds={(method, 0): lambda env: time.sleep(30) for method in ("reset", "step")})
    host = EnvHost(plan_for(lambda: env, step_timeout=0.05, reset_timeout=0.06))
    host.perform("make")
    with pytest.raises(TimeoutError, match="reset_timeout = 0.06 s"):
        host.perform("reset", None, None)
    host.perform("reset", None, None)
    with pytest.raises(TimeoutError, match="step_timeout = 0.05 s"):
        host.perform("step", (0,), False, None)
    assert host.perform("step", (0,), False, None)[0][1].tolist() == [0, 0, 1]
    assert signal.getitimer(signal.ITIMER_REAL) == (0, 0)


@pytest.fixture(autouse=True)
def handlers_stay():
    """What a process of its own may change is put back."""
    numbers = [number for number in signal.valid_signals() if callable(signal.getsignal(number))]
    previous = {number: signal.getsignal(number) for number in {*numbers, signal.SIGTERM, signal.SIGALRM}}
    state = np.random.get_state()
    yield
    for number, handler in previous.items():
        signal.signal(number, handler)
    np.random.set_state(state)


def test_without_a_timer_nothing_is_broken_off(monkeypatch):
    monkeypatch.delattr(signal, "setitimer")
    assert call_with_timeout(0.001, "step_timeout", lambda: time.sleep(0.01) or 3) == 3


def test_an_env_may_use_one_thread_of_torch(monkeypatch):
    seen = []
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(set_num_threads=seen.append, manual_seed=seen.append))
    use_one_thread()
    seed_globals((1, 2))
    assert (seen[0], len(seen)) == (1, 2)
    monkeypatch.delitem(sys.modules, "torch")
    use_one_thread()
    seed_globals((1, 2))
    assert len(seen) == 2


def test_global_generators_are_seeded_from_all_words():
    def drawn(*words):
        seed_globals(words)
        return np.random.random()

    assert drawn(1, 2) == drawn(1, 2)
    assert len({drawn(1, 2), drawn(1, 3), drawn(2, 1)}) == 3


def test_the_process_lives_until_the_connection_ends(monkeypatch):
    inherited, unused = multiprocessing.Pipe()
    monkeypatch.setattr(env_child, "reset_inherited", lambda: None)
    monkeypatch.setattr(env_child, "die_with", lambda pid, farewell_s: None)
    source, our_sink = multiprocessing.Pipe(duplex=False)
    our_source, sink = multiprocessing.Pipe(duplex=False)
    thread = threading.Thread(target=run_child, args=(plan_for(Make(0)), source, sink, [inherited]))
    thread.start()
    our_sink.close()
    thread.join(20)
    assert not thread.is_alive()
    assert inherited.closed
    for end in (unused, our_source, source, sink):
        end.close()


def test_the_processes_of_multiprocessing_are_daemons_with_a_name(nothing_is_left):
    from ding.envs import SyncSubprocessEnvManager

    with SyncSubprocessEnvManager([Make(0)], {"context": "fork"}) as manager:
        manager.launch()
        (process,) = [p for p in multiprocessing.active_children() if p.pid in nothing_is_left]
        assert process.daemon
        assert process.name.startswith("subprocess_env_manager0_")
