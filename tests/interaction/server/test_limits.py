"""What somebody who may not ask for anything can cost a server: bytes, connections, descriptors, time."""

import contextlib
import errno
import json
import os
import socket
import subprocess
import sys
import threading

import psutil
import pytest

from ding.interaction.base import Page
from ding.interaction.server import guard
from tests.interaction.fakes import DEADLINE_S, Adder, Watcher, outcome, pair, raw

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


@pytest.mark.differs(
    "bodies are read before anybody has asked whose they are",
    "the head decides whether a body is read, and how much of it",
)
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


@pytest.mark.differs(
    "any number of connections of strangers are kept, up to the descriptors of the process",
    "at most 512, and a quarter of the descriptors",
)
def test_strangers_take_at_most_a_quarter_of_the_descriptors():
    with slave_in_a_process(descriptors=64) as (process, port, token), contextlib.ExitStack() as stack:
        for _ in range(200):
            stack.enter_context(socket.create_connection(("127.0.0.1", port), DEADLINE_S))
        assert outcome(raw(port, "GET", "/ping", headers={"Token": token})) == (200, 0)
        assert process.num_fds() < 48


@pytest.mark.differs(
    "a server without free descriptors uses a core for nothing",
    "it accepts no connections for a while",
)
def test_without_descriptors_it_waits_and_serves_again(monkeypatch, caplog):
    monkeypatch.setattr(guard, "_ACCEPT_RETRY_S", 0.2)
    tries = []

    class Full:
        def __init__(self, listener):
            self._listener = listener

        def __getattr__(self, name):
            return getattr(self._listener, name)

        def accept(self):
            tries.append(1)
            if len(tries) < 3:
                raise OSError(errno.EMFILE, "Too many open files")
            return self._listener.accept()

    slave = Adder()
    listen = guard._listen
    monkeypatch.setattr(guard, "_listen", lambda host, port: Full(listen(host, port)))
    with slave:
        assert slave.ping()
    assert len(tries) > 2 and caplog.text.count("accepts no connections at the moment") == 1


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


@pytest.mark.differs(
    "connections that ask for nothing stay forever",
    "they end after 10 s, and the oldest of more than 128 at once",
)
def test_of_the_connections_that_ask_for_nothing_the_oldest_give_way(monkeypatch):
    monkeypatch.setattr(guard, "_MOST_NEW", 5)
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


def test_who_has_asked_is_answered_before_it_would_give_way_to_those_who_connect_after_it():
    held, go = threading.Event(), threading.Event()

    def hold():
        held.set()
        go.wait(DEADLINE_S)

    with Adder() as slave, contextlib.ExitStack() as stack:
        slave._Role__server._loop.call_soon_threadsafe(hold)
        assert held.wait(DEADLINE_S)
        client = stack.enter_context(opened(slave.port, own_ping(slave, "Connection: close")))
        for _ in range(400):
            stack.enter_context(opened(slave.port))
        go.set()
        assert statuses(client.makefile("rb").read()) == [200]


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere 127.0.0.1 is the only address of this kind")
def test_of_those_that_come_from_many_addresses_the_oldest_give_way_too(monkeypatch):
    monkeypatch.setattr(guard, "_MOST_NEW_OF_ALL", 5)
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
    monkeypatch.setattr(guard, "_ADMISSION_S", 0.2)
    monkeypatch.setattr(guard, "_SWEEP_S", 0.05)
    with Adder() as slave, opened(slave.port, message) as client:
        assert is_closed(client)
        assert slave.ping()


def test_a_body_that_does_not_come_ends_the_connection_and_keeps_nobody_else(monkeypatch):
    monkeypatch.setattr(guard, "_ADMISSION_S", 0.2)
    monkeypatch.setattr(guard, "_SWEEP_S", 0.05)
    with Adder() as slave:
        head = f"POST /connect HTTP/1.1\r\nHost: 127.0.0.1:{slave.port}\r\nChannel: 0\r\nToken: T\r\n"
        with opened(slave.port, head.encode() + b"Content-Length: 100\r\n\r\n{") as client:
            assert is_closed(client)
        assert slave.ping()


def test_a_head_over_the_limit_is_a_431():
    with Watcher() as master, opened(master.port, b"GET /ping HTTP/1.1\r\n") as client:
        client.sendall(b"".join(b"X-%d: %s\r\n" % (i, b"y" * 1000) for i in range(20)) + b"\r\n")
        assert client.makefile("rb").readline() == b"HTTP/1.1 431 Request Header Fields Too Large\r\n"


