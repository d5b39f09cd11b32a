import threading

import pytest

from ding.worker.transport.http_transport import HttpConnector
from ding.worker.transport.local_transport import LocalConnector
from ding.worker.transport.stores import (
    FolderPolicyStore,
    FolderSampleStore,
    MemoryPolicyStore,
    MemorySampleStore,
    forget_memory_stores,
)
from tests.worker.learner.comm.workers import DEADLINE_S, GATES, POLICIES, Site

STORES = {"flask_fs": (FolderSampleStore, FolderPolicyStore), "local": (MemorySampleStore, MemoryPolicyStore)}


@pytest.fixture(autouse=True)
def no_environment(monkeypatch):
    """What the environment of the test run says about tokens and hosts is not meant for these tests."""
    for name in ("DING_TOKEN", "DING_TOKEN_FILE", "DING_HOSTS"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(autouse=True)
def fresh_fakes():
    yield
    for gate in GATES.values():
        gate.opened.set()
    for thread in threading.enumerate():  # what a test left hanging would save its checkpoint in another test's folder
        if thread.name == "learner_start":
            thread.join(DEADLINE_S)
    GATES.clear()
    POLICIES.clear()


@pytest.fixture(params=["local", "flask_fs"])
def kind(request):
    return request.param


@pytest.fixture
def site(kind, tmp_path):
    """A place for a worker of this kind, with stores and a connector."""
    data, policy = str(tmp_path / "data"), str(tmp_path / "policy")
    samples, policies = (store(path) for store, path in zip(STORES[kind], (data, policy), strict=True))
    site = Site(kind, HttpConnector("127.0.0.1", 0) if kind == "flask_fs" else LocalConnector(), samples, policies)
    site.connector.start()
    yield site
    site.close()
    for path in (data, policy):
        forget_memory_stores(path)
