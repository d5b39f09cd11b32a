"""How masters and slaves start and end."""

import contextlib
import socket
import threading

import pytest
import requests

from ding.interaction import TaskRefuse
from ding.interaction import server as server_module
from tests.interaction.fakes import (
    DEADLINE_S,
    Adder,
    Gated,
    Watcher,
    current_of,
    free_port,
    open_files,
    outcome,
    pair,
    raw,
    task_id,
)

KINDS = pytest.mark.parametrize("kind", [Adder, Watcher], ids=["slave", "master"])


def own_threads():
    return [t for t in threading.enumerate() if t.name.startswith(("master_", "slave_"))]


@KINDS
def test_port_0_takes_a_free_one_that_can_be_read(kind):
    server = kind(port=0)
    assert server.port == 0
    with server as entered:
        assert entered is server and server.port > 0
        assert server.ping()


@KINDS
def test_threads_are_few_named_and_gone_after_the_close(kind):
    with kind() as server:
        names = sorted(thread.name for thread in own_threads())
        role = "slave" if kind is Adder else "master"
        jobs = {"slave": ["slave_heartbeat", "slave_task"], "master": ["master_heartbeat"]}[role]
        assert names == sorted([*jobs, f"{role}_run_app"])
        assert server.channel == 0
    assert own_threads() == []


@pytest.mark.differs(
    "reports a port in use as a wrong token, and leaves threads behind",
    "raises an OSError that names the address",
)
@KINDS
def test_a_taken_port_is_an_error_at_start_that_leaves_nothing(kind):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        server = kind(port=port)
        files = open_files()
        with pytest.raises(OSError, match=f"cannot listen at 127.0.0.1:{port}: Address already in use.*; port 0 takes"):
            server.start()
        assert own_threads() == [] and open_files() == files
    server.start()  # the port is free now
    server.close()


def test_a_port_can_be_used_again_at_once():
    port = free_port()
    for _ in range(3):
        with Adder(port=port) as slave, Watcher() as master, master.new_connection("conn", "127.0.0.1", port) as conn:
            assert conn.new_task({"a": 1, "b": 1}).start().join(DEADLINE_S).result == {"sum": 2}
            assert slave.port == port


@KINDS
def test_it_starts_once(kind):
    server = kind()
    with server:
        with pytest.raises(RuntimeError, match="starts once; make another one"):
            server.start()
        assert server.ping()
    with pytest.raises(RuntimeError, match="starts once; make another one"):
        server.start()


def test_join_waits_until_somebody_asks_for_the_end():
    slave = Adder()
    slave.start()
    slave.join(0.01)
    assert slave.ping()
    joined = threading.Thread(target=slave.join)
    joined.start()
    assert joined.is_alive()
    slave.shutdown()
    joined.join(DEADLINE_S)
    assert not joined.is_alive() and own_threads() == []


@KINDS
def test_ping_is_false_without_a_server(kind):
    server = kind()
    assert not server.ping()
    with server:
        assert server.ping()
    assert not server.ping()


def test_ping_is_false_where_nothing_arrives(monkeypatch):
    with Adder() as slave:
        monkeypatch.setattr(slave, "_Role__port", free_port())
        assert not slave.ping()


class Slow(Adder):
    """A slave whose hook holds the request until `leave` is set."""

    def __init__(self):
        super().__init__()
        self.entered, self.leave = threading.Event(), threading.Event()

    def _before_connection(self, data):
        self.entered.set()
        assert self.leave.wait(DEADLINE_S)


def connecting(slave, replies):
    def connect():
        body = {"master": {"address": "http://127.0.0.1:9"}, "data": {}}
        try:
            replies.append(outcome(raw(slave.port, "POST", "/connect", body, {"Channel": "0", "Token": "T"})))
        except Exception as error:
            replies.append(type(error))

    thread = threading.Thread(target=connect)
    thread.start()
    assert slave.entered.wait(DEADLINE_S)
    return thread


def test_a_request_in_flight_may_end_before_the_server_does():
    slave, replies = Slow(), []
    slave.start()
    thread = connecting(slave, replies)
    slave.shutdown()
    slave.leave.set()
    slave.join()
    thread.join(DEADLINE_S)
    assert replies == [(200, 0)] and own_threads() == []


