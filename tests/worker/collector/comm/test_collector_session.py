"""The way of one task's samples, infos and weights."""

import numpy as np
import pytest
import torch

from ding.worker.collector.comm.collector_session import CollectorQueue, CollectorSession
from ding.worker.transport.chunk import decode_chunk, encode_chunk
from ding.worker.transport.stores import (
    FolderPolicyStore,
    FolderSampleStore,
)

INFO = {"collector_done": False, "cur_episode": 1, "cur_sample": 2, "cur_step": 3}


@pytest.fixture
def session(own_folder):
    root = str(own_folder / "root")
    stores = FolderSampleStore(root), FolderPolicyStore(root)
    session = CollectorSession(*stores, CollectorQueue(10), 0)
    session.samples, session.policies = stores
    return session


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


@pytest.mark.parametrize("path", ["../x", "/tmp/x", "a/b", ""])
def test_paths_stay_in_the_folder(session, path):
    with pytest.raises(ValueError, match="file name"):
        session.send_stepdata(path, b"data")
    with pytest.raises(ValueError, match="file name"):
        session.get_policy_update_info(path)


def test_metadata_come_one_by_one_or_many_at_a_time(session):
    rows = [{"data_id": str(i), "policy_iter": i} for i in range(3)]
    session.send_metadata(rows[:2])
    session.send_metadata(rows[2])
    session.send_metadata([])
    session.send_metadata({**INFO, "more": np.float32(0.5), "shape": (1, np.int64(2))})
    assert session.queue.take(0) == (rows, [{**INFO, "more": 0.5, "shape": [1, 2]}])


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


def test_a_chunk_whose_metadata_comes_too_late_is_deleted(session):
    session.send_stepdata("a", encode_chunk([{"x": 1}], "none"))
    session.close()
    session.send_metadata([ROW])
    assert stored(session, "a") == []


def test_a_chunk_that_is_taken_while_the_session_closes_stays(session, monkeypatch):
    def take_and_close(timeout_s, take=session.queue.take):
        taken = take(timeout_s)
        session.close()
        return taken

    session.send_stepdata("a", encode_chunk([{"x": 1}], "none"))
    session.send_metadata([ROW])
    monkeypatch.setattr(session.queue, "take", take_and_close)
    samples, _ = session.take(0)
    assert len(samples) == 1 and stored(session, "a") == ["a"]
