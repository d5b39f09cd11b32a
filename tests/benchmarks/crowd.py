"""A coordinator with 1,000 collectors, which are stubs that report a chunk every few seconds.

All are connected for a minute, first alone, for the coordinator's own time and memory, then beside a learner that is
served as fast as it goes. Each collector must get an answer to each of its reports.

`python -m tests.benchmarks.crowd --transport flask_fs|local --collectors 1000 --seconds 60`
"""

import argparse
import contextlib
import gc
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ding.worker.transport.transport import Transport, get_transport
from tests.benchmarks.harness import Report
from tests.benchmarks.scale import BATCH, DEADLINE_S, clients_of, raise_descriptor_limit

PERIOD_S = 5.0  # between two reports of a collector
FEW = 2  # collectors that the learner's rate is compared with


class Crowd:
    """Collectors that report again and again while the block lasts.

    Attributes:
        answers: of each, how many of its reports were answered.
        errors: of those that were lost.
    """

    def __init__(self, clients: list[Any]) -> None:
        self.answers = [0] * len(clients)
        self.errors: list[BaseException] = []
        self._ended = threading.Event()
        self._threads = [threading.Thread(target=self._ask, args=item, daemon=True) for item in enumerate(clients)]

    def _ask(self, index: int, client: Any) -> None:
        try:
            if self._ended.wait(PERIOD_S * index / len(self.answers)):  # not all at once
                return
            while not self._ended.is_set():
                client.run({"name": "collector_data_task", "wait_s": PERIOD_S}, DEADLINE_S)
                self.answers[index] += 1
        except BaseException as error:
            self.errors.append(error)

    @contextlib.contextmanager
    def reporting(self) -> Iterator[None]:
        for thread in self._threads:
            thread.start()
        time.sleep(PERIOD_S)  # until all have begun
        try:
            yield
        finally:
            self._ended.set()
            for thread in self._threads:
                thread.join(DEADLINE_S)

    def served(self, seconds: float) -> int:
        """How many got all answers that `seconds` allow, but for one that was under way at either end."""
        return sum(count >= int(seconds / PERIOD_S) - 1 for count in self.answers)


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


class Alone:
    """The coordinator with so many collectors and no learner, for so long.

    Attributes:
        cores, memory: processor time a second, and growth of the resident memory in bytes, by collector.
        served, errors: see `Crowd`.
    """

    def __init__(self, transport: Transport, count: int, seconds: float) -> None:
        gc.collect()
        before = resident_bytes()
        with clients_of(transport, count) as clients:
            crowd = Crowd(clients)
            with crowd.reporting():
                cpu, start = time.process_time(), time.perf_counter()
                time.sleep(seconds)
                self.cores = (time.process_time() - cpu) / (time.perf_counter() - start) / count
                self.memory = (resident_bytes() - before) / count
            self.served, self.errors = crowd.served(seconds), crowd.errors


def learner_rate(transport: Transport, count: int, seconds: float) -> float:
    """Round trips a second of a learner beside so many collectors."""
    with clients_of(transport, count + 1) as clients:
        learner, crowd = clients[0], Crowd(clients[1:])
        with crowd.reporting():
            trips, start = 0, time.perf_counter()
            while time.perf_counter() - start < seconds:
                assert learner.run({"name": "learner_learn_task", "data": [], "batch_sizes": [32]}, DEADLINE_S) == BATCH
                trips += 1
            rate = trips / (time.perf_counter() - start)
        if crowd.errors:
            raise crowd.errors[0]
        return rate


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--transport", default="flask_fs")
    parser.add_argument("--collectors", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=60.0)
    args = parser.parse_args()
    transport, count = get_transport(args.transport), args.collectors
    raise_descriptor_limit()
    part, whole = Alone(transport, count // 4, args.seconds / 2), Alone(transport, count, args.seconds)
    few, many = (learner_rate(transport, number, args.seconds / 2) for number in (FEW, count))
    report = Report()
    report.line(f"{count} collectors, all reports answered", "", whole.served, "of", count, at_least=1.0)
    report.line(f"round trips of a learner beside {count} collectors", "1/s", many, f"with {FEW}", few, at_least=0.8)
    report.line(
        f"processor time of the coordinator by collector, {count} collectors", "us/s",
        whole.cores * 1e6, f"with {count // 4}", part.cores * 1e6, at_most=1.2,
    )  # fmt: skip
    report.line(
        f"memory of the coordinator by collector, {count} collectors", "KiB",
        whole.memory / 1024, f"with {count // 4}", part.memory / 1024, at_most=1.2,
    )  # fmt: skip
    for error in (*part.errors, *whole.errors)[:3]:
        print(f"a collector was lost: {error!r}", file=sys.stderr)
    return report.exit_status() or bool(part.errors or whole.errors)


if __name__ == "__main__":
    sys.exit(main())
