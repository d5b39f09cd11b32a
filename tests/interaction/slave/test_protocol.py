"""The slave's side of the protocol, request by request."""

import json
import threading

import pytest

from ding.interaction import ConnectionRefuse
from tests.interaction.fakes import DEADLINE_S, Adder, Gated, outcome, raw, task_id

HEAD = {"Channel": "0", "Token": "T" * 64}
MASTER = "http://127.0.0.1:9"  # nobody listens there


@pytest.fixture
def slave():
    with Gated() as slave:
        yield slave
        slave.go.set()


def send(slave, method, path, body="{}", **headers):
    return outcome(raw(slave.port, method, path, body, {**HEAD, **headers}))


def request_body(address):
    return json.dumps({"master": {"address": address}, "data": {}})


def connect(slave, **headers):
    return send(slave, "POST", "/connect", request_body(MASTER), **headers)


def new_task(slave, number, data='{"a": 1, "b": 2}', **headers):
    return send(slave, "POST", "/task/new", f'{{"task": {{"id": "{number}"}}, "data": {data}}}', **headers)


def test_connecting_adopts_the_token(slave):
    assert connect(slave) == (200, 0)
    assert slave._Slave__link.session.token == HEAD["Token"] and slave._Slave__link.session.address == MASTER


@pytest.mark.differs(
    "a channel that is no number is answered with a bare 500 page",
    "400, with code 202, in the envelope",
)
@pytest.mark.parametrize("route", [("POST", "/connect"), ("DELETE", "/disconnect"), ("POST", "/task/new")])
def test_channel_and_token_are_checked_before_the_body(slave, route):
    connect(slave)

    def code(headers):
        return outcome(raw(slave.port, *route, "no json", headers))

    assert code({}) == (400, 201)
    assert code({"Token": HEAD["Token"]}) == (400, 201)
    assert code({"Channel": "", "Token": HEAD["Token"]}) == (400, 201)
    assert code({"Channel": "one", "Token": HEAD["Token"]}) == (400, 202)
    assert code({"Channel": "1", "Token": HEAD["Token"]}) == (403, 202)
    assert code({"Channel": "1"}) == (403, 202)
    assert code({"Channel": "0"}) == (400, 301)
    assert code(HEAD) == (400, 1)


@pytest.mark.parametrize("route", [("DELETE", "/disconnect"), ("POST", "/task/new")])
def test_only_the_token_of_the_master_counts(slave, route):
    assert send(slave, *route) == (403, 302)
    connect(slave)
    assert send(slave, *route, Token="other") == (403, 302)
    assert send(slave, *route, Token="\xff") == (403, 302)


def test_a_second_master_is_told_that_there_is_one(slave):
    assert connect(slave) == (200, 0)
    assert connect(slave, Token="other") == (400, 501)
    assert connect(slave) == (400, 501)
    assert slave._Slave__link.session.token == HEAD["Token"]


def test_the_same_request_to_connect_may_come_twice(slave):
    calls = []
    slave._before_connection = calls.append
    headers = {"Request-Id": "1"}
    assert connect(slave, **headers) == connect(slave, **headers) == (200, 0)
    assert calls == [{}]
    assert connect(slave, **{"Request-Id": "2"}) == (400, 501)
    assert connect(slave, **headers, Token="other") == (400, 501)


def test_the_same_request_to_disconnect_may_come_twice(slave):
    connect(slave)
    body, headers = '{"data": {}}', {"Request-Id": "1"}
    assert send(slave, "DELETE", "/disconnect", body, **headers) == (200, 0)
    assert slave._Slave__link.session is None
    assert send(slave, "DELETE", "/disconnect", body, **headers) == (200, 0)
    assert send(slave, "DELETE", "/disconnect", body, **{"Request-Id": "2"}) == (403, 302)
    assert send(slave, "DELETE", "/disconnect", body) == (403, 302)
    assert connect(slave) == (200, 0)


def test_the_same_task_may_come_twice_and_runs_once(slave):
    connect(slave)
    first, calls = task_id(), []
    slave._before_task = calls.append
    assert new_task(slave, first) == (200, 0)
    assert slave.running.wait(DEADLINE_S)
    assert new_task(slave, first) == new_task(slave, first.upper()) == (200, 0)
    assert new_task(slave, task_id()) == (400, 601)
    slave.go.set()
    assert slave._Slave__link.wait_for(lambda: slave._Slave__link.order is None, DEADLINE_S)
    assert new_task(slave, first) == (200, 0)
    assert len(slave.seen) == len(calls) == 1


def test_a_refusal_whose_data_has_no_json_form_is_a_500_that_says_so():
    class Refusing(Adder):
        def _before_connection(self, data):
            raise ConnectionRefuse({"names": {1, 2}})

    with Refusing() as slave:
        body = '{"master": {"address": "http://127.0.0.1:9"}, "data": {}}'
        status, values = raw(slave.port, "POST", "/connect", body, {"Channel": "0", "Token": "T"})
        assert (status, values["code"]) == (500, 1) and "set is not JSON serializable" in values["message"]


