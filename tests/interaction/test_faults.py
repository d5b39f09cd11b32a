"""Messages that are late, lost or doubled, and peers that go without a word."""

import contextlib
import logging
import multiprocessing
import os
import signal
import threading
import time

import pytest
import requests

from ding.interaction import slave as slave_module
from ding.interaction.exception import (
    MasterResponseException,
    MasterSlaveTokenInvalid,
    SlaveMasterTokenInvalid,
    SlaveSystemShuttingDown,
)
from ding.interaction.master.task import TaskStatus
from tests.interaction.fakes import DEADLINE_S, Adder, Gated, Proxy, Watcher, free_port, pair, raw

ADD = {"a": 2, "b": 3}
SOON = {"heartbeat_tolerance": 0.3, "heartbeat_check_span": 0.1}


@contextlib.contextmanager
def through(slave_side=False, slave=None, master_class=Watcher, **master_options):
    """`(master, slave, connection, proxy)`; the proxy is before the slave, or before the master under a path prefix."""
    slave = slave or Adder(allowed_hosts=["127.0.0.1"], heartbeat_span=0.2)
    with contextlib.ExitStack() as stack:
        stack.enter_context(slave)
        if slave_side:
            port = free_port()
            proxy = stack.enter_context(Proxy(port, prefix="/some/prefix"))
            address = f"http://127.0.0.1:{proxy.port}/some/prefix/"
            master = stack.enter_context(master_class(port=port, my_address=address, **master_options))
            connection = master.new_connection("conn", "127.0.0.1", slave.port)
        else:
            proxy = stack.enter_context(Proxy(slave.port))
            master = stack.enter_context(master_class(**master_options))
            connection = master.new_connection("conn", "127.0.0.1", proxy.port)
        yield master, slave, connection, proxy


@pytest.fixture(params=["", "s3cret"], ids=["without token", "with token"])
def token(request, monkeypatch):
    """What the servers of the test sign with."""
    monkeypatch.setenv("DING_TOKEN", request.param)


@pytest.mark.differs(
    "a task that is sent twice, because its reply got lost, is refused as the second one",
    "it is acknowledged and runs once",
)
@pytest.mark.parametrize("fault", ["lose", "reply", "half", "double"])
@pytest.mark.parametrize("request_line", ["POST /connect", "POST /task/new", "DELETE /disconnect"])
def test_a_request_of_the_master_survives_a_fault(token, request_line, fault):
    with through() as (master, slave, connection, proxy):
        proxy.rule(request_line, fault, times=1)
        connection.connect()
        assert connection.new_task(ADD).start().join(DEADLINE_S).result == {"sum": 5}
        connection.disconnect()
        assert slave.seen == [ADD] and "conn" not in master
        connection.connect()
        connection.disconnect()


@pytest.mark.parametrize("fault", ["lose", "reply", "half", "double"])
@pytest.mark.parametrize("kind", ["complete", "fail"])
def test_a_result_survives_a_fault_and_counts_once(token, fault, kind):
    with through(slave_side=True) as (_, slave, connection, proxy):
        proxy.rule(f"/slave/task/{kind}", fault, times=2)
        calls = []
        with connection:
            data = ADD if kind == "complete" else {"fail": {"x": 1}}
            task = connection.new_task(data)
            task.on_complete(lambda *_: calls.append("complete")).on_fail(lambda *_: calls.append("fail"))
            task.start().join(DEADLINE_S)
            assert task.result == ({"sum": 5} if kind == "complete" else {"x": 1}) and not task.is_lost
            assert slave._Slave__link.wait_for(lambda: slave._Slave__link.is_idle, DEADLINE_S)
        assert calls == [kind] and slave.seen == [data]


def test_a_master_under_a_path_prefix_hears_its_slaves(token):
    with through(slave_side=True) as (_, _, connection, proxy), connection:
        assert connection.new_task(ADD).start().join(DEADLINE_S).result == {"sum": 5}
        assert proxy.requests[-1] == "PUT /slave/task/complete HTTP/1.1"


