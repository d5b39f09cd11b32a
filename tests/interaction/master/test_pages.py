"""Pages of a master: what is served beside the protocol, and to whom."""

import http.client

import pytest

from ding.interaction.base import Page
from tests.interaction.fakes import DEADLINE_S, Watcher, outcome, raw

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


def test_a_page_is_read_and_nothing_else(serve):
    port = serve({"/page": Page(lambda: "text")})
    assert [get(port, "/page", method)[0] for method in ("HEAD", "POST", "PUT", "DELETE")] == [200, 405, 405, 405]
    assert get(port, "/page/")[0] == get(port, "/other")[0] == 404


@pytest.mark.guarantees("strangers")
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
        assert (status, headers["www-authenticate"]) == (401, "Bearer"), (path, method)
    assert get(port, "/data", Authorization="Bearer wrong")[0] == 401
    assert get(port, "/data", Authorization=f"Bearer {SECRET}")[0] == 200
    assert get(port, "/", Authorization="Bearer wrong")[0] == 401
    assert get(port, "/", Authorization=f"Bearer {SECRET}")[0] == 200


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