def test_a_head_without_end_is_cut_off():
    with Watcher() as master, opened(master.port, b"GET /ping HTTP/1.1\r\n") as client:
        with pytest.raises(OSError):
            for i in range(10_000):
                client.sendall(b"X-%d: %s\r\n" % (i, b"y" * 1000))
        assert master.ping()


def chunked(port):
    head = f"GET / HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n"
    return head.encode()


@pytest.mark.parametrize("trailer", [b"X: %s\r\n" % (b"y" * 1000), b"y" * 1000], ids=["fields", "one value"])
def test_trailers_without_end_are_cut_off(trailer):
    master = Watcher()
    master.serve_page("/", Page(str))
    with master, opened(master.port, chunked(master.port) + b"X: ") as client:
        with pytest.raises(OSError):
            for _ in range(10_000):
                client.sendall(trailer)
        assert master.ping()


def test_a_stranger_who_does_not_read_gets_one_reply_and_the_rest_is_not_parsed(monkeypatch):
    served = []
    master = Watcher()
    master.serve_page("/", Page(lambda: served.append(1) or "text"))
    head = f"GET / HTTP/1.1\r\nHost: 127.0.0.1:{master.port}\r\n\r\n"
    with master, opened(master.port) as client:
        head = f"GET / HTTP/1.1\r\nHost: 127.0.0.1:{master.port}\r\n\r\n".encode()
        with contextlib.suppress(OSError):
            for _ in range(100):
                client.sendall(head * 1000)
        assert is_closed_after_reply(client)
        assert master.ping()
    assert served == [1]


@pytest.mark.parametrize(
    "body",
    [
        b"Content-Length: -1\r\n\r\n",
        b"Transfer-Encoding: chunked\r\nContent-Length: 10\r\n\r\n0\r\n\r\n",
        b"Transfer-Encoding: chunked\r\n\r\n0x1\r\nx\r\n0\r\n\r\n",
    ],
    ids=["length", "two lengths", "chunk"],
)
def test_a_stranger_whose_body_is_malformed_gets_one_reply_too(monkeypatch, body):
    monkeypatch.setenv("DING_TOKEN", SECRET)
    with Adder() as slave:
        head = f"POST /ping HTTP/1.1\r\nHost: 127.0.0.1:{slave.port}\r\n".encode()
        with opened(slave.port, head + body) as client:
            reply = client.makefile("rb").read()
    head, _, content = reply.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 401 Unauthorized\r\n") and json.loads(content)["success"] is False


def is_closed_after_reply(client):
    with contextlib.suppress(ConnectionResetError):
        while client.recv(10_000):
            pass
    return True


@pytest.mark.differs(
    "replies pile up for a client that reads none",
    "one reply is on its way at a time, and a stranger gets one",
)
def test_a_peer_who_does_not_read_has_no_more_of_its_requests_read():
    """One reply is on its way at a time: what is asked beyond it waits in the client's own buffers."""
    with Adder() as slave, opened(slave.port) as client:
        request = f"GET /ping HTTP/1.1\r\nHost: 127.0.0.1:{slave.port}\r\nToken: {slave._Role__self_token}\r\n\r\n"
        client.settimeout(0.5)
        with pytest.raises(TimeoutError):
            while True:
                client.sendall(request.encode() * 100)
        assert slave.ping()


def test_unfinished_bodies_of_strangers_are_limited_together(monkeypatch):
    monkeypatch.setattr(guard, "_STRANGERS_BYTES", 100_000)
    body = b'{"master": {"address": "http://127.0.0.1:9"}, "data": {}}'
    with Adder() as slave, contextlib.ExitStack() as stack:
        head = f"POST /connect HTTP/1.1\r\nHost: 127.0.0.1:{slave.port}\r\nChannel: 0\r\nToken: T\r\n"
        head += "Content-Length: 60000\r\n\r\n"
        first, second = (stack.enter_context(opened(slave.port, head.encode() + b"x" * 59_000)) for _ in range(2))
        statuses = {c.makefile("rb").readline() for c in (second,)}
        assert statuses == {b"HTTP/1.1 503 Service Unavailable\r\n"}
        first.sendall(b"x" * 1000)
        assert first.makefile("rb").readline() == b"HTTP/1.1 400 Bad Request\r\n"
        assert outcome(raw(slave.port, "POST", "/connect", body, {"Channel": "0", "Token": "T"})) == (200, 0)


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
    with pair() as (_, slave, connection):
        head = f"Host: 127.0.0.1:{slave.port}\r\nChannel: 0\r\n"
        ping = f"GET /ping HTTP/1.1\r\n{head}Token: {slave._Role__self_token}\r\n\r\n"
        slow = f"POST /task/new HTTP/1.1\r\n{head}Token: {connection._last_token}\r\nContent-Length: 2\r\n\r\n{{}}"
        messages = [slow, ping, slow, ping, f"GET /nowhere HTTP/1.1\r\n{head}\r\n", ping]
        with opened(slave.port, "".join(messages).encode()) as client:
            replies = client.makefile("rb").read()
        statuses = [line[:3] for line in replies.split(b"HTTP/1.1 ")[1:]]
        assert statuses == [b"400", b"200", b"400", b"200", b"404"]  # a refusal by the head ends the connection