def test_the_result_may_come_before_the_reply_to_the_task():
    with through() as (_, _, connection, proxy):
        connection.connect()
        late = threading.Event()
        proxy.rule("/task/new", "reply", times=2)
        proxy.rule("/task/new", late, times=1)
        task = connection.new_task(ADD).on_complete(lambda *_: late.set())
        # Both tries lose their replies; that the task was accepted is known from its result.
        assert task.start() is task
        assert task.join(DEADLINE_S).result == {"sum": 5} and task.status is TaskStatus.COMPLETED
        connection.disconnect()


def test_a_task_that_does_not_reach_its_slave_fails_to_start():
    with through() as (_, slave, connection, proxy):
        connection.connect()
        proxy.rule("/task/new", "lose", times=2)
        task = connection.new_task(ADD)
        with pytest.raises(requests.ConnectionError):
            task.start()
        assert task.join().status is TaskStatus.START_FAILED and task.result is None and slave.seen == []
        assert connection.is_connected
        assert connection.new_task(ADD).start().join(DEADLINE_S).result == {"sum": 5}


def test_the_late_result_of_a_task_that_failed_to_start_is_ignored():
    slave = Gated(allowed_hosts=["127.0.0.1"])
    with through(slave=slave) as (_, _, connection, proxy):
        connection.connect()
        proxy.rule("/task/new", "reply", times=2)
        task = connection.new_task(ADD)
        with pytest.raises(requests.ConnectionError):
            task.start()
        slave.go.set()
        assert slave._Slave__link.wait_for(lambda: slave._Slave__link.is_idle and slave.seen, DEADLINE_S)
        assert task.status is TaskStatus.START_FAILED
        assert connection.new_task(ADD).start().join(DEADLINE_S).result == {"sum": 5}


@pytest.mark.differs(
    "an `_error_connect` hook that swallows the error leaves the name registered",
    "only connected slaves are registered",
)
def test_error_hooks_may_swallow_transport_errors_and_nothing_is_registered():
    class Calm(Watcher):
        def _error_connect(self, err):
            return f"no connection: {type(err).__name__}"

        def _error_disconnect(self, err):
            return "gone"

        def _error_new_task(self, err):
            return "ignored"

    with through(master_class=Calm) as (master, _, connection, proxy):
        proxy.rule("POST /connect", "lose", times=2)
        assert connection.connect() == "no connection: ConnectionError"
        assert "conn" not in master and not connection.is_connected
        with pytest.raises(KeyError):
            del master["conn"]
        connection.connect()
        proxy.rule("/task/new", "lose", times=2)
        task = connection.new_task(ADD)
        assert task.start() is task and task.join().status is TaskStatus.START_FAILED
        proxy.rule("/disconnect", "lose", times=2)
        assert connection.disconnect() == "gone"
        assert "conn" not in master and not connection.is_connected


def test_a_slave_that_cannot_be_disconnected_counts_as_lost():
    slave = Gated(allowed_hosts=["127.0.0.1"])
    with through(slave=slave) as (master, _, connection, proxy):
        connection.connect()
        task = connection.new_task(ADD).start()
        proxy.rule("/disconnect", "lose", times=2)
        with pytest.raises(requests.ConnectionError):
            connection.disconnect()
        assert not connection.is_connected and "conn" not in master
        assert task.join(DEADLINE_S).is_lost and "could not be disconnected" in task.result["message"]
        # It is reached again: asking once more lets the slave go.
        connection.disconnect()
        assert slave._Slave__link.session is None
        slave.go.set()


@pytest.mark.differs(
    "`request_retries` and `request_retry_waiting` of a master do not reach its connections",
    "they do",
)
def test_retries_of_a_master_reach_its_connections():
    with Watcher(request_retries=3, request_retry_waiting=0.001) as master, Proxy(free_port()) as proxy:
        proxy.rule("", "lose")
        with pytest.raises(requests.ConnectionError):
            master.new_connection("conn", "127.0.0.1", proxy.port).connect()
        assert len(proxy.requests) == 4


