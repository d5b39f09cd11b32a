"""Envs that fail, die or hang in their processes: what is raised, and what becomes of the manager."""

from __future__ import annotations

import os
import pickle
import signal
import threading
import time

import numpy as np
import pytest

from ding.envs import AsyncSubprocessEnvManager, SyncSubprocessEnvManager
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
from tests.envs.fakes import states

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


def test_a_failing_step_raises_the_original_class_and_closes_the_manager():
    manager = sync({}, {"deeds": {("step", 1): Raise(ValueError("broken"))}})
    manager.launch()
    act(manager)
    with pytest.raises(ValueError, match="env 1 failed in step with ValueError") as caught:
        act(manager)
    assert len(caught.value.args) == 1
    text = str(caught.value)
    assert text.count("Traceback") == 1
    assert "scripted_env.py" in text and "ValueError: broken" in text
    assert manager.closed
    assert set(states(manager)) == {"VOID"}
    manager.launch()
    assert list(act(manager)) == [0, 1]
    manager.close()


@pytest.mark.differs(
    "an exception that cannot be made from its message alone kills the env's process: EOFError, and `close` fails too",
    "it arrives as an `EnvProcessError` with class, text and traceback; others keep their class",
)
def test_an_exception_that_only_its_constructor_can_make_comes_as_one_of_ours():
    manager = sync({"deeds": {("step", 0): raise_odd}})
    manager.launch()
    with pytest.raises(EnvProcessError, match="env 0 failed in step with OddError") as caught:
        act(manager)
    assert "OddError: odd 3" in str(caught.value)
    assert (caught.value.env_id, caught.value.method) == (0, "step")
    assert manager.closed


@pytest.mark.differs("`sys.exit` in an env's process ends in an EOFError", "it is reported like any other exception")
@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt()])
def test_an_env_cannot_end_the_program(error):
    manager = sync({"deeds": {("step", 0): Raise(error)}})
    manager.launch()
    with pytest.raises(EnvProcessError, match=f"env 0 failed in step with {type(error).__name__}"):
        act(manager)


def test_a_result_that_cannot_be_sent_is_told():
    manager = sync({"deeds": {("step", 0): lambda env: {"stream": (i for i in range(3))}}})
    manager.launch()
    with pytest.raises(TypeError, match="(?s)env 0 failed in step.*cannot pickle 'generator' object"):
        act(manager)


class Unreadable:
    """Is pickled without complaint, and cannot be unpickled but in one process."""

    def __reduce__(self):
        return _only_in, (os.getpid(),)


def _only_in(pid):
    if os.getpid() != pid:
        raise OSError("made elsewhere")
    return Unreadable()


def test_a_result_that_cannot_be_read_is_told():
    manager = sync({"deeds": {("step", 0): lambda env: {"note": Unreadable()}}})
    manager.launch()
    with pytest.raises(EnvProcessError, match="the answer of env 0 to step cannot be read: OSError.*made elsewhere"):
        act(manager)
    assert manager.closed


def test_an_action_that_the_env_cannot_read_is_told():
    manager = sync({})
    manager.launch()
    with pytest.raises(OSError, match="(?s)env 0 failed in reading a request.*made elsewhere"):
        manager.step({0: Unreadable()})


def test_an_action_that_cannot_be_sent_leaves_the_manager_as_it_was():
    with sync({}, {}) as manager:
        manager.launch()
        with pytest.raises(TypeError, match="pickle"):
            manager.step({0: np.array([0]), 1: (i for i in range(3))})
        assert manager.ready_obs_id == [0, 1]
        assert {env_id: obs.tolist() for env_id, obs in manager.ready_obs.items()} == {0: [0, 0, 1], 1: [1, 0, 0]}
        assert list(act(manager)) == [0, 1]


