"""Masters and slaves for tests, a raw client, and a proxy that mistreats messages."""

import contextlib
import gc
import http.client
import json
import os
import shutil
import socket
import subprocess
import threading
import uuid

import pytest

from ding.interaction import Master, Slave, TaskFail
from ding.interaction.http_client import BINARY
from ding.utils.msgpack_helper import pack, unpack
from ding.utils.system_helper import find_free_port

DEADLINE_S = 60  # for what happens at once
QUICK = {"request_retries": 1, "request_retry_waiting": 0.01}


class Adder(Slave):
    """Adds; fails as it is told to."""

    def __init__(self, host=None, port=0, **kwargs):
        super().__init__(host, port, **{**QUICK, **kwargs})
        self.seen = []
        self.lost = threading.Event()
        self.losses = []

    def _process_task(self, task):
        self.seen.append(task)
        if "fail" in task:
            raise TaskFail(result=task["fail"], message="told to fail")
        if "raise" in task:
            raise ZeroDivisionError(task["raise"])
        return {"sum": task["a"] + task["b"]}

    def _lost_connection(self, master_address, err):
        self.losses.append((master_address, err))
        self.lost.set()


class Gated(Adder):
    """A slave whose tasks wait until `go` is set; `running` says that one has begun."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.running, self.go = threading.Event(), threading.Event()

    def _process_task(self, task):
        self.running.set()
        assert self.go.wait(DEADLINE_S)
        return super()._process_task(task)


class Watcher(Master):
    """A master that notes what it loses."""

    def __init__(self, host=None, port=0, **kwargs):
        super().__init__(host, port, **{**QUICK, **kwargs})
        self.lost = threading.Event()
        self.losses = []

    def _lost_connection(self, name, reason):
        self.losses.append((name, reason))
        self.lost.set()


@contextlib.contextmanager
def pair(slave=None, master=None):
    """`(master, slave, connection)`, connected."""
    slave, master = slave or Adder(), master or Watcher()
    with slave, master:
        connection = master.new_connection("conn", "127.0.0.1", slave.port)
        connection.connect()
        yield master, slave, connection


def raw(port, method, path, body=b"\x80", headers=None, host="127.0.0.1"):
    """`(status, reply)` of a request as it stands; `body` is a dict, bytes, or an iterable of bytes, sent in chunks."""
    body = pack(body) if isinstance(body, dict) else body
    connection = http.client.HTTPConnection(host, port, timeout=DEADLINE_S)
    try:
        connection.request(method, path, body=body, headers=headers or {}, encode_chunked=not isinstance(body, bytes))
        response = connection.getresponse()
        decode = unpack if response.headers["Content-Type"] == BINARY else json.loads
        return response.status, decode(response.read())
    finally:
        connection.close()


def outcome(reply):
    """`(status, code)` of what `raw` returned, whose envelope must be whole."""
    status, values = reply
    assert set(values) == {"success", "code", "message", "data"}
    assert values["success"] == (values["code"] == 0) == (status == 200)
    return status, values["code"]


def current_of(slave):
    """The session and the last task of a slave."""
    return slave._Slave__current


def self_token_of(server):
    """The token with which a server asks itself."""
    return server._Role__self_token


def wait_until_idle(slave):
    """Wait until no task of the slave waits or runs."""
    assert current_of(slave).wait_for(lambda: not current_of(slave).is_busy, DEADLINE_S)


def lose(connection, reason="for a test"):
    """Have the master lose a slave."""
    connection.lose(connection._session, reason)


def task_id():
    return str(uuid.uuid4())


def open_files():
    """How many file descriptors this process has, but for those that only wait to be collected."""
    gc.collect()
    return len(os.listdir("/proc/self/fd"))


def free_port():
    """A port that was free a moment ago."""
    return find_free_port("127.0.0.1")


def make_certificate(folder, name):
    """The files of a certificate for `name` that has signed itself, and of its key; skips the test without openssl."""
    if shutil.which("openssl") is None:
        pytest.skip("needs the command openssl")
    cert, key = folder / f"{name}.pem", folder / f"{name}.key"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    command += ["-subj", "/CN=ding", "-addext", f"subjectAltName={name}", "-keyout", str(key), "-out", str(cert)]
    subprocess.run(command, check=True, capture_output=True, timeout=DEADLINE_S)
    return str(cert), str(key)


def configure_tls(monkeypatch, folder, name="IP:127.0.0.1"):
    """Have servers use a certificate for `name`, and clients trust it."""
    cert, key = make_certificate(folder, name)
    for variable, path in (("DING_TLS_CERT", cert), ("DING_TLS_KEY", key), ("DING_TLS_CA", cert)):
        monkeypatch.setenv(variable, path)


def read_message(stream):
    """The bytes of one HTTP message with a Content-Length; empty at the end of the stream."""
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        line = stream.readline()
        if not line:
            return b""
        head += line
    length = next(
        (int(line.split(b":")[1]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:")), 0
    )
    return head + stream.read(length)


class Listener:
    """Accepts connections at `port`, within its `with` block, and runs `serve` in a thread for each."""

    def __init__(self, port=0):
        self.sockets, self._threads = [], []  # those of the connections
        self._listener = socket.create_server(("127.0.0.1", port))
        self.port = self._listener.getsockname()[1]

    def serve(self, client):
        raise NotImplementedError

    def __enter__(self):
        self.spawn(self._accept)
        return self

    def __exit__(self, *exc_info):
        for end in [self._listener, *self.sockets]:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()
        for thread in self._threads:
            thread.join(DEADLINE_S)
            assert not thread.is_alive()

    def spawn(self, target, *args):
        thread = threading.Thread(target=target, args=args, daemon=True)
        self._threads.append(thread)
        thread.start()

    def keep(self, end):
        """Close the socket `end` at the end of the block at the latest."""
        self.sockets.append(end)
        return end

    def _accept(self):
        with contextlib.suppress(OSError):
            while True:
                self.spawn(self._serve, self.keep(self._listener.accept()[0]))

    def _serve(self, client):
        with contextlib.suppress(OSError), client:
            self.serve(client)


class Proxy(Listener):
    """Passes HTTP requests on to `port`, and does to each what the first matching rule says.

    Rules are `(text in the request line, what to do, how often)`: `lose` the request, lose the `reply` or `half` of it,
    `double` the request, or an event to wait for before it is passed on.
    """

    def __init__(self, port):
        super().__init__()
        self.target = port
        self._rules = []
        self.requests = []

    def rule(self, text, action, times=10**9):
        self._rules.append([text, action, times])

    def serve(self, client):
        with client.makefile("rb") as requests:
            while request := read_message(requests):
                line = request.split(b"\r\n")[0].decode()
                self.requests.append(line)
                action = self._action(line)
                if isinstance(action, threading.Event):
                    assert action.wait(DEADLINE_S)
                if action == "lose":
                    return
                reply = self._forward(request)
                if action == "double":
                    reply = self._forward(request)
                if action == "reply":
                    return
                if action == "half":
                    client.sendall(reply[:-2])
                    return
                client.sendall(reply)

    def _action(self, line):
        for rule in self._rules:
            if rule[0] in line and rule[2] > 0:
                rule[2] -= 1
                return rule[1]
        return "pass"

    def _forward(self, request):
        with socket.create_connection(("127.0.0.1", self.target), DEADLINE_S) as server:
            server.sendall(request)
            with server.makefile("rb") as replies:
                return read_message(replies)