@pytest.mark.differs(
    "a silent slave stays connected for its connection object, and its tasks never end",
    "the connection ends, its tasks fail and say why, and it can be connected again",
)
def test_a_silent_slave_is_lost_and_its_tasks_fail():
    slave = Gated(heartbeat_span=DEADLINE_S)
    with pair(slave, Watcher(**SOON)) as (master, _, connection):
        fails = []
        task = connection.new_task(ADD).on_fail(lambda *_: fails.append(master.losses[:])).start()
        assert master.lost.wait(DEADLINE_S)
        assert task.join(DEADLINE_S).status is TaskStatus.FAILED and task.is_lost
        assert task.result["message"] == (
            "the connection to the slave 'conn' has ended: there was no sign of life for 0.3 s"
        )
        assert fails == [[]] and master.losses == [("conn", "there was no sign of life for 0.3 s")]
        assert not connection.is_connected and "conn" not in master
        late = connection.new_task(ADD)
        with pytest.raises(requests.ConnectionError, match="was lost: there was no sign of life"):
            late.start()
        assert late.status is TaskStatus.START_FAILED
        slave.go.set()
        # The slave finds out when it reports, and then it, too, is free for a new connection.
        assert slave.lost.wait(DEADLINE_S)
        assert isinstance(slave.losses[0][1], MasterSlaveTokenInvalid)
        connection.connect()
        assert connection.new_task(ADD).start().join(DEADLINE_S).result == {"sum": 5}
        assert task.result["exception"] == "SlaveLost"


def test_a_slave_with_a_heart_is_not_lost_while_it_runs_a_long_task():
    slave = Gated(heartbeat_span=0.2)
    with pair(slave, Watcher(heartbeat_tolerance=1.0, heartbeat_check_span=0.1)) as (master, _, connection):
        task = connection.new_task(ADD).start()
        session = master._Master__table.get("conn")
        beats, seen = [], master._Master__table.seen
        enough = threading.Event()

        def count(session):
            seen(session)
            beats.append(session)
            if len(beats) == 3:
                enough.set()

        master._Master__table.seen = count
        assert enough.wait(DEADLINE_S) and beats == [session] * 3
        assert connection.is_connected and task.status is TaskStatus.STARTED
        slave.go.set()
        assert task.join(DEADLINE_S).result == {"sum": 5}


@pytest.mark.differs(
    "a slave sends a heartbeat every `heartbeat_span` in any case",
    "a result that its master has acknowledged takes the place of one; a master is never without a sign of life for "
    "longer",
)
def test_a_result_that_was_acknowledged_takes_the_place_of_a_heartbeat(monkeypatch):
    now, beats, requests_sent = 100.0, [], []
    monkeypatch.setattr(slave_module.time, "monotonic", lambda: now)

    class Engine:
        def request(self, method, path, body, **options):
            requests_sent.append((now, path))
            if path == "slave/task/fail":
                raise requests.ConnectionError("the result was lost")

    session = slave_module.MasterSession("T", "http://127.0.0.1:9", Engine(), "")

    class Waits(slave_module.Link):
        results = iter([(2.0, "complete"), (1.0, "fail"), *[(None, None)] * 3])  # sent within each wait

        def wait_for(self, predicate, timeout=None):
            nonlocal now
            after_s, kind = next(self.results, (None, "end"))
            if kind == "end":
                return True
            end = now + timeout
            if kind is not None:
                now += after_s
                with contextlib.suppress(requests.ConnectionError):
                    slave_module.Order(session, "id", {}).report(kind, {}, (1.0, 1.0))
            now = end
            return False

    link = Waits()
    link.open(session)
    heartbeat = slave_module.Heartbeat(link, 3.0, lambda session, error: beats.append(error))
    heartbeat._keep(session, threading.Event())
    assert beats == []
    assert requests_sent == [
        (102.0, "slave/task/complete"), (104.0, "slave/task/fail"),  # no heartbeat at 103
        (105.0, "slave/heartbeat"), (108.0, "slave/heartbeat"),
    ]  # fmt: skip


@pytest.mark.differs(
    "the heartbeat thread of a slave that was dropped dies, and the slave refuses every other master",
    "it counts as lost, and the slave can be connected again",
)
def test_a_slave_notices_that_its_master_has_dropped_it():
    slave = Gated(heartbeat_span=0.2)
    with pair(slave) as (master, _, connection):
        connection.lose(master._Master__table.get("conn"), "for a test")
        assert slave.lost.wait(DEADLINE_S)
        address, error = slave.losses[0]
        assert address == master.my_address and isinstance(error, MasterSlaveTokenInvalid)
        connection.connect()
        slave.go.set()
        assert connection.new_task(ADD).start().join(DEADLINE_S).result == {"sum": 5}


