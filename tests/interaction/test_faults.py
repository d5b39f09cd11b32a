"""Messages that are late, lost or doubled, and peers that go without a word."""

import contextlib
import multiprocessing
import os
import signal
import threading

import pytest
import requests

from ding.interaction.exception import SlaveResponseException
from ding.interaction.master.task import TaskResultType, TaskStatus
from tests.interaction.fakes import (
    DEADLINE_S,
    Adder,
    Gated,
    Proxy,
    Watcher,
    current_of,
    lose,
    pair,
    raw,
    wait_until_idle,
)
from tests.worker.collector.parallel_fakes import in_thread

ADD = {"a": 2, "b": 3}
SOON = {"heartbeat_tolerance": 0.3, "heartbeat_check_span": 0.1}


@contextlib.contextmanager
def through(slave=None, master=None):
    """`(master, slave, connection, proxy)`; the proxy is before the slave."""
    slave, master = slave or Adder(heartbeat_span=0.2), master or Watcher()
    with slave, Proxy(slave.port) as proxy, master:
        yield master, slave, master.new_connection("conn", "127.0.0.1", proxy.port), proxy


@pytest.fixture(params=["", "s3cret"], ids=["without token", "with token"])
def token(request, set_env):
    """The token of the servers of the test."""
    set_env(DING_TOKEN=request.param)


@pytest.mark.differs("loses a task, or counts it twice, if a message is lost or repeated", "runs and counts it once")
@pytest.mark.parametrize("fault", ["lose", "reply", "half", "double"])
@pytest.mark.parametrize("request_line", ["POST /connect", "PUT /tasks", "DELETE /disconnect"])
def test_a_request_survives_a_fault(token, request_line, fault):
    with through() as (master, slave, connection, proxy):
        for run in (
            lambda: connection.new_task(ADD).start().join(DEADLINE_S).result,
            lambda: connection.run(ADD, DEADLINE_S)[1],
        ):
            proxy.rule(request_line, fault, times=1)
            connection.connect()
            assert run() == {"sum": 5}
            connection.disconnect()
            assert "conn" not in master
        assert slave.seen == [ADD, ADD]


@pytest.mark.parametrize("fault", ["lose", "reply", "half", "double"])
def test_waiting_for_a_result_survives_faults(token, fault):
    slave = Gated(heartbeat_span=0.2)
    with through(slave) as (_, _, connection, proxy):
        connection.connect()
        calls = []
        task = connection.new_task(ADD).on_complete(lambda *_: calls.append("complete")).start()
        proxy.rule("PUT /tasks", fault, times=3)
        assert slave.running.wait(DEADLINE_S)
        slave.go.set()
        assert task.join(DEADLINE_S).result == {"sum": 5} and not task.is_lost
        connection.disconnect()
    assert calls == ["complete"] and slave.seen == [ADD]


def test_a_task_that_does_not_reach_its_slave_fails_to_start():
    with through() as (_, slave, connection, proxy):
        connection.connect()
        proxy.rule("PUT /tasks", "lose", times=2)
        task = connection.new_task(ADD)
        with pytest.raises(requests.ConnectionError):
            task.start()
        assert task.join().status is TaskStatus.START_FAILED and task.result is None and slave.seen == []
        assert connection.is_connected
        assert connection.new_task(ADD).start().join(DEADLINE_S).result == {"sum": 5}


@pytest.mark.differs(
    "registers a slave that is not connected if `_error_connect` swallows the error, and ignores a master's "
    "`request_retries` in its connections",
    "registers connected slaves only, and retries as `request_retries` says",
)
def test_error_hooks_may_swallow_transport_errors_and_nothing_is_registered():
    class Calm(Watcher):
        def _error_connect(self, err):
            return f"no connection: {type(err).__name__}"

        def _error_disconnect(self, err):
            return "gone"

        def _error_new_task(self, err):
            return "ignored"

    with through(master=Calm()) as (master, _, connection, proxy):
        proxy.rule("POST /connect", "lose", times=2)
        assert connection.connect() == "no connection: ConnectionError"
        assert "conn" not in master and not connection.is_connected
        with pytest.raises(KeyError):
            del master["conn"]
        connection.connect()
        proxy.rule("PUT /tasks", "lose", times=2)
        task = connection.new_task(ADD)
        assert task.start() is task and task.join().status is TaskStatus.START_FAILED
        proxy.rule("/disconnect", "lose", times=2)
        assert connection.disconnect() == "gone"
        assert "conn" not in master and not connection.is_connected


