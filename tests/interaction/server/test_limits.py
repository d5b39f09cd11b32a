"""What somebody who may not ask for anything can cost a server: bytes, connections, descriptors, time."""

import contextlib
import json
import os
import socket
import subprocess
import sys

import psutil
import pytest

from ding.interaction import server as server_module
from tests.interaction.fakes import DEADLINE_S, Adder, Watcher, outcome, raw, self_token_of

SECRET = "s3cret-" + "x" * 40
MEGABYTE = 2**20
SERVE = """
import sys
from tests.interaction.fakes import Adder, self_token_of
with Adder() as slave:
    assert slave.ping()
    print(slave.port, self_token_of(slave), flush=True)
    sys.stdin.read()
"""


@contextlib.contextmanager
def slave_in_a_process(**environment):
    """`(process, port, its token for itself)`."""
    child = subprocess.Popen(
        [sys.executable, "-c", SERVE],
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


@pytest.mark.guarantees("strangers")
@pytest.mark.differs(
    "reads bodies of any size from anyone, and keeps any number of their connections",
    "reads a body only if its sender may send it; limits sizes, and strangers to 256 connections",
)
@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="reads /proc")
def test_six_unfinished_bodies_of_sixty_megabytes_cost_less_than_ten():
    with slave_in_a_process(DING_TOKEN=SECRET) as (process, port, _), contextlib.ExitStack() as stack:
        before = peak_bytes(process)
        head = f"POST /connect HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nChannel: 0\r\nToken: T\r\n"
        head += f"Content-Length: {60 * MEGABYTE}\r\n"
        replies = []
        for _ in range(6):
            client = stack.enter_context(socket.create_connection(("127.0.0.1", port), DEADLINE_S))
            client.sendall(head.encode() + b"\r\n")
            replies.append(client.makefile("rb").readline().split()[1])
            with contextlib.suppress(OSError):  # it may be cut off
                for _ in range(59):
                    client.sendall(b"x" * MEGABYTE)
        assert replies == [b"401"] * 6
        assert peak_bytes(process) - before < 10 * MEGABYTE


@pytest.mark.guarantees("strangers")
def test_strangers_take_few_descriptors():
    with slave_in_a_process() as (process, port, token), contextlib.ExitStack() as stack:
        for _ in range(400):
            stack.enter_context(socket.create_connection(("127.0.0.1", port), DEADLINE_S))
        assert outcome(raw(port, "GET", "/ping", headers={"Token": token})) == (200, 0)
        assert process.num_fds() < 300


def opened(port, message=b""):
    client = socket.create_connection(("127.0.0.1", port), DEADLINE_S)
    client.sendall(message)
    return client


def read_all(client):
    """What the server sends until it ends the connection."""
    received = b""
    with contextlib.suppress(ConnectionResetError):
        while data := client.recv(10_000):
            received += data
    return received


def own_ping(server, *headers):
    lines = ["GET /ping HTTP/1.1", f"Host: 127.0.0.1:{server.port}", f"Token: {self_token_of(server)}", *headers]
    return "\r\n".join([*lines, "", ""]).encode()


@pytest.mark.guarantees("strangers")
def test_of_the_connections_that_ask_for_nothing_the_oldest_give_way(monkeypatch):
    monkeypatch.setattr(server_module, "_MOST_STRANGERS", 5)
    with Adder() as slave, contextlib.ExitStack() as stack:
        keeps = stack.enter_context(opened(slave.port, own_ping(slave)))
        assert b"200" in keeps.recv(1000)
        silent = [stack.enter_context(opened(slave.port, b"GET / HTTP/1.1\r\nX-Slow: ")) for _ in range(20)]
        assert all(read_all(client) == b"" for client in silent[:15])
        assert slave.ping()
        keeps.sendall(own_ping(slave))  # it was admitted once, and is none of them
        assert b"200" in keeps.recv(1000)


def test_a_head_without_end_is_cut_off():
    with Watcher() as master, opened(master.port, b"GET /ping HTTP/1.1\r\n") as client:
        with pytest.raises(OSError):
            for i in range(10_000):
                client.sendall(b"X-%d: %s\r\n" % (i, b"y" * 1000))
        assert master.ping()


@pytest.mark.guarantees("strangers")
@pytest.mark.parametrize(
    "framing",
    ["", "Content-Length: -1", "Content-Length: 10\r\nTransfer-Encoding: chunked", "Transfer-Encoding: chunked"],
)
def test_a_stranger_gets_one_reply_and_the_rest_is_not_parsed(set_env, framing):
    set_env(DING_TOKEN=SECRET)
    with Adder() as slave:
        request = f"POST /ping HTTP/1.1\r\nHost: 127.0.0.1:{slave.port}\r\n{framing}\r\n\r\n".encode()
        with opened(slave.port, request * 3) as client:
            head, _, content = read_all(client).partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 401 Unauthorized\r\n") and json.loads(content)["success"] is False
