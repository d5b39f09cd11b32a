"""The coordinator's side of sharded buffers: they are opened, saved and closed."""

import logging
import os
import threading

import pytest

from ding.utils.config_helper import ConfigError
from ding.worker.coordinator.buffer_set import ShardedBufferSet
from ding.worker.learner.comm.shard_source import ShardedReplay
from ding.worker.transport.ray.shard import Split
from ding.worker.transport.transport import get_transport
from tests.worker.transport.ray.doubles import LocalShards, make_replay, push

CFG = {"type": "naive", "replay_buffer_size": 64}
LOGGER = logging.getLogger("test_buffers")
DEADLINE_S = 20


class Sets:
    """Makes buffer sets over the same shards, and closes them."""

    def __init__(self):
        self.shards, self.made = LocalShards(), []

    def make(self, count=2):
        self.made.append(ShardedBufferSet("exp", LOGGER, count, self.shards.open, self.shards.close))
        return self.made[-1]

    def close(self):
        for buffers in self.made:
            buffers.close()


@pytest.fixture
def sets():
    sets = Sets()
    yield sets
    sets.close()
    assert sets.shards.by_name == {}


def files():
    return sorted(os.listdir("exp/replay")) if os.path.isdir("exp/replay") else []


def test_tasks_name_the_shards(sets):
    buffers = sets.make()
    assert buffers.where("b") is None
    buffers.open("b", CFG)
    buffers.open("b", CFG)
    assert buffers.where("b")["shards"] == ["b/0", "b/1"]
    assert buffers.where("b")["split"]["capacity"] == 64
    assert "b" in buffers.buffers
    buffers.note_level("b", 7)
    buffers.note_level("other", 3)
    assert buffers.levels() == [("b", 7, 64)]
    buffers.close_buffer("b")
    assert buffers.where("b") is None and sets.shards.by_name == {}


@pytest.mark.parametrize(
    "cfg", [{"type": "naive", "replay_buffer_size": 1}, {"type": "advanced", "alpha": -1}], ids=["split", "buffer"]
)
def test_a_config_that_is_wrong_is_refused_and_no_shard_is_left(sets, cfg):
    buffers = sets.make()
    with pytest.raises(ConfigError):
        buffers.open("b", cfg)
    assert sets.shards.by_name == {} and buffers.where("b") is None


@pytest.mark.parametrize("count", [1, 2])
def test_importance_weights_are_annealed_by_iteration_however_many_ranks_draw(sets, count):
    cfg = {"type": "advanced", "replay_buffer_size": 8, "beta": 0.5, "anneal_step": 4}
    buffers = ShardedBufferSet("exp", LOGGER, count, sets.shards.open, sets.shards.close, ranks=2)
    sets.made.append(buffers)
    buffers.open("b", cfg)
    shards = [sets.shards.by_name[name] for name in buffers.where("b")["shards"]]
    for shard in shards:
        push(shard, [1, 2])
    replay, betas = ShardedReplay(shards, Split(**buffers.where("b")["split"]), timeout_s=10), []
    for _ in range(9):
        replay.batches(1, 2, 0)
        betas.append(max(shard.replay._buffer.beta for shard in shards))
    assert betas[-1] == 1.0 and all(beta < 1.0 for beta in betas[:7])


def test_another_set_resumes_with_the_saved_samples_in_as_many_shards(sets):
    buffers = sets.make(3)
    buffers.open("b", {**CFG, "of_a_function": len})
    for index in range(3):
        push(sets.shards.by_name[f"b/{index}"], [10 * index, 10 * index + 1])
    kept = buffers.freeze("b", {})
    assert "of_a_function" not in kept["cfg"]
    push(sets.shards.by_name["b/0"], [99])
    buffers.is_deleting = False
    buffers.close()
    successor = sets.make(1)
    assert successor.restore("b", **kept) == (6, 0)
    replay = make_replay([sets.shards.by_name[f"b/{index}"] for index in range(3)], CFG)
    (batch,) = replay.batches(1, 6, 0)
    assert sorted(item["value"] for item in batch) == [0, 1, 10, 11, 20, 21]
    assert successor.levels() == [("b", 6, 64)]


