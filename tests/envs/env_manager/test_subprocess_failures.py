"""Envs that fail, die or hang in their processes: what is raised, and what becomes of the manager."""

import os
import signal
import time

import numpy as np
import pytest

from ding.envs import SyncSubprocessEnvManager
from ding.envs.env_manager import EnvDiedError, EnvProcessError, env_process
from tests.envs.env_manager.scripted_env import (
    Die,
    Make,
    Once,
    Raise,
    ScriptedEnv,
    Touch,
    Wait,
    hang_for_good,
    raise_odd,
)

FAST = {"retry_waiting_time": 0, "context": "fork"}


def sync(*envs, **cfg):
    return SyncSubprocessEnvManager([Make(i, **env) for i, env in enumerate(envs)], {**FAST, **cfg})


def act(manager, *env_ids):
    return manager.step({env_id: np.array([env_id]) for env_id in env_ids or manager.ready_obs_id})


def kill(manager, env_id, how=signal.SIGKILL):
    """Kill the process of an env, and wait until it is gone."""
    process = manager._processes[env_id]
    os.kill(process.pid, how)
    assert env_process.wait_for_end([process], 10)


# -- exceptions


def test_an_exception_that_only_its_constructor_can_make_comes_as_one_of_ours():
    manager = sync({"deeds": {("step", 0): raise_odd}})
    manager.launch()
    with pytest.raises(EnvProcessError) as caught:
        act(manager)
    assert "OddError: odd 3" in str(caught.value)
    assert (caught.value.env_id, caught.value.method) == (0, "step")
    assert manager.closed


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt()])
def test_an_env_cannot_end_the_program(error):
    manager = sync({"deeds": {("step", 0): Raise(error)}})
    manager.launch()
    with pytest.raises(EnvProcessError, match=f"env 0 failed in step with {type(error).__name__}"):
        act(manager)


@pytest.fixture(autouse=True)
def references_that_may_fail(monkeypatch):
    """The reference env is made in this process, where no deed is to happen."""
    make = Make.__call__
    here = os.getpid()

    def harmless(self):
        return make(self) if os.getpid() != here else ScriptedEnv(self.number)

    monkeypatch.setattr(Make, "__call__", harmless)


@pytest.mark.differs(
    "warns of a `seed` or auto reset that fails in an env's process, and closes the manager",
    "raises the exception in the caller",
)
def test_a_failing_seed_is_raised():
    manager = sync({}, {"deeds": {("seed", 1): Raise(ValueError("no such seed"))}}, max_retry=5)
    manager.seed(0)
    manager.launch()
    manager.seed(1)
    with pytest.raises(ValueError, match="env 1 failed in seed with ValueError"):
        manager.reset()
    assert manager.closed


@pytest.mark.parametrize("error", [ValueError("stuck"), SystemExit(3)])
def test_errors_of_close_surface_after_all_are_closed(error, tmp_path):
    deeds = {("close", 0): Raise(error)}
    manager = sync({"deeds": deeds}, {"deeds": {("close", 0): Touch(tmp_path / "closed")}})
    manager.launch()
    with pytest.raises(Exception, match="env 0 failed in close"):
        manager.close()
    assert manager.closed
    assert (tmp_path / "closed.1").exists()
    manager.close()


def test_a_failing_call_leaves_the_manager_open():
    with sync({"deeds": {("render", 0): Raise(NotImplementedError("blind"))}}) as manager:
        manager.launch()
        with pytest.raises(NotImplementedError):
            _ = manager.ready_imgs
        assert manager.ready_imgs == {0: "rgb_array 0 0 0"}


# -- resets and their retries


def test_attempts_are_made_a_while_apart():
    deeds = {("reset", 0): Raise(ValueError("stuck"))}
    with sync({"deeds": deeds}, max_retry=2, retry_waiting_time=0.2) as manager:
        start = time.monotonic()
        manager.launch()
        assert time.monotonic() - start >= 0.2


