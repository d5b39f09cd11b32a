"""Weights in the object store."""

import os
import pickle
import signal

import pytest
import ray
import torch

from ding.worker.transport.ray.stores import RayPolicyStore, start_weights_server
from ding.worker.transport.stores import FolderPolicyStore
from tests.worker.transport.policy_store_contract import PolicyStoreContract
from tests.worker.transport.ray.clusters import PATIENCE_S

pytestmark = pytest.mark.usefixtures("ray_cluster")


@pytest.fixture(scope="module")
def root(ray_cluster, tmp_path_factory):
    """A folder whose weights an actor keeps; a process takes long to start."""
    folder = str(tmp_path_factory.mktemp("run") / "policy")
    server = start_weights_server(folder, {})
    yield folder
    ray.kill(server)


@pytest.fixture
def store(root):
    yield RayPolicyStore(root)


@pytest.fixture
def name(request):
    """Of weights that no other test has."""
    return request.node.name[-150:]


def state(iteration, value=0.0):
    return {"model": {"w": torch.full((3,), value)}, "iter": iteration}


@pytest.fixture
def opened(root):
    return lambda: RayPolicyStore(root)


class TestPolicyStore(PolicyStoreContract):
    """In the object store."""


def test_versions_are_files_too_as_other_stores_write_them(store, name):
    store.write(name, state(4, 4.0))
    assert FolderPolicyStore(store.root).read(name).state["iter"] == 4
    FolderPolicyStore(store.root).write("from_before", state(9))
    assert store.read("from_before").state["iter"] == 9


def test_reading_runs_no_code(store, name):
    class Harmful:
        def __reduce__(self):
            return print, ("harm",)

    store.write(name, {"model": Harmful(), "iter": 1})
    with pytest.raises(pickle.UnpicklingError):
        store.read(name)
    assert RayPolicyStore(store.root, trust_pickle=True).read(name).state["model"] is None


@pytest.mark.slow
def test_weights_outlive_their_writer(store, name):
    @ray.remote
    class Writer:
        def write(self, root, name):
            RayPolicyStore(root).write(name, {"model": {"w": torch.ones(10**6)}, "iter": 3})
            return os.getpid()

    writer = Writer.remote()
    os.kill(ray.get(writer.write.remote(store.root, name), timeout=PATIENCE_S), signal.SIGKILL)
    assert store.read(name).state["model"]["w"].sum() == 10**6


@pytest.mark.slow
def test_a_server_that_was_killed_has_the_weights_again(tmp_path, name):
    server = start_weights_server(str(tmp_path / "policy"), {})
    store = RayPolicyStore(str(tmp_path / "policy"))
    store.write(name, state(5, 5.0))
    os.kill(ray.get(server.__ray_call__.remote(lambda self: os.getpid()), timeout=PATIENCE_S), signal.SIGKILL)
    version = store.read(name)
    assert torch.equal(version.state["model"]["w"], torch.full((3,), 5.0))
    store.write(name, state(6))
    assert store.read(name, version.token).state["iter"] == 6


def test_without_a_server_the_store_says_so(tmp_path, name):
    with pytest.raises(OSError):
        RayPolicyStore(str(tmp_path / "elsewhere")).read(name)
