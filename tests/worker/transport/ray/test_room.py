"""The coordinator's side of buffers in shards: they are opened, kept and closed."""

import logging
import os
import threading

import pytest

from ding.utils.config_helper import ConfigError
from ding.worker.transport.ray.room import ShardedRoom
from ding.worker.transport.ray.sharded import ShardedReplay
from ding.worker.transport.ray.split import Split
from ding.worker.transport.transport import get_transport
from tests.worker.transport.ray.doubles import LocalShards, make_replay, push

CFG = {"type": "naive", "replay_buffer_size": 64}
LOGGER = logging.getLogger("test_room")


DEADLINE_S = 20


class Rooms:
    def __init__(self):
        self.shards, self.made = LocalShards(), []

    def make(self, count=2):
        self.made.append(ShardedRoom("exp", LOGGER, count, self.shards.open, self.shards.close))
        return self.made[-1]

    def close(self):
        for room in self.made:
            room.close()


@pytest.fixture
def rooms():
    rooms = Rooms()
    yield rooms
    rooms.close()
    assert rooms.shards.by_name == {}


def files():
    return sorted(os.listdir("exp/replay")) if os.path.isdir("exp/replay") else []


def test_workers_are_told_where_the_shards_are(rooms):
    room = rooms.make()
    assert room.where("b") is None
    room.open("b", CFG)
    room.open("b", CFG)
    assert room.where("b")["shards"] == ["b/0", "b/1"]
    assert room.where("b")["split"]["capacity"] == 64
    assert "b" in room.buffers
    room.note_level("b", 7)
    room.note_level("other", 3)
    assert room.levels() == [("b", 7, 64)]
    room.close_buffer("b")
    assert room.where("b") is None and rooms.shards.by_name == {}


@pytest.mark.parametrize(
    "cfg", [{"type": "naive", "replay_buffer_size": 1}, {"type": "advanced", "alpha": -1}], ids=["split", "buffer"]
)
def test_a_config_that_is_wrong_is_refused_and_no_shard_is_left(rooms, cfg):
    room = rooms.make()
    with pytest.raises(ConfigError):
        room.open("b", cfg)
    assert rooms.shards.by_name == {} and room.where("b") is None


@pytest.mark.parametrize("count", [1, 2])
def test_importance_weights_are_annealed_by_iteration_however_many_ranks_draw(rooms, count):
    cfg = {"type": "advanced", "replay_buffer_size": 8, "beta": 0.5, "anneal_step": 4}
    room = ShardedRoom("exp", LOGGER, count, rooms.shards.open, rooms.shards.close, ranks=2)
    rooms.made.append(room)
    room.open("b", cfg)
    shards = [rooms.shards.by_name[name] for name in room.where("b")["shards"]]
    for shard in shards:
        push(shard, [1, 2])
    replay, betas = ShardedReplay(shards, Split(**room.where("b")["split"]), timeout_s=10), []
    for _ in range(9):
        replay.batches(1, 2, 0)
        betas.append(max(shard.replay._buffer.beta for shard in shards))
    assert betas[-1] == 1.0 and all(beta < 1.0 for beta in betas[:7])


def test_another_room_goes_on_with_what_was_kept_in_as_many_shards(rooms):
    room = rooms.make(3)
    room.open("b", {**CFG, "of_a_function": len})
    for index in range(3):
        push(rooms.shards.by_name[f"b/{index}"], [10 * index, 10 * index + 1])
    kept = room.freeze("b", {})
    assert "of_a_function" not in kept["cfg"]
    push(rooms.shards.by_name["b/0"], [99])
    room.is_deleting = False
    room.close()
    successor = rooms.make(1)
    assert successor.restore("b", **kept) == (6, 0)
    replay = make_replay([rooms.shards.by_name[f"b/{index}"] for index in range(3)], CFG)
    (batch,) = replay.batches(1, 6, 0)
    assert sorted(item["value"] for item in batch) == [0, 1, 10, 11, 20, 21]
    assert successor.levels() == [("b", 6, 64)]


def test_samples_whose_file_is_gone_or_damaged_are_counted_as_lost(rooms, caplog):
    room = rooms.make(3)
    room.open("b", CFG)
    for index in range(3):
        push(rooms.shards.by_name[f"b/{index}"], list(range(index + 1)))
    kept = room.freeze("b", {})
    room.is_deleting = False
    room.close()
    os.remove("exp/replay/b.0.1")
    with open("exp/replay/b.1.1", "r+b") as file:
        file.truncate(20)
    assert rooms.make().restore("b", **kept) == (3, 3)
    assert "b.0.1" in caplog.text and "b.1.1 is damaged" in caplog.text


def test_a_shard_that_is_lost_while_the_others_are_kept_costs_its_samples_only(rooms, caplog):
    room = rooms.make()
    room.open("b", CFG)
    for index in range(2):
        push(rooms.shards.by_name[f"b/{index}"], [0, 1])
    rooms.shards.by_name["b/1"].is_down = True
    assert room.freeze("b", {})["content"] == {"generation": 1, "counts": [2, 0]}
    assert "b.1.1" in caplog.text


def test_two_generations_of_files_stay_and_none_after_a_good_end(rooms):
    room = rooms.make()
    room.open("b", CFG)
    room.open("c", CFG)
    for _ in range(4):
        room.freeze("b", {})
    room.freeze("c", {})
    assert files() == ["b.0.3", "b.0.4", "b.1.3", "b.1.4", "c.0.5", "c.1.5"]
    room.close_buffer("c")
    assert files() == ["b.0.3", "b.0.4", "b.1.3", "b.1.4"]
    room.close()
    assert not os.path.exists("exp/replay")


def test_what_another_coordinator_needs_stays(rooms):
    room = rooms.make()
    room.open("b", CFG)
    room.freeze("b", {})
    room.is_deleting = False
    room.close()
    assert files() == ["b.0.1", "b.1.1"]


def test_a_buffer_that_is_not_open_yet_is_kept_as_its_config(rooms):
    room = rooms.make()
    kept = room.freeze("b", CFG)
    assert kept == {"cfg": CFG, "content": None}
    assert rooms.make().restore("b", **kept) == (0, 0)


def test_levels_are_told_while_shards_come_up(rooms):
    coming, come = threading.Event(), threading.Event()

    def open_slowly(*args):
        coming.set()
        assert come.wait(DEADLINE_S)
        return rooms.shards.open(*args)

    slow = ShardedRoom("exp", LOGGER, 2, open_slowly, rooms.shards.close)
    rooms.made.append(slow)
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
