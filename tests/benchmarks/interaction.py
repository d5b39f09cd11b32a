"""Milliseconds of a task from a master to a slave and back, against two bare requests; and of a start and a close.

A task is one exchange between two processes. The floor are two requests of a requests session to Tornado, also in
another process, in turn. `python -m tests.benchmarks.interaction`
"""

import asyncio
import contextlib
import json
import multiprocessing
import statistics
import sys
import threading
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

import requests
import tornado.httpserver
import tornado.netutil
import tornado.web

from ding.interaction import Master, Slave
from tests.benchmarks.harness import Report, milliseconds

SLAVES, TASKS, ROUNDS = 2, 200, 9
TASK = {"name": "add", "a": 2, "b": 3}
START_GOAL_MS, CLOSE_GOAL_MS, CPU_GOAL_MS = 50.0, 100.0, 2.0


class Adder(Slave):
    """Adds."""

    def _process_task(self, task: Any) -> Any:
        return {"sum": task["a"] + task["b"]}


class Echo(tornado.web.RequestHandler):
    """Answers with the body of the request."""

    def post(self) -> None:
        self.write(self.request.body)


def serve_slave(connection: Connection) -> None:
    with Adder(port=0) as slave, contextlib.suppress(EOFError):
        connection.send(slave.port)
        while True:
            connection.recv()
            connection.send(time.process_time())


def serve_echo(connection: Connection) -> None:
    async def serve() -> None:
        (listener,) = tornado.netutil.bind_sockets(0, "127.0.0.1")
        tornado.httpserver.HTTPServer(tornado.web.Application([("/", Echo)])).add_sockets([listener])
        connection.send(listener.getsockname()[1])
        await asyncio.Event().wait()

    asyncio.run(serve())


def in_process(serve: Callable[[Connection], None]) -> tuple[Connection, int]:
    """What keeps `serve`, in a process of its own, from ending, and its port."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    context.Process(target=serve, args=(theirs,), daemon=True).start()
    return ours, int(ours.recv())


def side_by_side(calls: list[Callable[[], Any]]) -> float:
    """Milliseconds of a call, when each of `calls` runs in a thread of its own."""
    threads = [threading.Thread(target=milliseconds, args=(call, TASKS)) for call in calls]
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


def cpu_s(slave: Connection) -> float:
    """Seconds of CPU that this process and a slave have used."""
    slave.send(None)
    return float(slave.recv()) + time.process_time()


def measure(
    figures: dict[str, list[float]], slave: Connection, tasks: list[Callable[[], Any]], request: Callable[[], Any]
) -> None:
    before_s = cpu_s(slave)
    figures["task"].append(milliseconds(tasks[0], TASKS))
    figures["cpu"].append((cpu_s(slave) - before_s) / TASKS * 1e3)
    figures["echoes"].append(2 * milliseconds(request, TASKS))
    figures["side by side"].append(side_by_side(tasks))
    started, closed = start_and_close()
    figures["start"].append(started)
    figures["close"].append(closed)


def main() -> int:
    (echoing, port), slaves = in_process(serve_echo), [in_process(serve_slave) for _ in range(SLAVES)]
    url, body = f"http://127.0.0.1:{port}/", json.dumps(TASK)
    figures: dict[str, list[float]] = {name: [] for name in ("task", "cpu", "side by side", "echoes", "start", "close")}
    with requests.Session() as session, Master(port=0) as master:
        connections = [master.new_connection(str(i), "127.0.0.1", port) for i, (_, port) in enumerate(slaves)]
        tasks = [lambda c=c: c.run(TASK, 10) for c in connections]
        for connection in connections:
            connection.connect()
        for _ in range(ROUNDS):
            measure(figures, slaves[0][0], tasks, lambda: session.post(url, data=body))
        for connection in connections:
            connection.disconnect()
    middle = {name: statistics.median(values) for name, values in figures.items()}
    print(f"{1e3 / middle['task']:.0f} tasks/s with one slave, {1e3 / middle['side by side']:.0f} with {SLAVES}")
    report = Report()
    report.line("a task and its result", "ms", middle["task"], "two bare requests", middle["echoes"], at_most=1.0)
    report.line("CPU of a task, both ends", "ms", middle["cpu"], "allowed", CPU_GOAL_MS, at_most=1.0)
    report.line("start of a master", "ms", middle["start"], "allowed", START_GOAL_MS, at_most=1.0)
    report.line("close of a master", "ms", middle["close"], "allowed", CLOSE_GOAL_MS, at_most=1.0)
    for keeps, _ in [(echoing, 0), *slaves]:
        keeps.close()
    return report.exit_status()


if __name__ == "__main__":
    sys.exit(main())
