"""The master's side of the protocol, request by request."""

import json

import pytest

from ding.interaction.master.task import TaskStatus
from tests.interaction.fakes import DEADLINE_S, Gated, outcome, pair, raw, task_id


class Rig:
    """A master with a connected slave whose task runs, and the requests that slave could send."""

    def __init__(self, master, slave, connection):
        self.master, self.slave, self.connection = master, slave, connection
        self.token = slave._Slave__link.session.token
        self.task = connection.new_task({"a": 1, "b": 2}).start()
        assert slave.running.wait(DEADLINE_S)
        self.task_id = slave._Slave__link.order.task_id

    def send(self, method, path, body="{}", **headers):
        return outcome(raw(self.master.port, method, path, body, {"Channel": "0", "Token": self.token, **headers}))

    def report(self, kind, number, result):
        body = json.dumps({"task": {"id": number}, "result": result})
        return self.send("PUT", f"/slave/task/{kind}", body)


@pytest.fixture
def rig():
    with pair(Gated()) as parts:
        rig = Rig(*parts)
        yield rig
        rig.slave.go.set()
        if "running" in repr(rig.master):
            assert rig.slave._Slave__link.wait_for(lambda: rig.slave._Slave__link.is_idle, DEADLINE_S)


def test_a_heartbeat_is_acknowledged_and_noted(rig):
    session = rig.master._Master__table.get("conn")
    session.last_seen = 0.0
    assert rig.send("GET", "/slave/heartbeat") == (200, 0)
    assert session.last_seen > 0


@pytest.mark.parametrize(
    ("kind", "status"), [("complete", TaskStatus.COMPLETED), ("fail", TaskStatus.FAILED)], ids=["complete", "fail"]
)
def test_a_result_ends_its_task(rig, kind, status):
    assert rig.report(kind, rig.task_id.upper(), {"x": 1}) == (200, 0)
    assert rig.task.join(DEADLINE_S).status is status and rig.task.result == {"x": 1}


@pytest.mark.differs(
    "a result that comes twice ends the master's result thread",
    "the second one is acknowledged and ignored",
)
def test_a_second_result_is_acknowledged_and_changes_nothing(rig):
    calls = []
    rig.task.on_complete(lambda *_: calls.append("complete")).on_fail(lambda *_: calls.append("fail"))
    assert rig.report("complete", rig.task_id, {"x": 1}) == (200, 0)
    assert rig.report("fail", rig.task_id, {"x": 2}) == (200, 0)
    assert rig.report("complete", rig.task_id, {"x": 3}) == (200, 0)
    rig.slave.go.set()
    assert rig.slave._Slave__link.wait_for(lambda: rig.slave._Slave__link.is_idle, DEADLINE_S)
    assert rig.task.join(DEADLINE_S).result == {"x": 1} and calls == ["complete"]


@pytest.mark.differs(
    "a result with an unknown task id ends the master's result thread",
    "it is answered with 400 and code 601",
)
def test_a_result_of_a_task_that_was_never_given_is_refused_and_harms_nobody(rig):
    assert rig.report("complete", task_id(), {"x": 1}) == (400, 601)
    rig.slave.go.set()
    assert rig.task.join(DEADLINE_S).result == {"sum": 3}
    assert rig.connection.new_task({"a": 2, "b": 2}).start().join(DEADLINE_S).result == {"sum": 4}


@pytest.mark.parametrize(
    "route", [("GET", "/slave/heartbeat"), ("PUT", "/slave/task/complete"), ("PUT", "/slave/task/fail")]
)
def test_channel_and_token_are_checked_before_the_body(rig, route):
    def code(headers):
        return outcome(raw(rig.master.port, *route, "no json", headers))

    assert code({}) == (400, 201)
    assert code({"Channel": "", "Token": rig.token}) == (400, 201)
    assert code({"Channel": "one", "Token": rig.token}) == (400, 202)
    assert code({"Channel": "1" * 5000, "Token": rig.token}) == (400, 202)
    assert code({"Channel": "1", "Token": rig.token}) == (403, 202)
    assert code({"Channel": "0"}) == (400, 501)
    assert code({"Channel": "0", "Token": "other"}) == (403, 502)
    assert code({"Channel": "0", "Token": rig.master._Role__self_token}) == (403, 502)
    assert code({"Channel": "0", "Token": rig.token}) == ((200, 0) if route[0] == "GET" else (400, 601))


@pytest.mark.differs("a malformed result is answered with 200", "400, with code 601, in the envelope")
@pytest.mark.parametrize("path", ["/slave/task/complete", "/slave/task/fail"])
@pytest.mark.parametrize(
    "body",
    [
        "no json", "", "{}", "[]", "5", '{"task": {}}', '{"result": {}}', '{"task": {"id": 5}, "result": {}}',
        '{"task": {"id": "no-uuid"}, "result": {}}', '{"task": {"id": "%s"}}', b"\xff\xff", "[" * 100_000,
    ],
)  # fmt: skip
def test_a_body_that_does_not_tell_a_result_is_a_400(rig, path, body):
    if isinstance(body, str):
        body = body.replace("%s", rig.task_id)
    assert rig.send("PUT", path, body) == (400, 601)
    assert rig.task.status is TaskStatus.STARTED


def test_the_token_of_a_slave_that_was_disconnected_is_worth_nothing(rig):
    rig.connection.disconnect()
    assert rig.send("GET", "/slave/heartbeat") == (403, 502)
    assert rig.report("complete", rig.task_id, {"x": 1}) == (403, 502)
    assert rig.task.join(DEADLINE_S).result["exception"] == "SlaveLost"
