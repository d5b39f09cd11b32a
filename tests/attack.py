"""Attack a coordinator with two workers over loopback, as strangers without the token of the run can.

For each attack it prints by how much the memory of the coordinator grew, how long `/status` took at most, and how many
tasks the workers finished meanwhile. Exits with 1 if a goal is missed.

`python -m tests.attack [NAME ...]`
"""

from __future__ import annotations

import argparse
import contextlib
import gzip
import http.client
import json
import multiprocessing
import os
import resource
import secrets
import socket
import ssl
import sys
import threading
import time
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from typing import Any

MEMORY_GOAL_MB, LATENCY_GOAL_S = 64.0, 1.0
SECONDS, WORKERS, DESCRIPTORS = 4.0, 2, 1024  # of each attack; of the coordinator
MEGABYTE = 2**20
DEADLINE_S = 30.0
# Sends what an attack sends to `port` until the clock `time.monotonic` says `end`.
Attack = Callable[[int, float, contextlib.ExitStack], None]


def be_workers(connection: Connection) -> None:
    """Run the workers until the connection ends."""
    from ding.worker.transport.transport import get_transport

    transport = get_transport("flask_fs")
    with contextlib.ExitStack() as stack:
        ports = []
        for _ in range(WORKERS):
            server = transport.worker_server(
                lambda task: {"n": task["n"] + 1}, {"host": "127.0.0.1", "port": 0}, lambda: None
            )
            server.start()
            stack.callback(server.close)
            ports.append(server.port)
        connection.send(ports)
        with contextlib.suppress(EOFError):
            connection.recv()


def be_coordinator(connection: Connection) -> None:
    """Give tasks to the workers, and show their number as a page, until the connection ends."""
    from ding.interaction.base import Page
    from ding.worker.transport.transport import get_transport

    resource.setrlimit(resource.RLIMIT_NOFILE, (DESCRIPTORS, DESCRIPTORS))
    counts, ended = [0] * WORKERS, threading.Event()
    connector = get_transport("flask_fs").connector({"host": "127.0.0.1", "port": 0})
    connector.serve_page("/", Page(lambda: "<p>status</p>" * 100, "text/html", is_public=True))
    connector.serve_page("/status", Page(lambda: json.dumps({"tasks": sum(counts)})))
    connector.start()
    clients = [connector.client(f"worker{i}", "127.0.0.1", port) for i, port in enumerate(connection.recv())]

    def work(i: int) -> None:
        while not ended.is_set():
            clients[i].run({"name": "task", "n": counts[i]}, DEADLINE_S)
            counts[i] += 1
            time.sleep(0.01)

    for client in clients:
        client.connect(DEADLINE_S)
    threads = [threading.Thread(target=work, args=(i,), daemon=True) for i in range(WORKERS)]
    for thread in threads:
        thread.start()
    connection.send(int(connector.url.rstrip("/").rpartition(":")[2]))
    with contextlib.suppress(EOFError):
        connection.recv()
    ended.set()
    for thread in threads:
        thread.join(DEADLINE_S)
    connector.close()


@contextlib.contextmanager
def coordinator() -> Iterator[tuple[int, int]]:
    """`(process id, port)` of a coordinator whose workers work."""
    context = multiprocessing.get_context("spawn")
    with contextlib.ExitStack() as stack:
        ends: list[Any] = []
        for target in (be_workers, be_coordinator):
            ours, theirs = context.Pipe()
            process = context.Process(target=target, args=(theirs,), daemon=True)
            process.start()
            stack.callback(process.join, DEADLINE_S)
            stack.callback(ours.close)
            ends.append((ours, process))
        workers, (connection, process) = ends[0][0], ends[1]
        connection.send(workers.recv())
        yield process.pid, connection.recv()


def open_connection(port: int, stack: contextlib.ExitStack, message: bytes = b"") -> socket.socket:
    client = stack.enter_context(socket.create_connection(("127.0.0.1", port), DEADLINE_S))
    client.settimeout(1.0)
    client.sendall(message)
    return client


def send_until(end: float, client: socket.socket, data: bytes, pause_s: float = 0.0) -> None:
    """Send `data` again and again, until the server ends the connection or does not read any more."""
    with contextlib.suppress(OSError):
        while time.monotonic() < end:
            client.sendall(data)
            time.sleep(pause_s)


