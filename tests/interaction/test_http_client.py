"""The client, against a server that answers what a test tells it to."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
import requests
from requests.adapters import HTTPAdapter

from ding.interaction.base import HttpEngine, get_http_engine_class
from tests.interaction.fakes import Proxy, free_port

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


def test_proxies_and_passwords_of_the_environment_are_left_alone(server, monkeypatch, tmp_path):
    (tmp_path / "netrc").write_text("machine 127.0.0.1 login me password secret\n")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
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
