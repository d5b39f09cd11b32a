"""Who watches over the processes of workers."""

import os
import queue
import signal
import threading
from multiprocessing.connection import wait

import pytest
from easydict import EasyDict

from ding.entry.supervisor import RestartLimit, Supervisor
from ding.entry.worker_process import WorkerDied, WorkerPlan, WorkerProcess, close_all, wait_until_up
from ding.worker.transport.transport import WorkerReleased
from tests.entry.test_worker_process import serve

PATIENCE_S = 30


class Run:
    """Keeps what it is told."""

    def __init__(self):
        self.told = queue.SimpleQueue()

    def deal_with_worker_gone(self, kind, name, error):
        self.told.put(("gone", kind, name, error))

    def deal_with_worker_back(self, kind, name, host, port):
        self.told.put(("back", kind, name, host, port))

    def deal_with_error(self, error):
        self.told.put(("error", error))

    def expect(self, *beginning):
        told = self.told.get(timeout=PATIENCE_S)
        assert told[: len(beginning)] == beginning
        return told


@pytest.fixture
def supervise():
    made, workers = [], []

    def supervise(max_restarts=3, names=("c0", "c1"), window_s=PATIENCE_S * 10, run=serve, **limits):
        plans = [WorkerPlan(name, run, EasyDict(seed=i), seed=i) for i, name in enumerate(names)]
        workers.extend(WorkerProcess(plan, "fork") for plan in plans)
        for worker in workers:
            worker.start()
        wait_until_up(workers, PATIENCE_S)
        places = dict.fromkeys(names, ("collector", "host"))
        run_ = Run()
        made.append(Supervisor(workers, places, run_, RestartLimit(max_restarts, window_s), **limits))
        made[-1].start()
        return made[-1], run_, workers

    yield supervise
    for supervisor in made:
        supervisor.close()
        supervisor.end()
        supervisor.end()
    close_all(workers)
    assert not [thread for thread in threading.enumerate() if thread.name == "worker_supervisor"]


def kill(worker):
    os.kill(worker.pid, signal.SIGKILL)


def test_a_worker_that_dies_is_started_again_and_told_of(supervise):
    supervisor, run, workers = supervise()
    for life in (1, 2):
        kill(workers[1])
        error = run.expect("gone", "collector", "c1")[3]
        assert isinstance(error, WorkerDied) and error.exitcode == -signal.SIGKILL
        assert run.expect("back", "collector", "c1", "host")[4] == workers[1].port
        assert supervisor.restarts == {"c1": life}
    assert run.told.empty()


def test_the_death_after_the_last_restart_is_an_error(supervise):
    _, run, workers = supervise(max_restarts=1)
    kill(workers[0])
    run.expect("gone"), run.expect("back")
    kill(workers[0])
    assert str(run.expect("error")[1]) == "the process of c0 was ended by SIGKILL"
    run.expect("gone", "collector", "c0")
    kill(workers[1])  # the others are still watched over
    run.expect("gone", "collector", "c1"), run.expect("back", "collector", "c1")


def test_restarts_that_are_long_past_do_not_count(supervise, monkeypatch):
    now = [0.0]
    monkeypatch.setattr("ding.entry.supervisor.monotonic", lambda: now[0])
    supervisor, run, workers = supervise(max_restarts=2, window_s=100)
    for now[0] in (10.0, 60.0, 110.0, 160.0):  # two within each 100 s
        kill(workers[0])
        run.expect("gone"), run.expect("back")
    assert supervisor.restarts == {"c0": 4}
    now[0] = 209.0
    kill(workers[0])
    assert str(run.expect("error")[1]) == "the process of c0 was ended by SIGKILL"


def test_a_worker_whose_fork_server_is_gone_cannot_be_started_again(supervise):
    _, run, workers = supervise(names=("c0",))
    workers[0].terminate()
    told = "the fork server of c0 was ended by SIGTERM; without it c0 cannot restart"
    assert str(run.expect("error")[1]) == told
    run.expect("gone", "collector", "c0")


@pytest.mark.parametrize("stopped", ["pid", "server_pid", None])
def test_a_worker_that_hangs_is_killed_and_started_again(stopped, supervise):
    supervisor, run, workers = supervise()
    pid = workers[0].pid
    if stopped is not None:
        os.kill(getattr(workers[0], stopped), signal.SIGSTOP)
    assert supervisor.lost("collector", "c0", TimeoutError("its env hangs")) is True
    assert str(run.expect("gone", "collector", "c0")[3]) == "c0 was killed: its env hangs"
    run.expect("back", "collector", "c0")
    assert workers[0].pid != pid


