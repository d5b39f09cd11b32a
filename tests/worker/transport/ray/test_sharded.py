"""Batches out of shards: those of one buffer, whichever shards the samples lie in."""

import math
from concurrent.futures import Future

import numpy as np
import pytest

from ding.data.priority_index import PriorityError
from ding.utils.config_helper import ConfigError
from ding.utils.data.samples import Samples
from ding.worker.learner.comm.shard_source import ShardedReplay
from ding.worker.replay_buffer import create_buffer
from ding.worker.transport.ray.shard import split_of
from tests.worker.transport.ray.doubles import (
    LocalShard,
    make_replay,
    make_shards,
    push,
    push_samples,
    rows_of,
    samples_of,
)

NAIVE, ADVANCED, DEQUE = ({"type": kind, "replay_buffer_size": 64} for kind in ("naive", "advanced", "deque"))
every_type = pytest.mark.parametrize("cfg", [NAIVE, ADVANCED, DEQUE], ids=lambda cfg: cfg["type"])
KEYS = ("replay_unique_id", "replay_buffer_idx")


def chi_square(counts: np.ndarray, shares: np.ndarray) -> float:
    """How far counts are from what the shares say, in standard deviations of a chi-square of as many degrees."""
    expected = counts.sum() * shares / shares.sum()
    degrees = len(counts) - 1
    return float((((counts - expected) ** 2 / expected).sum() - degrees) / math.sqrt(2 * degrees))


def values_of(batch) -> list[int]:
    return [item["value"] for item in batch]


@every_type
@pytest.mark.parametrize("sizes", [[24], [5, 19], [1, 0, 23], [8, 8, 8]], ids=str)
def test_each_sample_is_drawn_as_often_as_any_other_whichever_shard_it_lies_in(cfg, sizes):
    cfg = {**cfg, "replay_buffer_size": 96}
    shards = make_shards(len(sizes), cfg)
    replay = make_replay(shards, cfg)
    for shard, end in zip(shards, np.cumsum(sizes).tolist(), strict=True):
        size = sizes[shards.index(shard)]
        if size:
            push(shard, list(range(end - size, end)))
    counts = np.zeros(24)
    for _ in range(100):
        for batch in replay.batches(4, 8, 0):
            np.add.at(counts, values_of(batch), 1)
    assert counts.sum() == 100 * 4 * 8
    assert chi_square(counts, np.ones(24)) < 4


@pytest.mark.differs(
    "The metadata of every sample, and of every batch, pass the coordinator, which holds the one replay buffer.",
    "Over Ray samples go to shards of the buffer, and learners draw from them; the batches are those of one buffer.",
)
@pytest.mark.parametrize("alpha", [0.0, 0.6, 1.0])
def test_samples_are_drawn_in_proportion_to_their_priorities_over_all_shards(alpha):
    cfg = {**ADVANCED, "alpha": alpha}
    shards = make_shards(3, cfg)
    replay = make_replay(shards, cfg)
    priorities = np.array([0.1, 4.0, 1.0, 9.0, 0.5, 2.0, 2.0, 0.3, 6.0, 1.5])
    for shard, part in zip(shards, ([0], [1, 2, 3, 4], [5, 6, 7, 8, 9]), strict=True):
        push(shard, part, priority=priorities[part].tolist())
    counts = np.zeros(10)
    for _ in range(150):
        for batch in replay.batches(8, 5, 0):
            np.add.at(counts, values_of(batch), 1)
    shares = priorities**alpha
    # Strata make counts more even than independent draws would: what is tested is that none are off.
    assert chi_square(counts, shares) < 3
    assert np.abs(counts / counts.sum() - shares / shares.sum()).max() < 0.01


def test_importance_weights_are_those_of_one_buffer():
    priorities = [0.1, 4.0, 1.0, 9.0, 0.5, 2.0]
    cfg = {**ADVANCED, "beta": 0.5, "anneal_step": 4}
    shards = make_shards(2, cfg)
    replay = make_replay(shards, cfg)
    push(shards[0], [0], priority=priorities[:1])
    push(shards[1], [1, 2, 3, 4, 5], priority=priorities[1:])
    with create_buffer(cfg, exp_name="one") as one:
        one.push([{"value": i, "priority": priority} for i, priority in enumerate(priorities)], 0)
        expected = [{item["value"]: item["IS"] for _ in range(1) for item in one.sample(6, 0)} for _ in range(7)]
    got = [{item["value"]: item["IS"] for item in batch} for count in (3, 4) for batch in replay.batches(count, 6, 0)]
    for weights, exact in zip(got, expected, strict=True):
        common = weights.keys() & exact.keys()
        assert common
        assert [weights[value] for value in common] == pytest.approx([exact[value] for value in common])
    assert got[-1][3] == pytest.approx((0.1 / 9.0) ** 0.6)  # beta has come to 1; the weight is priority ** alpha