def test_an_env_that_cannot_be_made_closes_those_that_were(nothing_is_left):
    manager = sync({}, {"deeds": {("make", 0): Raise(OSError("no licence"))}})
    with pytest.raises(OSError, match="env 1 failed in make with OSError"):
        manager.launch()
    assert manager.closed
    assert len(nothing_is_left) == 2


@pytest.fixture(autouse=True)
def references_that_may_fail(monkeypatch):
    """The reference env is made in this process, where no deed is to happen."""
    make = Make.__call__
    here = os.getpid()

    def harmless(self):
        return make(self) if os.getpid() != here else ScriptedEnv(self.number)

    monkeypatch.setattr(Make, "__call__", harmless)


@pytest.mark.differs("a failing `seed` in an env's process is a warning, and closes the manager", "it is raised")
def test_a_failing_seed_is_raised():
    manager = sync({}, {"deeds": {("seed", 1): Raise(ValueError("no such seed"))}}, max_retry=5)
    manager.seed(0)
    manager.launch()
    manager.seed(1)
    with pytest.raises(ValueError, match="env 1 failed in seed with ValueError"):
        manager.reset()
    assert manager.closed


def test_a_seed_that_fails_before_an_auto_reset_is_raised_by_who_waits_for_it():
    manager = sync({"length": 2, "deeds": {("seed", 0): Raise(ValueError("no such seed"))}})
    manager.launch()
    manager.seed(1)
    act(manager)
    assert act(manager)[0].done
    with pytest.raises(ValueError, match="env 0 failed in seed"):
        _ = manager.ready_obs


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
        with pytest.raises(NotImplementedError, match="env 0 failed in render"):
            _ = manager.ready_imgs
        assert manager.ready_imgs == {0: "rgb_array 0 0 0"}


# -- resets and their retries


def test_a_reset_that_fails_every_time_closes_the_manager():
    manager = sync({}, {"deeds": {("reset", -1): Raise(ValueError("stuck"))}}, max_retry=2)
    with pytest.raises(RuntimeError, match=r"Env 1 reset has exceeded max retries\(2\)") as caught:
        manager.launch()
    assert isinstance(caught.value.__cause__, ValueError)
    assert str(caught.value).count("Traceback") == 1
    assert manager.closed


@pytest.mark.differs(
    "an auto reset that fails in the background closes the manager in silence",
    "the caller that waits for the env gets the exception; no timestep is lost",
)
def test_an_auto_reset_that_fails_is_raised_by_who_waits_for_it():
    manager = sync({"length": 1, "deeds": {("reset", 1): Raise(ValueError("stuck"))}})
    manager.launch()
    assert act(manager)[0].done
    with pytest.raises(RuntimeError, match="Env 0 reset has exceeded"):
        _ = manager.ready_obs
    assert manager.closed


def test_a_reset_in_place_that_fails_loses_no_timestep():
    deeds = {("reset", 1): Raise(ValueError("stuck"))}
    manager = sync({"length": 1, "deeds": deeds}, reset_inplace=True)
    manager.launch()
    timestep = act(manager)[0]
    assert (timestep.done, timestep.obs.tolist()) == (True, [0, 0, 1])
    with pytest.raises(RuntimeError, match="Env 0 reset has exceeded"):
        act(manager, 0)
    assert manager.closed


def test_retry_type_reset_tries_the_same_env_again(caplog):
    with sync({"length": 1, "deeds": {("reset", 1): Raise(ValueError("stuck"))}}, max_retry=2) as manager:
        manager.launch({0: {"level": 1}})
        act(manager)
        assert manager.ready_obs[0].tolist() == [0, 1, 0]
        assert manager.told == [[{"level": 1}] * 3]
    assert "attempt 1 of 2 to reset env 0 failed: env 0 failed in reset with ValueError" in caplog.text


