"""What masters and slaves answer alike."""

import threading

import pytest

from tests.interaction.fakes import DEADLINE_S, Gated, current_of, outcome, pair, raw, task_id

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
    status, reply = raw(server.port, "GET", "/ping", headers={"Token": server._Role__self_token})
    assert (status, reply) == (200, {"success": True, "code": 0, "message": "Success.", "data": None})


def test_ping_and_shutdown_need_the_self_token_and_no_channel(server):
    own = {"Token": server._Role__self_token}
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


def test_a_slave_answers_the_requests_that_it_is_at_when_it_shuts_down():
    entered, leave, replies = threading.Event(), threading.Event(), []

    class Slow(Gated):
        def _before_task(self, data):
            entered.set()
            assert leave.wait(DEADLINE_S)

    with pair(Slow()) as (_, slave, _connection):
        headers = {"Channel": "0", "Token": current_of(slave).session.token}
        path = f"/tasks/{task_id()}"
        asking = threading.Thread(
            target=lambda: replies.append(outcome(raw(slave.port, "PUT", path, {"data": {}}, headers)))
        )
        asking.start()
        assert entered.wait(DEADLINE_S)
        slave.shutdown()
        assert outcome(raw(slave.port, "GET", "/ping")) == (401, 101)
        leave.set()
        asking.join(DEADLINE_S)
        assert replies == [(200, 0)]
        slave.go.set()


def test_other_routes_and_methods_are_told_in_the_envelope(role, server):
    for path in ("/nowhere", "/static/app.py"):
        assert outcome(raw(server.port, "GET", path)) == (404, 1)
    for _, path in (*ROUTES[role], ("", "/ping")):
        assert outcome(raw(server.port, "PATCH", path)) == (405, 1)
