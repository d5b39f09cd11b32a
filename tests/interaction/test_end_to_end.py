"""A master and slaves, over real servers on this machine."""

import errno
import math
import socket

import pytest

from ding.interaction import ConnectionRefuse, DisconnectionRefuse, Master, Slave, TaskFail, TaskRefuse
from ding.interaction.exception import (
    SlaveChannelInvalid,
    SlaveErrorCode,
    SlaveMasterTokenInvalid,
    SlaveSlaveAlreadyConnected,
    SlaveSlaveConnectionRefused,
    SlaveSlaveDisconnectionRefused,
    SlaveTaskAlreadyExist,
    SlaveTaskRefused,
)
from ding.interaction.master.task import TaskStatus
from tests.interaction.fakes import DEADLINE_S, Adder, Gated, Watcher, current_of, pair, wait_until_idle


def test_a_task_is_run_and_its_result_comes_back():
    with pair() as (_, slave, connection):
        task = connection.new_task({"a": 2, "b": 3})
        assert (task.status, task.result, task.task) == (TaskStatus.IDLE, None, {"a": 2, "b": 3})
        assert task.start() is task and task.join(DEADLINE_S) is task
        assert (task.status, task.result, task.is_lost) == (TaskStatus.COMPLETED, {"sum": 5}, False)
        assert slave.seen == [{"a": 2, "b": 3}]


def test_a_failing_task_brings_its_own_result():
    with pair() as (_, _, connection):
        task = connection.new_task({"fail": {"message": "no more"}}).start().join(DEADLINE_S)
        assert (task.status, task.result, task.is_lost) == (TaskStatus.FAILED, {"message": "no more"}, False)


@pytest.mark.differs(
    "waits forever for a task whose code, result or callback raises",
    "fails the task with text, type and traceback; logs what a callback raises",
)
def test_any_exception_in_a_task_fails_it_with_its_text_and_the_slave_goes_on():
    with pair() as (_, _, connection):
        task = connection.new_task({"raise": "deliberately"}).start().join(DEADLINE_S)
        assert task.status is TaskStatus.FAILED and not task.is_lost
        assert (task.result["message"], task.result["exception"]) == ("deliberately", "ZeroDivisionError")
        assert "in _process_task" in task.result["traceback"]
        assert connection.new_task({"a": 1, "b": 1}).start().join(DEADLINE_S).result == {"sum": 2}


def test_a_result_that_cannot_be_sent_fails_the_task_with_its_text():
    class Exotic(Adder):
        def _process_task(self, task):
            return {"value": object()}

    with pair(Exotic()) as (_, _, connection):
        task = connection.new_task({}).start().join(DEADLINE_S)
        assert task.status is TaskStatus.FAILED and task.result["exception"] == "TypeError"
        assert "the result cannot be sent: builtins.object" in task.result["message"]


@pytest.mark.parametrize(
    "value",
    [
        None,
        {},
        [],
        0,
        "",
        [1, "two", None],
        "text",
        3.5,
        {"inf": math.inf, "text": "äöü \U0001f600", 3: (b"\x00", 2**70)},
    ],
)
def test_results_of_any_type_arrive_as_they_are_and_falsy_ones_as_an_empty_object(value):
    class Returning(Adder):
        def _process_task(self, task):
            return value

    with pair(Returning()) as (_, _, connection):
        assert connection.new_task({}).start().join(DEADLINE_S).result == (value or {})


def test_callbacks_of_the_outcome_run_in_order_before_join_returns():
    calls = []
    with pair() as (_, _, connection):
        task = connection.new_task({"a": 2, "b": 3})
        chained = task.on_complete(lambda *args: calls.append(("first", *args))).on_fail(calls.append)
        chained.on_complete(lambda *args: calls.append(("second", *args)))
        assert chained is task
        task.start().join(DEADLINE_S)
        assert calls == [("first", {"a": 2, "b": 3}, {"sum": 5}), ("second", {"a": 2, "b": 3}, {"sum": 5})]
        task.on_complete(calls.append)
        assert len(calls) == 2

        failing = connection.new_task({"fail": {"x": 1}}).on_complete(calls.append)
        failing.on_fail(lambda *args: calls.append(args)).start().join(DEADLINE_S)
        assert calls[2:] == [({"fail": {"x": 1}}, {"x": 1})]


