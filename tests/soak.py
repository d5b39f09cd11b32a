"""Parallel CartPole for a long time, with a collector killed every minute: what it takes, and what is lost.

`python -m tests.soak --minutes 30 --transport flask_fs` (or `ray`, or `local`, where no worker is killed for all are
threads) prints a table with a row a minute: for each process its resident memory, open files and threads, and for the
run its samples, updates, restarts and entries in /dev/shm. The exit status is 0 if no sample came twice (on Ray none
passes this process), no task was lost, and no process at the end takes what it did not take at minute 5 (or in the
middle of a shorter run): memory that differs by more than 10 %, more than a few further open files or threads, or
anything in /dev/shm.

The coordinator's memory includes what this module records: a few bytes for each of the last million samples, and the
tasks that run.
"""

import argparse
import copy
import itertools
import os
import signal
import sys
import tempfile
import threading
import time
from collections import OrderedDict
from operator import itemgetter
from typing import Any, NamedTuple

from ding.config import compile_config_parallel
from ding.entry.experiment import with_command_mode
from ding.entry.parallel_run import make_workers
from ding.example.cartpole_dqn_parallel import create_config, main_config, system_config
from ding.utils.data.samples import node_items, table_of
from ding.worker import Coordinator
from ding.worker.transport.chunk import DATA_ID, DATA_INDEX

REFERENCE_MINUTE, MOST_GROWTH = 5, 0.1
MOST_MORE = 8  # files or threads: connections come and go
LONG_AGO = 10**6  # samples after which a chunk is forgotten


class Use(NamedTuple):
    """What a process takes."""

    rss_mib: float
    files: int
    threads: int


def use_of(pid: int) -> Use:
    with open(f"/proc/{pid}/status", encoding="ascii") as f:
        fields = dict(line.split(":", 1) for line in f if ":" in line)
    return Use(int(fields["VmRSS"].split()[0]) / 1024, len(os.listdir(f"/proc/{pid}/fd")), int(fields["Threads"]))


class SeenSamples:
    """Counts samples that come twice. Keeps one int for each chunk, with a bit for each of its samples. Thread-safe.

    Args:
        long_ago: number of samples after which a chunk is forgotten.

    Attributes:
        doubled: samples that have come again.
    """

    def __init__(self, long_ago: int) -> None:
        self.doubled = 0
        self._long_ago = long_ago
        self._count = 0  # samples in the chunks
        self._chunks: OrderedDict[str, int] = OrderedDict()
        self._lock = threading.Lock()

    def add(self, rows: list[Any]) -> None:
        """Count the samples with these metadata; those in columns stay so."""
        pairs = zip(_values(rows, DATA_ID), _values(rows, DATA_INDEX), strict=True)
        with self._lock:
            for chunk, group in itertools.groupby(pairs, key=itemgetter(0)):
                self._add(chunk, [index for _, index in group])
            while self._count > self._long_ago:
                self._count -= self._chunks.popitem(last=False)[1].bit_count()

    def _add(self, chunk: str, indices: list[int]) -> None:
        before = seen = self._chunks.get(chunk, 0)
        for index in indices:
            seen |= 1 << index
        new = (seen ^ before).bit_count()
        self._chunks[chunk] = seen
        self._count += new
        self.doubled += len(indices) - new


def _values(rows: list[Any], key: str) -> list[Any]:
    table = table_of(rows)
    return [row[key] for row in rows] if table is None else node_items(table.columns[key])


class Watched(Coordinator):
    """Counts tasks, and samples that come twice."""

    def __init__(self, cfg: Any) -> None:
        self.seen = SeenSamples(LONG_AGO)
        self._open: set[str] = set()  # tasks that have begun and not ended
        super().__init__(cfg)
        self._watch(self._scheduler)

    def _watch(self, scheduler: Any) -> None:
        begin, forget = scheduler.begin_task, scheduler.forget

        def begin_task(kind: str, task: Any) -> bool:
            self._open.add(task["task_id"])  # it may end before `begin` returns
            has_begun: bool = begin(kind, task)
            if not has_begun:
                self._open.discard(task["task_id"])
            return has_begun

        def forget_task(kind: str, task: Any) -> None:
            forget(kind, task)
            self._open.discard(task["task_id"])

        scheduler.begin_task, scheduler.forget = begin_task, forget_task

    def deal_with_collector_send_data(self, task_id: str, buffer_id: str, data_id: str, data: Any) -> None:
        self.seen.add(data if isinstance(data, list) else [data])
        super().deal_with_collector_send_data(task_id, buffer_id, data_id, data)

    def deal_with_collector_finish_task(self, task_id: str, finished_task: Any) -> None:
        super().deal_with_collector_finish_task(task_id, finished_task)
        self._open.discard(task_id)

    def lost_tasks(self) -> set[str]:
        """Those that have begun, and neither run nor have ended."""
        return self._open.copy() - set(self._task_state)