def test_retry_type_renew_makes_the_env_anew_with_its_seed_and_parameters(tmp_path, nothing_is_left):
    deeds = {
        ("reset", 0): Once(tmp_path / "stuck", Raise(ValueError("stuck"))),
        ("close", 0): Touch(tmp_path / "closed"),
    }
    with sync({"deeds": deeds}, max_retry=2, retry_type="renew") as manager:
        manager.seed(5)
        manager.launch({0: {"level": 1}})
        assert manager.told == [[(5,), {"level": 1}]]
        assert (tmp_path / "closed.0").exists()
    assert len(nothing_is_left) == 2


def test_attempts_are_made_a_while_apart():
    deeds = {("reset", 0): Raise(ValueError("stuck"))}
    with sync({"deeds": deeds}, max_retry=2, retry_waiting_time=0.2) as manager:
        start = time.monotonic()
        manager.launch()
        assert time.monotonic() - start >= 0.2


def test_an_env_that_cannot_be_made_anew_has_failed_an_attempt(tmp_path, nothing_is_left):
    deeds = {("reset", 0): Raise(ValueError("stuck")), ("make", 0): MakesOnce(tmp_path / "made")}
    manager = sync({"deeds": deeds}, max_retry=3, retry_type="renew")
    with pytest.raises(RuntimeError, match=r"(?s)Env 0 reset has exceeded max retries\(3\).*env 0 failed in make"):
        manager.launch()
    assert len(nothing_is_left) == 3


class MakesOnce:
    """A deed after which no further env can be made."""

    def __init__(self, path):
        self.path = path

    def __call__(self, env):
        self.path.touch(exist_ok=False)


def test_a_process_that_cannot_be_started_anew_has_failed_an_attempt(monkeypatch):
    manager = sync({"deeds": {("reset", 0): Raise(ValueError("stuck"))}}, max_retry=2, retry_type="renew")
    start = env_process.EnvProcess.__init__
    calls = []

    def fail_later(self, *args):
        calls.append(args)
        if len(calls) > 1:
            raise OSError("no more processes")
        start(self, *args)

    monkeypatch.setattr(env_process.EnvProcess, "__init__", fail_later)
    with pytest.raises(RuntimeError, match="(?s)Env 0 reset has exceeded.*no more processes"):
        manager.launch()
    assert manager.closed


# -- deaths


