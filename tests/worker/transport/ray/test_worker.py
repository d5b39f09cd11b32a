"""Tasks for actors of Ray, and how their loss is noticed."""

import itertools
import os
import queue
import signal
import threading
from functools import partial
from pathlib import Path
from time import monotonic

import pytest
import ray

from ding.worker.transport.ray.ray_transport import RayConnector, actor_class, actor_name
from ding.worker.transport.transport import WorkerLost
from tests.worker.transport.client_contract import ClientContract, run
from tests.worker.transport.ray.clusters import PATIENCE_S, Echo

# With the processor time that others leave, a process may take long to be seen dead; hung calls take for ever.
NOTICED_S = 5.0
lives = itertools.count(1)


pytestmark = pytest.mark.usefixtures("ray_cluster")


@pytest.fixture(scope="module")
def connector():
    connector = RayConnector({"host": "127.0.0.1", "port": 0})
    connector.start()
    yield connector
    connector.close()


class Site:
    """A worker in an actor, and a client to it that is connected."""

    def __init__(self, connector, folder):
        self.life, self.folder = next(lives), folder
        self.actor = actor_class().options(name=actor_name("w", self.life)).remote(partial(Echo, str(folder)))
        self.pid = ray.get(self.actor.place.remote(), timeout=PATIENCE_S)["pid"]
        self.client = connector.client("w", "", self.life)
        self.client.connect(PATIENCE_S)

    def run_in_thread(self, name):
        """A queue that gets what a task ends with."""
        ends = queue.Queue()

        def run():
            try:
                ends.put(self.client.run({"name": name}, PATIENCE_S))
            except Exception as e:
                ends.put((monotonic(), e))

        threading.Thread(target=run, daemon=True).start()
        return ends

    def kill(self):
        os.kill(self.pid, signal.SIGKILL)
        return monotonic()


@pytest.fixture(scope="module")
def site(ray_cluster, connector, tmp_path_factory):
    """For those who leave it as it was: a process takes long to start."""
    site = Site(connector, tmp_path_factory.mktemp("site"))
    yield site
    ray.kill(site.actor)


@pytest.fixture
def own_site(connector, tmp_path):
    site = Site(connector, tmp_path)
    yield site
    ray.kill(site.actor)


def wait_for(path):
    deadline = monotonic() + PATIENCE_S
    while not Path(path).exists():
        assert monotonic() < deadline
        threading.Event().wait(0.01)


@pytest.fixture
def client(site):
    return site.client


class TestClient(ClientContract):
    """In an actor."""


def test_a_task_is_run_in_the_process_of_the_actor(site):
    assert site.pid != os.getpid()
    assert run(site.client, "say", value=1) == {"result": 1} and site.client.silence_s() < PATIENCE_S


def test_a_worker_that_has_lost_others_it_needs_is_lost_with_the_task(client):
    with pytest.raises(WorkerLost):
        run(client, "lose")


@pytest.mark.slow
def test_a_task_without_an_answer_in_time_is_lost(own_site):
    site = own_site
    begin = monotonic()
    with pytest.raises(WorkerLost):
        site.client.run({"name": "hang"}, 0.5)
    assert monotonic() - begin < NOTICED_S


@pytest.mark.parametrize("is_dead_before", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_whoever_waits_is_told_at_once_when_the_process_is_killed(own_site, is_dead_before):
    site = own_site
    if is_dead_before:
        lost = threading.Event()
        site.client.watch(lambda reason: lost.set())
        begin = site.kill()
        assert lost.wait(NOTICED_S)
        ends = site.run_in_thread("echo")
    else:
        ends = site.run_in_thread("hang")
        wait_for(site.folder / "hangs")
        begin = site.kill()
    end, error = ends.get(timeout=PATIENCE_S)
    assert isinstance(error, WorkerLost) and end - begin < NOTICED_S


@pytest.mark.slow
def test_a_worker_that_is_stopped_shows_no_sign_of_life_and_is_lost(own_site, monkeypatch):
    site = own_site
    monkeypatch.setattr("ding.worker.transport.ray.ray_transport._ASK_S", 0.1)
    monkeypatch.setattr("ding.worker.transport.ray.ray_transport._TOLERANCE_S", 0.5)
    ends = site.run_in_thread("hang")
    wait_for(site.folder / "hangs")
    threading.Event().wait(1.0)  # answers keep it alive, however long the task takes
    assert ends.empty()
    os.kill(site.pid, signal.SIGSTOP)
    begin = monotonic()
    end, error = ends.get(timeout=PATIENCE_S)
    assert isinstance(error, WorkerLost) and "no sign of life" in str(error) and end - begin < NOTICED_S


@pytest.mark.slow
def test_who_closes_a_connector_tells_the_workers_and_ends_their_tasks(tmp_path):
    connector = RayConnector({"host": "127.0.0.1", "port": 0})
    connector.start()
    site = Site(connector, tmp_path)
    ends = site.run_in_thread("hang")
    wait_for(site.folder / "hangs")
    connector.close()
    _, error = ends.get(timeout=NOTICED_S)
    assert isinstance(error, WorkerLost) and "disconnected" in str(error)
    wait_for(site.folder / "lost")
    connector.close()


def test_an_earlier_life_is_not_reached_by_a_client_to_a_later_one(connector):
    client = connector.client("echo", "", 10**6)
    with pytest.raises(WorkerLost):
        client.connect(1.0)
    assert client.silence_s() is None
    with pytest.raises(WorkerLost):
        client.run({"name": "echo"}, 1.0)
    client.close()


def test_pages_are_served_over_http(connector):
    import requests

    from ding.interaction.base import Page

    own = RayConnector({"host": "127.0.0.1", "port": 0})
    assert own.url is None
    own.serve_page("/hello", Page(lambda: b"hello", "text/plain", is_public=True))
    own.start()
    try:
        assert requests.get(f"{own.url}hello", timeout=PATIENCE_S).text == "hello"
    finally:
        own.close()
