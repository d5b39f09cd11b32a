"""The slave's side of the protocol, request by request."""

import pytest

from ding.utils.msgpack_helper import pack
from tests.interaction.fakes import DEADLINE_S, Gated, current_of, outcome, raw, task_id

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
