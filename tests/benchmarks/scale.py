"""The load of a coordinator with many workers, which are stubs that answer at once or at a given rate.

- Round trips of a learner a second while 50 collectors send 5 messages a second each, against 2 collectors.
- Processor time of the coordinator for a message while 400 workers are connected, against 1.

The last line shows where the time goes. For Ray, see `learn` in `scale_data`.

`python -m tests.benchmarks.scale --transport flask_fs|local`
"""

import argparse
import contextlib
import gc
import json
import multiprocessing
import resource
import statistics
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

from ding.worker.transport.transport import Launch, Transport, get_transport
from tests.benchmarks.harness import Report

FEW, MANY, MESSAGES_S = 2, 50, 5.0
PEERS, PER_PROCESS = 400, 100
SECONDS, ROUNDS, DEADLINE_S = 4.0, 3, 60.0
# What a collector reports of a chunk of samples, and a learner of a batch.
CHUNK = {
    "data_id": "benchmark_0123456789abcdef_0123456789abcdef.chunk", "data_push_length": 64, "size": 64, "env_step": 64,
    "policy_iter": 1234, "priority": [1.0] * 64, "unroll_len": 1, "episodes": [{"return": 12.5, "length": 200}] * 2,
}  # fmt: skip
BATCH = {"info": {"learner_step": 1234, "priority": [1.0] * 32, "replay_buffer_idx": list(range(32))}}


def serve(task: dict[str, Any]) -> dict[str, Any]:
    """The answer of a stub: a collector's report takes as long as its next samples would, everything else no time."""
    if task.get("wait_s"):
        time.sleep(task["wait_s"])
        return {"samples": CHUNK, "task_id": "task"}
    return dict(BATCH)


def be_workers(name: str, count: int, connection: Any) -> None:
    """Run `count` workers until the connection ends."""
    raise_descriptor_limit()
    with contextlib.ExitStack() as stack:
        connection.send([start_server(get_transport(name), stack) for _ in range(count)])
        with contextlib.suppress(EOFError):
            connection.recv()


def start_server(transport: Transport, stack: contextlib.ExitStack) -> int:
    server = transport.worker_server(serve, {"host": "127.0.0.1", "port": 0}, lambda: None)
    server.start()
    stack.callback(server.close)
    return server.port


def raise_descriptor_limit() -> None:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


@contextlib.contextmanager
def ports_of_workers(transport: Transport, count: int) -> Iterator[list[int]]:
    """`count` workers, in processes or threads as the transport requires."""
    with contextlib.ExitStack() as stack:
        if transport.launch is Launch.THREAD:
            yield [start_server(transport, stack) for _ in range(count)]
            return
        context, ports = multiprocessing.get_context("spawn"), []
        while len(ports) < count:
            ours, theirs = context.Pipe()
            share = min(PER_PROCESS, count - len(ports)) if ports else 1  # the learner has one for itself
            context.Process(target=be_workers, args=(transport.name, share, theirs), daemon=True).start()
            stack.callback(ours.close)
            ports += ours.recv()
        yield ports


@contextlib.contextmanager
def clients_of(transport: Transport, count: int) -> Iterator[list[Any]]:
    """Links to `count` workers."""
    with ports_of_workers(transport, count) as ports:
        connector = transport.connector({"host": "127.0.0.1", "port": 0})
        connector.start()
        try:
            clients = [connector.client(f"worker{i}", "127.0.0.1", port) for i, port in enumerate(ports)]
            for client in clients:
                client.connect(DEADLINE_S)
            yield clients
        finally:
            connector.close()


class Measured:
    """Round trips of a learner for some seconds.

    Attributes:
        per_second: how many.
        cpu_us: processor time of this process for each message, all of them counted.
        cores: how much of a core this process has used.
    """

    def __init__(self, learner: Any, others: int) -> None:
        gc.collect()
        cpu, start, count = time.process_time(), time.perf_counter(), 0
        while (seconds := time.perf_counter() - start) < SECONDS:
            learner.run({"name": "learner_learn_task", "data": [], "batch_sizes": [32]}, DEADLINE_S)
            count += 1
        self.per_second = count / seconds
        self.cores = (time.process_time() - cpu) / seconds
        self.cpu_us = self.cores * seconds / (count + others * MESSAGES_S * seconds) * 1e6


@contextlib.contextmanager
def collecting(clients: list[Any]) -> Iterator[None]:
    """Let each of the workers report again and again."""
    ended = threading.Event()

    def ask(client: Any) -> None:
        while not ended.is_set():
            client.run({"name": "collector_data_task", "wait_s": 1 / MESSAGES_S}, DEADLINE_S)

    threads = [threading.Thread(target=ask, args=(client,), daemon=True) for client in clients]
    for thread in threads:
        thread.start()
        time.sleep(1 / MESSAGES_S / len(clients))  # not all at once
    try:
        yield
    finally:
        ended.set()
        for thread in threads:
            thread.join(DEADLINE_S)


def with_collectors(clients: list[Any], count: int) -> Measured:
    with collecting(clients[1 : count + 1]):
        return Measured(clients[0], count)


def middle(rounds: list[Measured], figure: str) -> float:
    return statistics.median(getattr(measured, figure) for measured in rounds)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--transport", default="flask_fs")
    transport = get_transport(parser.parse_args().transport)
    raise_descriptor_limit()
    few, many, alone, among = [], [], [], []
    with clients_of(transport, MANY + 1) as clients:
        for _ in range(ROUNDS):  # in turn: the machine may have other work at times
            few.append(with_collectors(clients, FEW))
            many.append(with_collectors(clients, MANY))
    with clients_of(transport, PEERS) as clients:
        for _ in range(ROUNDS):
            among.append(Measured(clients[0], 0))
    with clients_of(transport, 1) as one:
        for _ in range(ROUNDS):
            alone.append(Measured(one[0], 0))
    report = Report()
    report.line(
        f"round trips of a learner while {MANY} collectors send {MESSAGES_S:g} messages a second each", "1/s",
        middle(many, "per_second"), f"with {FEW}", middle(few, "per_second"), at_least=0.85,
    )  # fmt: skip
    report.line(
        f"processor time of the coordinator for a message, {PEERS} workers connected", "us",
        middle(among, "cpu_us"), "with 1", middle(alone, "cpu_us"), at_most=1.2,
    )  # fmt: skip
    where = {
        f"{name}: {figure}": round(middle(rounds, figure), 2)
        for name, rounds in (("few", few), ("many", many), ("alone", alone), ("among", among))
        for figure in ("cores", "cpu_us")
    }
    print(json.dumps({"where the time goes": where}))
    return report.exit_status()


if __name__ == "__main__":
    sys.exit(main())
