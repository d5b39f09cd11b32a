"""Updates and samples per second of a parallel training: one learner and two collectors over HTTP and files.

DQN on CartPole with batches of 32, for SECONDS seconds after the learner has warmed up. Then the collectors are held,
and the same learner trains alone for some seconds. Both together say what an update and what a sample cost the
coordinator, and so how busy it is at a given load. The last line says where the time went. The figures mean something
on a machine with nothing else to do. `python -m tests.benchmarks.parallel`
"""

import collections
import copy
import json
import os
import signal
import sys
import tempfile
import threading
import time
from typing import Any, NamedTuple

import ding.worker.transport.http_transport as http_transport
from ding.config import compile_config_parallel
from ding.entry.experiment import with_command_mode
from ding.entry.parallel_run import make_workers
from ding.entry.supervisor import Supervisor
from ding.example.cartpole_dqn_parallel import create_config, main_config, system_config
from ding.worker import Coordinator
from tests.benchmarks.harness import Report

WARM_UP_ITER, SECONDS, ALONE_SECONDS, DEADLINE_S = 300, 20.0, 8.0, 120.0
UPDATES_GOAL, SAMPLES_GOAL, ALONE_GOAL = 350.0, 2000.0, 0.8
COORDINATOR_GOAL, COORDINATOR_SAMPLES = 0.15, 5000.0
_TICKS = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100


class Messages:
    """Counts the coordinator's messages by name: how many, how long they took, how many batches they carried."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.clear()
        run = http_transport.HttpWorkerClient.run

        def timed(client: Any, task: Any, timeout_s: float) -> Any:
            start = time.perf_counter()
            try:
                return run(client, task, timeout_s)
            finally:
                self._add(task, time.perf_counter() - start)

        http_transport.HttpWorkerClient.run = timed  # type: ignore[method-assign]

    def clear(self) -> None:
        self._counts: collections.Counter[str] = collections.Counter()
        self._seconds: collections.Counter[str] = collections.Counter()
        self._batches = 0

    def _add(self, task: Any, seconds: float) -> None:
        with self._lock:
            self._counts[task["name"]] += 1
            self._seconds[task["name"]] += seconds
            self._batches += len(task.get("batch_sizes", ()))

    def summary(self, seconds: float) -> dict[str, Any]:
        names = sorted(self._counts)
        result: dict[str, Any] = {
            name: {
                "per second": round(self._counts[name] / seconds, 1),
                "ms": round(self._seconds[name] / self._counts[name] * 1e3, 2),
            }
            for name in names
        }
        learned = self._counts["learner_learn_task"]
        result["batches per learn task"] = round(self._batches / learned, 2) if learned else 0
        return result


def cpu_seconds(pid: int) -> float:
    """What a process has computed so far."""
    with open(f"/proc/{pid}/stat", encoding="ascii") as f:
        fields = f.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def wait_for(coordinator: Coordinator, is_there: Any) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not is_there():
        if coordinator.wait(0.05) or time.monotonic() > deadline:
            raise RuntimeError(f"the run has ended or hangs: {coordinator.failure}, {coordinator.progress()}")


def compiled() -> Any:
    main = copy.deepcopy(main_config)
    main["policy"]["other"]["commander"]["samples_per_insert"] = None  # the learner goes on when collectors are held
    main.env.stop_value = 1e9
    main.exp_name = "benchmark"
    return compile_config_parallel(main, with_command_mode(copy.deepcopy(create_config)), system_config, seed=0)


class Measured(NamedTuple):
    """Of one measurement: updates and samples a second, processors used, by process, and messages."""

    updates: float
    samples: float
    cores: dict[str, float]
    messages: dict[str, Any]


def measure(coordinator: Coordinator, pids: dict[str, int], messages: Messages, duration_s: float) -> Measured:
    messages.clear()
    before, cpu = coordinator.progress(), {name: cpu_seconds(pid) for name, pid in pids.items()}
    start = time.perf_counter()
    if coordinator.wait(duration_s):
        raise RuntimeError(f"the run has ended: {coordinator.failure}")
    seconds, after = time.perf_counter() - start, coordinator.progress()
    cores = {name: round((cpu_seconds(pid) - cpu[name]) / seconds, 3) for name, pid in pids.items()}
    updates, samples = after.train_iter - before.train_iter, after.samples - before.samples
    return Measured(updates / seconds, samples / seconds, cores, messages.summary(seconds))


def measure_both(coordinator: Coordinator, workers: Supervisor, messages: Messages) -> tuple[Measured, Measured]:
    """With collectors, and then without them."""
    coordinator.start()
    wait_for(coordinator, lambda: coordinator.progress().train_iter >= WARM_UP_ITER)
    pids = {**workers.pids(), "coordinator": os.getpid()}
    together = measure(coordinator, pids, messages, SECONDS)
    collectors = [pid for name, pid in pids.items() if name.startswith("collector")]
    try:
        for pid in collectors:
            os.kill(pid, signal.SIGSTOP)
        return together, measure(coordinator, pids, messages, ALONE_SECONDS)
    finally:
        for pid in collectors:
            os.kill(pid, signal.SIGCONT)


def cores_at(updates: float, samples: float, together: Measured, alone: Measured) -> float:
    """The cores that the coordinator needs at so many updates and samples a second; no samples came in `alone`."""
    an_update = alone.cores["coordinator"] / alone.updates
    a_sample = max(0.0, together.cores["coordinator"] - an_update * together.updates) / together.samples
    return an_update * updates + a_sample * samples


def main() -> int:
    messages = Messages()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        cfg = compiled()
        workers = make_workers(cfg.system)
        try:
            workers.start()
            coordinator = Coordinator(cfg)
            try:
                together, alone = measure_both(coordinator, workers, messages)
            finally:
                coordinator.close()
        finally:
            workers.end()
            os.chdir("/")
    report = Report()
    updates = together.updates
    report.line("updates of 32, 1 learner and 2 collectors", "1/s", updates, "wanted", UPDATES_GOAL, at_least=1.0)
    report.line("updates against those without collectors", "1/s", updates, "alone", alone.updates, at_least=ALONE_GOAL)
    report.line("samples into the buffer", "1/s", together.samples, "wanted", SAMPLES_GOAL, at_least=1.0)
    cores = cores_at(UPDATES_GOAL, COORDINATOR_SAMPLES, together, alone)
    what = f"coordinator at {UPDATES_GOAL:.0f} updates and {COORDINATOR_SAMPLES:.0f} samples a second"
    report.line(what, "cores", cores, "wanted", COORDINATOR_GOAL, at_most=1.0)
    print(json.dumps({"where the time goes": together._asdict(), "without collectors": alone._asdict()}))
    return report.exit_status()


if __name__ == "__main__":
    sys.exit(main())