def test_a_task_that_was_refused_may_be_given_again(slave):
    connect(slave)
    number = task_id()
    hook, slave._before_task = slave._before_task, lambda data: {}["refused"]
    assert new_task(slave, number) == (500, 1)
    slave._before_task = hook
    assert new_task(slave, number) == (200, 0)


@pytest.mark.differs(
    "a malformed request to a slave is answered with a bare 500 page",
    "400, with a code, in the envelope",
)
@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/connect", "no json"),
        ("POST", "/connect", '{"master": {"address": "http://127.0.0.1:9"}'),
        ("POST", "/connect", "[1, 2]"),
        ("POST", "/connect", b"\xff\xfe\xfd"),
        ("POST", "/connect", ""),
        ("POST", "/connect", "{}"),
        ("POST", "/connect", '{"data": {}}'),
        ("POST", "/connect", '{"master": {}, "data": {}}'),
        ("POST", "/connect", '{"master": "http://127.0.0.1:9", "data": {}}'),
        ("POST", "/connect", '{"master": {"address": 5}, "data": {}}'),
        ("POST", "/connect", '{"master": {"address": "http://127.0.0.1:9"}}'),
        ("DELETE", "/disconnect", "{}"),
        ("DELETE", "/disconnect", "nan?"),
        ("POST", "/task/new", '{"data": {}}'),
        ("POST", "/task/new", '{"task": {}, "data": {}}'),
        ("POST", "/task/new", '{"task": {"id": "no-uuid"}, "data": {}}'),
        ("POST", "/task/new", '{"task": {"id": 5}, "data": {}}'),
        ("POST", "/task/new", '{"task": {"id": "c9bf9e57-1685-4c89-bafb-ff5af830be8a"}}'),
        ("POST", "/task/new", "[" * 100_000),
        ("POST", "/task/new", '{"a":' * 100_000),
        ("POST", "/task/new", "1" * 5000),
    ],
)
def test_a_body_that_is_not_as_documented_is_a_400(slave, method, path, body):
    if path != "/connect":
        connect(slave)
    assert send(slave, method, path, body) == (400, 1)
    assert slave.ping() and slave.seen == []


@pytest.mark.parametrize(
    "address",
    [
        "", "127.0.0.1:9", "ftp://127.0.0.1/", "file:///etc/passwd", "http://", "http://user:secret@127.0.0.1:9/",
        "http://127.0.0.1:9/?x=1", "http://127.0.0.1:9/#x", "http://127.0.0.1:99999", "http://127.0.0.1:0",
        "http://127.0.0.1:x", "http://127.0.0.1:9/ x", "http://127.0.0.1:9/\r\nX: y", "http://127.0.0.1\\@evil", "http://127.0.0.1\\evil",
        "http://[::1",
    ],
)  # fmt: skip
def test_an_address_that_is_no_plain_url_is_a_400(slave, address):
    assert send(slave, "POST", "/connect", request_body(address)) == (400, 1)
    assert slave._Slave__link.session is None


@pytest.mark.differs(
    "a slave sends requests to any address that a master names",
    "to the machine that called it, or to hosts that are listed",
)
@pytest.mark.parametrize("host", ["198.51.100.7", "169.254.169.254", "unknown.invalid", "[2001:db8::1]"])
def test_a_slave_reports_to_no_other_machine_than_the_one_that_called(slave, host):
    status, reply = raw(slave.port, "POST", "/connect", request_body(f"http://{host}:80/prefix"), HEAD)
    assert (status, reply["code"], reply["data"]) == (403, 503, None)
    assert "DING_HOSTS" in reply["message"] and slave._Slave__link.session is None


def test_a_slave_reports_to_hosts_that_are_listed(monkeypatch):
    monkeypatch.setenv("DING_HOSTS", "other, gateway.example:8080,.cluster.local")
    with Adder() as slave:
        for host, expected in [
            ("gateway.example:8080", (200, 0)),
            ("gateway.example:8081", (403, 503)),
            ("a.b.cluster.local:5", (200, 0)),
            ("cluster.local:5", (403, 503)),
        ]:
            assert send(slave, "POST", "/connect", request_body(f"http://{host}/prefix")) == expected
            if expected == (200, 0):
                assert send(slave, "DELETE", "/disconnect", '{"data": {}}') == (200, 0)


def test_requests_that_wait_for_their_turn_find_what_changed_meanwhile(slave):
    """A task that waits behind a disconnect is not run for a master that is gone."""
    connect(slave)
    entered, leave, replies = threading.Event(), threading.Event(), []

    def hold(data):
        entered.set()
        assert leave.wait(DEADLINE_S)

    slave._before_disconnection = hold
    leaving = threading.Thread(target=lambda: send(slave, "DELETE", "/disconnect", '{"data": {}}'))
    leaving.start()
    assert entered.wait(DEADLINE_S)
    matched = threading.Event()
    matches = slave._Slave__link.matches

    def tell(token):
        found = matches(token)
        matched.set()
        return found

    slave._Slave__link.matches = tell
    working = threading.Thread(target=lambda: replies.append(new_task(slave, task_id())))
    working.start()
    assert matched.wait(DEADLINE_S)
    leave.set()
    for thread in (leaving, working):
        thread.join(DEADLINE_S)
    assert replies == [(403, 302)] and slave.seen == []