# -- deaths


@pytest.mark.differs(
    "reports an EOFError if an env process dies, calls `sys.exit` or raises an unusual exception",
    "names the env, the method, and the exception, signal or exit code",
)
@pytest.mark.parametrize(
    "how, words",
    [
        (signal.SIGKILL, "ended by SIGKILL .*out of memory"),
        (signal.SIGSEGV, "ended by SIGSEGV .*native code"),
        (signal.SIGRTMIN, "ended by (signal 34|SIGRTMIN)"),
        (3, "ended with exit code 3"),
    ],
)
def test_an_env_that_dies_is_named_with_how(how, words):
    manager = sync({}, {"deeds": {("step", 1): Die(how)}}, {})
    manager.launch()
    act(manager)
    with pytest.raises(EnvDiedError, match=f"env 1 died in step: its process .*{words}") as caught:
        act(manager)
    assert (caught.value.env_id, caught.value.method) == (1, "step")
    assert manager.closed


def test_an_env_that_was_killed_while_idle_is_told_at_the_next_step():
    manager = sync({}, {})
    manager.launch()
    kill(manager, 1)
    with pytest.raises(EnvDiedError):
        act(manager)
    assert manager.closed


@pytest.mark.parametrize("retry_type", ["reset", "renew"])
def test_a_dead_env_gets_a_new_process_with_its_seed_while_attempts_are_left(retry_type, caplog):
    with sync({}, {}, max_retry=2, retry_type=retry_type) as manager:
        manager.seed(3)
        manager.launch()
        old = manager.pid
        kill(manager, 0)
        manager.reset()
        new = manager.pid
        assert (new[0] == old[0], new[1] == old[1]) == (False, True)
        assert manager.told == [[(3,), {}], [(4,), {}, {}]]
    assert "SIGKILL" in caplog.text


# -- time limits


@pytest.mark.differs(
    "never interrupts an env that hangs in native code, and mistakes a late answer for that to the next request",
    "kills its process half a second after the limit and names both",
)
@pytest.mark.parametrize("deed", [Wait(), hang_for_good], ids=["interruptible", "native"])
def test_a_step_that_takes_too_long_is_broken_off(deed):
    manager = sync({}, {"deeds": {("step", 0): deed}}, step_timeout=0.6)
    manager.launch()
    start = time.monotonic()
    with pytest.raises(TimeoutError, match=r"env 1.* step(?s:.*)step_timeout = 0\.6 s"):
        act(manager)
    assert 0.6 <= time.monotonic() - start < 10
    assert manager.closed


@pytest.mark.parametrize("deed", [Wait(), hang_for_good], ids=["interruptible", "native"])
def test_a_reset_that_takes_too_long_is_tried_again(deed, tmp_path, caplog):
    deeds = {("reset", 0): Once(tmp_path / "hung", deed)}
    with sync({"deeds": deeds}, {}, reset_timeout=0.6, max_retry=2) as manager:
        manager.launch()
        assert manager.ready_obs_id == [0, 1]
    assert "reset_timeout = 0.6 s" in caplog.text


@pytest.mark.parametrize(("method", "error"), [("reset", RuntimeError), ("make", TimeoutError)])
def test_the_connect_timeout_counts_for_a_reset_and_the_making_of_an_env(method, error):
    manager = sync({"deeds": {(method, 0): Wait()}}, connect_timeout=1)
    with pytest.raises(error, match=f"env 0: {method} .*connect_timeout"):
        manager.launch()


def test_an_answer_that_comes_late_is_not_taken_for_another(tmp_path):
    deeds = {("reset", 0): Once(tmp_path / "slow", Wait(1.2))}
    with sync({"length": 9, "deeds": deeds}, connect_timeout=1, max_retry=2) as manager:
        manager.launch()
        assert manager.length == [9]
        assert manager.told == [[{}]]  # the process that was too slow is gone
        assert act(manager)[0].obs.tolist() == [0, 0, 1]
