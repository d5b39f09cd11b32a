"""Tasks between a coordinator and its workers: the same for every transport."""

import contextlib
import threading
import time

import pytest
import requests

from ding.interaction import ConnectionRefuse, Master, Slave
from ding.interaction.base import Page
from ding.worker.transport.http_transport import HttpConnector
from ding.worker.transport.local_transport import LocalConnector, LocalWorkerServer
from ding.worker.transport.transport import TaskFailed, WorkerLost, connect_all
from tests.interaction.fakes import configure_tls
from tests.worker.collector.parallel_fakes import in_thread
from tests.worker.transport.client_contract import ClientContract, Worker, run
from tests.worker.transport.sites import DEADLINE_S

SHORT_S = 0.02


class HttpWorkerServer(Slave):
    """A slave that runs its tasks by a function."""

    def __init__(self, serve, port=0):
        super().__init__("127.0.0.1", port)
        self._serve = serve

    def _process_task(self, task):
        return self._serve(task)


@pytest.fixture(params=["local", "http"])
def kind(request):
    return request.param


@pytest.fixture
def connector(kind, servers):  # closed before the servers
    connector = LocalConnector() if kind == "local" else HttpConnector("127.0.0.1", 0)
    connector.start()
    yield connector
    connector.close()


@pytest.fixture
def servers(kind):
    """Makes servers."""
    made = []

    def make(serve, port=0):
        server = (LocalWorkerServer if kind == "local" else HttpWorkerServer)(serve, port)
        server.start()
        made.append(server)
        return server

    yield make
    for server in made:
        server.close()


@pytest.fixture
def worker():
    worker = Worker()
    yield worker
    worker.go.set()


@pytest.fixture
def server(servers, worker):
    return servers(worker.serve)


@pytest.fixture
def client(connector, server):
    client = connector.client("w", "127.0.0.1", server.port)
    client.connect(DEADLINE_S)
    return client


class TestClient(ClientContract):
    """Over HTTP, and in this process."""


def test_a_task_that_cannot_be_sent_is_an_error_of_whoever_gives_it(client, worker):
    with pytest.raises(TypeError, match="cannot be packed"):
        run(client, "echo", value=object())
    assert worker.tasks == []
    assert run(client, "echo", value=1) == {"got": 1}


# Workers that are not there.


def test_a_worker_that_is_not_there_is_lost_after_a_while(connector):
    started = time.monotonic()
    with pytest.raises(WorkerLost):
        connector.client("w", "127.0.0.1", 9).connect(0.2)
    assert time.monotonic() - started < DEADLINE_S


def test_a_client_that_is_not_connected_runs_nothing(connector, server, worker):
    with pytest.raises(WorkerLost):
        run(connector.client("w", "127.0.0.1", server.port), "echo", value=1)
    assert worker.tasks == []


def test_a_worker_that_was_closed_takes_no_task(client, server, worker):
    server.close()
    with pytest.raises(WorkerLost):
        run(client, "echo", value=1)
    assert worker.tasks == []


def test_a_worker_that_does_not_answer_in_time_is_lost(client, worker):
    with pytest.raises(WorkerLost):
        run(client, "wait", SHORT_S)


@pytest.mark.parametrize("closes", ["client", "connector"])
def test_closing_ends_a_task_that_runs(connector, client, worker, closes):
    closing = {"client": client, "connector": connector}[closes]
    outcome = in_thread(run, client, "wait")
    assert worker.running.wait(DEADLINE_S)
    closing.close()
    assert isinstance(outcome(), WorkerLost)
    closing.close()


def test_a_worker_that_is_closed_during_a_task_is_lost(kind, client, server, worker):
    outcome = in_thread(run, client, "wait")
    assert worker.running.wait(DEADLINE_S)
    if kind == "local":
        server.close(SHORT_S)
    else:
        server.close()
    assert isinstance(outcome(), WorkerLost)


# Again.


def test_a_client_can_be_connected_again(client, worker):
    client.close()
    client.connect(DEADLINE_S)
    assert run(client, "echo", value=2) == {"got": 2}


# Servers.


def test_a_port_belongs_to_one_server(servers, server, worker):
    with pytest.raises(OSError):
        servers(worker.serve, server.port)