class Soak:
    """One run, and what is seen of it minute by minute."""

    def __init__(self, minutes: int, minute_s: float, transport: str) -> None:
        self._minutes, self._minute_s = minutes, minute_s
        main = copy.deepcopy(main_config)
        main.env.stop_value, main.exp_name = 1e9, "soak"
        system = copy.deepcopy(system_config)
        system.coordinator.max_restarts, system.transport = 10 * minutes, transport
        create = with_command_mode(copy.deepcopy(create_config))
        free: Any = {"coordinator_port": 0, "learner_port": 0, "collector_port": 0}
        cfg = compile_config_parallel(main, create, system, seed=0, **free)
        self._workers: Any = make_workers(cfg.system)
        self._cfg = cfg
        self._uses: list[dict[str, Use]] = []
        self._shared: list[int] = []  # how many entries /dev/shm had

    def run(self) -> int:
        self._workers.start()
        coordinator = Watched(self._cfg)
        try:
            self._workers.supervise(coordinator)
            coordinator.start()
            victims = itertools.cycle(name for name in sorted(self._pids()) if name.startswith("collector"))
            for minute in range(1, self._minutes + 1):
                self._wait(coordinator, self._minute_s / 2)
                for name in itertools.islice(victims, 1):
                    self._kill(name)
                self._wait(coordinator, self._minute_s / 2)
                self._report(minute, coordinator)
        finally:
            coordinator.close()
            self._workers.end()
        return self._verdict(coordinator)

    def _pids(self) -> dict[str, int]:
        """The processes of the workers; none where these are threads."""
        return dict(self._workers.pids())

    def _wait(self, coordinator: Coordinator, seconds: float) -> None:
        if coordinator.wait(seconds):
            raise RuntimeError(f"the run has ended: {coordinator.failure}")

    def _kill(self, name: str) -> None:
        pid = self._pids().get(name)
        if pid is None:
            raise RuntimeError(f"{name} does not run half a minute after the last kill")
        os.kill(pid, signal.SIGKILL)

    def _report(self, minute: int, coordinator: Watched) -> None:
        pids = {"coordinator": os.getpid(), **dict(sorted(self._pids().items()))}
        uses = {name: use_of(pid) for name, pid in pids.items()}
        if not self._uses:
            print("minute | MiB, open files, threads of " + ", ".join(pids), end="")
            print(" | samples | updates | last return | restarts | doubled | lost | /dev/shm", flush=True)
        self._uses.append(uses)
        self._shared.append(len(os.listdir("/dev/shm")))
        progress = coordinator.progress()
        cells = "  ".join(f"{use.rss_mib:6.1f} {use.files:3d} {use.threads:3d}" for use in uses.values())
        restarts = sum(getattr(coordinator.supervisor, "restarts", {}).values())
        numbers = progress.samples, progress.train_iter, progress.last_return, restarts
        found = coordinator.seen.doubled, len(coordinator.lost_tasks()), self._shared[-1]
        print(f"{minute:6d} | {cells} | " + " | ".join(str(number) for number in (*numbers, *found)), flush=True)

    def _verdict(self, coordinator: Watched) -> int:
        at = min(REFERENCE_MINUTE, (len(self._uses) + 1) // 2) - 1
        reference, last = self._uses[at], self._uses[-1]
        missing = sorted(reference.keys() - last.keys())
        pairs = {name: (use, last[name]) for name, use in reference.items() if name in last}
        growth = {name: now.rss_mib / then.rss_mib - 1 for name, (then, now) in pairs.items()}
        more = {name: max(now.files - then.files, now.threads - then.threads) for name, (then, now) in pairs.items()}
        doubled, lost = coordinator.seen.doubled, len(coordinator.lost_tasks())
        shared = self._shared[-1] - self._shared[at]
        is_flat = max(map(abs, growth.values())) <= MOST_GROWTH and max(more.values()) <= MOST_MORE and shared <= 0
        is_good = is_flat and not (doubled or lost or missing)
        print("memory against the reference: " + ", ".join(f"{name} {value:+.1%}" for name, value in growth.items()))
        print("files or threads against it: " + ", ".join(f"{name} {value:+d}" for name, value in more.items()))
        print(f"samples doubled: {doubled}; tasks lost: {lost}; missing: {missing}; shared: {shared:+d}")
        print("good" if is_good else "NOT good")
        return 0 if is_good else 1


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=int, default=30, help="how many (default %(default)s)")
    parser.add_argument("--minute-s", type=float, default=60.0, help="seconds of a minute (default %(default)s)")
    parser.add_argument("--transport", choices=["flask_fs", "local", "ray"], default="flask_fs", help="(%(default)s)")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        start = time.monotonic()
        try:
            status = Soak(args.minutes, args.minute_s, args.transport).run()
        finally:
            os.chdir("/")
    print(f"took {time.monotonic() - start:.0f} s")
    return status


if __name__ == "__main__":
    sys.exit(main())
