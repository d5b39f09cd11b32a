"""Attack a coordinator with two workers over loopback, and a worker as a peer can that is out of order.

All attacks but two are those of strangers, without the token of the run. For each attack it prints by how much the
memory of its target grew, how long `/status` of the target took at most, and how many tasks the workers finished
meanwhile. Exits with 1 if a goal is missed.

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
import uuid
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

from ding.interaction.access import RunToken, client_context
from ding.utils.msgpack_helper import pack

MEMORY_GOAL_MB, LATENCY_GOAL_S = 64.0, 1.0
SECONDS, WORKERS, DESCRIPTORS = 4.0, 2, 1024  # of each attack; of the coordinator
MEGABYTE = 2**20
DEADLINE_S = 30.0
# Sends what an attack sends to `port` until the clock `time.monotonic` says `end`.
Attack = Callable[[int, float, contextlib.ExitStack], None]


class Target(NamedTuple):
    """A server to attack; the token of the run is `token`, which strangers do not know."""

    pid: int
    port: int
    is_tls: bool
    token: str


def be_workers(connection: Connection) -> None:
    """Run the workers, and one whose tasks last `seconds` and return `size` characters, until the connection ends."""
    from ding.interaction.base import Page
    from ding.worker.transport.transport import get_transport

    resource.setrlimit(resource.RLIMIT_NOFILE, (DESCRIPTORS, DESCRIPTORS))
    transport, counts, ended = get_transport("flask_fs"), [0] * WORKERS, threading.Event()

    def serve(i: int, task: dict[str, Any]) -> Any:
        if i == WORKERS:
            ended.wait(task["seconds"])
            return {"text": "x" * task["size"]}
        counts[i] += 1
        return {"n": task["n"] + 1}

    with contextlib.ExitStack() as stack:
        servers = [
            transport.worker_server(lambda task, i=i: serve(i, task), {"host": "127.0.0.1", "port": 0}, lambda: None)
            for i in range(WORKERS + 1)
        ]
        servers[WORKERS].serve_page("/status", Page(lambda: json.dumps({"tasks": sum(counts)})))
        for server in servers:
            server.start()
            stack.callback(server.close)
        connection.send([server.port for server in servers])
        with contextlib.suppress(EOFError):
            connection.recv()
        ended.set()


def be_coordinator(connection: Connection) -> None:
    """Give tasks to the workers, and show their number as a page, also over TLS, until the connection ends."""
    from ding.interaction.base import Page
    from ding.worker.coordinator.status import page_text
    from ding.worker.transport.transport import get_transport

    resource.setrlimit(resource.RLIMIT_NOFILE, (DESCRIPTORS, DESCRIPTORS))
    counts, ended = [0] * WORKERS, threading.Event()
    connectors = [get_transport("flask_fs").connector({"host": host, "port": 0}) for host in ("127.0.0.1", "0.0.0.0")]
    for connector in connectors:
        connector.serve_page("/", Page(page_text, "text/html", is_public=True))
        connector.serve_page("/status", Page(lambda: json.dumps({"tasks": sum(counts)})))
        connector.start()
    ports = connection.recv()
    clients = [connectors[0].client(f"worker{i}", "127.0.0.1", ports[i]) for i in range(WORKERS)]

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
    connection.send([int(connector.url.rstrip("/").rpartition(":")[2]) for connector in connectors])
    with contextlib.suppress(EOFError):
        connection.recv()
    ended.set()
    for thread in threads:
        thread.join(DEADLINE_S)
    for connector in connectors:
        connector.close()


@contextlib.contextmanager
def targets(token: str) -> Iterator[dict[str, Target]]:
    """Return the coordinator, its server with TLS, and a free worker; the coordinator gives tasks to other workers."""
    context = multiprocessing.get_context("spawn")
    with contextlib.ExitStack() as stack:
        ends: list[Any] = []
        for target in (be_workers, be_coordinator):
            ours, theirs = context.Pipe()
            process = context.Process(target=target, args=(theirs,), daemon=True)
            process.start()
            stack.callback(process.join, DEADLINE_S)
            stack.callback(ours.close)
            ends.append((ours, process.pid))
        (workers, workers_pid), (coordinator, pid) = ends
        ports = workers.recv()
        coordinator.send(ports)
        plain, tls = coordinator.recv()
        yield {
            "coordinator": Target(pid, plain, False, token),
            "tls": Target(pid, tls, True, token),
            "worker": Target(workers_pid, ports[WORKERS], False, token),
        }


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
    for path in ("/", "/shutdown", "/tasks"):
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
        for path in ("/", "/shutdown", "/ping", "/none"):
            for size in (16_000, 60 * MEGABYTE):
                message = head(port, f"POST {path} HTTP/1.1", "Channel: 0", "Token: T", f"Content-Length: {size}")
                client = open_connection(port, stack, message)
                send_until(min(end, time.monotonic() + 0.2), client, b"x" * MEGABYTE)


def bombs(port: int, end: float, stack: contextlib.ExitStack) -> None:
    bomb = gzip.compress(b"0" * 16 * MEGABYTE)[:16_000]
    for path in ("/", "/status", "/ping", "/shutdown"):
        for method in ("GET", "POST", "PUT"):
            for encoding in ("gzip", "deflate", "br, gzip"):
                fields = f"Content-Encoding: {encoding}", f"Content-Length: {len(bomb)}"
                with contextlib.suppress(OSError):
                    open_connection(port, stack, head(port, f"{method} {path} HTTP/1.1", *fields) + bomb).recv(100)
                if time.monotonic() > end:
                    return


def hello() -> bytes:
    """Return the first message of a TLS handshake."""
    greeting = ssl.MemoryBIO()
    client = ssl.create_default_context().wrap_bio(ssl.MemoryBIO(), greeting, server_hostname="127.0.0.1")
    with contextlib.suppress(ssl.SSLWantReadError):
        client.do_handshake()
    return greeting.read()


def noise(port: int, end: float, stack: contextlib.ExitStack) -> None:
    messages = hello(), hello()[:5], os.urandom(10_000), b"\0" * 100_000, b"\r\n" * 50_000, b"GET\r\n\r\n" * 1000
    while time.monotonic() < end:
        for message in messages:
            with contextlib.suppress(OSError):
                open_connection(port, stack, message).recv(100)


def half_handshakes(port: int, end: float, stack: contextlib.ExitStack) -> None:
    whole = hello()
    while time.monotonic() < end:
        for message in (b"", whole[:5], whole[:-1], whole, whole):
            with contextlib.suppress(OSError):
                open_connection(port, stack, message)
        time.sleep(0.005)


def slow_readers(port: int, end: float, stack: contextlib.ExitStack) -> None:
    read_slowly([head(port)] * 300, port, end, stack)


def read_slowly(messages: list[bytes], port: int, end: float, stack: contextlib.ExitStack) -> None:
    """Send each message on a connection of its own, and read a byte of each reply now and then."""
    clients = []
    for message in messages:
        client = stack.enter_context(socket.socket())
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        client.settimeout(1.0)
        with contextlib.suppress(OSError):
            client.connect(("127.0.0.1", port))
            client.sendall(message)
            clients.append(client)
    while time.monotonic() < end:
        for client in clients:
            with contextlib.suppress(OSError):
                client.recv(1, socket.MSG_DONTWAIT)
        time.sleep(0.1)


class Peer:
    """A peer of the worker at `port`, which gives it a task that lasts `seconds` and returns `size` characters."""

    def __init__(self, port: int, seconds: float, size: int) -> None:
        self.port, self.path = port, f"/tasks/{uuid.uuid4()}"
        self._fields = f"Authorization: Bearer {os.environ['DING_TOKEN']}", "Channel: 0", f"Token: {uuid.uuid4()}"
        with contextlib.ExitStack() as stack:
            for line, values in (
                ("POST /connect", {"master": {"address": "http://127.0.0.1:9"}, "data": {}}),
                (f"PUT {self.path}", {"data": {"seconds": seconds, "size": size}}),
            ):
                reply = open_connection(port, stack, self.message(line, values)).recv(1000)
                assert b" 200 " in reply, reply

    def message(self, line: str, values: Any = None) -> bytes:
        body = pack(values or {})
        return head(self.port, f"{line} HTTP/1.1", *self._fields, f"Content-Length: {len(body)}") + body

    def disconnect(self) -> None:
        with contextlib.ExitStack() as stack:
            client = open_connection(self.port, stack, self.message("DELETE /disconnect", {"data": {}}))
            client.settimeout(DEADLINE_S)
            client.recv(1000)


def abandoned_polls(port: int, end: float, stack: contextlib.ExitStack) -> None:
    peer = Peer(port, SECONDS, 10)
    poll = peer.message(f"PUT {peer.path}?wait=60")
    while time.monotonic() < end:
        with contextlib.suppress(OSError), contextlib.ExitStack() as brief:
            open_connection(port, stack, poll)  # stays open
            open_connection(port, brief, poll)
        time.sleep(0.01)
    peer.disconnect()


def slow_results(port: int, end: float, stack: contextlib.ExitStack) -> None:
    peer = Peer(port, 0.0, 4 * MEGABYTE)
    read_slowly([peer.message(f"PUT {peer.path}?wait=60")] * 5, port, end, stack)
    peer.disconnect()


ATTACKS: dict[str, tuple[Attack, ...]] = {
    "coordinator": (
        pipelining, anonymous_connections, idle_connections, trailers, one_trailer, headers, one_header, small_chunks,
        slow_heads, slow_bodies, large_bodies, bombs, noise, slow_readers,
    ),
    "tls": (half_handshakes,),
    "worker": (abandoned_polls, slow_results),
}  # fmt: skip


class Watch:
    """Asks a target for `/status` while it is entered.

    Attributes:
        latency_s: of the slowest reply; a request that is lost is repeated within its time.
        tasks: how many the workers have finished, as of the last reply.
    """

    def __init__(self, target: Target) -> None:
        self._target = target
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
                    self.tasks = read_status(self._target)["tasks"]
                    break
                if time.monotonic() - start > DEADLINE_S:
                    break
            self.latency_s = max(self.latency_s, time.monotonic() - start)


def read_status(target: Target) -> dict[str, Any]:
    connection = http.client.HTTPConnection("127.0.0.1", target.port, timeout=DEADLINE_S)
    if target.is_tls:
        context = client_context(RunToken(target.token))
        connection = http.client.HTTPSConnection("127.0.0.1", target.port, timeout=DEADLINE_S, context=context)
    try:
        connection.request("GET", "/status", headers={"Authorization": f"Bearer {target.token}"})
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


def measure(target: Target, attack: Attack) -> bool:
    """Print the outcome of an attack; return whether the goals are met."""
    forget_peak(target.pid)
    before, tasks = memory_mb(target.pid, "VmRSS"), read_status(target)["tasks"]
    with Watch(target) as watch, contextlib.ExitStack() as stack:
        attack(target.port, time.monotonic() + SECONDS, stack)
        watch.wait(tasks)  # an attack that is cut off at once is over before a task is
    growth, done = memory_mb(target.pid, "VmHWM") - before, watch.tasks - tasks
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
    with targets(token) as found:
        chosen = [(found[name], attack) for name, attacks in ATTACKS.items() for attack in attacks]
        met = [measure(target, attack) for target, attack in chosen if not names or attack.__name__ in names]
    return 0 if met and all(met) else 1


if __name__ == "__main__":
    sys.exit(main())
