"""Milliseconds of a task from a master to a slave and back, against two bare requests; and of a start and a close.

A task is two requests, one each way, between two processes. The floor are two requests of a requests session to an echo
app on waitress, also in another process, in turn. `python -m tests.benchmarks.interaction`
"""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterable
from multiprocessing.connection import Connection
from typing import Any

import requests
import waitress

from ding.interaction import Master, Slave
from tests.benchmarks.report import Report

SLAVES, TASKS, ROUNDS = 2, 200, 9
TASK = {"name": "add", "a": 2, "b": 3}
START_GOAL_MS, CLOSE_GOAL_MS = 50.0, 100.0


class Adder(Slave):
    """Adds."""

    def _process_task(self, task: Any) -> Any:
        return {"sum": task["a"] + task["b"]}


def echo(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
    body = environ["wsgi.input"].read()
    start_response("200 OK", [("Content-Type", "application/json"), ("Content-Length", str(len(body)))])
    return [body]


def serve_slave(connection: Connection) -> None:
    with Adder(port=0) as slave, contextlib.suppress(EOFError):
        connection.send(slave.port)
        connection.recv()


def serve_echo(connection: Connection) -> None:
    server = waitress.create_server(echo, host="127.0.0.1", port=0)
    connection.send(server.effective_port)
    server.run()


def in_process(serve: Callable[[Connection], None]) -> tuple[Connection, int]:
    """What keeps `serve`, in a process of its own, from ending, and its port."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    context.Process(target=serve, args=(theirs,), daemon=True).start()
    return ours, int(ours.recv())


def milliseconds(call: Callable[[], Any], times: int = TASKS) -> float:
    start = time.perf_counter()
    for _ in range(times):
        call()
    return (time.perf_counter() - start) / times * 1e3


def side_by_side(calls: list[Callable[[], Any]]) -> float:
    """Milliseconds of a call, when each of `calls` runs in a thread of its own."""
    threads = [threading.Thread(target=milliseconds, args=(call,)) for call in calls]
    start = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return (time.perf_counter() - start) / (TASKS * len(calls)) * 1e3


def start_and_close() -> tuple[float, float]:
    master = Master(port=0)
    start = time.perf_counter()
    master.start()
    between = time.perf_counter()
    master.close()
    return (between - start) * 1e3, (time.perf_counter() - between) * 1e3


def measure(figures: dict[str, list[float]], tasks: list[Callable[[], Any]], request: Callable[[], Any]) -> None:
    figures["task"].append(milliseconds(tasks[0]))
    figures["echoes"].append(2 * milliseconds(request))
    figures["side by side"].append(side_by_side(tasks))
    started, closed = start_and_close()
    figures["start"].append(started)
    figures["close"].append(closed)


def main() -> int:
    (echoing, port), slaves = in_process(serve_echo), [in_process(serve_slave) for _ in range(SLAVES)]
    url, body = f"http://127.0.0.1:{port}/", json.dumps(TASK)
    figures: dict[str, list[float]] = {name: [] for name in ("task", "side by side", "echoes", "start", "close")}
    with requests.Session() as session, Master(port=0) as master:
        connections = [master.new_connection(str(i), "127.0.0.1", port) for i, (_, port) in enumerate(slaves)]
        tasks = [lambda c=c: c.new_task(TASK).start().join(10) for c in connections]
        for connection in connections:
            connection.connect()
        for _ in range(ROUNDS):
            measure(figures, tasks, lambda: session.post(url, data=body))
        for connection in connections:
            connection.disconnect()
    middle = {name: statistics.median(values) for name, values in figures.items()}
    print(f"{1e3 / middle['task']:.0f} tasks/s with one slave, {1e3 / middle['side by side']:.0f} with {SLAVES}")
    report = Report()
    report.line("a task and its result", "ms", middle["task"], "two bare requests", middle["echoes"], at_most=1.5)
    report.line("start of a master", "ms", middle["start"], "allowed", START_GOAL_MS, at_most=1.0)
    report.line("close of a master", "ms", middle["close"], "allowed", CLOSE_GOAL_MS, at_most=1.0)
    for keeps, _ in [(echoing, 0), *slaves]:
        keeps.close()
    return report.exit_status()


if __name__ == "__main__":
    sys.exit(main())
