"""Who watches over the processes of workers."""

import os
import queue
import signal
import threading

import pytest
from easydict import EasyDict

from ding.entry.supervisor import Backend, ProcessBackend, Supervisor
from ding.entry.worker_process import Ended, Started, WorkerDied, WorkerPlan, WorkerProcess
from tests.entry.test_worker_process import serve

PATIENCE_S = 120


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
def make():
    made = []

    def make(
        names=("c0", "c1"),
        kind="collector",
        max_restarts=3,
        window_s=PATIENCE_S * 10,
        run=serve,
        start_s=PATIENCE_S,
        **plan,
    ):
        workers = [
            WorkerProcess(WorkerPlan(name, run, EasyDict(seed=i), seed=i, **plan), "fork")
            for i, name in enumerate(names)
        ]
        limit = {"max_restarts": max_restarts, "restart_window_s": window_s}
        system = EasyDict({name: {"host": "host"} for name in names}, coordinator=limit)
        backend = ProcessBackend(workers)
        backend.start_s = start_s
        made.append(Supervisor(system, dict.fromkeys(names, kind), backend))
        return made[-1], workers

    yield make
    for supervisor in made:
        supervisor.close()
        supervisor.end()
        supervisor.end()
    assert not [thread for thread in threading.enumerate() if thread.name == "worker_supervisor"]


@pytest.fixture
def supervise(make):
    def supervise(start_again_s=None, **limits):
        supervisor, workers = make(**limits)
        supervisor.start()
        if start_again_s is not None:
            supervisor._backend.start_s = start_again_s
        run = Run()
        supervisor.supervise(run)
        return supervisor, run, workers

    return supervise


def kill(worker):
    os.kill(worker.pid, signal.SIGKILL)


@pytest.mark.guarantees("workers")
def test_a_worker_that_dies_is_started_again_and_told_of(supervise):
    supervisor, run, workers = supervise()
    for life in (1, 2):
        kill(workers[1])
        error = run.expect("gone", "collector", "c1")[3]
        assert isinstance(error, WorkerDied) and error.exitcode == -signal.SIGKILL
        assert run.expect("back", "collector", "c1", "host")[4] == workers[1].port
        assert supervisor.restarts == {"c1": life}
    assert run.told.empty()


@pytest.mark.guarantees("workers")
def test_the_death_after_the_last_restart_is_an_error(supervise):
    _, run, workers = supervise(max_restarts=1)
    kill(workers[0])
    run.expect("gone"), run.expect("back")
    kill(workers[0])
    assert str(run.expect("error")[1]) == "the process of c0 was ended by SIGKILL"
    run.expect("gone", "collector", "c0")
    kill(workers[1])  # the others are still watched over
    run.expect("gone", "collector", "c1"), run.expect("back", "collector", "c1")


def test_a_worker_that_cannot_be_started_in_a_new_interpreter_ends_the_run(supervise):
    def serve(config, seed, start_event, close_event, report):  # nothing can be pickled in a function
        report(0)
        close_event.wait()

    _, run, workers = supervise(names=("c0",), run=serve)
    kill(workers[0])
    told = str(run.expect("error")[1])
    assert "serve" in told and str(run.expect("gone", "collector", "c0")[3]) == told


@pytest.mark.guarantees("workers")
@pytest.mark.parametrize("is_stopped", [True, False])
def test_a_worker_that_hangs_is_killed_and_started_again(is_stopped, supervise):
    supervisor, run, workers = supervise()
    pid = workers[0].pid
    if is_stopped:
        os.kill(pid, signal.SIGSTOP)
    assert supervisor.lost("collector", "c0", TimeoutError("its env hangs")) is True
    assert str(run.expect("gone", "collector", "c0")[3]) == "c0 was killed: its env hangs"
    run.expect("back", "collector", "c0")
    assert workers[0].pid != pid


def test_unknown_workers_are_not_brought_back_and_nobody_is_after_the_end(supervise):
    supervisor, run, workers = supervise()
    assert supervisor.lost("collector", "c9", TimeoutError()) is False
    supervisor.close()
    assert supervisor.lost("collector", "c0", TimeoutError()) is False
    assert run.told.empty() and workers[0].is_alive()