@pytest.mark.differs(
    "keeps a silent slave connected, with tasks that never end",
    "fails its tasks, and lets it connect again",
)
def test_a_silent_slave_is_lost_and_its_tasks_fail():
    with through(Gated(), Watcher(**SOON)) as (master, slave, connection, proxy):
        connection.connect()
        task = connection.new_task(ADD).start()
        answers = threading.Event()
        proxy.rule("", answers)
        assert master.lost.wait(DEADLINE_S)
        assert task.join(DEADLINE_S).status is TaskStatus.FAILED and task.is_lost
        assert task.result["message"] == (
            "the connection to the slave 'conn' has ended: there was no sign of life for 0.3 s"
        )
        assert task.result["exception"] == "SlaveLost"
        assert master.losses == [("conn", "there was no sign of life for 0.3 s")]
        assert not connection.is_connected and "conn" not in master
        late = connection.new_task(ADD)
        with pytest.raises(requests.ConnectionError, match="was lost: there was no sign of life"):
            late.start()
        assert late.status is TaskStatus.START_FAILED
        answers.set()
        slave.go.set()
        wait_until_idle(slave)
        connection.disconnect()
        connection.connect()
        assert connection.new_task(ADD).start().join(DEADLINE_S).result == {"sum": 5}


def test_a_slave_is_not_lost_while_it_runs_a_long_task_or_none():
    slave = Gated(heartbeat_span=0.2)
    with through(slave, Watcher(heartbeat_tolerance=1.0, heartbeat_check_span=0.1)) as (_, _, connection, proxy):
        connection.connect()
        task = connection.new_task(ADD).start()
        for line in ("PUT /tasks", "GET /heartbeat"):
            third = threading.Event()
            proxy.rule(line, "pass", times=2)
            proxy.rule(line, third, times=1)  # it is held until the test has seen it
            while len([sent for sent in proxy.requests if line in sent]) < 3:
                assert connection.is_connected
                threading.Event().wait(0.01)
            third.set()
            slave.go.set()
            assert task.join(DEADLINE_S).result == {"sum": 5}
        assert not slave.losses and current_of(slave).session is not None


def test_a_slave_notices_that_its_master_has_dropped_it():
    slave = Gated(heartbeat_span=0.2)
    with pair(slave) as (master, _, connection):
        lose(connection)
        assert slave.lost.wait(DEADLINE_S)
        address, error = slave.losses[0]
        assert address == master.my_address and isinstance(error, requests.ReadTimeout)
        assert "there was no request of the master for" in str(error)
        connection.connect()
        slave.go.set()
        assert connection.new_task(ADD).start().join(DEADLINE_S).result == {"sum": 5}


@pytest.mark.differs(
    "ends a slave's threads if a result or a heartbeat cannot be delivered, and refuses every other master then",
    "ends the connection after a while without requests, and takes the next master",
)
def test_a_slave_whose_master_is_gone_drops_its_results_and_takes_the_next_one():
    with Gated(heartbeat_span=0.2) as slave:
        with Watcher() as master:
            connection = master.new_connection("conn", "127.0.0.1", slave.port)
            connection.connect()
            task = connection.new_task(ADD).start()
            assert slave.running.wait(DEADLINE_S)
        assert task.join(DEADLINE_S).is_lost and task.result["message"].endswith("the master was closed")
        slave.go.set()
        assert slave.lost.wait(DEADLINE_S) and current_of(slave).session is None
        for _ in range(2):
            with Watcher() as master, master.new_connection("conn", "127.0.0.1", slave.port) as connection:
                assert connection.new_task(ADD).start().join(DEADLINE_S).result == {"sum": 5}


def test_a_result_that_is_too_large_fails_its_task(monkeypatch):
    monkeypatch.setattr("ding.interaction.slave.DEFAULT_BODY_LIMIT", 5000)

    class Verbose(Adder):
        def _process_task(self, task):
            return {"text": "x" * 10_000}

    with pair(Verbose()) as (_, _, connection):
        task = connection.new_task({}).start().join(DEADLINE_S)
        assert (task.status, task.result["exception"]) == (TaskStatus.FAILED, "ResultTooLarge")
        assert task.result["message"] == "the result has more than 5000 bytes"


def test_a_slave_that_is_closed_while_it_runs_a_task_reports_that():
    slave = Gated()
    with pair(slave) as (_, _, connection):
        outcome = in_thread(connection.run, ADD, DEADLINE_S)
        assert slave.running.wait(DEADLINE_S)
        closing = in_thread(slave.close)
        assert outcome() == (
            TaskResultType.FAILED,
            {"message": "the slave was closed while it ran the task", "exception": "SlaveClosed", "traceback": ""},
        )
        slave.go.set()
        closing()
        with pytest.raises(requests.ConnectionError):
            connection.disconnect()


def test_a_reply_of_something_else_on_the_way_is_an_exception_with_its_status():
    with through() as (_, _, connection, proxy):
        connection.connect()
        page = b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 5\r\n\r\n<html"
        proxy._forward = lambda request: page
        with pytest.raises(SlaveResponseException) as error:
            connection.run(ADD, DEADLINE_S)
        assert type(error.value) is SlaveResponseException and (error.value.status_code, error.value.code) == (502, 1)


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