@pytest.mark.differs(
    "an env process that dies is an EOFError without a name",
    "an `EnvDiedError` names env, method and signal or exit code",
)
@pytest.mark.parametrize(
    "how, words",
    [
        (signal.SIGKILL, "ended by SIGKILL .*out of memory"),
        (signal.SIGSEGV, "ended by SIGSEGV .*native code"),
        (signal.SIGTERM, "ended by SIGTERM"),
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


@pytest.mark.parametrize("method, deed", [("make", ("make", 0)), ("render", ("render", 0))])
def test_a_death_in_any_method_is_told(method, deed):
    manager = sync({"deeds": {deed: Die(signal.SIGABRT)}})
    with pytest.raises(EnvDiedError, match=f"env 0 died in {method}: .*SIGABRT"):
        manager.launch()
        _ = manager.ready_imgs
    assert manager.closed


def test_an_env_that_was_killed_while_idle_is_told_at_the_next_step():
    manager = sync({}, {})
    manager.launch()
    kill(manager, 1)
    with pytest.raises(EnvDiedError, match="env 1 died in step: .*SIGKILL"):
        act(manager)
    assert manager.closed


def test_an_env_that_was_killed_while_idle_has_failed_the_first_attempt_of_its_reset():
    manager = sync({}, {})
    manager.launch()
    kill(manager, 0)
    with pytest.raises(RuntimeError, match="(?s)Env 0 reset has exceeded.*env 0 died in reset: .*SIGKILL"):
        manager.reset({0: None})
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


def test_an_env_that_dies_within_a_reset_is_told():
    manager = sync({"length": 1, "deeds": {("reset", 1): Die(5)}})
    manager.launch()
    assert act(manager)[0].done
    with pytest.raises(RuntimeError, match="(?s)Env 0 reset has exceeded.*env 0 died in reset: .*exit code 5"):
        _ = manager.ready_obs


def test_what_an_env_answered_before_it_died_counts():
    manager = sync({"length": 1, "deeds": {("reset", 1): Die(5)}}, {"deeds": {("step", 0): Wait(0.2)}})
    manager.launch()
    assert act(manager)[0].done  # by the time this is read, env 0 is dead
    with pytest.raises(RuntimeError, match="exit code 5"):
        _ = manager.ready_obs


def test_closing_after_a_death_is_quick_and_raises_nothing(caplog):
    manager = sync({}, {}, {})
    manager.launch()
    kill(manager, 1)
    start = time.monotonic()
    manager.close()
    assert time.monotonic() - start < 3
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "env 1 died" in caplog.text and "SIGKILL" in caplog.text


def test_an_env_that_dies_while_it_closes_is_only_logged(caplog):
    manager = sync({"deeds": {("close", 0): Die(signal.SIGSEGV)}})
    manager.launch()
    manager.close()
    assert "env 0 died in close: its process was ended by SIGSEGV" in caplog.text


def test_an_env_that_closes_its_connection_is_given_up():
    def hang_up(env):
        os.closerange(3, 256)
        time.sleep(60)

    manager = sync({"deeds": {("step", 0): hang_up}})
    manager.launch()
    with pytest.raises(EnvDiedError, match="env 0 died in step: its process has closed its connection"):
        act(manager)


def test_without_process_descriptors_a_death_is_noticed_by_the_connection(monkeypatch):
    monkeypatch.delattr(os, "pidfd_open")
    manager = sync({}, {"deeds": {("step", 0): Die(signal.SIGKILL)}})
    manager.launch()
    with pytest.raises(EnvDiedError, match="env 1 died in step: .*SIGKILL"):
        act(manager)


# -- time limits


@pytest.mark.differs(
    "a step or reset that hangs in native code is never interrupted",
    "its process is killed half a second after the limit, and the env and the limit are named",
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


def test_the_traceback_says_where_a_step_hung():
    manager = sync({"deeds": {("step", 0): Wait()}}, step_timeout=0.6)
    manager.launch()
    with pytest.raises(TimeoutError, match="time.sleep"):
        act(manager)


@pytest.mark.parametrize("deed", [Wait(), hang_for_good], ids=["interruptible", "native"])
def test_a_reset_that_takes_too_long_is_tried_again(deed, tmp_path, caplog):
    deeds = {("reset", 0): Once(tmp_path / "hung", deed)}
    with sync({"deeds": deeds}, {}, reset_timeout=0.6, max_retry=2) as manager:
        manager.launch()
        assert manager.ready_obs_id == [0, 1]
    assert "reset_timeout = 0.6 s" in caplog.text


def test_limits_hold_in_any_thread():
    manager = sync({"deeds": {("step", 0): Wait()}}, step_timeout=0.6)
    errors = []

    def run():
        manager.launch()
        try:
            act(manager)
        except TimeoutError as e:
            errors.append(e)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(30)
    assert len(errors) == 1


def test_limits_do_not_disturb_calls_that_are_in_time():
    with sync({"length": 2, "deeds": {("step", 1): Wait(0.05)}}, step_timeout=20, reset_timeout=20.5) as manager:
        manager.launch()
        assert [act(manager)[0].done for _ in range(4)] == [False, True] * 2


def test_the_connect_timeout_counts_for_a_reset(caplog):
    manager = sync({"deeds": {("reset", 0): Wait()}}, connect_timeout=1)
    with pytest.raises(RuntimeError, match="env 0: reset did not end within connect_timeout = 1 s"):
        manager.launch()


def test_the_connect_timeout_counts_for_the_making_of_an_env():
    manager = sync({"deeds": {("make", 0): Wait()}}, connect_timeout=1)
    with pytest.raises(TimeoutError, match="env 0: make did not end within connect_timeout = 1 s"):
        manager.launch()


def test_the_connect_timeout_counts_for_calls_from_when_the_env_can_begin():
    manager = AsyncSubprocessEnvManager(
        [Make(0, deeds={("step", 0): Wait(1.8), ("render", 1): Wait()}), Make(1)],
        {**FAST, "connect_timeout": 1.5, "wait_num": 1, "step_wait_timeout": 0},
    )
    manager.launch()
    assert list(act(manager)) == [1]
    assert manager.render[0]("human") == "human 0 0 1"
    with pytest.raises(TimeoutError, match="env 0: render did not end within connect_timeout = 1.5 s"):
        manager.render[0]("human")
    assert manager.closed


@pytest.mark.differs(
    "an answer that comes after its timeout is taken for that to the next request",
    "a process works on one request at a time, and is replaced when it exceeds a limit",
)
def test_an_answer_that_comes_late_is_not_taken_for_another(tmp_path):
    deeds = {("reset", 0): Once(tmp_path / "slow", Wait(1.2))}
    with sync({"length": 9, "deeds": deeds}, connect_timeout=1, max_retry=2) as manager:
        manager.launch()
        assert manager.length == [9]
        assert manager.told == [[{}]]  # the process that was too slow is gone
        assert act(manager)[0].obs.tolist() == [0, 0, 1]


class Interrupt(BaseException):
    """What a signal handler raises."""


@pytest.fixture
def interrupt_after():
    def ring(*args):
        raise Interrupt

    previous = signal.signal(signal.SIGALRM, ring)
    yield lambda seconds: signal.setitimer(signal.ITIMER_REAL, seconds)
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, previous)


def interrupt_manager(env):
    """A deed of the last env: it interrupts the process of the manager, which waits for replies."""
    time.sleep(0.2)
    os.kill(os.getppid(), signal.SIGALRM)
    time.sleep(0.4)


def test_the_answer_to_an_interrupted_call_is_not_taken_for_that_to_the_next(interrupt_after):
    with sync({}, {"length": 9, "deeds": {("render", 0): interrupt_manager}}) as manager:
        manager.launch()
        with pytest.raises(Interrupt):
            _ = manager.ready_imgs
        assert manager.length == [3, 9]
        assert act(manager)[1].obs.tolist() == [1, 0, 1]


def test_a_launch_that_is_interrupted_leaves_the_manager_closed(interrupt_after):
    manager = sync({}, {"deeds": {("reset", 0): interrupt_manager}})
    with pytest.raises(Interrupt):
        manager.launch()
    assert manager.closed


def test_a_large_request_to_a_process_that_does_not_read_is_broken_off():
    manager = sync({}, step_timeout=0.6)
    manager.launch()
    os.kill(manager.pid[0], signal.SIGSTOP)
    with pytest.raises(TimeoutError, match=r"env 0: step did not end within step_timeout = 0\.6 s"):
        manager.step({0: np.zeros(300_000)})
    assert manager.closed


def test_a_request_that_is_not_read_is_left_by_the_second_signal_and_its_env_is_given_up(interrupt_after):
    manager = sync({}, {})
    manager.launch()
    os.kill(manager.pid[0], signal.SIGSTOP)
    second = threading.Timer(0.6, os.kill, (os.getpid(), signal.SIGALRM))
    with pytest.raises(Interrupt):
        interrupt_after(0.2)
        second.start()
        manager.step({0: np.zeros(300_000)})
    second.join()
    with pytest.raises(EnvDiedError, match="env 0 died in step: a signal came twice"):
        _ = manager.ready_obs
    assert manager.closed


def fork_and_die(env):
    """Die of SIGKILL, and leave a process that holds everything that this one had open for a while."""
    if os.fork() == 0:
        for stream in (1, 2):
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream)  # or whoever reads the output of the tests waits
        time.sleep(10)
        os._exit(0)
    Die(signal.SIGKILL)(env)


def test_the_death_of_an_env_that_has_started_processes_is_noticed_at_once():
    manager = sync({"deeds": {("step", 0): fork_and_die}}, {})
    manager.launch()
    start = time.monotonic()
    with pytest.raises(EnvDiedError, match="env 0 died in step: .*SIGKILL"):
        act(manager)
    assert time.monotonic() - start < 8


def test_a_process_takes_one_request_at_a_time():
    with sync({"deeds": {("step", 0): Wait(0.2)}}) as manager:
        manager.launch()
        process = manager._processes[0]
        process.send(env_process.Request.CALL, "render", "human")
        with pytest.raises(env_process.EnvBusyError, match="env 0 cannot step: it has yet to answer to render"):
            process.send(env_process.Request.STEP, "step", (0,), True, None)
        assert act(manager)[0].obs.tolist() == [0, 0, 1]


def asynchronous(*envs, **cfg):
    cfg = {**FAST, "wait_num": 1, "step_wait_timeout": 0, **cfg}
    return AsyncSubprocessEnvManager([Make(i, **env) for i, env in enumerate(envs)], cfg)


def test_a_call_waits_for_an_env_that_gets_a_new_process(tmp_path):
    deeds = {("reset", 1): Once(tmp_path / "died", Die(5))}
    with asynchronous({"length": 1, "deeds": deeds}, max_retry=2, retry_waiting_time=0.3) as manager:
        manager.launch()
        assert act(manager)[0].done
        assert manager.render[0]("human") == "human 0 0 0"


@pytest.mark.parametrize("max_retry", [1, 2])
def test_a_call_behind_a_reset_that_hangs_is_answered(max_retry, tmp_path):
    deeds = {("step", 0): Wait(0.3), ("reset", 1): Once(tmp_path / "hung", hang_for_good)}
    manager = asynchronous({"length": 1, "deeds": deeds}, {}, max_retry=max_retry, reset_timeout=0.6)
    manager.launch()
    assert list(act(manager)) == [1]
    if max_retry == 1:
        with pytest.raises(RuntimeError, match="Env 0 reset has exceeded"):
            manager.render[0]("human")
    else:
        assert manager.render[0]("human") == "human 0 0 0"
    assert manager.closed is (max_retry == 1)
    manager.close()


def test_a_call_waits_for_an_env_that_is_replaced(tmp_path):
    deeds = {("step", 0): Wait(0.3), ("reset", 1): Once(tmp_path / "stuck", Raise(ValueError("stuck")))}
    with asynchronous({"length": 1, "deeds": deeds}, {}, max_retry=2, retry_type="renew") as manager:
        manager.launch()
        assert list(act(manager)) == [1]
        assert manager.render[0]("human") == "human 0 0 0"
        assert manager.ready_obs_id == [1]
        assert manager.step({})[0].done
        assert manager.ready_obs_id == [0, 1]


def test_closing_an_env_that_hangs_is_bounded(monkeypatch, caplog):
    monkeypatch.setattr(env_process, "_CLOSE_S", 0.3)
    monkeypatch.setattr(env_process, "_END_S", 0.3)
    manager = sync({"deeds": {("close", 0): hang_for_good}}, {})
    manager.launch()
    start = time.monotonic()
    manager.close()
    assert time.monotonic() - start < 5
    assert manager.closed


def test_a_process_that_nothing_ends_is_logged(monkeypatch, caplog):
    manager = sync({})
    manager.launch()
    monkeypatch.setattr(env_process, "_end_all", lambda processes, until: list(processes))
    manager.close()
    assert "of env 0 does not end" in caplog.text
    manager.launch()
    monkeypatch.undo()
    manager.close()


def test_our_errors_can_be_pickled():
    error = pickle.loads(pickle.dumps(EnvDiedError("gone", 3, "step")))
    assert (type(error), str(error), error.env_id, error.method) == (EnvDiedError, "gone", 3, "step")