def start_once(config, seed, start_event, close_event, report):
    if seed in (0, 1):  # the first life
        report(0)
    close_event.wait()


def test_a_worker_that_starts_again_but_never_takes_tasks_is_killed(supervise):
    supervisor, run, workers = supervise(max_restarts=2, run=start_once, start_again_s=0.2)
    kill(workers[0])
    for _ in range(2):
        run.expect("gone", "collector", "c0")
    assert str(run.expect("error")[1]) == "c0 was killed: it has not started within 0.2 s"
    run.expect("gone", "collector", "c0")
    assert supervisor.restarts == {"c0": 2}


def test_who_dies_while_the_run_ends_is_told_of_and_not_started_again(supervise):
    supervisor, run, workers = supervise()
    supervisor.close()
    for worker in workers:
        kill(worker)
    assert {run.expect("gone", "collector")[2] for _ in workers} == {"c0", "c1"}
    supervisor.end()
    assert run.told.empty() and supervisor.restarts == {}


def test_who_says_nothing_in_time_is_named(make):
    def start_late(config, seed, start_event, close_event, report):
        if seed == 1:
            report(0)
        close_event.wait()

    supervisor, _ = make(names=("c0", "c1", "c2"), run=start_late, start_s=0.5)
    with pytest.raises(TimeoutError, match=r"workers have not started within 0\.5 s: c0, c2"):
        supervisor.start()


class Scripted(Backend):
    """Notes what it is asked for; the test makes the events."""

    def __init__(self):
        super().__init__(PATIENCE_S)
        self.done = queue.SimpleQueue()

    def start(self, name, life):
        self.done.put(("start", name, life))

    def kill(self, name):
        self.done.put(("kill", name))

    def report(self, event):
        self._reports.put(event)

    def close(self):
        return []

    def expect(self, *done):
        assert self.done.get(timeout=PATIENCE_S) == done


@pytest.fixture
def script():
    """A supervisor of three workers over a scripted backend, and the run that it informs."""
    backend, names = Scripted(), ("c0", "c1", "c2")
    system = EasyDict({name: {"host": "host"} for name in names}, coordinator={})
    supervisor, run = Supervisor(system, {"c0": "collector", "c1": "collector", "c2": "learner"}, backend), Run()
    for name in names:
        backend.report(Started(name, 1))
    supervisor.start()
    for name in names:
        backend.expect("start", name, 0)
    supervisor.supervise(run)
    yield supervisor, run, backend
    supervisor.end()


def test_restarts_that_are_long_past_do_not_count(script, monkeypatch):
    supervisor, run, backend = script
    now = [0.0]
    monkeypatch.setattr("ding.entry.supervisor.monotonic", lambda: now[0])
    for life, now[0] in enumerate((10.0, 210.0, 410.0, 650.0), 1):  # three within each 600 s
        backend.report(Ended("c0", WorkerDied("c0", 1)))
        backend.expect("start", "c0", life)
        backend.report(Started("c0", life + 1))
        run.expect("gone", "collector", "c0"), run.expect("back", "collector", "c0")
    assert supervisor.restarts == {"c0": 4}
    backend.report(Ended("c0", WorkerDied("c0", 1)))
    assert isinstance(run.expect("error")[1], WorkerDied)


def test_workers_of_a_cluster_wait_for_capacity_unless_they_are_the_last_of_their_kind(script):
    supervisor, run, backend = script
    backend.waits, backend.start_s = True, 0.0
    for name, kind in (("c0", "collector"), ("c2", "learner")):
        backend.report(Ended(name, WorkerDied(name, None)))
        backend.expect("start", name, 1)
        run.expect("gone", kind, name)
    assert str(run.expect("error")[1]) == "workers have not started within 0 s: c2"
    backend.report(Started("c0", 5, "elsewhere"))
    run.expect("back", "collector", "c0", "elsewhere", 5)
    assert run.told.empty() and backend.done.empty()
