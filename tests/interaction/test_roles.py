"""What masters and slaves answer alike."""

import pytest

from ding.interaction.master.task import Task, TaskResultType, TaskStatus
from tests.interaction.fakes import Gated, outcome, pair, raw, task_id

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


def test_other_routes_and_methods_are_told_in_the_envelope(role, server):
    for path in ("/nowhere", "/static/app.py"):
        assert outcome(raw(server.port, "GET", path)) == (404, 1)
    for _, path in (*ROUTES[role], ("", "/ping")):
        assert outcome(raw(server.port, "PATCH", path)) == (405, 1)


DEADLINE_S = 20


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
