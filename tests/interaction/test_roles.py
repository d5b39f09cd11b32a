"""What masters and slaves answer alike."""

import http.client

import pytest

from ding.interaction.base import Page
from ding.interaction.master.task import Task, TaskResultType, TaskStatus
from ding.utils.msgpack_helper import pack
from tests.interaction.fakes import DEADLINE_S, Gated, Watcher, current_of, outcome, pair, raw, self_token_of, task_id

ROUTES = {
    "slave": [("POST", "/connect"), ("DELETE", "/disconnect"), ("PUT", f"/tasks/{task_id()}"), ("GET", "/heartbeat")],
    "master": [],
}


@pytest.fixture(params=["master", "slave"])
def role(request):
    return request.param


@pytest.fixture
def server(role):
    with pair(Gated()) as (master, slave, connection):
        connection.new_task({"a": 1, "b": 2}).start()
        yield {"master": master, "slave": slave}[role]
        slave.go.set()


def test_replies_on_success_are_as_documented(server):
    status, reply = raw(server.port, "GET", "/ping", headers={"Token": self_token_of(server)})
    assert (status, reply) == (200, {"success": True, "code": 0, "message": "Success.", "data": None})


def test_ping_and_shutdown_need_the_self_token_and_no_channel(server):
    own = {"Token": self_token_of(server)}
    for route in (("GET", "/ping"), ("DELETE", "/shutdown")):
        assert outcome(raw(server.port, *route)) == (400, 401)
        assert outcome(raw(server.port, *route, headers={"Token": "other"})) == (403, 402)
        assert outcome(raw(server.port, *route, headers=own)) == (200, 0)
    server.join()
    assert "closed" in repr(server) and not server.ping()


def test_a_server_that_shuts_down_says_so_before_anything_else(role, server, monkeypatch):
    stop = server._Role__server.stop
    monkeypatch.setattr(server._Role__server, "stop", lambda grace_s: None)  # it goes on answering
    server.shutdown()
    for route in (("GET", "/ping"), ("GET", "/nowhere"), *ROUTES[role]):
        assert outcome(raw(server.port, *route)) == (401, 101)
    stop(0.0)


def test_other_routes_and_methods_are_told_in_the_envelope(role, server):
    for path in ("/nowhere", "/static/app.py"):
        assert outcome(raw(server.port, "GET", path)) == (404, 1)
    for _, path in (*ROUTES[role], ("", "/ping")):
        assert outcome(raw(server.port, "PATCH", path)) == (405, 1)


def test_the_numbers_are_as_documented():
    assert {status.name: status.value for status in TaskStatus} == {
        "IDLE": 0x00, "STARTING": 0x11, "STARTED": 0x12, "START_FAILED": 0x13, "COMPLETED": 0x21, "FAILED": 0x22,
    }  # fmt: skip
    assert {kind.name: kind.value for kind in TaskResultType} == {"COMPLETED": 1, "FAILED": 2}


def test_a_result_that_comes_while_the_task_starts_is_its_last_word():
    def launch(task):
        assert task.status is TaskStatus.STARTING
        task.finish(TaskResultType.COMPLETED, 5)
        task.mark_started()
        task.mark_start_failed()

    task = Task(None, launch).start()
    assert task.join(DEADLINE_S).status is TaskStatus.COMPLETED and task.result == 5


# Pages of a master: what is served beside the protocol, and to whom.


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
def serve(set_env):
    made = []

    def serve(pages, token=None):
        if token is not None:
            set_env(DING_TOKEN=token)
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


# The slave's side of the protocol, request by request.


HEAD = {"Channel": "0", "Token": "T" * 64}
TASK = ("PUT", "/tasks/c9bf9e57-1685-4c89-bafb-ff5af830be8a")
MASTER = "http://127.0.0.1:9"  # nobody listens there


@pytest.fixture
def slave():
    with Gated() as slave:
        yield slave
        slave.go.set()


def send(slave, method, path, body=b"\x80", **headers):
    return outcome(raw(slave.port, method, path, body, {**HEAD, **headers}))


def request_body(address):
    return {"master": {"address": address}, "data": {}}


def connect(slave, **headers):
    return send(slave, "POST", "/connect", request_body(MASTER), **headers)


def put_task(slave, number, body={"data": {"a": 1, "b": 2}}, wait_s=0):
    """The status and code of the reply, and the status of the task."""
    status, reply = raw(slave.port, "PUT", f"/tasks/{number}?wait={wait_s}", body, HEAD)
    return status, reply["code"], (reply["data"] or {}).get("status")


