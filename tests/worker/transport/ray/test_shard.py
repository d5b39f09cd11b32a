"""A shard by itself: what is pushed, and what outlives it."""

import math
import threading

import numpy as np
import pytest

from ding.data.priority_index import PriorityError
from ding.utils.config_helper import ConfigError
from ding.worker.replay_buffer.naive_buffer import NaiveReplayBuffer
from ding.worker.transport.chunk import decode_chunk, encode_chunk
from ding.worker.transport.ray.shard import ReplayShard, ShardClosed, with_metadata
from tests.worker.transport.ray.doubles import rows_of, samples_of

KINDS = {
    "naive": {"type": "naive", "replay_buffer_size": 64},
    "advanced": {"type": "advanced", "replay_buffer_size": 64},
    "deque": {"type": "deque", "replay_buffer_size": 64},
}
every_kind = pytest.mark.parametrize("kind", KINDS)


@pytest.fixture
def make():
    made = []

    def make_shard(kind="naive", index=0, shards=1, **more):
        made.append(ReplayShard({**KINDS[kind], **more}, "exp", index, shards))
        return made[-1]

    yield make_shard
    for shard in made:
        shard.close()


def push(shard, samples, rows):
    return shard.push([(encode_chunk(with_metadata(samples, rows)), "lz4")])


def all_of(shard, count):
    return decode_chunk(shard.sample(count, 1, 0, 1.0, [])["samples"], "none")


def test_a_buffer_that_does_not_tell_how_many_it_took_has_taken_all(make, monkeypatch):
    class Silent(NaiveReplayBuffer):
        def push(self, data, cur_collector_envstep):
            super().push(data, cur_collector_envstep)

    monkeypatch.setattr("ding.worker.replay_buffer.base_buffer.create_buffer", Silent)
    assert push(make(), samples_of([5, 6]), [{"data_index": 0}, {"data_index": 1}]) == 2


def test_rows_may_name_the_samples_in_any_order_and_not_all_of_them(make):
    shard = make()
    rows = [{"data_index": index, "env_id": 10 * index} for index in (2, 0)]
    assert push(shard, samples_of([5, 6, 7]), rows) == 2
    assert sorted((item["value"], item["env_id"]) for item in all_of(shard, 2)) == [(5, 0), (7, 20)]


@pytest.mark.parametrize("rows", [rows_of(4), [{"data_index": -1}], [{"data_index": "0"}]], ids=["more", "-1", "str"])
def test_rows_that_name_no_sample_are_refused_and_nothing_is_stored(make, rows):
    shard = make()
    with pytest.raises(ValueError, match="chunk"):
        push(shard, samples_of([1, 2, 3]), rows)
    assert shard.plan(0, 1.0, [])["count"] == 0


def test_what_is_no_chunk_is_refused(make):
    shard = make()
    with pytest.raises(ValueError):
        shard.push([(b"\x80\x04.", "lz4")])


def test_a_push_beyond_the_rate_takes_nothing_in(make):
    limit = {"push_sample_rate_limit": {"max": 1, "min": 0}, "window_seconds": 1e9}
    shard = make("advanced", thruput_controller=limit)
    assert push(shard, samples_of([0, 1]), rows_of(2)) == 2
    shard.sample(1, 1, 0, 1.0, [])
    assert push(shard, samples_of([2]), rows_of(1)) == 0
    assert shard.plan(0, 1.0, [])["count"] == 2


@every_kind
@pytest.mark.parametrize("shards", [1, 2])
def test_another_shard_goes_on_with_what_was_saved(make, kind, shards):
    shard = make(kind, 0, shards)
    push(shard, samples_of([0, 1, 2, 3]), rows_of(4, priority=[1.0, 2.0, 3.0, 4.0], env_id=[4, 5, 6, 7]))
    shard.save("exp/replay/b.0")
    push(shard, samples_of([9]), rows_of(1))
    other = make(kind, 0, shards)
    assert other.load("exp/replay/b.0") == 4
    assert other.life != shard.life
    told = other.draw([4], 0, [0.4], 1.0) if shards == 2 else other.sample(4, 1, 0, 1.0, [])
    drawn = decode_chunk(told["samples"], "none")
    of_value = {value: {"priority": value + 1.0, "env_id": value + 4} for value in range(4)}
    for item in drawn:
        np.testing.assert_array_equal(item["obs"], np.full(2, item["value"], np.float32))
        assert {key: item[key] for key in ("priority", "env_id")} == of_value[item["value"]]
    assert push(other, samples_of([5]), rows_of(1)) == 1
    assert other.plan(0, 1.0, [])["count"] == 5


def test_lists_of_steps_are_saved_too(make):
    shard = make("advanced")
    push(shard, [[{"value": 1}, {"value": 2}]], rows_of(1))
    shard.save("state")
    other = make("advanced")
    assert other.load("state") == 1
    (item,) = all_of(other, 1)
    assert [step["value"] for step in item["__steps__"]] == [1, 2]


@pytest.mark.parametrize("damage", [lambda data: data[:-1], lambda data: b"x" + data[1:], lambda data: b""])
def test_a_damaged_state_is_an_error_and_changes_nothing(make, damage):
    shard = make()
    push(shard, samples_of([0, 1]), rows_of(2))
    shard.save("state")
    with open("state", "rb") as file:
        data = file.read()
    with open("state", "wb") as file:
        file.write(damage(data))
    with pytest.raises(ValueError, match="damaged"):
        shard.load("state")
    assert shard.plan(0, 1.0, [])["count"] == 2


def test_a_state_that_is_not_there_is_an_error(make):
    with pytest.raises(FileNotFoundError):
        make().load("state")


def test_a_wrong_config_is_told_when_the_buffer_is_made(make):
    with pytest.raises(ConfigError, match="alpha"):
        make("advanced", alpha=-1).open()


def test_close_ends_waits_and_a_closed_shard_takes_nothing(make):
    shard = make()
    shard.open()
    waiting = threading.Thread(target=shard.wait, args=(0, 60))
    waiting.start()
    shard.close()
    waiting.join(10)
    assert not waiting.is_alive()
    with pytest.raises(ShardClosed):
        push(shard, samples_of([1]), rows_of(1))


def test_shards_log_in_folders_of_their_own_and_a_single_one_as_a_buffer_does(make, tmp_path):
    for index, shards in ((0, 2), (1, 2), (0, 1)):
        make(index=index, shards=shards).open()
    assert {path.name for path in (tmp_path / "exp" / "log").iterdir()} == {"buffer", "buffer_shard0", "buffer_shard1"}


@pytest.mark.parametrize("priority", [math.nan, math.inf, -1.0])
def test_priorities_that_are_not_finite_are_refused(make, priority):
    shard = make("advanced")
    with pytest.raises(PriorityError, match="it must be finite and >= 0"):
        shard.push([(encode_chunk([{"obs": 1.0, "priority": priority, "collect_iter": 0}]), "lz4")])
    assert shard.plan(0, 1.0, [])["count"] == 0