def head(port: int, line: str = "GET / HTTP/1.1", *headers: str) -> bytes:
    return "\r\n".join([line, f"Host: 127.0.0.1:{port}", *headers, "", ""]).encode()


def pipelining(port: int, end: float, stack: contextlib.ExitStack) -> None:
    for _ in range(20):
        send_until(min(end, time.monotonic() + 1), open_connection(port, stack), head(port) * 1000)


def anonymous_connections(port: int, end: float, stack: contextlib.ExitStack) -> None:
    for _ in range(1200):
        if time.monotonic() > end:
            break
        with contextlib.suppress(OSError):
            open_connection(port, stack, head(port)).recv(100)


def idle_connections(port: int, end: float, stack: contextlib.ExitStack) -> None:
    most = min(10_000, resource.getrlimit(resource.RLIMIT_NOFILE)[0] - 300)
    for _ in range(most):
        with contextlib.suppress(OSError):
            open_connection(port, stack)
    time.sleep(max(0.0, end - time.monotonic()))


def trailers(port: int, end: float, stack: contextlib.ExitStack) -> None:
    chunked = head(port, "GET / HTTP/1.1", "Transfer-Encoding: chunked") + b"0\r\n"
    while time.monotonic() < end:
        send_until(end, open_connection(port, stack, chunked), b"X: %s\r\n" % (b"y" * 1000) * 100)


def one_trailer(port: int, end: float, stack: contextlib.ExitStack) -> None:
    chunked = head(port, "GET / HTTP/1.1", "Transfer-Encoding: chunked") + b"0\r\nX: "
    while time.monotonic() < end:
        send_until(end, open_connection(port, stack, chunked), b"y" * 100_000)


def headers(port: int, end: float, stack: contextlib.ExitStack) -> None:
    while time.monotonic() < end:
        send_until(end, open_connection(port, stack, head(port)[:-2]), b"X: %s\r\n" % (b"y" * 1000) * 100)


def one_header(port: int, end: float, stack: contextlib.ExitStack) -> None:
    while time.monotonic() < end:
        send_until(end, open_connection(port, stack, head(port)[:-2] + b"X: "), b"y" * 100_000)


def small_chunks(port: int, end: float, stack: contextlib.ExitStack) -> None:
    chunked = head(port, "GET / HTTP/1.1", "Transfer-Encoding: chunked")
    while time.monotonic() < end:
        send_until(end, open_connection(port, stack, chunked), b"1\r\nx\r\n" * 10_000)


def slow_heads(port: int, end: float, stack: contextlib.ExitStack) -> None:
    slowly(port, end, stack, b"GET / HTTP/1.1\r\nX: ")


def slow_bodies(port: int, end: float, stack: contextlib.ExitStack) -> None:
    for path in ("/", "/slave/task/complete", "/session"):
        line, size = f"{'GET' if path == '/' else 'PUT'} {path} HTTP/1.1", "Content-Length: 16000"
        slowly(port, time.monotonic() + (end - time.monotonic()) / 2, stack, head(port, line, size))


def slowly(port: int, end: float, stack: contextlib.ExitStack, message: bytes) -> None:
    clients = []
    for _ in range(300):
        with contextlib.suppress(OSError):
            clients.append(open_connection(port, stack, message))
    while time.monotonic() < end:
        for client in clients:
            with contextlib.suppress(OSError):
                client.sendall(b"x")
        time.sleep(0.1)


def large_bodies(port: int, end: float, stack: contextlib.ExitStack) -> None:
    while time.monotonic() < end:
        for path in ("/", "/slave/task/complete", "/session", "/none"):
            for size in (16_000, 60 * MEGABYTE):
                message = head(port, f"POST {path} HTTP/1.1", "Channel: 0", "Token: T", f"Content-Length: {size}")
                client = open_connection(port, stack, message)
                send_until(min(end, time.monotonic() + 0.2), client, b"x" * MEGABYTE)


def bombs(port: int, end: float, stack: contextlib.ExitStack) -> None:
    bomb = gzip.compress(b"0" * 16 * MEGABYTE)[:16_000]
    for path in ("/", "/status", "/session", "/slave/task/complete"):
        for method in ("GET", "POST", "PUT"):
            for encoding in ("gzip", "deflate", "br, gzip"):
                fields = f"Content-Encoding: {encoding}", f"Content-Length: {len(bomb)}"
                with contextlib.suppress(OSError):
                    open_connection(port, stack, head(port, f"{method} {path} HTTP/1.1", *fields) + bomb).recv(100)
                if time.monotonic() > end:
                    return


