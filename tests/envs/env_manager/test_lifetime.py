"""No process of an env outlives its manager, nor the process that the manager is in, however that ends."""

from __future__ import annotations

import gc
import multiprocessing
import multiprocessing.forkserver
import os
import select
import signal
import subprocess
import sys
import textwrap
import threading
import time
from types import SimpleNamespace

import numpy as np
import pytest

from ding.envs import AsyncSubprocessEnvManager, SyncSubprocessEnvManager
from ding.envs.env_manager import env_child, env_process
from ding.envs.env_manager.base_env_manager import EnvNotReadyError, ManagerStateError
from ding.envs.env_manager.env_process import EnvBusyError
from ding.interaction.server.access import TOKEN_FILE_VARIABLE, TOKEN_VARIABLE
from ding.utils.child_helper import SECRET_VARIABLES
from tests.envs.env_manager.conftest import exists
from tests.envs.env_manager.scripted_env import Announce, Await, HoldInterpreter, Make, Touch, Wait, hang_for_good

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


@pytest.mark.differs(
    "env processes outlive a killed program, and stay as zombies after `close`",
    "they end with it, those at work at once, others when they have closed their envs; `close` waits for each, and "
    "its time is bounded",
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
    "an env that starts a process fails under `subprocess`: daemonic processes are not allowed to have children",
    "it may; the process ends with that of the env, however that ends",
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


def step_envs_of_its_own(env):
    """Step an env in a process of its own, as an env does that plays in a simulator of several, and return its info."""
    with SyncSubprocessEnvManager([Make(0, deeds={("step", 0): start_a_process})], FORK) as manager:
        manager.launch()
        return manager.step({0: 0})[0].info


def test_an_env_may_have_envs_in_processes_that_start_processes():
    with SyncSubprocessEnvManager([Make(0, deeds={("step", 0): step_envs_of_its_own})], FORK) as manager:
        manager.launch()
        info = manager.step({0: 0})[0].info
    assert info["said"] == "hello" and wait_for_death(info["pid"])


@pytest.mark.differs(
    "an env that holds the interpreter lock in native code outlives a killed program",
    "the kernel ends it with the program",
)
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
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        envs = [int(pid) for pid in process.stdout.readline().split()]
        assert int(fifo.read_text()) == envs[0]
        process.kill()
        assert all(map(wait_for_death, envs))


def test_the_pipe_of_the_fork_server_is_closed_once_and_the_server_stays_as_it_is(monkeypatch):
    reader, writer = os.pipe()
    server = SimpleNamespace(_forkserver_alive_fd=writer, _forkserver_pid=None)
    monkeypatch.setattr(multiprocessing.forkserver, "_forkserver", server)
    monkeypatch.setattr(env_child, "_released_pipe", None)
    env_child._release_fork_server()
    assert os.read(reader, 1) == b"" and server._forkserver_alive_fd == writer
    os.dup2(reader, writer)  # the number is in use again
    env_child._release_fork_server()
    os.fstat(writer)
    for descriptor in (reader, writer):
        os.close(descriptor)


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


def test_an_error_at_the_end_of_a_forgotten_manager_is_logged(caplog):
    def fail(env):
        raise ValueError("stuck")

    manager = SyncSubprocessEnvManager([Make(3, deeds={("close", 0): fail})], FORK)
    manager.launch()
    del manager
    gc.collect()
    assert "env 0 failed in close" in caplog.text


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


@pytest.mark.parametrize("cls", [SyncSubprocessEnvManager, AsyncSubprocessEnvManager])
def test_another_thread_may_close_a_manager_at_any_moment(cls):
    for _ in range(20):
        manager = cls([Make(i, length=4) for i in range(2)], FORK)
        manager.launch()
        has_stepped, errors = threading.Event(), []

        def play(manager=manager, has_stepped=has_stepped, errors=errors):
            try:
                while True:
                    manager.step({env_id: np.array([0]) for env_id in manager.ready_obs})
                    has_stepped.set()
            except Exception as e:
                errors.append(e)

        player = threading.Thread(target=play, daemon=True)
        closer = threading.Thread(target=manager.close, daemon=True)
        player.start()
        assert has_stepped.wait(20)
        closer.start()
        for thread in (player, closer):
            thread.join(20)
            assert not thread.is_alive()
        assert isinstance(errors[0], (ManagerStateError, EnvNotReadyError, EnvBusyError))


def test_a_launch_that_another_thread_closes_leaves_nothing(tmp_path):
    manager = SyncSubprocessEnvManager([Make(0), Make(1)], FORK)
    start = manager._start_process

    def start_once(env_id):
        start(env_id)
        closer = threading.Thread(target=manager.close)
        closer.start()
        closers.append(closer)
        while not manager.closed:
            pass

    closers = []
    manager._start_process = start_once
    with pytest.raises(ManagerStateError):
        manager.launch()
    closers[0].join(20)
    assert len(closers) == 1
    assert manager.closed


def test_the_thread_that_launched_a_manager_may_end():
    manager = SyncSubprocessEnvManager([Make(0)], FORK)
    thread = threading.Thread(target=manager.launch)
    thread.start()
    thread.join(20)
    assert manager.step({0: np.array([0])})[0].obs.tolist() == [0, 0, 1]
    manager.close()


def test_the_thread_that_launched_a_manager_may_end_while_an_env_is_at_work(tmp_path):
    os.mkfifo(tmp_path / "go_on")
    envs = [Make(0, deeds={("step", 0): Await(tmp_path / "go_on")}), Make(1)]
    manager = AsyncSubprocessEnvManager(envs, {**FORK, "wait_num": 1, "step_wait_timeout": 0})

    def play():
        manager.launch()
        assert list(manager.step({0: 0, 1: 0})) == [1]

    thread = threading.Thread(target=play)
    thread.start()
    thread.join(20)
    writer = os.open(tmp_path / "go_on", os.O_RDWR)  # which nobody has to read
    os.write(writer, b".")
    assert manager.step({})[0].obs.tolist() == [0, 0, 1]
    os.close(writer)
    manager.close()


@pytest.mark.differs("envs, and what they start, inherit the token of the run", "they do not")
@pytest.mark.parametrize("context", ["fork", "forkserver"])
def test_envs_do_not_inherit_the_token(context, monkeypatch):
    for variable in SECRET_VARIABLES:
        monkeypatch.setenv(variable, "secret")
    with SyncSubprocessEnvManager([Make(0)], {"context": context}) as manager:
        manager.launch()
        assert not {*SECRET_VARIABLES} & {*manager.environment[0]}
    assert {TOKEN_VARIABLE, TOKEN_FILE_VARIABLE} == {*SECRET_VARIABLES}


def test_ctrl_c_is_left_to_the_managers_process():
    with SyncSubprocessEnvManager([Make(0), Make(1)], FORK) as manager:
        manager.launch()
        for pid in pids(manager):
            os.kill(pid, signal.SIGINT)
        assert list(manager.step({0: 0, 1: 0})) == [0, 1]


@pytest.mark.differs(
    "Ctrl-C and the parent's signal handlers act in every env process",
    "they are left to the manager's process",
)
def test_handlers_of_the_parent_do_not_run_in_the_envs(tmp_path):
    def react(*args):
        (tmp_path / str(os.getpid())).touch()

    previous = {number: signal.signal(number, react) for number in (signal.SIGTERM, signal.SIGUSR1)}
    try:
        with SyncSubprocessEnvManager([Make(0), Make(1)], FORK) as manager:
            manager.launch()
            first, second = pids(manager)
            os.kill(first, signal.SIGUSR1)
            assert list(manager.step({0: 0})) == [0]
            os.kill(second, signal.SIGTERM)
            assert wait_for_death(second)
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


@pytest.mark.differs(
    "Ctrl-C just before the manager waits for its envs has no effect",
    "signals are checked twice per second",
)
@pytest.mark.differs(
    "Ctrl-C that comes just before the manager waits for its envs has no effect",
    "it is looked for twice a second",
)
def test_a_wait_for_answers_ends_now_and_then_so_that_no_signal_is_overlooked(monkeypatch):
    monkeypatch.setattr(env_process, "_TICK_S", 0.01)
    with SyncSubprocessEnvManager([Make(0, deeds={("render", 0): Wait(0.5)})], FORK) as manager:
        manager.launch()
        process = manager._processes[0]
        process.send(env_process.Request.CALL, "render", "human")
        assert list(env_process.wait_for_replies([process], None)) == []
        assert process.request is env_process.Request.CALL  # it is still at work


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


def test_a_process_that_cannot_start_leaves_no_descriptors(monkeypatch):
    manager = SyncSubprocessEnvManager([Make(0)], FORK)
    before = descriptors()

    def fail(self):
        raise OSError("no more processes")

    monkeypatch.setattr(multiprocessing.process.BaseProcess, "start", fail)
    with pytest.raises(OSError, match="no more processes"):
        manager.launch()
    assert manager.closed
    assert descriptors() == before


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