def test_a_callback_that_raises_is_told_and_stops_neither_the_others_nor_the_master(caplog):
    calls = []
    with pair() as (_, _, connection):
        task = connection.new_task({"a": 1, "b": 1})
        task.on_complete(lambda *_: {}["missing"]).on_complete(lambda *_: calls.append("second"))
        task.start().join(DEADLINE_S)
        assert calls == ["second"] and task.status is TaskStatus.COMPLETED
        assert "a callback of a task has failed" in caplog.text and "KeyError: 'missing'" in caplog.text
        assert connection.new_task({"a": 1, "b": 1}).start().join(DEADLINE_S).result == {"sum": 2}


def test_a_task_starts_once():
    with pair() as (_, _, connection):
        task = connection.new_task({"a": 1, "b": 1}).start()
        with pytest.raises(ValueError, match="a task starts once"):
            task.start()
        task.join(DEADLINE_S)


def test_joining_with_a_timeout_returns_while_the_task_runs():
    slave = Gated()
    with pair(slave) as (_, _, connection):
        task = connection.new_task({"a": 1, "b": 1}).start()
        assert task.join(0.01).status is TaskStatus.STARTED and task.result is None
        slave.go.set()
        assert task.join(DEADLINE_S).status is TaskStatus.COMPLETED


@pytest.mark.differs("leaves a task that its slave refuses in STARTING", "ends it as START_FAILED")
def test_a_task_that_its_slave_refuses_or_is_too_busy_for_has_failed_to_start():
    class Picky(Gated):
        def _before_task(self, data):
            if data["a"] < 0:
                raise TaskRefuse({"why": "negative"})

    slave = Picky()
    with pair(slave) as (_, _, connection):
        refused, running, late = (connection.new_task({"a": a, "b": 1}) for a in (-1, 1, 2))
        with pytest.raises(SlaveTaskRefused):
            refused.start()
        running.start()
        with pytest.raises(SlaveTaskAlreadyExist) as error:
            late.start()
        assert (error.value.status_code, error.value.code) == (400, SlaveErrorCode.TASK_ALREADY_EXIST)
        for task in (refused, late):
            assert task.join(DEADLINE_S).status is TaskStatus.START_FAILED and task.result is None
        slave.go.set()
        assert running.join(DEADLINE_S).result == {"sum": 2} and slave.seen == [{"a": 1, "b": 1}]


def test_connections_are_known_by_name_while_they_stand():
    with Adder() as slave, Watcher() as master:
        connection = master.new_connection("conn", "127.0.0.1", slave.port)
        assert "conn" not in master and not connection.is_connected and connection.name == "conn"
        with connection as entered:
            assert entered is connection and connection.is_connected
            assert "conn" in master and master["conn"] is connection
            with pytest.raises(KeyError):
                master.new_connection("conn", "127.0.0.1", slave.port)
        assert "conn" not in master and not connection.is_connected
        with pytest.raises(KeyError):
            master["conn"]
        with pytest.raises(KeyError):
            del master["conn"]
        assert 5 not in master


def test_deleting_a_connection_from_its_master_disconnects_it():
    with pair() as (master, slave, connection):
        del master["conn"]
        assert "conn" not in master and not connection.is_connected
        with master.new_connection("other", "127.0.0.1", slave.port) as other:
            assert other.is_connected


def test_disconnecting_twice_is_told_by_the_slave():
    with pair() as (_, _, connection):
        connection.disconnect()
        with pytest.raises(SlaveMasterTokenInvalid) as error:
            connection.disconnect()
        assert (error.value.status_code, error.value.code) == (403, SlaveErrorCode.MASTER_TOKEN_INVALID)


