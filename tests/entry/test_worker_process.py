"""Processes of workers."""

import multiprocessing
import os
import signal
import subprocess
import sys
import textwrap
from multiprocessing.connection import wait
from time import monotonic

import numpy as np
import pytest
import torch
from easydict import EasyDict

from ding.entry.worker_process import (
    Ended,
    WorkerPlan,
    WorkerProcess,
    later_seed,
    run_worker,
)
from ding.utils.child_helper import ProcessEvent
from tests.programs import ROOT, printed

DEADLINE_S = 120


def serve(config, seed, start_event, close_event, report):
    """Tells two seeds by the port."""
    report([config.get("seed"), seed])
    start_event.set()
    close_event.wait()


def fail_to_start(config, seed, start_event, close_event, report):
    raise ZeroDivisionError("told to fail")


def fail_to_end(config, seed, start_event, close_event, report):
    report(1)
    multiprocessing.Event().wait()


def end_at_once(config, seed, start_event, close_event, report):
    report(1)


@pytest.fixture
def make():
    made = []

    def make(run=serve, method="fork", close_s=5.0, **config):
        plan = WorkerPlan("worker", run, EasyDict(config), seed=5, close_s=close_s)
        worker = WorkerProcess(plan, method)
        made.append(worker)
        worker.start()
        return worker

    yield make
    for worker in made:
        worker.close()
    assert multiprocessing.active_children() == []


def wait_until_up(workers, timeout_s):
    """Wait until all have started."""
    for worker in workers:
        while worker.port is None:
            assert wait(worker.sources, timeout_s)
            worker.read()


def death(worker):
    """The error that says how the worker died."""
    while wait(worker.sources, DEADLINE_S):
        event = worker.read()
        if isinstance(event, Ended):
            return event.error
    raise AssertionError("the worker does not die")


@pytest.mark.parametrize("method", ["fork", "forkserver", pytest.param("spawn", marks=pytest.mark.slow)])
def test_a_worker_tells_when_it_takes_tasks_and_ends_when_it_is_told_to(make, method):
    worker = make(method=method, seed=4)
    wait_until_up([worker], 60)
    assert (worker.port, worker.start_event.wait(DEADLINE_S), worker.is_alive()) == ([4, 5], True, True)
    descriptor = os.pidfd_open(worker.pid)
    assert worker.close() is True
    worker.close()
    assert wait([descriptor], 0) == [descriptor]
    os.close(descriptor)


@pytest.mark.parametrize("method", ["fork", "forkserver"])
def test_a_worker_that_is_killed_is_started_again_with_other_seeds(make, method):
    worker = make(method=method, seed=4)
    wait_until_up([worker], DEADLINE_S)
    first = worker.pid
    os.kill(first, signal.SIGKILL)
    error = death(worker)
    assert (str(error), error.worker, error.exitcode) == ("the process of worker was ended by SIGKILL", "worker", -9)
    assert (worker.pid, worker.port) == (None, None)
    worker.start_again()
    wait_until_up([worker], DEADLINE_S)
    assert worker.pid != first and worker.port == [later_seed(4, 1), later_seed(5, 1)]


def test_a_worker_that_does_not_end_is_killed_after_the_seconds_of_its_plan(make):
    worker = make(fail_to_end, close_s=0.1)
    wait_until_up([worker], DEADLINE_S)
    descriptor, begin = os.pidfd_open(worker.pid), monotonic()
    assert worker.close() is False
    assert wait([descriptor], 0) == [descriptor] and monotonic() - begin < 5.0
    os.close(descriptor)


def leave_something(config, seed, start_event, close_event, report):
    with open(os.devnull) as nothing:
        report(subprocess.Popen(["sleep", "60"], stdin=nothing).pid)  # noqa: S603, S607
    close_event.wait()


@pytest.mark.guarantees("workers")
@pytest.mark.parametrize("how", ["kill", "close", "terminate"])
def test_what_a_worker_has_started_ends_with_it(how, make):
    worker = make(leave_something)
    wait_until_up([worker], DEADLINE_S)
    left = os.pidfd_open(worker.port)
    if how == "kill":
        os.kill(worker.pid, signal.SIGKILL)
        death(worker)
    elif how == "terminate":
        worker.terminate()
        assert death(worker).exitcode == -signal.SIGTERM
    else:
        worker.close()
    assert wait([left], DEADLINE_S) == [left]
    os.close(left)


