"""The way of one task's samples, infos and weights."""

import numpy as np
import pytest
import torch

from ding.worker.collector.comm.session import CollectorQueue, FileSession
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
def channel(request, own_folder):
    root = str(own_folder / "root")
    if request.param == "folder":
        stores = FolderSampleStore(root), FolderPolicyStore(root)
    else:
        stores = MemorySampleStore(root), MemoryPolicyStore(root)
    channel = FileSession(*stores, CollectorQueue(10), 0)
    channel.samples, channel.policies = stores
    yield channel
    forget_memory_stores(root)


def state(iteration):
    return {"model": {"w": torch.full((2,), float(iteration))}, "iter": iteration}


def test_weights_are_read_when_they_have_changed(channel):
    with pytest.raises(FileNotFoundError):
        channel.get_policy_update_info("p")
    channel.policies.write("p", state(1))
    assert channel.get_policy_update_info("p")["iter"] == 1
    assert channel.get_policy_update_info("p") is None
    channel.policies.write("q", state(5))
    channel.policies.write("p", state(2))
    assert channel.get_policy_update_info("q")["iter"] == 5
    assert channel.get_policy_update_info("p")["model"]["w"].tolist() == [2, 2]
    assert channel.get_policy_update_info("p") is None


def test_another_channel_reads_them_anew(channel):
    channel.policies.write("p", state(1))
    other = FileSession(channel.samples, channel.policies, CollectorQueue(1), 0)
    assert channel.get_policy_update_info("p")["iter"] == other.get_policy_update_info("p")["iter"] == 1


def test_weights_that_were_written_do_not_follow_those_that_are_trained_on(channel):
    trained = state(1)
    channel.policies.write("p", trained)
    trained["model"]["w"] += 1
    assert channel.get_policy_update_info("p")["model"]["w"].tolist() == [1, 1]


def test_chunks_are_kept_as_they_are_and_a_bare_sample_becomes_a_chunk(channel):
    channel.send_stepdata("chunk", encode_chunk([{"x": 1}, {"x": 2}], "lz4"))
    assert decode_chunk(channel.samples.read("chunk"), "lz4") == [{"x": 1}, {"x": 2}]
    channel.send_stepdata("bare", {"x": 3})
    assert decode_chunk(channel.samples.read("bare"), "none") == [{"x": 3}]


@pytest.mark.parametrize("path", ["../x", "/tmp/x", "a/b", ""])
def test_paths_stay_in_the_folder(channel, path):
    with pytest.raises(ValueError, match="file name"):
        channel.send_stepdata(path, b"data")
    with pytest.raises(ValueError, match="file name"):
        channel.get_policy_update_info(path)


def test_metadata_come_one_by_one_or_many_at_a_time(channel):
    rows = [{"data_id": str(i), "policy_iter": i} for i in range(3)]
    channel.send_metadata(rows[:2])
    channel.send_metadata(rows[2])
    channel.send_metadata([])
    channel.send_metadata({**INFO, "more": np.float32(0.5), "shape": (1, np.int64(2))})
    assert channel.queue.take(0) == (rows, [{**INFO, "more": 0.5, "shape": [1, 2]}])


@pytest.mark.parametrize("missing", sorted(INFO))
def test_an_info_needs_its_keys(channel, missing):
    with pytest.raises(AssertionError, match="metadata needs the keys"):
        channel.send_metadata({key: value for key, value in INFO.items() if key != missing})


@pytest.mark.parametrize("missing", ["data_id", "policy_iter"])
def test_a_sample_needs_its_keys(channel, missing):
    row = {"data_id": "x", "policy_iter": 0}
    with pytest.raises(AssertionError, match=r"metadata needs the keys \['data_id', 'policy_iter'\]"):
        channel.send_metadata([row, {key: value for key, value in row.items() if key != missing}])


def test_a_closed_channel_sends_nothing_and_has_no_weights(channel):
    channel.policies.write("p", state(1))
    channel.close()
    assert channel.get_policy_update_info("p") is None
    channel.send_stepdata("chunk", b"data")
    with pytest.raises(FileNotFoundError):
        channel.samples.read("chunk")
    channel.send_metadata(INFO)


ROW = {"data_id": "a", "policy_iter": 1}


def stored(channel, *names):
    found = []
    for name in names:
        try:
            channel.samples.read(name)
        except FileNotFoundError:
            continue
        found.append(name)
    return found


def test_chunks_that_the_coordinator_was_not_told_of_go_with_the_task(channel):
    for name in "abc":
        channel.send_stepdata(name, encode_chunk([{"x": 1}, {"x": 2}], "none"))
        channel.send_metadata([{**ROW, "data_id": name, "data_index": i} for i in range(2)])
        if name == "a":
            channel.queue.take(0)
    channel.close()
    channel.close()
    assert stored(channel, "a", "b", "c") == ["a"]


def test_a_chunk_of_which_a_sample_was_told_stays(channel):
    for name in "ab":
        channel.send_stepdata(name, encode_chunk([{"x": 1}, {"x": 2}], "none"))
        channel.send_metadata([{**ROW, "data_id": name, "data_index": i} for i in range(2)])
    channel.queue.take_one(0)
    channel.close()
    assert stored(channel, "a", "b") == ["a"]


def test_a_chunk_whose_metadata_comes_too_late_is_deleted(channel):
    channel.send_stepdata("a", encode_chunk([{"x": 1}], "none"))
    channel.close()
    assert stored(channel, "a") == ["a"]  # it may be on its way still
    channel.send_metadata([ROW])
    assert stored(channel, "a") == []


def test_a_chunk_that_is_written_while_the_task_ends_is_deleted(channel, monkeypatch):
    write = channel.samples.write
    monkeypatch.setattr(channel.samples, "write", lambda *blob: (channel.close(), write(*blob)))
    channel.send_stepdata("a", encode_chunk([{"x": 1}], "none"))
    assert stored(channel, "a") == []
