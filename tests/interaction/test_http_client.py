"""The client, against a server that answers what a test tells it to."""

import contextlib
import json
import socket
import struct
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
import requests
from requests.adapters import HTTPAdapter

from ding.interaction.base import HttpEngine, get_http_engine_class
from ding.interaction.client import PeerClient
from tests.interaction.fakes import DEADLINE_S, Listener, Proxy, free_port, read_message
from tests.worker.collector.parallel_fakes import in_thread

QUICK = {"retries": 2, "retry_waiting": 0.001}


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def answer(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.server.seen.append((self.command, self.path, dict(self.headers), body, self.client_address))
        status, headers = self.server.replies.get(self.path, (200, {}))
        text = b'{"reply": true}'
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(text))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(text)

    do_GET = do_POST = do_PUT = do_DELETE = answer

    def log_message(self, *args):
        """Quiet."""


@pytest.fixture
def server():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    server.seen, server.replies = [], {}
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    engines = []

    def engine(kind=HttpEngine, **kwargs):
        engines.append(kind("127.0.0.1", server.server_port, **kwargs))
        return engines[-1]

    server.engine = engine
    yield server
    for engine in engines:
        engine.close()
    server.shutdown()
    thread.join(20)
    server.server_close()


@pytest.mark.parametrize(
    ("args", "path", "url"),
    [
        (("example.com", 80), None, "http://example.com:80"),
        (("example.com", 443, True), "x", "https://example.com:443/x"),
        (("example.com", 8000, False, "this/is"), "path/", "http://example.com:8000/this/is/path"),
        (("example.com", 8000, False, "/this/is/"), "/path", "http://example.com:8000/this/is/path"),
        (("example.com", 8000, False, "/"), "", "http://example.com:8000"),
        (("::1", 5), "/x", "http://[::1]:5/x"),
    ],
)
def test_base_path_and_path_are_joined(args, path, url):
    assert HttpEngine(*args).get_url(path) == url


def test_a_request_carries_method_path_data_headers_and_params(server):
    response = server.engine(path="root").request(
        "PUT", "some/path", {"a": [1, "ü"]}, headers={"X-A": "b"}, params={"q": 1}
    )
    assert isinstance(response, requests.Response) and response.json() == {"reply": True}
    method, path, headers, body, _ = server.seen[0]
    assert (method, path, json.loads(body)) == ("PUT", "/root/some/path?q=1", {"a": [1, "ü"]})
    assert headers["X-A"] == "b" and "Content-Type" not in headers
    assert response.request.headers["X-A"] == "b" and json.loads(response.request.body) == {"a": [1, "ü"]}


@pytest.mark.parametrize("data", [None, {}])
def test_the_body_is_an_empty_object_without_data(server, data):
    server.engine().request("GET", "x", data)
    assert server.seen[0][3] == b"{}"


def test_a_bad_status_is_raised_at_once_and_can_be_read(server):
    server.replies["/x"] = (404, {})
    with pytest.raises(requests.HTTPError) as error:
        server.engine().request("GET", "x", **QUICK)
    assert error.value.response.status_code == 404 and error.value.response.json() == {"reply": True}
    assert len(server.seen) == 1


def test_a_bad_status_can_be_let_through(server):
    server.replies["/x"] = (404, {})
    assert server.engine().request("GET", "x", raise_for_status=False).status_code == 404


def test_redirects_are_not_followed(server):
    server.replies["/x"] = (302, {"Location": "/y"})
    assert server.engine().request("GET", "x").status_code == 302 and len(server.seen) == 1


@pytest.mark.parametrize("fault", ["lose", "reply", "half"])
def test_transport_errors_are_tried_again(server, fault):
    with Proxy(server.server_port) as proxy:
        engine = HttpEngine("127.0.0.1", proxy.port)
        proxy.rule("/x", fault, times=2)
        assert engine.request("GET", "x", **QUICK).status_code == 200
        assert len(proxy.requests) == 3
        proxy.rule("/x", fault, times=3)
        with pytest.raises((requests.ConnectionError, requests.Timeout, requests.exceptions.ChunkedEncodingError)):
            engine.request("GET", "x", **QUICK)
        assert len(proxy.requests) == 6
        engine.close()


