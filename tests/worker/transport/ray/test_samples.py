"""Samples in an actor of Ray."""

import os
import signal
import time

import pytest
import ray

from ding.worker.transport.ray.stores import RaySampleStore, StoreActor, start_sample_server
from tests.worker.transport.ray.clusters import PATIENCE_S

pytestmark = pytest.mark.usefixtures("ray_cluster")
SAMPLES = {f"env_{number}": f"samples {number}".encode() * (number + 1) for number in range(8)}


def wait_until(is_true):
    deadline = time.monotonic() + PATIENCE_S
    while not is_true():
        assert time.monotonic() < deadline


@pytest.fixture(scope="module")
def root(ray_cluster, tmp_path_factory):
    """A folder that names the samples of an actor; a process takes long to start."""
    folder = str(tmp_path_factory.mktemp("run") / "data")
    server = start_sample_server(folder, {})
    yield folder
    ray.kill(server)


@pytest.fixture
def store(root):
    store = RaySampleStore(root)
    for name, data in SAMPLES.items():
        store.write(name, data)
    yield store
    store.delete(*store.names())
    wait_until(lambda: not store.names())  # nobody waits for the deletion


def test_every_client_finds_all_samples(store, root):
    other = RaySampleStore(root)
    assert {name: other.read(name) for name in SAMPLES} == SAMPLES
    assert other.names() == SAMPLES.keys() and other.names({"env_3", "env_99"}) == {"env_3"}


def test_deleted_samples_are_missing(store, root):
    store.delete("env_1", "env_2", "env_99")
    wait_until(lambda: "env_1" not in store.names())
    assert store.names() == SAMPLES.keys() - {"env_1", "env_2"}
    with pytest.raises(FileNotFoundError):
        store.read("env_1")


@pytest.mark.parametrize("name", ["../env_1", ".env", "a/b"])
def test_names_lead_nowhere_else(store, name):
    for act in (store.read, store.delete, lambda name: store.write(name, b"")):
        with pytest.raises(ValueError, match="is not allowed"):
            act(name)


def test_a_run_without_an_actor_says_so(tmp_path):
    with pytest.raises(OSError):
        RaySampleStore(str(tmp_path)).read("env_1")


@pytest.mark.slow
def test_samples_outlive_their_collector_and_may_be_more_than_the_object_store_holds(root):
    size, count = 20 * 2**20, 10  # of a store of 150 MiB

    @ray.remote(num_cpus=0)
    def collect():
        store = RaySampleStore(root)
        for number in range(count):
            store.write(f"env_{number}", bytes([number]) * size)
        return os.getpid()

    os.kill(ray.get(collect.remote(), timeout=PATIENCE_S), signal.SIGKILL)
    store = RaySampleStore(root)
    for number in range(count):
        assert store.read(f"env_{number}") == bytes([number]) * size
    store.delete(*store.names())


@pytest.mark.slow
def test_an_actor_that_was_killed_comes_back_without_its_samples(store):
    server: StoreActor = store._server
    os.kill(server.ask("__ray_call__", lambda self: os.getpid()), signal.SIGKILL)
    with pytest.raises(FileNotFoundError):
        store.read("env_1")
    store.write("env_1", b"new")
    assert store.names() == {"env_1"} and store.read("env_1") == b"new"