def test_connecting_adopts_the_token(slave):
    assert connect(slave) == (200, 0)
    assert current_of(slave).session.token == HEAD["Token"] and current_of(slave).session.address == MASTER


@pytest.mark.parametrize("route", [("POST", "/connect"), ("DELETE", "/disconnect"), TASK])
def test_channel_and_token_are_checked_before_the_body(slave, route):
    connect(slave)

    def code(headers):
        return outcome(raw(slave.port, *route, b"\xc1", headers))

    assert code({}) == (400, 201)
    assert code({"Token": HEAD["Token"]}) == (400, 201)
    assert code({"Channel": "", "Token": HEAD["Token"]}) == (400, 201)
    assert code({"Channel": "one", "Token": HEAD["Token"]}) == (400, 202)
    assert code({"Channel": "1", "Token": HEAD["Token"]}) == (403, 202)
    assert code({"Channel": "1"}) == (403, 202)
    assert code({"Channel": "0"}) == (400, 301)
    assert code(HEAD) == (400, 1)


@pytest.mark.parametrize("route", [("DELETE", "/disconnect"), TASK, ("GET", "/heartbeat")])
def test_only_the_token_of_the_master_counts(slave, route):
    assert send(slave, *route) == (403, 302)
    connect(slave)
    assert send(slave, *route, Token="other") == (403, 302)
    assert send(slave, *route, Token="\xff") == (403, 302)


def test_a_second_master_is_told_that_there_is_one(slave):
    assert connect(slave) == (200, 0)
    assert connect(slave, Token="other") == (400, 501)
    assert current_of(slave).session.token == HEAD["Token"]


def test_the_same_request_to_connect_may_come_twice(slave):
    calls = []
    slave._before_connection = calls.append
    assert connect(slave) == connect(slave) == (200, 0)
    assert calls == [{}]


def test_the_same_request_to_disconnect_may_come_twice(slave):
    connect(slave)
    assert send(slave, "DELETE", "/disconnect", {"data": {}}) == (200, 0)
    assert current_of(slave).session is None
    assert send(slave, "DELETE", "/disconnect", {"data": {}}) == (200, 0)
    assert send(slave, "DELETE", "/disconnect", {"data": {}}, Token="other") == (403, 302)
    assert connect(slave) == (200, 0)


def test_the_same_task_may_come_twice_and_runs_once(slave):
    connect(slave)
    first, calls = task_id(), []
    slave._before_task = calls.append
    assert put_task(slave, first) == (200, 0, "running")
    assert slave.running.wait(DEADLINE_S)
    assert put_task(slave, first) == put_task(slave, first.upper(), "") == (200, 0, "running")
    assert put_task(slave, task_id())[:2] == (400, 601)
    slave.go.set()
    assert put_task(slave, first, "", DEADLINE_S) == put_task(slave, first) == (200, 0, "completed")
    assert len(slave.seen) == len(calls) == 1
    assert put_task(slave, task_id(), wait_s=DEADLINE_S) == (200, 0, "completed")
    assert put_task(slave, first)[:2] == (400, 1)  # it is late, and is not run again
    assert len(slave.seen) == 2


def test_a_task_that_was_refused_may_be_given_again(slave):
    connect(slave)
    number = task_id()
    hook, slave._before_task = slave._before_task, lambda data: {}["refused"]
    assert put_task(slave, number)[:2] == (500, 1)
    slave._before_task = hook
    assert put_task(slave, number) == (200, 0, "running")


@pytest.mark.differs(
    "answers a malformed request with a bare 500 page",
    "answers it with 400 and a code",
)
@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/connect", b"no msgpack"),
        ("POST", "/connect", pack({"master": {"address": MASTER}, "data": {}})[:-1]),
        ("POST", "/connect", pack([1, 2])),
        ("POST", "/connect", b"\xc1"),
        ("POST", "/connect", b""),
        ("POST", "/connect", {}),
        ("POST", "/connect", {"data": {}}),
        ("POST", "/connect", {"master": {}, "data": {}}),
        ("POST", "/connect", {"master": MASTER, "data": {}}),
        ("POST", "/connect", {"master": {"address": 5}, "data": {}}),
        ("POST", "/connect", {"master": {"address": MASTER}}),
        ("DELETE", "/disconnect", {}),
        ("DELETE", "/disconnect", b"nan?"),
        (*TASK, {}),
        (*TASK, b""),
        (*TASK, b"\x91" * 100_000),
        (*TASK, b"\x81\x01" * 100_000),
    ],
)
def test_a_body_that_is_not_as_documented_is_a_400(slave, method, path, body):
    if path != "/connect":
        connect(slave)
    assert send(slave, method, path, body) == (400, 1)
    assert slave.ping() and slave.seen == []