def test_the_reason_of_a_worker_that_was_killed_ends_the_run_with_it(supervise):
    supervisor, run, workers = supervise(max_restarts=0)
    assert supervisor.lost("collector", "c0", TimeoutError("its env hangs")) is True
    error = run.expect("error")[1]
    assert isinstance(error, WorkerDied) and error.exitcode == -signal.SIGKILL
    assert str(error) == "c0 was killed: its env hangs"


def test_a_loss_that_is_told_of_late_does_not_harm_the_next_life(supervise):
    supervisor, run, workers = supervise()
    kill(workers[0])
    run.expect("gone", "collector", "c0"), run.expect("back", "collector", "c0")
    pid = workers[0].pid
    assert supervisor.lost("collector", "c0", WorkerReleased("its task is lost, too")) is True
    supervisor.end()
    assert (workers[0].pid, supervisor.restarts) == (pid, {"c0": 1})
    os.kill(pid, 0)
    assert run.told.empty()


def test_unknown_workers_are_not_brought_back_and_nobody_is_after_the_end(supervise):
    supervisor, run, workers = supervise()
    assert supervisor.lost("collector", "c9", TimeoutError()) is False
    supervisor.close()
    assert supervisor.lost("collector", "c0", TimeoutError()) is False
    assert run.told.empty() and workers[0].is_alive()


def test_a_worker_that_is_dead_already_may_be_lost_too(supervise):
    supervisor, run, workers = supervise()
    with supervisor._lock:  # it cannot take the news yet
        descriptor = os.pidfd_open(workers[0].pid)
        kill(workers[0])
        assert wait([descriptor], PATIENCE_S) and wait(workers[0].sources, PATIENCE_S)
    os.close(descriptor)
    assert supervisor.lost("collector", "c0", TimeoutError()) is True
    run.expect("gone", "collector", "c0"), run.expect("back", "collector", "c0")


def test_a_loss_of_a_worker_whose_fork_server_hangs_is_told_in_time(supervise, monkeypatch):
    monkeypatch.setattr("ding.entry.supervisor._DEATH_S", 0.2)
    supervisor, run, workers = supervise()
    monkeypatch.setattr(workers[0], "kill", lambda: None)
    for text in ("its env hangs", "it is silent"):  # reason and limit are those of the first
        assert supervisor.lost("collector", "c0", TimeoutError(text)) is True
    told = str(run.expect("error")[1])
    assert told == "the process of c0 has not ended within 0.2 s of SIGKILL: its env hangs"
    assert str(run.expect("gone", "collector", "c0")[3]) == told
    kill(workers[1])  # the others are still watched over
    run.expect("gone", "collector", "c1"), run.expect("back", "collector", "c1")


def test_a_worker_that_starts_again_but_never_takes_tasks_is_killed(supervise):
    def start_once(config, seed, start_event, close_event, report):
        if seed in (0, 1):  # the first life
            report(0)
        close_event.wait()

    supervisor, run, workers = supervise(max_restarts=2, run=start_once, start_s=0.2)
    kill(workers[0])
    for _ in range(2):
        run.expect("gone", "collector", "c0")
    assert str(run.expect("error")[1]) == "c0 was killed: it has not started within 0.2 s"
    run.expect("gone", "collector", "c0")
    assert supervisor.restarts == {"c0": 2}


def test_a_supervisor_that_fails_says_so(supervise, monkeypatch):
    supervisor, run, workers = supervise()
    monkeypatch.setattr(WorkerProcess, "start_again", lambda worker: 1 / 0)
    kill(workers[0])
    assert isinstance(run.expect("error")[1], ZeroDivisionError)


def test_who_dies_while_the_run_ends_is_told_of_and_not_started_again(supervise):
    supervisor, run, workers = supervise()
    supervisor.close()
    for worker in workers:
        kill(worker)
    assert {run.expect("gone", "collector")[2] for _ in workers} == {"c0", "c1"}
    supervisor.end()
    assert run.told.empty() and supervisor.restarts == {}


def test_a_supervisor_that_was_not_started_ends():
    Supervisor([], {}, Run(), RestartLimit(3, 600)).end()