def test_without_a_number_there_are_five_more_tries(server):
    with Proxy(server.server_port) as proxy:
        engine = HttpEngine("127.0.0.1", proxy.port)
        proxy.rule("/x", "lose")
        with pytest.raises(requests.ConnectionError):
            engine.request("GET", "x", retries=0, retry_waiting=0.001)
        assert len(proxy.requests) == 6
        engine.close()


def test_a_server_that_does_not_answer_runs_into_the_timeout(server):
    with Proxy(server.server_port) as proxy:
        late = threading.Event()
        proxy.rule("/x", late)
        engine = HttpEngine("127.0.0.1", proxy.port)
        with pytest.raises(requests.Timeout):
            engine.request("GET", "x", retries=1, retry_waiting=0.001, timeout=(1.0, 0.05))
        assert len(proxy.requests) == 2
        late.set()
        engine.close()


@pytest.mark.differs(
    "has no timeout for requests or `Task.join`",
    "waits 5 s for a connection and 30 s for a reply; `join` takes a timeout",
)
def test_a_request_without_a_timeout_of_its_own_has_the_default_one(server, monkeypatch):
    timeouts, send = [], HTTPAdapter.send

    def note(adapter, prepared, **options):
        timeouts.append(options["timeout"])
        return send(adapter, prepared, **options)

    monkeypatch.setattr(HTTPAdapter, "send", note)
    engine = server.engine()
    engine.request("GET", "x")
    engine.request("GET", "x", timeout=(2.0, 3.0))
    assert timeouts == [(5.0, 30.0), (2.0, 3.0)]


def test_proxies_and_passwords_of_the_environment_are_left_alone(server, set_env, tmp_path):
    (tmp_path / "netrc").write_text("machine 127.0.0.1 login me password secret\n")
    set_env(NETRC=tmp_path / "netrc", HTTP_PROXY="http://127.0.0.1:9", http_proxy="http://127.0.0.1:9")
    server.engine().request("GET", "x")
    assert "Authorization" not in server.seen[0][2]


def test_an_engine_class_adds_headers_and_rewrites_the_body(server):
    make = get_http_engine_class(
        headers={"Token": lambda token: token, "Kind": lambda token: "default"},
        data_processor=lambda data: {"wrapped": data},
    )
    engine = server.engine(make("secret"))
    engine.request("POST", "x", {"a": 1}, headers={"Kind": "given"})
    _, _, headers, body, _ = server.seen[0]
    assert (headers["Token"], headers["Kind"], json.loads(body)) == ("secret", "given", {"wrapped": {"a": 1}})
    assert issubclass(make("x"), HttpEngine)


def test_an_engine_class_maps_status_errors_only(server):
    class Refused(Exception):
        pass

    make = get_http_engine_class(headers={}, http_error_gene=lambda error: Refused(error.response.status_code))
    server.replies["/x"] = (403, {})
    with pytest.raises(Refused) as refused:
        server.engine(make()).request("GET", "x")
    assert isinstance(refused.value.__cause__, requests.HTTPError)
    with pytest.raises(requests.ConnectionError):
        make()("127.0.0.1", free_port()).request("GET", "x", **QUICK)


# The client, against servers that mistreat it.


ENVELOPE = b'{"success": true, "code": 0, "message": "", "data": null}'
OK = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(ENVELOPE), ENVELOPE)


class Server(Listener):
    """Calls `serve(client, stream)` for each connection."""

    def __init__(self, serve):
        super().__init__()
        self._serve_stream = serve

    def serve(self, client):
        with client.makefile("rb") as stream:
            self._serve_stream(client, stream)