def noise(port: int, end: float, stack: contextlib.ExitStack) -> None:
    greeting = ssl.MemoryBIO()
    client = ssl.create_default_context().wrap_bio(ssl.MemoryBIO(), greeting, server_hostname="127.0.0.1")
    with contextlib.suppress(ssl.SSLWantReadError):
        client.do_handshake()
    hello = greeting.read()
    while time.monotonic() < end:
        for message in (hello, hello[:5], os.urandom(10_000), b"\0" * 100_000, b"\r\n" * 50_000, b"GET\r\n\r\n" * 1000):
            with contextlib.suppress(OSError):
                open_connection(port, stack, message).recv(100)


ATTACKS: tuple[Attack, ...] = (
    pipelining, anonymous_connections, idle_connections, trailers, one_trailer, headers, one_header, small_chunks,
    slow_heads, slow_bodies, large_bodies, bombs, noise,
)  # fmt: skip


class Watch:
    """Asks for `/status` while it is entered.

    Attributes:
        latency_s: of the slowest reply; a request that is lost is repeated within its time.
        tasks: how many the workers have finished, as of the last reply.
    """

    def __init__(self, port: int, token: str) -> None:
        self._port, self._token = port, token
        self._ended = threading.Event()
        self.latency_s, self.tasks = 0.0, 0
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._ended.set()
        self._thread.join(DEADLINE_S)

    def wait(self, tasks: int) -> None:
        """Wait until more than `tasks` are finished, or `DEADLINE_S` have passed."""
        deadline = time.monotonic() + DEADLINE_S
        while self.tasks <= tasks and time.monotonic() < deadline:
            time.sleep(0.01)

    def _run(self) -> None:
        while not self._ended.wait(0.05):
            start = time.monotonic()
            while True:
                with contextlib.suppress(OSError, http.client.HTTPException):
                    self.tasks = read_status(self._port, self._token)["tasks"]
                    break
                if time.monotonic() - start > DEADLINE_S:
                    break
            self.latency_s = max(self.latency_s, time.monotonic() - start)


def read_status(port: int, token: str) -> dict[str, Any]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=DEADLINE_S)
    try:
        connection.request("GET", "/status", headers={"Authorization": f"Bearer {token}"})
        response = connection.getresponse()
        values: dict[str, Any] = json.loads(response.read())
        assert response.status == 200, values
        return values
    finally:
        connection.close()


def memory_mb(pid: int, name: str) -> float:
    with open(f"/proc/{pid}/status") as status:
        return next(int(line.split()[1]) / 1024 for line in status if line.startswith(name))


def forget_peak(pid: int) -> None:
    with open(f"/proc/{pid}/clear_refs", "w") as file:
        file.write("5")


def measure(pid: int, port: int, token: str, attack: Attack) -> bool:
    """Print the outcome of an attack; return whether the goals are met."""
    forget_peak(pid)
    before, tasks = memory_mb(pid, "VmRSS"), read_status(port, token)["tasks"]
    with Watch(port, token) as watch, contextlib.ExitStack() as stack:
        attack(port, time.monotonic() + SECONDS, stack)
        watch.wait(tasks)  # an attack that is cut off at once is over before a task is
    growth, done = memory_mb(pid, "VmHWM") - before, watch.tasks - tasks
    is_met = growth <= MEMORY_GOAL_MB and watch.latency_s <= LATENCY_GOAL_S and done > 0
    line = {"attack": attack.__name__, "memory_growth_mb": round(growth, 1), "status_s": round(watch.latency_s, 3)}
    print(json.dumps({**line, "tasks": done, "met": is_met}), flush=True)
    return is_met


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="attacks; all by default")
    names = parser.parse_args(argv).names
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    token = os.environ["DING_TOKEN"] = secrets.token_hex(16)  # the processes of the coordinator inherit it
    with coordinator() as (pid, port):
        chosen = [attack for attack in ATTACKS if not names or attack.__name__ in names]
        met = [measure(pid, port, token, attack) for attack in chosen]
    return 0 if met and all(met) else 1


if __name__ == "__main__":
    sys.exit(main())