# What only one of them has.


@pytest.mark.parametrize("kind", ["http"])
def test_connecting_waits_until_the_worker_is_there_and_free(connector, client, server, worker):
    other = connector.client("other", "127.0.0.1", server.port)
    with pytest.raises(WorkerLost):
        other.connect(0.1)
    connecting = in_thread(other.connect, DEADLINE_S)
    client.close()
    assert connecting() is None
    assert run(other, "echo", value=5) == {"got": 5}


# How much longer than its limit a wait may take here, on a machine that is busy.
@pytest.mark.parametrize("kind", ["http"])
def test_a_worker_that_refuses_is_lost_at_once(connector):
    class Refusing(HttpWorkerServer):
        def _before_connection(self, data):
            raise ConnectionRefuse()

    with Refusing(None) as server, pytest.raises(WorkerLost):
        connector.client("w", "127.0.0.1", server.port).connect(DEADLINE_S)


@pytest.mark.parametrize("kind", ["http"])
def test_a_worker_without_a_sign_of_life_is_lost_during_its_task(servers, worker):
    connector = HttpConnector("127.0.0.1", 0)
    connector._master = Master("127.0.0.1", 0, heartbeat_tolerance=0.2, heartbeat_check_span=0.1)
    connector.start()
    server = servers(worker.serve)
    client = connector.client("w", "127.0.0.1", server.port)
    client.connect(DEADLINE_S)
    server._Slave__current.poll = lambda order, timeout_s: worker.go.wait(DEADLINE_S) and None  # it does not answer
    with pytest.raises(WorkerLost):
        run(client, "wait")
    worker.go.set()
    connector.close()


# For those who watch.


@pytest.mark.parametrize("kind", ["http"])
def test_a_client_tells_how_long_its_worker_has_been_silent(connector, server):
    client = connector.client("w", "127.0.0.1", server.port)
    assert client.silence_s() is None
    client.connect(DEADLINE_S)
    assert 0 <= client.silence_s() < DEADLINE_S
    before = time.monotonic()
    run(client, "echo", value=1)
    assert client.silence_s() <= time.monotonic() - before
    before = time.monotonic()
    with pytest.raises(TaskFailed):
        run(client, "fail", result={})
    assert client.silence_s() <= time.monotonic() - before
    client.drop("it is gone")
    assert 0 <= client.silence_s() < DEADLINE_S


def test_a_connector_serves_pages_where_it_listens(kind):
    page = Page(lambda: "text")
    connector = LocalConnector() if kind == "local" else HttpConnector("127.0.0.1", 0)
    connector.serve_page("/page", page)
    assert connector.url is None
    connector.start()
    try:
        if kind == "local":
            assert connector.url is None
        else:
            assert requests.get(f"{connector.url}page", timeout=DEADLINE_S).text == "text"
    finally:
        connector.close()
    assert connector.url is None


def test_a_connector_reaches_its_workers_over_tls_where_that_is_configured(tmp_path, monkeypatch):
    configure_tls(monkeypatch, tmp_path)
    server, connector = HttpWorkerServer(Worker().serve), HttpConnector("127.0.0.1", 0)
    with server, contextlib.closing(connector):
        connector.start()
        assert connector.url.startswith("https://127.0.0.1:")
        client = connector.client("worker", "127.0.0.1", server.port)
        client.connect(DEADLINE_S)
        assert client.run({"name": "echo", "value": 7}, DEADLINE_S) == {"got": 7}


# All workers at the same time.


def test_no_attempt_waits_for_another():
    together = threading.Barrier(5, timeout=DEADLINE_S)
    connect_all({f"worker{i}": together.wait for i in range(5)}, DEADLINE_S)
    assert not together.broken


def test_an_attempt_that_hangs_is_named_when_the_time_is_up():
    go, begin = threading.Event(), time.monotonic()
    attempts = {"good": lambda: None, "hangs": lambda: go.wait(DEADLINE_S)}
    with pytest.raises(ConnectionError):
        connect_all(attempts, 0.1)
    assert time.monotonic() - begin < DEADLINE_S / 2
    go.set()