@pytest.mark.parametrize("was_connected", [False, True])
def test_a_task_for_a_slave_that_is_not_connected_does_not_start(was_connected):
    with Adder() as slave, Watcher() as master:
        connection = master.new_connection("conn", "127.0.0.1", slave.port)
        if was_connected:
            connection.connect()
            connection.disconnect()
        task = connection.new_task({})
        with pytest.raises(SlaveMasterTokenInvalid):
            task.start()
        assert task.status is TaskStatus.START_FAILED and slave.seen == []


def test_a_slave_has_one_master_at_a_time():
    with pair() as (_, slave, connection), Watcher() as other:
        rival = other.new_connection("rival", "127.0.0.1", slave.port)
        with pytest.raises(SlaveSlaveAlreadyConnected):
            rival.connect()
        with pytest.raises(SlaveSlaveAlreadyConnected):
            connection.connect()
        assert "rival" not in other and not rival.is_connected
        assert connection.is_connected
        assert connection.new_task({"a": 1, "b": 1}).start().join(DEADLINE_S).result == {"sum": 2}


def test_a_wrong_channel_is_refused_and_the_name_stays_free():
    with Adder(channel=1) as slave, Watcher(channel=2) as master:
        connection = master.new_connection("conn", "127.0.0.1", slave.port)
        with pytest.raises(SlaveChannelInvalid) as error:
            connection.connect()
        assert (error.value.status_code, error.value.code) == (403, SlaveErrorCode.CHANNEL_INVALID)
        assert not error.value.success and error.value.data == {} and str(error.value) == error.value.message != ""
        assert "conn" not in master and not connection.is_connected


def test_refusals_of_a_slave_reach_the_master_with_their_data():
    class Picky(Adder):
        may_leave = False

        def _before_connection(self, data):
            if data["who"] != "friend":
                raise ConnectionRefuse({"why": "stranger"})

        def _before_disconnection(self, data):
            if not self.may_leave:
                raise DisconnectionRefuse({"why": data["who"]})

        def _before_task(self, data):
            if data["a"] < 0:
                raise TaskRefuse({"why": data["a"]})

    class Named(Watcher):
        who = "foe"

        def _before_connect(self):
            return {"who": self.who}

        def _before_disconnect(self):
            return {"who": self.who}

    with Picky() as slave, Named() as master:
        connection = master.new_connection("conn", "127.0.0.1", slave.port)
        with pytest.raises(SlaveSlaveConnectionRefused) as refusal:
            connection.connect()
        assert (refusal.value.status_code, refusal.value.code, refusal.value.data) == (403, 503, {"why": "stranger"})
        assert not connection.is_connected and "conn" not in master
        master.who = "friend"
        connection.connect()
        with pytest.raises(SlaveTaskRefused) as refusal:
            connection.new_task({"a": -1, "b": 0}).start()
        assert (refusal.value.status_code, refusal.value.code, refusal.value.data) == (403, 602, {"why": -1})
        with pytest.raises(SlaveSlaveDisconnectionRefused) as refusal:
            connection.disconnect()
        assert (refusal.value.status_code, refusal.value.code, refusal.value.data) == (403, 504, {"why": "friend"})
        assert connection.is_connected
        assert connection.new_task({"a": 1, "b": 0}).start().join(DEADLINE_S).result == {"sum": 1}
        slave.may_leave = True
        connection.disconnect()