def engine_to(port, https=False):
    return PeerClient("slave", ("127.0.0.1", port, https), {"Token": "T"}, None, 1, 0.01)


@contextlib.contextmanager
def served(serve):
    """An engine for a server that calls `serve(client, stream)` for each connection, and the server's sockets."""
    with Server(serve) as server:
        engine = engine_to(server.port)
        yield engine, server.sockets
        engine.close()


def exchange(engine, data=None, reply_s=DEADLINE_S, within_s=DEADLINE_S):
    return engine.request(
        "POST", "/x", data, timeout=(5.0, reply_s), deadline=time.monotonic() + within_s, most_retries=0
    )


def answering(*replies):
    """Serves `replies` in turn, and again."""

    def serve(client, stream):
        while True:
            for reply in replies:
                if not read_message(stream):
                    return
                client.sendall(reply)

    return serve


CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


@pytest.mark.parametrize(
    "reply",
    [
        OK,
        CHUNKED + b"%x\r\n%s\r\n1\r\n \r\n0\r\n\r\n" % (len(ENVELOPE), ENVELOPE),
        b"HTTP/1.1 100 Continue\r\n\r\n" + OK,
    ],
)
def test_one_connection_carries_all_exchanges(reply):
    with served(answering(reply)) as (pool, clients):
        for _ in range(5):
            received = exchange(pool)
            assert (received.status_code, received.content.strip()) == (200, ENVELOPE)
        assert len(clients) == 1


def close(client):
    client.shutdown(socket.SHUT_RDWR)


def reset(client):
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


@pytest.mark.parametrize("end", [close, reset])
def test_a_connection_that_the_server_has_ended_is_replaced(end):
    ended = threading.Event()

    def serve(client, stream):
        read_message(stream)
        client.sendall(OK)
        assert received.wait(DEADLINE_S)
        end(client)
        stream.close()
        client.close()
        ended.set()

    with served(serve) as (pool, clients):
        for count in (1, 2, 3):
            received = threading.Event()
            assert exchange(pool).content == ENVELOPE and len(clients) == count
            received.set()
            assert ended.wait(DEADLINE_S)
            ended.clear()


@pytest.mark.parametrize(
    "reply",
    [b"", b"HTTP/1.1 200", OK[:-1], CHUNKED + b"2\r\n{}", b"none\r\n\r\n"],
)
def test_half_a_reply_is_a_connection_error(reply):
    def serve(client, stream):
        read_message(stream)
        client.sendall(reply)

    with served(serve) as (pool, _), pytest.raises(requests.ConnectionError):
        exchange(pool)


@pytest.mark.parametrize("options", [{"reply_s": 0.3}, {"within_s": 0.3}])
@pytest.mark.parametrize(
    ("begin", "drop"),
    [(b"HTTP/1.1 200 OK\r\n", b""), (OK[:-50], b""), (OK[:-50], b"x")],
    ids=["half a head", "half a body", "a slow body"],
)
def test_a_server_that_is_mute_or_slow_runs_into_the_limit(options, begin, drop):
    ended = threading.Event()

    def serve(client, stream):
        read_message(stream)
        client.sendall(begin)
        while not ended.wait(0.05):
            client.sendall(drop)

    with served(serve) as (pool, _):
        begin_s = time.monotonic()
        with pytest.raises(requests.Timeout):
            exchange(pool, **options)
        assert time.monotonic() - begin_s < DEADLINE_S / 2
        ended.set()


def test_nobody_there_is_a_connection_error():
    with pytest.raises(requests.ConnectionError):
        exchange(engine_to(free_port()))


def test_closing_ends_a_request_that_waits_for_its_reply():
    asked = threading.Event()

    def serve(client, stream):
        read_message(stream)
        asked.set()
        stream.read()

    with served(serve) as (pool, _):
        outcome = in_thread(exchange, pool)
        assert asked.wait(DEADLINE_S)
        pool.close()
        assert isinstance(outcome(), requests.ConnectionError)