def test_the_exponent_of_importance_weights_goes_on_with_another_learner():
    cfg = {**ADVANCED, "beta": 0.0, "anneal_step": 10}
    shards = make_shards(2, cfg)
    push(shards[0], [0, 1], priority=[1.0, 3.0])
    push(shards[1], [2, 3], priority=[1.0, 3.0])
    make_replay(shards, cfg).batches(10, 4, 0)
    (batch,) = make_replay(shards, cfg).batches(1, 4, 0)
    weights = [item["IS"] for item in batch if item["priority"] == 3.0]
    assert weights == pytest.approx([(1 / 3) ** 0.6] * len(weights))
    assert weights


@every_type
@pytest.mark.parametrize("shards", [1, 3])
def test_a_batch_holds_what_that_of_one_buffer_holds(cfg, shards):
    made = make_shards(shards, cfg)
    replay = make_replay(made, cfg)
    meta = rows_of(4, env_id=3, unroll_len=1, collect_iter=[1, 2, 3, 4])
    for shard in made:
        push_samples(shard, samples_of([0, 1, 2, 3]), meta)
    with create_buffer(cfg, exp_name="one") if cfg["type"] != "deque" else _closing(create_buffer(cfg)) as one:
        rows = [{key: value for key, value in row.items() if key != "data_index"} for row in meta]
        one.push([{**sample, **row} for sample, row in zip(samples_of([0, 1, 2, 3]), rows, strict=True)], 0)
        expected = {item["value"]: item for item in one.sample(4, 5)}
    (batch,) = replay.batches(1, 4, 5)
    assert isinstance(batch, Samples)
    assert batch.table is not None
    for item in batch:
        like = expected.get(item["value"]) or next(iter(expected.values()))
        assert item.keys() == like.keys()
        for key in item.keys() - {"replay_unique_id", "replay_buffer_idx", "use"}:
            if like["value"] == item["value"]:
                np.testing.assert_array_equal(item[key], like[key])
            assert type(item[key]) is type(like[key])


class _closing:
    def __init__(self, buffer):
        self.buffer = buffer

    def __enter__(self):
        return self.buffer

    def __exit__(self, *args):
        self.buffer.close()


@pytest.mark.parametrize("cfg", [NAIVE, DEQUE], ids=lambda cfg: cfg["type"])
def test_a_uniform_batch_holds_no_sample_twice_and_needs_as_many_as_it_is_large(cfg):
    shards = make_shards(2, cfg)
    replay = make_replay(shards, cfg)
    push(shards[0], [0])
    push(shards[1], [1, 2, 3, 4])
    assert replay.batches(1, 6, 0) == []
    for batch in replay.batches(20, 5, 0):
        assert sorted(values_of(batch)) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("shards", [1, 2])
def test_priorities_come_to_the_shard_that_the_samples_came_from(shards):
    cfg = {**ADVANCED, "alpha": 1.0}
    made = make_shards(shards, cfg)
    replay = make_replay(made, cfg)
    for number, shard in enumerate(made):
        push(shard, [2 * number, 2 * number + 1])
    seen = set()
    while len(seen) < 2 * shards:
        (batch,) = replay.batches(1, 2, 0)
        seen |= set(values_of(batch))
        priorities = [float(item["value"] == 1) for item in batch]
        replay.update({**{key: [item[key] for item in batch] for key in KEYS}, "priority": priorities})
    (batch,) = replay.batches(1, 2, 0)
    assert values_of(batch) == [1, 1]
    assert {item["priority"] for item in batch} == {1 + 1e-5}


def test_samples_without_priority_get_the_largest_that_was_set_in_any_shard():
    shards = make_shards(2, ADVANCED)
    replay = make_replay(shards, ADVANCED)
    push(shards[0], [0])
    (batch,) = replay.batches(1, 1, 0)
    replay.update({**{key: [item[key] for item in batch] for key in KEYS}, "priority": [7.0]})
    replay.batches(1, 1, 0)
    push_samples(shards[1], samples_of([1]), [{"data_index": 0}])
    values = {item["value"]: item["priority"] for batch in replay.batches(30, 2, 0) for item in batch}
    assert values == {0: 7.0 + 1e-5, 1: 7.0}


@pytest.mark.parametrize("wrong", [[-1.0, 1.0], [math.nan, 1.0], [1.0]], ids=str)
def test_wrong_priorities_are_refused_where_they_come_from(wrong):
    shards = make_shards(2, ADVANCED)
    replay = make_replay(shards, ADVANCED)
    push(shards[0], [0, 1])
    (batch,) = replay.batches(1, 2, 0)
    with pytest.raises(PriorityError if len(wrong) == 2 else ValueError):
        replay.update({**{key: [item[key] for item in batch] for key in KEYS}, "priority": wrong})


