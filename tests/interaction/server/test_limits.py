"""What somebody who may not ask for anything can cost a server: bytes, connections, descriptors, time."""

import contextlib
import json
import os
import socket
import subprocess
import sys

import psutil
import pytest

from ding.interaction.server import http_server
from tests.interaction.fakes import DEADLINE_S, Adder, Watcher, outcome, raw

SECRET = "s3cret-" + "x" * 40
MEGABYTE = 2**20
SERVE = """
import resource, sys
limit = int(sys.argv[1])
if limit:
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
from tests.interaction.fakes import Adder
with Adder() as slave:
    assert slave.ping()
    print(slave.port, slave._Role__self_token, flush=True)
    sys.stdin.read()
"""


@contextlib.contextmanager
def slave_in_a_process(descriptors=0, **environment):
    """`(process, port, its token for itself)`."""
    child = subprocess.Popen(
        [sys.executable, "-c", SERVE, str(descriptors)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**os.environ, **environment},
    )  # fmt: skip
    with child:
        try:
            port, token = child.stdout.readline().split()
            yield psutil.Process(child.pid), int(port), token
        finally:
            child.stdin.close()
            assert child.wait(DEADLINE_S) == 0


def peak_bytes(process):
    with open(f"/proc/{process.pid}/status") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM"))


def cpu_s(process):
    times = process.cpu_times()
    return times.user + times.system


@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="reads /proc")
@pytest.mark.parametrize("secret", ["", SECRET], ids=["without token", "with token"])
@pytest.mark.parametrize("path", ["/connect", "/task/new"])
def test_six_unfinished_bodies_of_sixty_megabytes_cost_less_than_ten(secret, path):
    with slave_in_a_process(DING_TOKEN=secret) as (process, port, _), contextlib.ExitStack() as stack:
        before = peak_bytes(process)
        head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nChannel: 0\r\nToken: T\r\n"
        head += f"Content-Length: {60 * MEGABYTE}\r\n"
        replies = []
        for _ in range(6):
            client = stack.enter_context(socket.create_connection(("127.0.0.1", port), DEADLINE_S))
            client.sendall(head.encode() + b"\r\n")
            with contextlib.suppress(OSError):  # it may be cut off
                for _ in range(59):
                    client.sendall(b"x" * MEGABYTE)
            replies.append(client.makefile("rb").readline().split()[1])
        assert replies == [b"401" if secret else {"/connect": b"413", "/task/new": b"403"}[path]] * 6
        assert peak_bytes(process) - before < 10 * MEGABYTE


def test_past_the_descriptor_limit_it_waits_and_serves_again():
    with slave_in_a_process(descriptors=48) as (process, port, token):
        with contextlib.ExitStack() as stack:
            for _ in range(100):
                stack.enter_context(socket.create_connection(("127.0.0.1", port), DEADLINE_S))
            with pytest.raises(TimeoutError), socket.create_connection(("127.0.0.1", port), DEADLINE_S) as late:
                late.sendall(b"GET /ping HTTP/1.1\r\n\r\n")
                late.settimeout(0.5)  # time enough to use up the descriptors
                late.recv(1)
            before = cpu_s(process)
            with contextlib.suppress(psutil.TimeoutExpired):
                process.wait(1.5)  # it goes on: this only lets time pass
            assert cpu_s(process) - before < 0.3
        headers = {"Token": token}
        assert outcome(raw(port, "GET", "/ping", headers=headers)) == (200, 0)


def opened(port, message=b""):
    client = socket.create_connection(("127.0.0.1", port), DEADLINE_S)
    client.sendall(message)
    return client


def is_closed(client):
    """Whether the server ends the connection, waiting for that."""
    try:
        return client.recv(1) == b""
    except ConnectionResetError:
        return True


def test_of_the_connections_that_ask_for_nothing_the_oldest_give_way(monkeypatch):
    monkeypatch.setattr(http_server, "_MOST_NEW", 5)
    with Adder() as slave, contextlib.ExitStack() as stack:
        own = {"Token": slave._Role__self_token}
        keeps = stack.enter_context(opened(slave.port))
        head = f"GET /ping HTTP/1.1\r\nHost: 127.0.0.1:{slave.port}\r\nToken: {own['Token']}\r\n\r\n"
        keeps.sendall(head.encode())
        assert b"200" in keeps.recv(1000)
        silent = [stack.enter_context(opened(slave.port, b"GET / HTTP/1.1\r\nX-Slow: ")) for _ in range(20)]
        assert all(is_closed(client) for client in silent[:15])
        assert outcome(raw(slave.port, "GET", "/ping", headers=own)) == (200, 0)
        keeps.sendall(head.encode())  # it was admitted once, and is none of them
        assert b"200" in keeps.recv(1000)


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere 127.0.0.1 is the only address of this kind")
def test_of_those_that_come_from_many_addresses_the_oldest_give_way_too(monkeypatch):
    monkeypatch.setattr(http_server, "_MOST_NEW_OF_ALL", 5)
    with Adder() as slave, contextlib.ExitStack() as stack:
        silent = []
        for number in range(20):
            client = stack.enter_context(socket.socket())
            client.settimeout(DEADLINE_S)
            client.bind((f"127.0.0.{2 + number}", 0))
            client.connect(("127.0.0.1", slave.port))
            silent.append(client)
        assert all(is_closed(client) for client in silent[:15])
        assert slave.ping()
        assert not is_closed_now(silent[-1])