def test_samples_whose_file_is_gone_or_damaged_are_counted_as_lost(sets, caplog):
    buffers = sets.make(3)
    buffers.open("b", CFG)
    for index in range(3):
        push(sets.shards.by_name[f"b/{index}"], list(range(index + 1)))
    kept = buffers.freeze("b", {})
    buffers.is_deleting = False
    buffers.close()
    os.remove("exp/replay/b.0.1")
    with open("exp/replay/b.1.1", "r+b") as file:
        file.truncate(20)
    assert sets.make().restore("b", **kept) == (3, 3)
    assert "b.0.1" in caplog.text and "b.1.1 is damaged" in caplog.text


def test_a_shard_that_is_lost_during_a_save_costs_its_samples_only(sets, caplog):
    buffers = sets.make()
    buffers.open("b", CFG)
    for index in range(2):
        push(sets.shards.by_name[f"b/{index}"], [0, 1])
    sets.shards.by_name["b/1"].is_down = True
    assert buffers.freeze("b", {})["content"] == {"generation": 1, "counts": [2, 0]}
    assert "b.1.1" in caplog.text


def test_two_generations_of_files_stay_and_none_after_a_good_end(sets):
    buffers = sets.make()
    buffers.open("b", CFG)
    buffers.open("c", CFG)
    for _ in range(4):
        buffers.freeze("b", {})
    buffers.freeze("c", {})
    assert files() == ["b.0.3", "b.0.4", "b.1.3", "b.1.4", "c.0.1", "c.1.1"]
    buffers.close_buffer("c")
    assert files() == ["b.0.3", "b.0.4", "b.1.3", "b.1.4"]
    buffers.close()
    assert not os.path.exists("exp/replay")


def test_files_for_another_coordinator_stay(sets):
    buffers = sets.make()
    buffers.open("b", CFG)
    buffers.freeze("b", {})
    buffers.is_deleting = False
    buffers.close()
    assert files() == ["b.0.1", "b.1.1"]


def test_a_buffer_that_is_not_open_yet_is_saved_as_its_config(sets):
    buffers = sets.make()
    kept = buffers.freeze("b", CFG)
    assert kept == {"cfg": CFG, "content": None}
    assert sets.make().restore("b", **kept) == (0, 0)


def test_levels_are_reported_while_shards_start(sets):
    coming, come = threading.Event(), threading.Event()

    def open_slowly(*args):
        coming.set()
        assert come.wait(DEADLINE_S)
        return sets.shards.open(*args)

    slow = ShardedBufferSet("exp", LOGGER, 2, open_slowly, sets.shards.close)
    sets.made.append(slow)
    opening = threading.Thread(target=slow.open, args=("b", CFG))
    opening.start()
    assert coming.wait(DEADLINE_S)
    assert slow.levels() == [] and slow.batches_under_way() == 0
    come.set()
    opening.join(DEADLINE_S)
    assert slow.levels() == [("b", 0, 64)]


@pytest.mark.parametrize("name", ["local", "flask_fs"])
def test_shards_are_refused_where_the_transport_has_none(name, tmp_path):
    with pytest.raises(ConfigError, match="replay_shards = 2 is not allowed with the transport"):
        get_transport(name).replay("exp", {"path_data": str(tmp_path), "replay_shards": 2}, LOGGER)


def test_a_buffer_whose_shards_start_while_the_set_is_closed_is_closed_too(sets):
    starting, go_on = threading.Event(), threading.Event()

    def open_slowly(*args):
        starting.set()
        assert go_on.wait(DEADLINE_S)
        return sets.shards.open(*args)

    buffers = ShardedBufferSet("exp", LOGGER, 2, open_slowly, sets.shards.close)
    opener = threading.Thread(target=buffers.open, args=("b", CFG))
    opener.start()
    assert starting.wait(DEADLINE_S)
    buffers.close()
    go_on.set()
    opener.join(DEADLINE_S)
    assert sets.shards.by_name == {} and buffers.where("b") is None