@pytest.mark.parametrize("shards", [1, 2])
def test_samples_leave_all_shards_when_they_have_been_used_so_often(shards):
    cfg = {**ADVANCED, "max_use": 1}
    made = make_shards(shards, cfg)
    replay = make_replay(made, cfg)
    for number, shard in enumerate(made):
        push(shard, list(range(8 * number, 8 * number + 8)))
    drawn = []
    for _ in range(40):
        for batch in replay.batches(2, 4, 0):
            drawn += values_of(batch)
    # Within a batch a sample may come up again; after it, it is gone.
    assert len(set(drawn)) >= 8 * shards - 3
    assert replay.batches(1, 4, 0) == []
    assert replay.count < 4


def test_an_on_policy_deque_gives_each_sample_once():
    cfg = {**DEQUE, "max_use": 1}
    shards = make_shards(3, cfg)
    replay = make_replay(shards, cfg)
    for number, shard in enumerate(shards):
        push(shard, list(range(8 * number, 8 * number + 8)))
    drawn = []
    for _ in range(10):
        for batch in replay.batches(4, 4, 0):
            drawn += values_of(batch)
    assert sorted(drawn) == list(range(24))


@pytest.mark.parametrize("shards", [1, 2])
def test_stale_samples_leave_all_shards(shards):
    cfg = {**ADVANCED, "max_staleness": 3}
    made = make_shards(shards, cfg)
    replay = make_replay(made, cfg)
    push(made[0], [0, 1], collect_iter=0)
    push(made[-1], [2, 3], collect_iter=2)
    assert {value for batch in replay.batches(20, 4, 2) for value in values_of(batch)} == {0, 1, 2, 3}
    assert {value for batch in replay.batches(20, 2, 3) for value in values_of(batch)} == {2, 3}
    assert replay.count == 2
    assert replay.batches(1, 2, 5) == []


@pytest.mark.parametrize("shards", [1, 2])
def test_the_least_number_of_samples_counts_those_of_all_shards(shards):
    cfg = {**ADVANCED, "thruput_controller": {"sample_min_limit_ratio": 3}}
    made = make_shards(shards, cfg)
    replay = make_replay(made, cfg)
    push(made[0], [0, 1, 2])
    push(made[-1], [3, 4])
    assert replay.batches(1, 2, 0) == []
    push(made[-1], [5])
    assert len(replay.batches(1, 2, 0)) == 1


@pytest.mark.parametrize("shards", [1, 3])
def test_the_least_rate_of_pushes_to_samples_holds_over_all_shards(shards):
    cfg = {
        **ADVANCED,
        "thruput_controller": {"push_sample_rate_limit": {"min": 0.5, "max": math.inf}, "window_seconds": 1e9},
    }
    made = make_shards(shards, cfg)
    replay = make_replay(made, cfg)
    push(made[0], list(range(8)))
    assert len(replay.batches(7, 4, 0)) == 4  # 16 samples for 8 that were pushed
    assert replay.batches(7, 4, 0) == []
    push(made[-1], [8, 9])
    assert len(replay.batches(7, 4, 0)) == 1


def test_a_batch_larger_than_the_buffer_is_an_error():
    replay = make_replay(make_shards(2, NAIVE), NAIVE)
    with pytest.raises(ValueError, match="sample size = 65 is not allowed"):
        replay.batches(1, 65, 0)


def test_the_capacity_is_split_and_the_oldest_leave_each_shard():
    cfg = {**NAIVE, "replay_buffer_size": 7}
    shards = make_shards(3, cfg)
    replay = make_replay(shards, cfg)
    for number, shard in enumerate(shards):
        push(shard, [10 * number + i for i in range(5)])
    (batch,) = replay.batches(1, 7, 0)
    assert sorted(values_of(batch)) == [2, 3, 4, 13, 14, 23, 24]


@pytest.mark.parametrize(
    "cfg, words",
    [
        ({"type": "deque", "priority": True}, "accepts priorities only for its newest batch, .* use type = 'advanced'"),
        ({"type": "elastic", "set_buffer_size": lambda envstep: 5}, "'elastic' cannot be split .* only buffers of"),
        ({"type": "sequence"}, "'sequence' cannot be split .* only buffers of"),
        ({"type": "naive", "replay_buffer_size": 1}, "without capacity"),
        ({"type": "advanced", "thruput_controller": {"push_sample_rate_limit": {"max": 2}}}, "push_sample_rate_limit"),
    ],
    ids=["deque", "elastic", "sequence", "too small", "limited"],
)
def test_what_cannot_be_split_is_refused_and_named(cfg, words):
    with pytest.raises(ConfigError, match=words):
        split_of(cfg, 2)


