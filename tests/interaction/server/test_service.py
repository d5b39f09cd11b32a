"""How masters and slaves start and end."""

import socket
import threading

import pytest
import requests

from tests.interaction.fakes import (
    DEADLINE_S,
    Adder,
    Gated,
    Watcher,
    current_of,
    free_port,
    open_files,
    pair,
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
        with pytest.raises(requests.ConnectionError):
            connection.new_task({}).start()
        connection.disconnect()  # works all the same, and lets the slave go
        assert current_of(slave).session is None
        slave.go.set()


@pytest.mark.differs(
    "uses Flask's development server, with a connection for each request",
    "uses Tornado in one thread, with persistent connections",
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