def own_ping(server, *headers):
    lines = ["GET /ping HTTP/1.1", f"Host: 127.0.0.1:{server.port}", f"Token: {server._Role__self_token}", *headers]
    return "\r\n".join([*lines, "", ""]).encode()


def statuses(replies):
    return [int(line[:3]) for line in replies.split(b"HTTP/1.1 ")[1:]]


def test_a_head_may_come_byte_by_byte():
    with Adder() as slave, opened(slave.port) as client:
        for byte in own_ping(slave, "Connection: close"):
            client.sendall(bytes([byte]))
        assert statuses(client.makefile("rb").read()) == [200]


def test_a_request_that_is_refused_ends_the_connection_after_the_replies_to_those_before_it():
    with Adder() as slave:
        ping = own_ping(slave)
        for bad, status in ((ping.replace(b"/ping", b"/nowhere"), 404), (b"\0\r\n\r\n", 400)):
            with opened(slave.port, ping * 3 + bad + ping) as client:
                assert statuses(client.makefile("rb").read()) == [200, 200, 200, status]


def test_what_follows_the_last_request_of_a_connection_is_not_read():
    with Adder() as slave, opened(slave.port, own_ping(slave, "Connection: close") + own_ping(slave)) as client:
        assert statuses(client.makefile("rb").read()) == [200]


def test_another_protocol_is_not_spoken_on_request():
    upgrade, last = ("Connection: Upgrade", "Upgrade: websocket"), "Connection: close"
    with Adder() as slave, opened(slave.port, own_ping(slave, *upgrade) + own_ping(slave, last)) as client:
        assert statuses(client.makefile("rb").read()) == [200, 200]


@pytest.mark.parametrize("begin", [b"2;", b"2\r\n{}\r\n0\r\nX: "], ids=["extension of a chunk", "trailer"])
def test_what_belongs_to_no_body_is_cut_off(begin):
    with Adder() as slave, opened(slave.port, own_ping(slave, "Transfer-Encoding: chunked") + begin) as client:
        received = b""
        with contextlib.suppress(ConnectionResetError, BrokenPipeError):
            client.sendall(b"a" * 100_000)
            while data := client.recv(10_000):
                received += data
        assert statuses(received) in ([], [400])


def test_a_reader_that_is_slow_gets_the_whole_page():
    master = Watcher()
    master.serve_page("/", Page(lambda: "x" * 8 * MEGABYTE))
    with master, opened(master.port, b"GET / HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n\r\n" % master.port) as client:
        assert master.ping()  # its request was read before, and its reply does not fit into the buffers
        assert client.makefile("rb").read().endswith(b"\r\n\r\n" + b"x" * 8 * MEGABYTE)


def test_a_client_that_waits_for_leave_to_send_its_body_gets_it():
    with Adder() as slave, opened(slave.port) as client:
        body = json.dumps({"master": {"address": "http://127.0.0.1:9"}, "data": {}}).encode()
        head = f"POST /connect HTTP/1.1\r\nHost: 127.0.0.1:{slave.port}\r\nChannel: 0\r\nToken: T\r\n"
        client.sendall(head.encode() + b"Expect: 100-continue\r\nContent-Length: %d\r\n\r\n" % len(body))
        stream = client.makefile("rb")
        assert stream.readline().startswith(b"HTTP/1.1 100 ") and stream.readline() == b"\r\n"
        client.sendall(body)
        assert stream.readline() == b"HTTP/1.1 200 OK\r\n"
