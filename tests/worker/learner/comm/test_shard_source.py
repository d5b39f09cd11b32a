"""Batches that a learner draws itself: in time, in bounds, and with their priorities back."""

import logging
import threading

import pytest
from easydict import EasyDict

from ding.data.priority_index import PriorityError
from ding.interaction.exception import TaskFail
from ding.worker.learner.comm.learner_session import LearnerQueue, LearnerSession
from ding.worker.learner.comm.shard_source import ShardSource
from ding.worker.transport.stores import MemoryPolicyStore, forget_memory_stores
from tests.worker.transport.ray.doubles import make_replay, make_shards, push

CFG = {"type": "advanced", "replay_buffer_size": 64, "alpha": 1.0}
KEYS = ("replay_unique_id", "replay_buffer_idx")
DEADLINE_S = 60


class FakeLearner:
    """As much of a learner as a session asks."""

    def __init__(self, batch_size=2):
        self.batch_size, self.policy, self.logger = batch_size, self, logging.getLogger("test_shard_source")
        self.last_iter = EasyDict(val=0)

    def get_attribute(self, name):
        return {"batch_size": self.batch_size}[name]


@pytest.fixture(autouse=True)
def own_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def begin():
    made = []

    def begin(cfg=CFG, count=2, capacity=8, limit_bytes=2**20, batch_size=2):
        shards = make_shards(count, cfg)
        replay = make_replay(shards, cfg)
        source = ShardSource(replay, limit_bytes)
        session = LearnerSession(source, MemoryPolicyStore("pull"), ["policy"], LearnerQueue(capacity))
        session.attach(FakeLearner(batch_size))
        made.append(session)
        return session, shards

    yield begin
    for session in made:
        session.close()
    assert pulling() == []
    forget_memory_stores("pull")


def values_of(batch):
    return sorted(item["value"] for item in batch)


def told(batch, *priorities):
    ids = {key: [item[key] for item in batch] for key in KEYS}
    return {"learner_step": 1, "learner_done": False, "priority_info": {**ids, "priority": list(priorities)}}


def test_batches_come_as_soon_as_there_are_samples(begin):
    session, shards = begin()
    got = []
    asking = threading.Thread(target=lambda: got.append(session.get_data(2)))
    asking.start()
    push(shards[1], [4, 5])
    asking.join(DEADLINE_S)
    assert values_of(got[0]) in ([4, 4], [4, 5], [5, 5])
    assert session.source.level == 2


def test_priorities_go_to_the_shards_before_the_next_batches_are_drawn(begin):
    session, shards = begin(count=1, capacity=1)
    push(shards[0], [0])
    push(shards[0], [1])
    seen = set()
    while len(seen) < 2:
        batch = session.get_data(2)
        seen |= {item["value"] for item in batch}
        session.send_learn_info(told(batch, *(float(item["value"]) for item in batch)))
    drawn = [values_of(session.get_data(2)) for _ in range(6)]
    assert drawn[2:] == [[1, 1]] * 4  # two were drawn before
    infos, _ = session.queue.take()
    assert all(info["priority_info"] == {} for info in infos)


def test_wrong_priorities_are_an_error_of_the_learner(begin):
    session, shards = begin()
    push(shards[0], [0, 1])
    batch = session.get_data(2)
    with pytest.raises(PriorityError):
        session.send_learn_info(told(batch, -1.0, 1.0))


@pytest.mark.parametrize(("limit_bytes", "most"), [(1, 1), (2**20, 8)])
def test_not_too_many_bytes_wait_for_the_learner(begin, limit_bytes, most):
    session, shards = begin(limit_bytes=limit_bytes)
    push(shards[0], list(range(8)))
    waiting = set()
    for number in range(60):
        session.get_data(2)
        waiting.add(sum(shard.drawn for shard in shards) // 2 - number - 1)
    assert max(waiting) <= most
    assert most == 1 or max(waiting) > 1


def test_a_lost_shard_is_told_of_with_the_infos(begin):
    session, shards = begin(capacity=1)
    push(shards[1], [2, 3, 4])
    session.get_data(2)  # it was drawn when the shard had its samples
    push(shards[0], [0, 1])
    shards[1].lose()
    for _ in range(4):
        session.get_data(2)
    session.send_learn_info({"learner_step": 1, "learner_done": False})
    ((info,), _) = session.queue.take()
    assert (info["lost_shards"], info["lost_samples"]) == (1, 3)


def test_shards_that_come_back_give_batches_again(begin):
    session, shards = begin(capacity=1)
    push(shards[0], [0, 1])
    session.get_data(2)
    for shard in shards:
        shard.is_down = True
    got = []
    asking = threading.Thread(target=lambda: got.extend(session.get_data(2) for _ in range(4)))
    asking.start()
    asking.join(0.3)
    assert asking.is_alive()
    for shard in shards:
        shard.is_down = False
    asking.join(DEADLINE_S)
    assert [len(batch) for batch in got] == [2] * 4


def test_an_error_of_a_shard_fails_the_task(begin):
    session, shards = begin(cfg={"type": "naive", "replay_buffer_size": 8}, batch_size=9)
    push(shards[0], [0, 1])
    assert session.get_data(9) == []
    with pytest.raises(TaskFail) as failed:
        session.queue.wait_for_infos(DEADLINE_S)
    assert "sample size = 9 is not allowed" in failed.value.result["message"]


def test_a_changed_batch_size_is_an_error(begin):
    session, shards = begin()
    push(shards[0], [0, 1])
    with pytest.raises(ValueError, match="has 2 samples; the batch size is 3"):
        session.get_data(3)


def test_nothing_is_drawn_after_the_last_info_or_the_end(begin):
    session, shards = begin()
    push(shards[0], [0, 1])
    session.get_data(2)
    session.send_learn_info({"learner_step": 1, "learner_done": True})
    for thread in pulling():
        thread.join(DEADLINE_S)
    assert pulling() == []
    session.stop()
    assert session.get_data(2) == []


def test_close_ends_the_wait_for_samples(begin):
    session, shards = begin()
    while "wait" not in shards[0].calls:
        session.queue.wait_closed(0.01)
    session.close()
    assert pulling() == []


def test_a_task_whose_buffer_is_closed_fails(begin):
    session, shards = begin()
    for shard in shards:
        shard.replay.close()
    with pytest.raises(TaskFail, match="closed"):
        session.queue.wait_for_infos(DEADLINE_S)


def pulling():
    return [thread for thread in threading.enumerate() if thread.name == "learner_pull"]