def test_one_shard_may_be_of_any_type():
    cfg = {"type": "elastic", "set_buffer_size": lambda envstep: 2, "replay_buffer_size": 8}
    shard = LocalShard(cfg)
    push(shard, [0, 1, 2, 3])
    (batch,) = make_replay([shard], cfg).batches(1, 2, 0)
    assert sorted(values_of(batch)) == [2, 3]


@pytest.mark.parametrize("shards", [1, 3])
def test_samples_of_several_steps_come_back_with_their_metadata(shards):
    made = make_shards(shards, ADVANCED)
    replay = make_replay(made, ADVANCED)
    for shard in made:
        steps = [[{"value": 10 * i + step} for step in range(3)] for i in range(2)]
        meta = rows_of(2, env_id=4, collect_iter=[5, 6])
        push_samples(shard, steps, meta)
    (batch,) = replay.batches(1, 2, 7)
    for item in batch:
        first = item[0]["value"]
        assert [step["value"] for step in item] == [first, first + 1, first + 2]
        assert {step["env_id"] for step in item} == {4}
        assert {step["staleness"] for step in item} == {2 if first == 0 else 1}
        assert {step["IS"] for step in item} == {1.0}
    replay.update({**{key: [item[0][key] for item in batch] for key in KEYS}, "priority": [3.0, 3.0]})
    assert {item[0]["priority"] for batch in replay.batches(20, 2, 7) for item in batch} >= {3.0 + 1e-5}


def test_a_lost_shard_costs_its_samples_and_nothing_else():
    shards = make_shards(2, ADVANCED)
    replay = make_replay(shards, ADVANCED)
    push(shards[0], [0, 1, 2])
    push(shards[1], [10, 11])
    (batch,) = replay.batches(1, 5, 0)
    shards[0].is_down = True
    assert {value for batch in replay.batches(9, 2, 0) for value in values_of(batch)} == {10, 11}
    assert replay.count == 2
    shards[0].lose()
    shards[0].is_down = False
    assert replay.batches(1, 3, 0) == []
    assert (replay.lost_shards, replay.lost_samples) == (1, 3)
    push(shards[0], [3])
    # Priorities of what is lost do not come to what is in its place.
    replay.update({**{key: [item[key] for item in batch] for key in KEYS}, "priority": [50.0] * 5})
    found = {item["value"]: item["priority"] for batch in replay.batches(30, 3, 0) for item in batch}
    assert found.keys() <= {3, 10, 11}
    assert found[3] == 1.0
    assert found[10] == pytest.approx(50.0)


def test_a_shard_that_is_lost_within_a_draw_costs_no_sample_of_another():
    cfg = {**DEQUE, "max_use": 1}
    shards = make_shards(2, cfg)
    replay = make_replay(shards, cfg)
    push(shards[0], [0, 1, 2, 3])
    push(shards[1], [10, 11, 12, 13])
    call = shards[0].call

    def lost_in_draw(method, *args):
        shards[0].is_down = method == "draw"
        return call(method, *args)

    shards[0].call = lost_in_draw
    assert replay.batches(1, 6, 0) == []
    shards[0].call, shards[0].is_down = call, False
    shards[0].lose()
    push(shards[0], [4, 5, 6, 7])
    drawn = []
    for _ in range(8):
        for batch in replay.batches(1, 4, 0):
            drawn += values_of(batch)
    assert sorted(drawn) == [4, 5, 6, 7, 10, 11, 12, 13]


def test_waiting_ends_with_a_push_to_any_shard():
    shards = make_shards(2, NAIVE)
    replay = make_replay(shards, NAIVE)
    replay.batches(1, 1, 0)
    assert not replay.wait_for_push(0.0)
    replay.batches(1, 1, 0)
    push(shards[1], [0])
    assert replay.wait_for_push(10)


def test_a_shard_that_does_not_answer_is_named():
    shards = make_shards(2, NAIVE)
    replay = ShardedReplay(shards, split_of(NAIVE, 2), timeout_s=0.01)
    shards[1].call = lambda method, *args: Future()
    with pytest.raises(TimeoutError, match="shard1 did not answer"):
        replay.batches(1, 1, 0)


def test_learners_are_told_how_large_samples_are():
    shards = make_shards(2, NAIVE)
    replay = make_replay(shards, NAIVE)
    push(shards[0], list(range(40)))
    replay.batches(1, 32, 0)
    assert 8 < replay.sample_bytes < 200
