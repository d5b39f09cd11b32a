"""No process of an env outlives its manager, nor the process that the manager is in, however that ends."""

from __future__ import annotations

import gc
import multiprocessing
import multiprocessing.forkserver
import os
import pathlib
import select
import signal
import subprocess
import sys
import textwrap
import threading
import time

import numpy as np
import pytest

from ding.envs import AsyncSubprocessEnvManager, SyncSubprocessEnvManager
from ding.envs.env_manager import env_child, env_process
from tests.envs.env_manager.conftest import exists
from tests.envs.env_manager.scripted_env import Announce, HoldInterpreter, Make, Touch, Wait, hang_for_good

FORK = {"context": "fork"}
REPOSITORY = pathlib.Path(__file__).parents[3]


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


def start_programs(env):
    """Start a fork and another program, and return how each treats SIGTERM."""
    ask = "import signal; print(signal.getsignal(signal.SIGTERM) == signal.SIG_DFL)"
    ours, theirs = multiprocessing.Pipe()
    tell = lambda: theirs.send(signal.getsignal(signal.SIGTERM) == signal.SIG_DFL)  # noqa: E731
    process = multiprocessing.get_context("fork").Process(target=tell)
    process.start()
    return {"fork": ours.recv(), "program": subprocess.check_output([sys.executable, "-c", ask], text=True).strip()}


def test_what_an_env_starts_can_be_terminated():
    with SyncSubprocessEnvManager([Make(0, deeds={("step", 0): start_programs})], FORK) as manager:
        manager.launch()
        info = manager.step({0: 0})[0].info
    assert (info["fork"], info["program"]) == (True, "True")


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


def test_so_does_one_that_a_fork_server_has_forked(tmp_path):
    code = """
        import pathlib, sys
        from ding.envs import SyncSubprocessEnvManager
        from tests.envs.env_manager.scripted_env import HoldInterpreter, Make
        hold = {("step", 0): HoldInterpreter(pathlib.Path(sys.argv[1]))}
        manager = SyncSubprocessEnvManager([Make(0, deeds=hold), Make(1)], {"context": "forkserver"})
        manager.launch()
        print(*(manager.pid[i] for i in range(2)), flush=True)
        manager.step({0: 0})
    """
    fifo = tmp_path / "holding"
    os.mkfifo(fifo)
    command = [sys.executable, "-c", textwrap.dedent(code), str(fifo)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=REPOSITORY) as process:
        envs = [int(pid) for pid in process.stdout.readline().split()]
        assert int(fifo.read_text()) == envs[0]
        process.kill()
        assert all(map(wait_for_death, envs))


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


@pytest.mark.parametrize("cls", [SyncSubprocessEnvManager, AsyncSubprocessEnvManager])
def test_a_step_raises_once_another_thread_has_closed_the_manager(cls, monkeypatch, tmp_path):
    monkeypatch.setattr(env_process, "_CLOSE_S", 0.2)
    manager = cls([Make(0, deeds={("step", 0): Announce(tmp_path / "stepping")})], FORK)
    manager.launch()
    os.mkfifo(tmp_path / "stepping")
    errors = []

    def step():
        try:
            manager.step({0: np.array([0])})
        except AssertionError as e:
            errors.append(e)

    thread = threading.Thread(target=step, daemon=True)
    thread.start()
    (tmp_path / "stepping").read_text()
    manager.close()
    thread.join(20)
    [message] = [str(error) for error in errors]  # which of the two depends on how far the step was
    assert message in (
        "the env manager is closed: call launch() first",
        "the env manager was closed while env 0 was in use",
    )
    manager.launch()
    manager.close()


def test_the_thread_that_launched_a_manager_may_end():
    manager = SyncSubprocessEnvManager([Make(0)], FORK)
    thread = threading.Thread(target=manager.launch)
    thread.start()
    thread.join(20)
    assert manager.step({0: np.array([0])})[0].obs.tolist() == [0, 0, 1]
    manager.close()


@pytest.mark.guarantees("signals")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_end_of_a_job_is_left_to_the_managers_process(number):
    with SyncSubprocessEnvManager([Make(0), Make(1)], FORK) as manager:
        manager.launch()
        for pid in pids(manager):
            os.kill(pid, number)
        assert list(manager.step({0: 0, 1: 0})) == [0, 1]


@pytest.mark.differs(
    "acts on Ctrl-C and on the program's signal handlers in every env process",
    "leaves them to the process of the manager",
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


@pytest.mark.slow
def test_ctrl_c_in_a_terminal_prints_one_traceback_and_leaves_nothing():
    program = """
        import signal
        from ding.envs import SyncSubprocessEnvManager
        from tests.envs.env_manager.scripted_env import Make, Wait
        signal.signal(signal.SIGINT, signal.default_int_handler)  # what runs in the background has it ignored
        envs = [Make(i, deeds={("step", 0): Wait()}) for i in range(2)]
        manager = SyncSubprocessEnvManager(envs, {"context": "fork"})
        manager.launch()
        print(*manager.pid, flush=True)
        manager.step({0: 0, 1: 0})
    """
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(program)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        cwd=REPOSITORY,
    )
    envs = list(map(int, process.stdout.readline().split()))
    os.killpg(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert errors.count("Traceback") == 1 and errors.rstrip().endswith("KeyboardInterrupt")
    assert process.returncode == -signal.SIGINT
    assert [pid for pid in envs if exists(pid)] == []


def descriptors():
    return len(os.listdir("/proc/self/fd"))


@pytest.mark.parametrize("context", ["fork", "forkserver"])
def test_descriptors_are_given_back(context):
    manager = SyncSubprocessEnvManager([Make(0), Make(1)], {"context": context})
    counts = []
    for _ in range(3):
        manager.launch()
        manager.reset()
        manager.close()
        counts.append(descriptors())
    assert counts[0] == counts[2]


def test_the_death_of_a_parent_is_noticed_without_process_descriptors(monkeypatch):
    monkeypatch.setattr(env_child, "_FAREWELL_S", 0.2)

    def manage(connection):
        del os.pidfd_open
        manager = SyncSubprocessEnvManager([Make(0, deeds={("step", 0): Wait()})], FORK)
        manager.launch()
        connection.send(pids(manager))
        manager.step({0: 0})

    process, connection = in_a_process(manage)
    envs = connection.recv()
    os.kill(process.pid, signal.SIGKILL)
    assert all(map(wait_for_death, envs))
    process.join()