def test_a_slave_notices_that_its_master_is_gone_and_takes_the_next_one():
    with Adder(heartbeat_span=0.2) as slave:
        with Watcher() as master:
            master.new_connection("conn", "127.0.0.1", slave.port).connect()
        assert slave.lost.wait(DEADLINE_S)
        assert isinstance(slave.losses[0][1], requests.ConnectionError) and slave._Slave__link.session is None
        with Watcher() as master, master.new_connection("conn", "127.0.0.1", slave.port) as connection:
            assert connection.new_task(ADD).start().join(DEADLINE_S).result == {"sum": 5}


def test_a_hook_that_fails_on_a_loss_does_not_end_the_heart(caplog):
    class Weak(Adder):
        def _lost_connection(self, master_address, err):
            super()._lost_connection(master_address, err)
            raise RuntimeError("in the hook")

    with pair(Weak(heartbeat_span=0.2)) as (master, slave, connection):
        for _ in range(2):
            slave.lost.clear()
            connection.lose(master._Master__table.get("conn"), "for a test")
            assert slave.lost.wait(DEADLINE_S)
            connection.connect()
    assert caplog.text.count("RuntimeError: in the hook") == 2


def test_a_hook_of_the_master_that_fails_on_a_loss_is_logged_and_tasks_still_end(caplog):
    class Weak(Watcher):
        def _lost_connection(self, name, reason):
            raise RuntimeError("in the hook")

    with pair(master=Weak()) as (master, _, connection):
        connection.lose(master._Master__table.get("conn"), "for a test")
        connection.disconnect()
        connection.connect()
        assert connection.new_task(ADD).start().join(DEADLINE_S).result == {"sum": 5}
    assert "RuntimeError: in the hook" in caplog.text


def test_results_for_a_master_that_is_gone_are_dropped_and_the_slave_goes_on():
    slave = Gated(heartbeat_span=0.2)
    with slave:
        with Watcher() as master:
            connection = master.new_connection("conn", "127.0.0.1", slave.port)
            connection.connect()
            task = connection.new_task(ADD).start()
            assert slave.running.wait(DEADLINE_S)
        assert task.join(DEADLINE_S).is_lost and task.result["message"].endswith("the master was closed")
        slave.go.set()
        assert slave.lost.wait(DEADLINE_S)
        for _ in range(2):
            with Watcher() as master, master.new_connection("conn", "127.0.0.1", slave.port) as connection:
                assert connection.new_task(ADD).start().join(DEADLINE_S).result == {"sum": 5}


@pytest.mark.differs(
    "a result that cannot be delivered ends the slave's task thread",
    "it is sent again for a while; then the connection is given up, and the slave continues",
)
def test_a_slave_that_cannot_deliver_a_result_falls_silent_so_that_its_master_notices(monkeypatch):
    monkeypatch.setattr("ding.interaction.slave._DELIVERY_DEADLINE_S", 0.5)
    with through(slave_side=True, slave=Adder(heartbeat_span=DEADLINE_S), **SOON) as (master, slave, connection, proxy):
        connection.connect()
        proxy.rule("/slave/task", "lose")
        task = connection.new_task(ADD).start()
        assert slave.lost.wait(DEADLINE_S) and isinstance(slave.losses[0][1], requests.ConnectionError)
        assert len(proxy.requests) > 1 and set(proxy.requests) == {"PUT /slave/task/complete HTTP/1.1"}
        assert slave._Slave__link.session is None
        assert task.join(DEADLINE_S).is_lost
        # The thread that could not deliver it runs the tasks of the next master.
        with Watcher() as other, other.new_connection("conn", "127.0.0.1", slave.port) as second:
            assert second.new_task({"a": 1, "b": 1}).start().join(DEADLINE_S).result == {"sum": 2}
        assert slave.seen == [ADD, {"a": 1, "b": 1}]


