"""The way of one task's samples, infos and weights."""

import pytest
import torch

from ding.worker.collector.comm.collector_session import CollectorQueue, CollectorSession
from ding.worker.transport.chunk import decode_chunk, encode_chunk
from ding.worker.transport.stores import (
    FolderPolicyStore,
    FolderSampleStore,
    MemoryPolicyStore,
    MemorySampleStore,
    forget_memory_stores,
)

INFO = {"collector_done": False, "cur_episode": 1, "cur_sample": 2, "cur_step": 3}


@pytest.fixture(params=["folder", "memory"])
def session(request, own_folder):
    root = str(own_folder / "root")
    if request.param == "folder":
        stores = FolderSampleStore(root), FolderPolicyStore(root)
    else:
        stores = MemorySampleStore(root), MemoryPolicyStore(root)
    session = CollectorSession(*stores, CollectorQueue(10), 0)
    session.samples, session.policies = stores
    yield session
    forget_memory_stores(root)


def state(iteration):
    return {"model": {"w": torch.full((2,), float(iteration))}, "iter": iteration}


def test_weights_are_read_when_they_have_changed(session):
    with pytest.raises(FileNotFoundError):
        session.get_policy_update_info("p")
    session.policies.write("p", state(1))
    assert session.get_policy_update_info("p")["iter"] == 1
    assert session.get_policy_update_info("p") is None
    session.policies.write("q", state(5))
    session.policies.write("p", state(2))
    assert session.get_policy_update_info("q")["iter"] == 5
    assert session.get_policy_update_info("p")["model"]["w"].tolist() == [2, 2]
    assert session.get_policy_update_info("p") is None


def test_chunks_are_kept_as_they_are_and_a_bare_sample_becomes_a_chunk(session):
    session.send_stepdata("chunk", encode_chunk([{"x": 1}, {"x": 2}], "lz4"))
    assert decode_chunk(session.samples.read("chunk"), "lz4") == [{"x": 1}, {"x": 2}]
    session.send_stepdata("bare", {"x": 3})
    assert decode_chunk(session.samples.read("bare"), "none") == [{"x": 3}]


@pytest.mark.parametrize("missing", sorted(INFO))
def test_an_info_needs_its_keys(session, missing):
    with pytest.raises(AssertionError, match="metadata needs the keys"):
        session.send_metadata({key: value for key, value in INFO.items() if key != missing})


@pytest.mark.parametrize("missing", ["data_id", "policy_iter"])
def test_a_sample_needs_its_keys(session, missing):
    row = {"data_id": "x", "policy_iter": 0}
    with pytest.raises(AssertionError, match=r"metadata needs the keys \['data_id', 'policy_iter'\]"):
        session.send_metadata([row, {key: value for key, value in row.items() if key != missing}])


def test_a_closed_session_sends_nothing_and_has_no_weights(session):
    session.policies.write("p", state(1))
    session.close()
    assert session.get_policy_update_info("p") is None
    session.send_stepdata("chunk", b"data")
    with pytest.raises(FileNotFoundError):
        session.samples.read("chunk")
    session.send_metadata(INFO)


ROW = {"data_id": "a", "policy_iter": 1}


def stored(session, *names):
    found = []
    for name in names:
        try:
            session.samples.read(name)
        except FileNotFoundError:
            continue
        found.append(name)
    return found


def test_chunks_that_the_coordinator_was_not_told_of_go_with_the_task(session):
    for name in "abc":
        session.send_stepdata(name, encode_chunk([{"x": 1}, {"x": 2}], "none"))
        session.send_metadata([{**ROW, "data_id": name, "data_index": i} for i in range(2)])
        if name == "a":
            session.take(0)
    session.close()
    session.close()
    assert stored(session, "a", "b", "c") == ["a"]


def test_a_chunk_of_which_a_sample_was_told_stays(session):
    for name in "ab":
        session.send_stepdata(name, encode_chunk([{"x": 1}, {"x": 2}], "none"))
        session.send_metadata([{**ROW, "data_id": name, "data_index": i} for i in range(2)])
    session.take_one(0)
    session.close()
    assert stored(session, "a", "b") == ["a"]
