"""Shards as actors: they give the same batches as shards in this process, and are replaced when killed."""

import logging
import os
import signal
from time import monotonic

import numpy as np
import pytest

from ding.utils.config_helper import ConfigError
from ding.worker.collector.comm.collector_session import CollectorQueue, ShardSession
from ding.worker.coordinator.buffer_set import ShardedBufferSet
from ding.worker.learner.comm.shard_source import ShardedReplay
from ding.worker.transport.ray.shard import ClosedShard, ShardClosed, ShardLost, Split
from ding.worker.transport.stores import MemoryPolicyStore
from tests.worker.transport.ray.doubles import push_samples, rows_of, samples_of
from tests.worker.transport.ray.test_sharded import chi_square

ray = pytest.importorskip("ray")
DEADLINE_S = 60
CFG = {"type": "advanced", "replay_buffer_size": 64, "alpha": 1.0}


@pytest.fixture
def buffers(ray_cluster):
    from ding.worker.transport.ray.ray_transport import close_shard, shard_opener

    prefix = f"test{os.getpid()}_{monotonic()}"
    buffers = ShardedBufferSet("exp", logging.getLogger("test_actors"), 2, shard_opener(prefix), close_shard)
    yield buffers
    buffers.close()


@pytest.fixture
def shards(buffers):
    """Two shards, as workers find them."""
    buffers.open("b", CFG)
    return found(buffers)


def found(buffers, buffer_id="b"):
    from ding.worker.transport.ray.ray_transport import find_shards

    return find_shards(buffers.where(buffer_id))


def replay_of(buffers, shards):
    return ShardedReplay(shards, Split(**buffers.where("b")["split"]), DEADLINE_S)


def push(shard, values, **more):
    return push_samples(shard, samples_of(values), rows_of(len(values), **more))


def kill(shard):
    """Kill the process of a shard, and wait until another is in its place."""
    pid = ray.get(shard.actor.__ray_call__.remote(lambda _: os.getpid()), timeout=DEADLINE_S)
    life = shard.call("open").result(DEADLINE_S)
    os.kill(pid, signal.SIGKILL)
    deadline = monotonic() + DEADLINE_S
    while monotonic() < deadline:
        try:
            if shard.call("open").result(DEADLINE_S) != life:
                return
        except ShardLost:
            pass
    raise AssertionError("no shard has come in its place")


def test_samples_are_drawn_in_proportion_to_their_priorities_over_all_actors(buffers, shards):
    priorities = np.array([1.0, 4.0, 2.0, 0.5, 3.0])
    assert push(shards[0], [0], priority=priorities[:1].tolist()) == 1
    assert push(shards[1], [1, 2, 3, 4], priority=priorities[1:].tolist()) == 4
    waiting = shards[0].call("wait", 1, DEADLINE_S)  # holds nobody up
    replay = replay_of(buffers, shards)
    counts = np.zeros(5)
    for _ in range(40):
        for batch in replay.batches(16, 5, 0):
            np.add.at(counts, [item["value"] for item in batch], 1)
    assert counts.sum() == 40 * 16 * 5
    assert chi_square(counts, priorities) < 4
    ids = {key: [item[key] for item in batch] for key in ("replay_unique_id", "replay_buffer_idx")}
    replay.update({**ids, "priority": [7.0] * len(batch)})
    drawn = {item["value"]: item["priority"] for batch in replay.batches(16, 5, 0) for item in batch}
    updated = {item["value"] for item in batch}
    assert all((priority == 7.0 + 1e-5) == (value in updated) for value, priority in drawn.items())
    assert push(shards[0], [5]) == 1
    assert waiting.result(DEADLINE_S) == 2


@pytest.mark.slow
def test_what_a_shard_raises_comes_as_it_was(buffers):
    with pytest.raises(ConfigError, match="alpha"):
        buffers.open("b", {**CFG, "alpha": -1})
    assert buffers.where("b") is None


@pytest.mark.slow
def test_shards_of_a_closed_buffer_are_closed(buffers, shards):
    where = buffers.where("b")
    buffers.close_buffer("b")
    with pytest.raises(ShardClosed):
        push(shards[0], [1])
    from ding.worker.transport.ray.ray_transport import find_shards

    assert [type(shard) for shard in find_shards(where)] == [ClosedShard] * 2


def test_a_shard_that_never_starts_says_why(ray_cluster):
    from ding.worker.transport.ray.ray_transport import shard_opener

    shard = shard_opener(f"test{os.getpid()}_{monotonic()}", {"num_cpus": 1000})("b", CFG, "exp", 0, 1)
    answer = shard.call("open")
    ray.kill(shard.actor, no_restart=True)
    with pytest.raises(ShardClosed, match=r"it was killed by `ray\.kill`\. The actor never ran"):
        answer.result(DEADLINE_S)


@pytest.mark.slow
def test_a_killed_shard_costs_its_samples_only(buffers, shards):
    replay = replay_of(buffers, shards)
    push(shards[0], [0, 1, 2])
    push(shards[1], [10, 11])
    assert len(replay.batches(1, 5, 0)) == 1
    kill(shards[0])
    assert {item["value"] for batch in replay.batches(9, 2, 0) for item in batch} == {10, 11}
    assert (replay.lost_shards, replay.lost_samples) == (1, 3)
    push(shards[0], [3])
    assert {item["value"] for batch in replay.batches(30, 3, 0) for item in batch} == {3, 10, 11}


@pytest.mark.slow
def test_what_was_on_its_way_to_a_killed_shard_arrives(buffers, shards):
    session = ShardSession(shards, MemoryPolicyStore("actors"), CollectorQueue(64), 2**20, DEADLINE_S)
    kill(shards[1])
    for value in range(20):
        name = f"env_{value}"
        session.send_stepdata(name, {"value": value})
        session.send_metadata({"data_id": name, "policy_iter": 0})
    session.send_metadata({"collector_done": True, "cur_episode": 1, "cur_sample": 20, "cur_step": 20})
    (report,), _ = session.queue.take(1)
    session.close()
    assert report["pushed"] == 20
    assert sum(shard.call("plan", 0, 1.0, []).result(DEADLINE_S)["count"] for shard in shards) == 20


@pytest.mark.slow
def test_actors_keep_their_samples_and_others_go_on_with_them(buffers, shards):
    push(shards[0], [0, 1])
    push(shards[1], [2])
    kept = buffers.freeze("b", {})
    buffers.close_buffer("b")
    assert not os.path.exists("exp/replay/b.0.1")  # the buffer is not needed any more
    buffers.is_deleting = False
    buffers.open("b", CFG)
    push(found(buffers)[0], [5, 6])
    kept = buffers.freeze("b", {})
    buffers.close_buffer("b")
    assert buffers.restore("b", **kept) == (2, 0)
    (batch,) = replay_of(buffers, found(buffers)).batches(1, 2, 0)
    assert {item["value"] for item in batch} <= {5, 6}
