"""Pages of a master: what is served beside the protocol, and to whom."""

import contextlib
import http.client
import json
import socket
import time

import flask
import pytest

from ding.interaction import Master
from ding.interaction.base import Page
from ding.interaction.server.signing import SCHEME
from tests.interaction.fakes import DEADLINE_S, QUICK, Watcher, outcome, pair, raw

SECRET = "s3cret-" + "x" * 40


def get(port, path, method="GET", **headers):
    """`(status, headers, body)` of a reply; the names of headers in lower case."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=DEADLINE_S)
    try:
        connection.request(method, path, headers=headers)
        response = connection.getresponse()
        return response.status, {name.lower(): value for name, value in response.getheaders()}, response.read()
    finally:
        connection.close()


@pytest.fixture
def serve(monkeypatch):
    made = []

    def serve(pages, token=None):
        if token is not None:
            monkeypatch.setenv("DING_TOKEN", token)
        master = Watcher()
        made.append(master)
        for path, page in pages.items():
            master.serve_page(path, page)
        master.start()
        return master.port

    yield serve
    for master in made:
        master.close()


def test_a_page_is_made_anew_for_each_request_and_kept_by_nobody(serve):
    bodies = iter(["<p>1</p>", b"<p>2</p>"])
    port = serve({"/": Page(lambda: next(bodies), "text/html; charset=utf-8", {"Content-Security-Policy": "x"})})
    status, headers, body = get(port, "/")
    assert (status, body) == (200, b"<p>1</p>")
    shown = {name: headers[name] for name in headers if name not in ("content-length", "connection")}
    assert shown == {
        "content-type": "text/html; charset=utf-8",
        "content-security-policy": "x",
        "cache-control": "no-store",
        "cross-origin-resource-policy": "same-origin",
        "referrer-policy": "no-referrer",
        "x-content-type-options": "nosniff",
    }
    assert get(port, "/?any=query")[2] == b"<p>2</p>"


def test_pages_are_data_unless_they_say_otherwise(serve):
    assert get(serve({"/data.json": Page(lambda: "{}")}), "/data.json")[1]["content-type"] == "application/json"


def test_a_page_is_read_and_nothing_else(serve):
    port = serve({"/page": Page(lambda: "text")})
    assert [get(port, "/page", method)[0] for method in ("HEAD", "POST", "PUT", "DELETE")] == [200, 405, 405, 405]
    assert get(port, "/page/")[0] == get(port, "/other")[0] == 404


def test_without_the_token_everything_is_a_401_and_that_of_a_public_page_shows_it(serve):
    pages = {"/": Page(lambda: "text", "text/html", is_public=True), "/data": Page(lambda: "{}")}
    port = serve(pages, SECRET)
    for method, text in (("GET", b"text"), ("HEAD", b"")):
        status, headers, body = get(port, "/", method)
        assert (status, headers["www-authenticate"], headers["content-type"]) == (401, "Bearer", "text/html")
        assert (body, headers["connection"]) == (text, "close")
    for path, method in (
        ("/", "POST"), ("/", "OPTIONS"), ("/data", "GET"), ("//data", "GET"), ("/%2e", "GET"), ("/./data", "GET"),
        ("/data?/", "GET"), ("/?/../data", "OPTIONS"), ("/none", "GET"), ("/ping", "GET"),
    ):  # fmt: skip
        status, headers, _ = get(port, path, method)
        challenge = "Bearer" if path.partition("?")[0] in pages else SCHEME
        assert (status, headers["www-authenticate"]) == (401, challenge), (path, method)
    assert get(port, "/data", Authorization="Bearer wrong")[0] == 401
    assert get(port, "/data", Authorization=f"Bearer {SECRET}")[0] == 200
    assert get(port, "/", Authorization="Bearer wrong")[0] == 401
    assert get(port, "/", Authorization=f"Bearer {SECRET}")[0] == 200


def test_readers_of_pages_have_no_longer_connections_than_other_strangers(serve):
    port = serve({"/": Page(lambda: "text")})
    with contextlib.ExitStack() as stack:
        for _ in range(300):
            client = stack.enter_context(socket.create_connection(("127.0.0.1", port), DEADLINE_S))
            client.sendall(b"GET / HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n\r\n" % port)
            reply = client.makefile("rb").read()  # up to the end of the connection
            assert reply.startswith(b"HTTP/1.1 200 OK\r\n") and reply.endswith(b"text")


def test_a_page_that_fails_is_a_500_which_names_the_error(serve, caplog):
    def fail():
        raise ZeroDivisionError("inside")

    port = serve({"/": Page(fail)})
    assert raw(port, "GET", "/") == (
        500, {"success": False, "code": 1, "message": "ZeroDivisionError: inside", "data": None}
    )  # fmt: skip
    assert "Traceback" in caplog.text
    assert outcome(raw(port, "GET", "/nowhere")) == (404, 1)


def test_pages_come_before_the_start():
    text = "'/' comes too late: add pages before the master starts"
    with Watcher() as master, pytest.raises(RuntimeError, match=text):
        master.serve_page("/", Page(str))
    with pytest.raises(RuntimeError, match="comes too late"):
        master.serve_page("/", Page(str))


@pytest.mark.parametrize("path", ["", "page", "/<name>", "/a b", "/a?b", "/%41", "/\u00e4"])
def test_a_path_that_is_none_is_refused(path):
    with pytest.raises(ValueError, match="path = .* is not allowed; it must be / and letters"):
        Master(**QUICK).serve_page(path, Page(str))


def test_a_page_may_look_at_its_request_as_in_any_flask_app(serve):
    def show():
        asked = flask.request
        return json.dumps([asked.method, asked.path, asked.args, asked.headers["X-Y"], asked.remote_addr, asked.scheme])

    port = serve({"/a//b/": Page(show)})
    status, _, body = get(port, "/a//b/?c=1&d=%20", **{"X-Y": "z"})
    assert status == 200
    assert json.loads(body) == ["GET", "/a//b/", {"c": "1", "d": " "}, "z", "127.0.0.1", "http"]
    assert get(port, "/a/b/")[0] == get(port, "/a//b")[0] == 404


def test_a_page_that_returns_something_else_is_a_500_too(serve):
    status, _, body = get(serve({"/": Page(lambda: 3)}), "/")
    assert status == 500 and b"TypeError: a page returned a int; it must be a str or bytes" in body


def test_a_method_in_lower_case_is_another_one(serve):
    port = serve({"/": Page(str)})
    assert [get(port, "/", method)[0] for method in ("GET", "HEAD", "get", "head")] == [200, 200, 405, 405]


@pytest.mark.parametrize("header", [{"X": "a\r\nSet-Cookie: b"}, {"X\r\nY": "a"}, {"X": "\u4e00"}, {"": "a"}])
def test_a_header_that_is_none_is_refused(header):
    with pytest.raises(ValueError, match="the header .* of the page '/' is malformed"):
        Master(**QUICK).serve_page("/", Page(str, headers=header))


@pytest.mark.parametrize("path", ["/ping", "/slave/heartbeat", "/page"])
def test_a_path_where_something_is_served_is_refused(path):
    master = Master(**QUICK)
    master.serve_page("/page", Page(str))
    with pytest.raises(ValueError, match="is in use"):
        master.serve_page(path, Page(str))


def test_a_connection_tells_how_long_its_slave_has_been_silent():
    master = Watcher()
    with pair(master=master) as (_, slave, connection):
        new = master.new_connection("another", "127.0.0.1", slave.port)
        assert new.silence_s is None
        session = master._Master__table.get("conn")
        session.last_seen = time.monotonic() - 100
        assert 100 <= connection.silence_s < 100 + DEADLINE_S
        master._Master__table.seen(session)
        assert 0 <= connection.silence_s < DEADLINE_S
        connection.give_up("it is gone")
        assert 0 <= connection.silence_s < DEADLINE_S and not connection.is_connected
