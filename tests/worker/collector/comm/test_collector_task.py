"""The way of one task's samples, infos and weights."""

import numpy as np
import pytest
import torch

from ding.interaction import TaskFail
from ding.worker.collector.comm.collector_task import CollectorQueue, CollectorTask
from ding.worker.transport.chunk import decode_chunk, encode_chunk
from ding.worker.transport.stores import (
    FolderPolicyStore,
    FolderSampleStore,
)
from tests.worker.collector.parallel_fakes import UNTIL_NOTIFIED_S, in_thread

INFO = {"collector_done": False, "cur_episode": 1, "cur_sample": 2, "cur_step": 3}


@pytest.fixture
def task(own_folder):
    root = str(own_folder / "root")
    stores = FolderSampleStore(root), FolderPolicyStore(root)
    task = CollectorTask({}, *stores, CollectorQueue(10), 0)
    task.samples, task.policies = stores
    return task


def state(iteration):
    return {"model": {"w": torch.full((2,), float(iteration))}, "iter": iteration}


def test_weights_are_read_when_they_have_changed(task):
    with pytest.raises(FileNotFoundError):
        task.get_policy_update_info("p")
    task.policies.write("p", state(1))
    assert task.get_policy_update_info("p")["iter"] == 1
    assert task.get_policy_update_info("p") is None
    task.policies.write("q", state(5))
    task.policies.write("p", state(2))
    assert task.get_policy_update_info("q")["iter"] == 5
    assert task.get_policy_update_info("p")["model"]["w"].tolist() == [2, 2]
    assert task.get_policy_update_info("p") is None


def test_chunks_are_kept_as_they_are_and_a_bare_sample_becomes_a_chunk(task):
    task.send_stepdata("chunk", encode_chunk([{"x": 1}, {"x": 2}], "lz4"))
    assert decode_chunk(task.samples.read("chunk"), "lz4") == [{"x": 1}, {"x": 2}]
    task.send_stepdata("bare", {"x": 3})
    assert decode_chunk(task.samples.read("bare"), "none") == [{"x": 3}]


@pytest.mark.parametrize("path", ["../x", "/tmp/x", "a/b", ""])
def test_paths_stay_in_the_folder(task, path):
    with pytest.raises(ValueError, match="file name"):
        task.send_stepdata(path, b"data")
    with pytest.raises(ValueError, match="file name"):
        task.get_policy_update_info(path)


def test_metadata_come_one_by_one_or_many_at_a_time(task):
    rows = [{"data_id": str(i), "policy_iter": i} for i in range(3)]
    task.send_metadata(rows[:2])
    task.send_metadata(rows[2])
    task.send_metadata([])
    task.send_metadata({**INFO, "more": np.float32(0.5), "shape": (1, np.int64(2))})
    assert task.queue.take(0) == (rows, [{**INFO, "more": 0.5, "shape": [1, 2]}])


@pytest.mark.parametrize("row", [INFO, {"data_id": "x", "policy_iter": 0}])
def test_an_info_and_a_sample_need_their_keys(task, row):
    for missing in row:
        rest = {key: value for key, value in row.items() if key != missing}
        with pytest.raises(AssertionError, match=r"metadata needs the keys \['data_id', 'policy_iter'\]"):
            task.send_metadata(rest if row is INFO else [row, rest])


def test_a_closed_task_sends_nothing_and_has_no_weights(task):
    task.policies.write("p", state(1))
    task.close()
    assert task.get_policy_update_info("p") is None
    task.send_stepdata("chunk", b"data")
    with pytest.raises(FileNotFoundError):
        task.samples.read("chunk")
    task.send_metadata(INFO)


# The queue between the collector's thread and the coordinator's tasks.


def row(number):
    return {"data_id": f"d{number}"}


def info(is_done=False):
    return {"collector_done": is_done}


def test_one_by_one_samples_come_before_infos():
    queue = CollectorQueue(10)
    queue.put([row(1), row(2)], 0)
    queue.put(info(), 0)
    assert [queue.take_one(0) for _ in range(3)] == [row(1), row(2), info()]
    with pytest.raises(TaskFail):  # there is none in time
        queue.take_one(0)


def test_samples_that_come_soon_after_others_were_taken_are_taken_together(monkeypatch):
    now_s = [100.0]
    monkeypatch.setattr("ding.worker.collector.comm.collector_task.monotonic", lambda: now_s[0])
    queue = CollectorQueue(10, interval_s=1000)
    queue.put([row(1)], 0)
    assert queue.take(0) == ([row(1)], [])  # the first at once
    queue.put([row(2)], 0)
    taking = in_thread(queue.take, UNTIL_NOTIFIED_S)
    queue.put([row(3)], 0)
    queue.put(info(True), 0)
    assert taking() == ([row(2), row(3)], [info(True)])  # nothing waits after the last info
    now_s[0] += 1000
    queue.put([row(4)], 0)
    assert queue.take(0) == ([row(4)], [])


def test_a_wait_ends_with_the_collector():
    queue = CollectorQueue(1)
    taking = in_thread(queue.take, UNTIL_NOTIFIED_S)
    queue.finish()
    assert isinstance(taking(), TaskFail)