def test_a_result_is_sent_again_where_something_on_the_way_is_out_of_order():
    with through(slave_side=True) as (_, _, connection, proxy):
        connection.connect()
        pages = [b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n"] * 2
        forward = proxy._forward
        proxy._forward = lambda request: pages.pop() if pages else forward(request)
        assert connection.new_task(ADD).start().join(DEADLINE_S).result == {"sum": 5}
        connection.disconnect()


def test_a_result_that_nobody_takes_ends_the_connection():
    with through(slave_side=True, slave=Adder(heartbeat_span=DEADLINE_S)) as (_, slave, connection, proxy):
        connection.connect()
        proxy._forward = lambda request: b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"
        connection.new_task(ADD).start()
        assert slave.lost.wait(DEADLINE_S)
        assert str(slave.losses[0][1]).startswith("404 Not Found") and len(proxy.requests) == 1


def test_a_result_that_is_too_large_for_the_master_fails_its_task():
    class Verbose(Adder):
        def _process_task(self, task):
            return {"text": "x" * 10_000}

    with pair(Verbose(), Watcher(body_limit=5000)) as (_, _, connection):
        task = connection.new_task({}).start().join(DEADLINE_S)
        assert (task.status, task.result["exception"]) == (TaskStatus.FAILED, "ResultTooLarge")
        assert "Request Entity Too Large" in task.result["message"]


def test_a_result_that_the_master_refuses_is_dropped_with_a_log_line(caplog):
    with pair(Gated()) as (master, slave, connection):
        task = connection.new_task(ADD).start()
        assert slave.running.wait(DEADLINE_S)
        session = master._Master__table.get("conn")
        session._tasks.clear()  # it has forgotten what it asked for
        slave.go.set()
        assert slave._Slave__link.wait_for(lambda: slave._Slave__link.is_idle, DEADLINE_S)
        assert "the master does not know the task whose result it gets: The slave has no such task." in caplog.text
        assert not slave.losses
        assert task.status is TaskStatus.STARTED
        assert connection.new_task(ADD).start().join(DEADLINE_S).result == {"sum": 5}


@pytest.mark.differs("a slave that is closed while it runs a task reports nothing", "it reports the task as failed")
def test_a_slave_that_is_closed_while_it_runs_a_task_reports_that():
    slave = Gated()
    with pair(slave) as (_, _, connection):
        task = connection.new_task(ADD).start()
        assert slave.running.wait(DEADLINE_S)
        closing = threading.Thread(target=slave.close)
        closing.start()
        assert task.join(DEADLINE_S).status is TaskStatus.FAILED and not task.is_lost
        assert task.result == {
            "message": "the slave was closed while it ran the task", "exception": "SlaveClosed", "traceback": "",
        }  # fmt: skip
        slave.go.set()
        closing.join(DEADLINE_S)
        assert not closing.is_alive()
        with pytest.raises(requests.ConnectionError):
            connection.disconnect()


def test_a_task_that_ends_while_its_slave_is_closed_still_reports_its_result():
    class Closing(Adder):
        def _process_task(self, task):
            self.close()
            return super()._process_task(task)

    with pair(Closing()) as (_, slave, connection):
        assert connection.new_task(ADD).start().join(DEADLINE_S).result == {"sum": 5}
        slave.close()


def test_a_slave_that_shuts_down_is_lost_when_that_is_noticed(monkeypatch):
    with pair(Gated()) as (master, slave, connection):
        running = connection.new_task(ADD).start()
        monkeypatch.setattr(slave._Role__server, "stop", lambda grace_s: None)  # it goes on answering
        slave.shutdown()
        with pytest.raises(SlaveSystemShuttingDown):
            connection.new_task(ADD).start()
        assert not connection.is_connected
        assert running.join(DEADLINE_S).status is TaskStatus.FAILED
        monkeypatch.undo()
        slave._Role__server.stop(0.0)
        slave.go.set()


def test_a_slave_that_forgot_its_master_is_lost_when_that_is_noticed():
    with pair(Adder(heartbeat_span=DEADLINE_S)) as (master, slave, connection):
        slave._Slave__link.end(slave._Slave__link.session)
        task = connection.new_task(ADD)
        with pytest.raises(SlaveMasterTokenInvalid):
            task.start()
        assert task.status is TaskStatus.START_FAILED and not connection.is_connected
        assert master.lost.wait(DEADLINE_S) and "does not know the master any more" in master.losses[0][1]
        with connection:
            assert connection.new_task(ADD).start().join(DEADLINE_S).result == {"sum": 5}


def test_connecting_anew_to_a_slave_that_forgot_its_master_fails_the_old_tasks():
    with pair(Gated(heartbeat_span=DEADLINE_S)) as (_, slave, connection):
        task = connection.new_task(ADD).start()
        assert slave.running.wait(DEADLINE_S)
        slave._Slave__link.end(slave._Slave__link.session)
        connection.connect()
        assert task.join(DEADLINE_S).is_lost and "it was connected anew" in task.result["message"]
        slave.go.set()
        assert slave._Slave__link.wait_for(lambda: slave._Slave__link.is_idle, DEADLINE_S)
        assert connection.new_task(ADD).start().join(DEADLINE_S).result == {"sum": 5}


@pytest.mark.differs(
    "a master that was stopped for a while drops all its slaves when it continues",
    "what it has not heard then does not count as silence",
)
def test_a_master_that_was_itself_stopped_does_not_blame_its_slaves():
    master = Watcher(heartbeat_tolerance=0.4, heartbeat_check_span=0.1)
    with pair(Adder(heartbeat_span=0.2), master) as (_, _, connection):
        clock = {"jump": 0.0}
        real = time.monotonic

        class Clock:
            @staticmethod
            def monotonic():
                return real() + clock["jump"]

        from ding.interaction.master import connection as session
        from ding.interaction.master import master as master_module

        checked = threading.Event()
        silent = master._Master__table.silent

        def tell(now, tolerance_s):
            found = silent(now, tolerance_s)
            if clock["jump"]:
                checked.set()
            return found

        master._Master__table.silent = tell
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(master_module, "time", Clock)
            patch.setattr(session, "time", Clock)
            clock["jump"] = 100.0
            assert checked.wait(DEADLINE_S)
            assert connection.is_connected and not master.losses
            assert connection.new_task(ADD).start().join(DEADLINE_S).result == {"sum": 5}
            master.close()


@pytest.mark.differs(
    "a reply of something between master and slave, such as a proxy, is a JSON error",
    "`MasterResponseException` or `SlaveResponseException` with its status",
)
def test_a_reply_of_something_else_on_the_way_is_a_loss_with_its_status():
    with through(slave_side=True) as (master, slave, connection, proxy):
        connection.connect()
        page = b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 5\r\n\r\n<html"
        proxy._forward = lambda request: page
        assert slave.lost.wait(DEADLINE_S)
        error = slave.losses[0][1]
        assert type(error) is MasterResponseException and (error.status_code, error.code) == (502, 1)
        assert "502 Bad Gateway" in str(error)


def serve_and_stall(connection):
    class Stalling(Adder):
        def _process_task(self, task):
            connection.send("running")
            signal.pause()

    with Stalling(heartbeat_span=0.2) as slave:
        connection.send(slave.port)
        signal.pause()


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_killed_slave_is_lost_within_the_tolerance():
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()
    process = context.Process(target=serve_and_stall, args=(theirs,), daemon=True)
    process.start()
    try:
        assert ours.poll(60)
        with Watcher(heartbeat_tolerance=0.8, heartbeat_check_span=0.1) as master:
            connection = master.new_connection("conn", "127.0.0.1", ours.recv())
            connection.connect()
            task = connection.new_task(ADD).start()
            assert ours.poll(DEADLINE_S) and ours.recv() == "running"
            os.kill(process.pid, signal.SIGKILL)
            assert task.join(DEADLINE_S).status is TaskStatus.FAILED and task.is_lost
            assert not connection.is_connected
            with pytest.raises(requests.ConnectionError):
                connection.connect()
    finally:
        process.kill()
        process.join(DEADLINE_S)


def fork_and_report(slave, connection):
    slave.close()  # what the child's copy of an object does when it is deleted there
    connection.send("closed")
    connection.recv()


@pytest.mark.differs(
    "a child that was forked from a worker keeps its port taken",
    "it closes its copies of the sockets",
)
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_child_neither_ends_the_server_nor_keeps_its_port():
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()
    slave = Gated()
    with pair(slave) as (_, _, connection):
        task = connection.new_task(ADD).start()
        assert slave.running.wait(DEADLINE_S)
        process = context.Process(target=fork_and_report, args=(slave, theirs), daemon=True)
        process.start()
        try:
            assert ours.poll(DEADLINE_S) and ours.recv() == "closed"
            slave.go.set()
            assert task.join(DEADLINE_S).result == {"sum": 5}
            assert connection.new_task(ADD).start().join(DEADLINE_S).result == {"sum": 5}
            connection.disconnect()
            slave.close()
            with pytest.raises(ConnectionRefusedError):
                raw(slave.port, "GET", "/ping")
            with Adder(port=slave.port) as successor:
                assert successor.ping()
        finally:
            ours.send("end")
            process.join(DEADLINE_S)
            assert process.exitcode == 0


def test_a_with_block_that_fails_tells_its_own_error_also_where_disconnecting_fails(caplog):
    with through() as (_, _, connection, proxy):
        proxy.rule("/disconnect", "reply")
        with pytest.raises(KeyError, match="inside"), connection:
            raise KeyError("inside")
        assert "could not be disconnected" in caplog.text and not connection.is_connected
        with pytest.raises(requests.ConnectionError), connection:
            assert connection.is_connected


def test_a_with_block_whose_slave_was_lost_ends_quietly():
    with pair() as (master, _, connection):
        connection.disconnect()
        with connection:
            connection.lose(master._Master__table.get("conn"), "for a test")
        assert not connection.is_connected


def test_a_slave_that_is_let_go_need_not_hear_of_it():
    class Unsure(Watcher):
        def _after_connect(self, *reply):
            raise RuntimeError("on second thoughts")

    with through(master_class=Unsure) as (_, slave, connection, proxy):
        proxy.rule("/disconnect", "lose")
        with pytest.raises(RuntimeError, match="on second thoughts"):
            connection.connect()
        assert slave.lost.wait(DEADLINE_S)


def test_a_slave_that_has_lost_its_master_does_not_lose_it_twice():
    with pair() as (_, slave, _):
        session = slave._Slave__link.session
        for _ in range(2):
            slave._Slave__lose(session, KeyError("for a test"))
        assert len(slave.losses) == 1


def test_losing_a_connection_that_was_replaced_changes_nothing():
    with pair() as (master, _, connection):
        old = master._Master__table.get("conn")
        connection.disconnect()
        connection.connect()
        connection.lose(old, "for a test")
        assert connection.is_connected and not master.losses


def test_a_heart_that_cannot_beat_gives_its_connection_up(monkeypatch):
    with pair(Adder(heartbeat_span=0.2)) as (_, slave, _):
        monkeypatch.setattr(slave._Slave__heartbeat, "beat", lambda session: {}["no beat"])
        assert slave.lost.wait(DEADLINE_S) and isinstance(slave.losses[0][1], KeyError)


def test_a_master_that_is_closed_while_it_connects_says_so():
    class Leaving(Adder):
        def _before_connection(self, data):
            master.close()

    with Leaving() as slave, Watcher() as master:
        connection = master.new_connection("conn", "127.0.0.1", slave.port)
        with pytest.raises(RuntimeError, match="does not run"):
            connection.connect()
        assert not connection.is_connected and slave._Slave__link.session is None
        with pytest.raises(requests.ConnectionError, match="was taken back"):
            connection.new_task({}).start()


def test_a_slave_whose_master_is_gone_is_closed_all_the_same(caplog):
    caplog.set_level(logging.INFO)
    slave = Gated()
    with slave:
        with Watcher() as master:
            connection = master.new_connection("conn", "127.0.0.1", slave.port)
            connection.connect()
            connection.new_task(ADD).start()
            assert slave.running.wait(DEADLINE_S)
        closing = threading.Thread(target=slave.close)
        closing.start()
        assert slave._Slave__link.wait_for(lambda: slave._Slave__link.session is None, DEADLINE_S)
        slave.go.set()
        closing.join(DEADLINE_S)
        assert not closing.is_alive() and "the end of the task was not reported to the master" in caplog.text


def test_closing_a_master_ends_a_connect_that_waits_for_another_try():
    with Watcher(request_retries=1000, request_retry_waiting=DEADLINE_S) as master:
        waiting, errors = threading.Event(), []
        connection = master.new_connection("conn", "127.0.0.1", free_port())

        class Closing(threading.Event):
            def wait(self, timeout=None):
                waiting.set()
                return super().wait(timeout)

        connection._engine._closing = Closing()

        def connect():
            try:
                connection.connect()
            except requests.ConnectionError as error:
                errors.append(error)

        thread = threading.Thread(target=connect)
        thread.start()
        assert waiting.wait(DEADLINE_S)
        master.close()
        thread.join(DEADLINE_S)
        assert not thread.is_alive() and len(errors) == 1
