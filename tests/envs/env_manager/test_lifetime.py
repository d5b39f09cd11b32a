"""No process of an env outlives its manager, nor the process that the manager is in, however that ends."""

import gc
import multiprocessing
import multiprocessing.forkserver
import os
import select
import signal
import threading
import time

import numpy as np
import pytest

from ding.envs import AsyncSubprocessEnvManager, SyncSubprocessEnvManager
from ding.envs.env_manager import env_child, env_process
from tests.envs.env_manager.conftest import exists
from tests.envs.env_manager.scripted_env import HoldInterpreter, Make, Touch, Wait, hang_for_good

FORK = {"context": "fork"}


def pids(manager):
    return manager.pid


def wait_for_death(pid, timeout_s=15):
    """Whether a process, that need not be a child of ours, ends in time."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([descriptor], [], [], timeout_s)[0])
    finally:
        os.close(descriptor)


def in_a_process(function):
    """Run `function(connection)` in a forked process; return it, and our end of the connection."""
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("fork").Process(target=function, args=(theirs,))
    process.start()
    theirs.close()
    return process, ours


@pytest.mark.guarantees("workers")
@pytest.mark.differs(
    "leaves env processes behind when the program is killed, and zombies after `close`",
    "ends them with the program; `close` waits for each, for a limited time",
)
@pytest.mark.parametrize("deed", [None, Wait(), hang_for_good], ids=["idle", "stepping", "native"])
def test_the_envs_end_with_a_process_that_is_killed(deed, monkeypatch):
    monkeypatch.setattr(env_child, "_FAREWELL_S", 0.2)

    def manage(connection):
        deeds = {("step", 0): deed} if deed else {}
        managers = [SyncSubprocessEnvManager([Make(0, deeds=deeds), Make(1)], FORK) for _ in range(2)]
        for manager in managers:
            manager.launch()
        connection.send([pid for manager in managers for pid in pids(manager)])
        if deed:
            managers[0].step({0: 0, 1: 0})
        time.sleep(60)

    process, connection = in_a_process(manage)
    envs = connection.recv()
    os.kill(process.pid, signal.SIGKILL)
    assert [pid for pid in envs if not wait_for_death(pid)] == []
    process.join()


def greet_and_stay(connection):
    connection.send("hello")
    time.sleep(60)


def start_a_process(env):
    """Start a process as an env does that has its simulator in one, and return what it says."""
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("fork").Process(target=greet_and_stay, args=(theirs,), daemon=True)
    process.start()
    return {"pid": process.pid, "said": ours.recv() if ours.poll(20) else None}


@pytest.mark.differs(
    "does not let an env under `subprocess` start a process",
    "lets it; the process ends with that of the env",
)
@pytest.mark.parametrize("how", ["closed", "killed"])
def test_an_env_may_start_a_process_which_ends_with_its_own(how):
    manager = SyncSubprocessEnvManager([Make(0, deeds={("step", 0): start_a_process})], FORK)
    manager.launch()
    info = manager.step({0: 0})[0].info
    assert info["said"] == "hello" and exists(info["pid"])
    if how == "killed":
        os.kill(pids(manager)[0], signal.SIGKILL)
        assert wait_for_death(info["pid"])
    manager.close()
    assert wait_for_death(info["pid"])


@pytest.mark.parametrize("method", ["reset", "step"])
@pytest.mark.parametrize("thread", ["main", "other"])
def test_an_env_that_holds_the_interpreter_in_native_code_ends_with_a_process_that_is_killed(thread, method, tmp_path):
    fifo = tmp_path / "holding"
    os.mkfifo(fifo)

    def manage(connection):
        manager = SyncSubprocessEnvManager([Make(0, deeds={(method, 0): HoldInterpreter(fifo)})], FORK)

        def play():
            manager.launch()
            manager.step({0: 0})

        if thread == "main":
            play()
        else:
            threading.Thread(target=play).start()

    process, _ = in_a_process(manage)
    env = int(fifo.read_text())
    os.kill(process.pid, signal.SIGKILL)
    assert wait_for_death(env)
    process.join()


def test_an_env_may_close_when_its_manager_is_killed(tmp_path):
    def manage(connection):
        manager = SyncSubprocessEnvManager([Make(3, deeds={("close", 0): Touch(tmp_path / "closed")})], FORK)
        manager.launch()
        connection.send(pids(manager))
        time.sleep(60)

    process, connection = in_a_process(manage)
    envs = connection.recv()
    os.kill(process.pid, signal.SIGKILL)
    assert all(map(wait_for_death, envs))
    assert (tmp_path / "closed.3").exists()
    process.join()


@pytest.mark.parametrize("how", ["return", "raise"])
def test_the_envs_are_closed_when_their_process_ends_without_closing_them(how, tmp_path, capfd):
    def manage(connection):
        manager = SyncSubprocessEnvManager([Make(3, deeds={("close", 0): Touch(tmp_path / "closed")})], FORK)
        manager.launch()
        connection.send(pids(manager))
        global kept
        kept = manager
        if how == "raise":
            raise RuntimeError("something else")

    process, connection = in_a_process(manage)
    envs = connection.recv()
    process.join(30)
    assert process.exitcode == (1 if how == "raise" else 0)
    assert [pid for pid in envs if exists(pid)] == []
    assert (tmp_path / "closed.3").exists()


def test_a_forgotten_manager_ends_its_processes(tmp_path, nothing_is_left):
    manager = SyncSubprocessEnvManager([Make(3, deeds={("close", 0): Touch(tmp_path / "closed")})], FORK)
    manager.launch()
    del manager
    gc.collect()
    assert [pid for pid in nothing_is_left if exists(pid)] == []
    assert (tmp_path / "closed.3").exists()


def test_a_process_that_inherits_a_manager_does_not_end_its_envs():
    with SyncSubprocessEnvManager([Make(0)], FORK) as manager:
        manager.launch()

        def close(connection):
            manager.close()

        process, _ = in_a_process(close)
        process.join(20)
        assert process.exitcode == 0
        assert manager.step({0: np.array([0])})[0].obs.tolist() == [0, 0, 1]


@pytest.mark.guarantees("signals")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_end_of_a_job_is_left_to_the_managers_process(number):
    with SyncSubprocessEnvManager([Make(0), Make(1)], FORK) as manager:
        manager.launch()
        for pid in pids(manager):
            os.kill(pid, number)
        assert list(manager.step({0: 0, 1: 0})) == [0, 1]


@pytest.mark.differs(
    "handles Ctrl-C, and runs the program's signal handlers, in every env process",
    "handles signals only in the process of the manager",
)
def test_handlers_of_the_parent_do_not_run_in_the_envs(tmp_path):
    def react(*args):
        (tmp_path / str(os.getpid())).touch()

    previous = {number: signal.signal(number, react) for number in (signal.SIGTERM, signal.SIGUSR1)}
    try:
        with SyncSubprocessEnvManager([Make(0), Make(1)], FORK) as manager:
            manager.launch()
            os.kill(pids(manager)[0], signal.SIGUSR1)
            assert list(manager.step({0: 0})) == [0]
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
    assert list(tmp_path.iterdir()) == []


def test_closing_is_bounded_though_an_env_ignores_every_request(monkeypatch):
    monkeypatch.setattr(env_process, "_CLOSE_S", 0.2)
    monkeypatch.setattr(env_process, "_END_S", 0.2)
    envs = [Make(0, deeds={("step", 0): hang_for_good}), Make(1)]
    manager = AsyncSubprocessEnvManager(envs, {**FORK, "wait_num": 1, "step_wait_timeout": 0})
    manager.launch()
    assert list(manager.step({0: 0, 1: 0})) == [1]
    start = time.monotonic()
    manager.close()
    assert time.monotonic() - start < 5