def is_closed_now(client):
    client.setblocking(False)
    try:
        return client.recv(1) == b""
    except BlockingIOError:
        return False


@pytest.mark.parametrize("message", [b"", b"GET /ping HTTP/1.1\r\nX-Slow: "])
def test_a_connection_that_asks_for_nothing_is_ended_after_a_while(monkeypatch, message):
    monkeypatch.setattr(http_server, "_ADMISSION_S", 0.2)
    monkeypatch.setattr(http_server, "_SWEEP_S", 0.05)
    with Adder() as slave, opened(slave.port, message) as client:
        assert is_closed(client)
        assert slave.ping()


def test_a_body_that_does_not_come_ends_the_connection_and_keeps_nobody_else(monkeypatch):
    monkeypatch.setattr(http_server, "_SILENCE_S", 0.2)
    monkeypatch.setattr(http_server, "_SWEEP_S", 0.05)
    with Adder() as slave:
        head = f"POST /connect HTTP/1.1\r\nHost: 127.0.0.1:{slave.port}\r\nChannel: 0\r\nToken: T\r\n"
        with opened(slave.port, head.encode() + b"Content-Length: 100\r\n\r\n{") as client:
            assert is_closed(client)
        assert slave.ping()


def test_a_head_without_end_is_a_431():
    with Watcher() as master, opened(master.port, b"GET /ping HTTP/1.1\r\n") as client:
        with contextlib.suppress(OSError):
            for i in range(10_000):
                client.sendall(b"X-%d: %s\r\n" % (i, b"y" * 1000))
        assert client.makefile("rb").readline() == b"HTTP/1.1 431 Request Header Fields Too Large\r\n"


@pytest.mark.parametrize(
    "extra", ["Token: T\r\nToken: U", "Host: evil.example", "Content-Length: 5\r\nContent-Length: 5"]
)
def test_a_header_that_comes_twice_is_a_400(extra):
    with (
        Watcher() as master,
        opened(master.port, f"GET /ping HTTP/1.1\r\nHost: 127.0.0.1:{master.port}\r\n{extra}\r\n\r\n".encode()) as c,
    ):
        assert c.makefile("rb").readline() == b"HTTP/1.1 400 Bad Request\r\n"


def test_requests_that_come_together_are_answered_in_their_order():
    with Adder() as slave:
        own = f"Host: 127.0.0.1:{slave.port}\r\nToken: {slave._Role__self_token}\r\n\r\n"
        connect = json.dumps({"master": {"address": "http://127.0.0.1:9"}, "data": {}})
        slow = f"POST /connect HTTP/1.1\r\nHost: 127.0.0.1:{slave.port}\r\nChannel: 0\r\nToken: T\r\n"
        slow += f"Content-Length: {len(connect)}\r\n\r\n{connect}"
        messages = [slow, f"GET /ping HTTP/1.1\r\n{own}", slow, f"GET /nowhere HTTP/1.1\r\n{own}"]
        with opened(slave.port, "".join(messages).encode()) as client:
            client.shutdown(socket.SHUT_WR)
            replies = client.makefile("rb").read()
        statuses = [
            line.split()[1]
            for line in replies.split(b"\r\n")
            if b"HTTP/1.1 " in line
            for line in [line[line.index(b"HTTP") :]]
        ]
        assert statuses == [b"200", b"200", b"400", b"404"]


def test_a_client_that_waits_for_leave_to_send_its_body_gets_it():
    with Adder() as slave, opened(slave.port) as client:
        body = json.dumps({"master": {"address": "http://127.0.0.1:9"}, "data": {}}).encode()
        head = f"POST /connect HTTP/1.1\r\nHost: 127.0.0.1:{slave.port}\r\nChannel: 0\r\nToken: T\r\n"
        client.sendall(head.encode() + b"Expect: 100-continue\r\nContent-Length: %d\r\n\r\n" % len(body))
        stream = client.makefile("rb")
        assert stream.readline() + stream.readline() == b"HTTP/1.1 100 Continue\r\n\r\n"
        client.sendall(body)
        assert stream.readline() == b"HTTP/1.1 200 OK\r\n"