def test_hooks_of_a_master_see_replies_and_decide_what_is_returned():
    class Hooked(Watcher):
        calls = []

        def _after_connect(self, *reply):
            self.calls.append(("connect", *reply))
            return "connected"

        def _before_new_task(self, data):
            return {**data, "b": 10}

        def _after_new_task(self, *reply):
            self.calls.append(("new_task", *reply))

        def _after_disconnect(self, *reply):
            self.calls.append(("disconnect", *reply))
            return "disconnected"

    with Adder() as slave, Hooked() as master:
        connection = master.new_connection("conn", "127.0.0.1", slave.port)
        assert connection.start() == "connected"
        task = connection.new_task({"a": 1}).start().join(DEADLINE_S)
        assert (task.result, task.task, slave.seen) == ({"sum": 11}, {"a": 1}, [{"a": 1, "b": 10}])
        assert connection.close() == "disconnected"
        reply = (200, True, 0, "Success.", None)
        assert master.calls == [("connect", *reply), ("new_task", *reply), ("disconnect", *reply)]


def test_disconnecting_fails_the_tasks_that_have_not_ended():
    slave = Gated()
    with pair(slave) as (_, _, connection):
        fails = []
        task = connection.new_task({"a": 1, "b": 1}).on_fail(lambda *args: fails.append(args)).start()
        assert slave.running.wait(DEADLINE_S)
        connection.disconnect()
        assert task.join(DEADLINE_S).status is TaskStatus.FAILED and task.is_lost
        assert task.result["message"] == "the connection to the slave 'conn' has ended: it was disconnected"
        assert fails == [({"a": 1, "b": 1}, task.result)]
        slave.go.set()
        # The late result is dropped, and the slave goes on with its next master once the task has ended.
        wait_until_idle(slave)
        connection.connect()
        assert connection.new_task({"a": 2, "b": 2}).start().join(DEADLINE_S).result == {"sum": 4}
        assert task.result["exception"] == "SlaveLost"


class NoRoute(socket.socket):
    """No way leads to other machines, which the probe for the own address finds out with a datagram socket."""

    def connect(self, address):
        if self.type == socket.SOCK_DGRAM:
            raise OSError(errno.ENETUNREACH, "Network is unreachable")
        super().connect(address)


@pytest.mark.differs(
    "needs a route to the internet for `Master()`, and gives the outer address of a master on 127.0.0.1",
    "needs none, and gives the address at which it listens",
)
def test_a_master_needs_no_route_to_other_machines_and_tells_slaves_where_it_listens(monkeypatch):
    def fail(name):
        raise OSError("no name service")

    monkeypatch.setattr(socket, "socket", NoRoute)
    monkeypatch.setattr(socket, "gethostbyname", fail)
    assert (Master().my_address, Master("0.0.0.0").my_address) == ("http://127.0.0.1:7235", "https://127.0.0.1:7235")
    with pair() as (master, slave, connection):
        assert master.my_address == f"http://127.0.0.1:{master.port}"
        assert current_of(slave).session.address == master.my_address
        assert connection.new_task({"a": 1, "b": 1}).start().join(DEADLINE_S).result == {"sum": 2}


@pytest.mark.parametrize("port", [-1, 65536, "7235", 1.5])
def test_a_port_that_is_none_is_refused_at_once(port):
    with pytest.raises(ValueError, match="port = .* is not allowed"):
        Adder(port=port)
    with pytest.raises(ValueError, match="port = .* is not allowed"):
        Master().new_connection("conn", "127.0.0.1", port)


@pytest.mark.parametrize("name", ["heartbeat_span", "request_retries", "request_retry_waiting"])
@pytest.mark.parametrize("value", [-1, "2", float("nan")])
def test_a_number_that_is_none_is_refused_at_once(name, value):
    with pytest.raises(ValueError, match=f"{name} = .* is not allowed; it must be a number >= 0, or None"):
        Adder(**{name: value})


def test_the_classes_are_as_documented():
    with pytest.raises(TypeError):
        Slave()
    assert Master(port=0).host == Master("auto", 0).host == "127.0.0.1"
    assert (Master().port, Adder(port=None).port) == (7235, 7236)
    fail = TaskFail(result={"a": 1}, message="text")
    assert (fail.result, str(fail), TaskFail().result) == ({"a": 1}, "text", {})