@pytest.mark.guarantees("workers")
@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
@pytest.mark.parametrize("method", ["fork", "forkserver"])
def test_a_worker_ends_with_who_started_it(method, signum):
    code = """
        import signal, sys
        signal.signal(signal.SIGHUP, signal.SIG_DFL)  # what nohup has started ignores it
        from tests.entry.test_worker_process import WorkerPlan, WorkerProcess, EasyDict, fail_to_end, wait_until_up
        worker = WorkerProcess(WorkerPlan("worker", fail_to_end, EasyDict(), 0), sys.argv[1])
        worker.start()
        wait_until_up([worker], 30)
        print(worker.pid, flush=True)
        worker.join()
    """
    command = [sys.executable, "-c", textwrap.dedent(code), method]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, start_new_session=True) as starter:
        worker = os.pidfd_open(int(starter.stdout.readline()))
        try:
            starter.send_signal(signum)
            assert starter.wait(DEADLINE_S) == -signum
        finally:
            starter.kill()
        assert wait([worker], DEADLINE_S) == [worker]
    os.close(worker)


@pytest.mark.guarantees("workers")
def test_a_worker_that_cannot_start_tells_its_traceback(make):
    error = death(make(fail_to_start))
    assert "the process of worker has ended with exit code 1:\nTraceback" in str(error)
    assert "ZeroDivisionError: told to fail" in str(error)


def test_a_worker_that_ends_by_itself_is_noticed(make):
    assert str(death(make(end_at_once))) == "the process of worker has ended with exit code 0"


def tell_start_method(config, seed, start_event, close_event, report):
    report(["ForkProcess", "SpawnProcess"].index(type(multiprocessing.current_process()).__name__))
    start_event.set()
    close_event.wait()


@pytest.mark.parametrize("asks", [False, True])
def test_a_worker_is_forked_unless_its_parent_has_asked_cuda_anything(tmp_path, asks):
    device = tmp_path / "nvidia-uvm"
    code = f"""
        if {asks}:
            held = open({str(device)!r}, "w")  # as the driver does where a config says: cuda=torch.cuda.is_available()
        from tests.entry.test_worker_process import EasyDict, WorkerPlan, WorkerProcess
        from tests.entry.test_worker_process import tell_start_method, wait_until_up
        if __name__ == "__main__":
            worker = WorkerProcess(WorkerPlan("worker", tell_start_method, EasyDict(), 0))
            worker.start()
            wait_until_up([worker], 60)
            print(worker.start_method, worker.port, worker.close())
    """
    script = tmp_path / "script.py"
    script.write_text(textwrap.dedent(code))
    assert printed(script).split() == (["spawn", "1", "True"] if asks else ["fork", "0", "True"])


# What runs in the process.


class FakeWorker:
    port = 7

    def __init__(self, log, fails):
        self.log, self.fails = log, fails

    def start(self):
        self.log.append("start")
        if self.fails:
            raise OSError("the port is taken")

    def close(self):
        self.log.append("close")


@pytest.fixture
def events():
    pair = ProcessEvent(), ProcessEvent()
    pair[1].set()
    yield pair
    for event in pair:
        event.close()


@pytest.fixture(autouse=True)
def _torch_and_numpy_go_on_as_before():
    threads, state = torch.get_num_threads(), np.random.get_state()
    yield
    torch.set_num_threads(threads)
    np.random.set_state(state)


def test_a_worker_runs_until_its_event_is_set(events, monkeypatch):
    log, nices = [], []
    monkeypatch.setattr(os, "nice", nices.append)
    config = EasyDict(nice=3, torch_threads=2)
    run_worker(lambda cfg: log.append(cfg) or FakeWorker(log, False), config, 5, *events, report=log.append)
    assert log == [config, "start", 7, "close"] and events[0].is_set()
    assert (nices, torch.get_num_threads()) == ([3], 2)
    drawn = np.random.random()
    np.random.seed(5)
    assert drawn == np.random.random()


def test_a_worker_that_cannot_start_is_closed(events):
    log = []
    with pytest.raises(OSError, match="taken"):
        run_worker(lambda cfg: FakeWorker(log, True), {}, 5, *events)
    assert log == ["start", "close"] and not events[0].is_set()