def test_a_request_that_does_not_end_does_not_keep_the_server(caplog, monkeypatch):
    monkeypatch.setattr("ding.interaction.role.GRACE_S", 0.1)
    monkeypatch.setattr("ding.interaction.role._JOIN_S", 0.4)
    slave, replies = Slow(), []
    slave.start()
    thread = connecting(slave, replies)
    slave.close()
    thread.join(DEADLINE_S)  # its connection was closed
    assert replies and replies[0] != (200, 0)
    assert "still busy: slave_request_" in caplog.text
    with pytest.raises(ConnectionRefusedError):
        raw(slave.port, "GET", "/ping")
    left = own_threads()
    assert [t.name[:-1] for t in left] == ["slave_request_"]
    slave.leave.set()
    for thread in left:
        thread.join(DEADLINE_S)
    assert own_threads() == []


def test_a_task_that_does_not_end_does_not_keep_the_slave(caplog, monkeypatch):
    monkeypatch.setattr("ding.interaction.slave.GRACE_S", 0.1)
    monkeypatch.setattr("ding.interaction.role._JOIN_S", 0.4)
    slave = Gated()
    with pair(slave) as (_, _, connection):
        task = connection.new_task({"a": 1, "b": 1}).start()
        assert slave.running.wait(DEADLINE_S)
        slave.close()
        assert task.join(DEADLINE_S).result["exception"] == "SlaveClosed"
        assert "these threads are still busy: slave_task" in caplog.text
        slave.go.set()
        for thread in own_threads():
            if thread.name == "slave_task":
                thread.join(DEADLINE_S)


def test_closing_a_master_fails_its_tasks_and_leaves_its_slaves_alone():
    slave = Gated()
    with pair(slave) as (master, _, connection):
        lost = []
        task = connection.new_task({"a": 1, "b": 1}).on_fail(lambda *_: lost.append(task.status)).start()
        assert slave.running.wait(DEADLINE_S)
        master.close()
        assert task.join(DEADLINE_S).is_lost and len(lost) == 1
        assert task.result["message"] == "the connection to the slave 'conn' has ended: the master was closed"
        assert not connection.is_connected and "conn" not in master and master.losses == []
        assert current_of(slave).session is not None
        with pytest.raises(requests.ConnectionError, match="was lost: the master was closed"):
            connection.new_task({}).start()
        connection.disconnect()  # works all the same, and lets the slave go
        assert current_of(slave).session is None
        slave.go.set()


def test_requests_beyond_the_threads_wait_for_one(monkeypatch):
    monkeypatch.setattr(server_module, "_MOST_THREADS", 2)
    together, go = threading.Semaphore(0), threading.Event()

    class Slow(Adder):
        def _before_task(self, data):
            together.release()
            assert go.wait(DEADLINE_S)
            raise TaskRefuse

    replies = []
    with pair(Slow()) as (_, slave, connection):
        slave._Slave__turn = contextlib.nullcontext()  # several hooks at a time

        def ask():
            head = {"Channel": "0", "Token": connection._session.token}
            replies.append(outcome(raw(slave.port, "PUT", f"/tasks/{task_id()}", {"data": {}}, head)))

        threads = [threading.Thread(target=ask) for _ in range(5)]
        for thread in threads:
            thread.start()
        for _ in range(2):
            assert together.acquire(timeout=DEADLINE_S)
        names = [thread.name for thread in own_threads() if "request" in thread.name]
        assert sorted(names) == ["slave_request_0", "slave_request_1"]
        go.set()
        for thread in threads:
            thread.join(DEADLINE_S)
    assert replies == [(403, 602)] * 5 and own_threads() == []


@pytest.mark.differs(
    "uses Flask's development server, with a connection for each request",
    "uses Tornado in one thread, with kept connections",
)
def test_one_connection_carries_all_requests_to_a_peer():
    with pair() as (master, slave, connection):
        for _ in range(20):
            connection.new_task({"a": 1, "b": 1}).start().join(DEADLINE_S)
        assert len(slave.seen) == 20
        assert [len(server._Role__server._server.streams) for server in (master, slave)] == [0, 1]


def test_large_tasks_and_results_pass():
    class Echo(Adder):
        def _process_task(self, task):
            return task

    with pair(Echo()) as (_, _, connection):
        data = {"text": "x" * 5_000_000, "numbers": list(range(1000))}
        assert connection.new_task(data).start().join(DEADLINE_S).result == data
