"""The advanced buffer: what is stored, drawn, removed and updated."""

import copy
import math
import threading
from pathlib import Path

import numpy as np
import pytest
import torch

from ding.data.priority_index import PriorityError
from ding.utils.data.samples import Column, Kind, Samples, Table
from ding.utils.msgpack_helper import pack, unpack
from ding.worker.replay_buffer import AdvancedReplayBuffer, DequeBufferWrapper

ADDED = {"replay_unique_id", "replay_buffer_idx", "priority", "staleness", "use", "IS"}


def items(start: int, stop: int, **more) -> list[dict]:
    return [{"n": i, "collect_iter": 0, **more} for i in range(start, stop)]


def info_of(batch: list[dict], priorities) -> dict:
    return {
        "replay_unique_id": [item["replay_unique_id"] for item in batch],
        "replay_buffer_idx": [item["replay_buffer_idx"] for item in batch],
        "priority": priorities,
    }


def weights(buffer: AdvancedReplayBuffer, slots: slice = slice(None)) -> float:
    return sum(item["priority"] ** buffer.alpha for item in buffer._data[slots] if item is not None)


def assert_consistent(buffer: AdvancedReplayBuffer) -> None:
    live = [slot for slot, item in enumerate(buffer._data) if item is not None]
    assert buffer.count() == len(live)
    assert buffer._sum_tree.reduce() == pytest.approx(weights(buffer), abs=1e-6)
    assert np.flatnonzero(buffer._sum_tree.leaves).tolist() == live
    assert buffer._index.least_weight == min((buffer._sum_tree[slot] for slot in live), default=np.inf)
    assert np.flatnonzero(buffer._index.weights).tolist() == live


# ---- push


@pytest.mark.differs(
    "breaks importance weights by a pushed priority of 0, and stores or fails on a negative or NaN one",
    "counts 0 as 1e-5, and raises an error for a negative or NaN priority",
)
@pytest.mark.parametrize("zero", [0, 0.0, np.float32(0), torch.tensor(0.0)])
def test_a_pushed_priority_of_zero_still_has_weight(make_advanced, zero):
    buffer = make_advanced(2)
    buffer.push([{"n": 0, "priority": zero}, {"n": 1, "priority": 1.0}], 0)
    batch = buffer.sample(2, 0)
    assert all(0 < item["IS"] <= 1 and np.isfinite(item["IS"]) for item in batch)
    assert buffer._sum_tree[0] == pytest.approx(1e-5**0.6)


@pytest.mark.parametrize("wrong", [-1.0, float("nan"), float("inf")])
def test_a_wrong_pushed_priority_is_refused_and_nothing_is_stored(make_advanced, wrong):
    buffer = make_advanced(4)
    with pytest.raises(PriorityError):
        buffer.push([{"n": 0, "priority": 0.5}, {"n": 1, "priority": wrong}], 0)
    assert (buffer.count(), buffer.push_count, buffer._next_unique_id) == (0, 0, 0)
    with pytest.raises(PriorityError):
        buffer.push({"n": 0, "priority": 1e300}, 0)  # with a few of them sums would overflow
    buffer.push({"n": 0, "priority": 1e100}, 0)
    buffer.clear()
    with pytest.raises(TypeError, match="number"):
        buffer.push({"n": 0, "priority": "high"}, 0)


def test_items_that_fail_a_check_are_left_out(make_advanced):
    buffer = make_advanced(4)
    assert buffer.push([{"n": 0}, 3, {"n": 1}], 0) == 2
    assert buffer.push(5, 0) == 0
    assert (buffer.count(), buffer.push_count, buffer._next_unique_id) == (2, 2, 2)
    assert buffer._thruput_controller.history_push_count == 2
    buffer.check_list.append(lambda item: item["n"] > 5)
    buffer.push([{"n": 5}, {"n": 6}], 0)
    assert [item["n"] for item in buffer._data[:3]] == [0, 1, 6]
    assert (buffer.push([{"n": 5}], 0), buffer.push({"n": 7}, 0)) == (0, 1)


# ---- sample


def test_sampled_items_are_copies_with_the_bookkeeping(make_advanced):
    buffer = make_advanced(4)
    pushed = items(0, 2)
    buffer.push(pushed, 0)
    batch = buffer.sample(2, 3)
    assert [set(item) - {"n", "collect_iter"} for item in batch] == [ADDED, ADDED]
    assert [item["replay_unique_id"] for item in batch] == ["demo_0", "demo_1"]
    assert [(item["n"], item["staleness"], item["use"], item["IS"]) for item in batch] == [
        (0, 3, 1, 1.0),
        (1, 3, 1, 1.0),
    ]
    batch[0]["n"] = 99
    assert pushed == items(0, 2) and buffer._data[0]["n"] == 0
    assert all(type(item["priority"]) is float and type(item["use"]) is int for item in batch)


def test_draws_follow_priority_to_the_power_of_alpha(make_advanced):
    buffer = make_advanced(4, alpha=0.5)
    buffer.push([{"n": i, "priority": p} for i, p in enumerate([1.0, 4.0, 9.0, 16.0])], 0)
    counts = np.bincount([item["n"] for _ in range(1000) for item in buffer.sample(4, 0)], minlength=4)
    assert counts / 4000 == pytest.approx([0.1, 0.2, 0.3, 0.4], abs=0.02)


def test_one_item_is_drawn_from_each_stratum(make_advanced):
    buffer = make_advanced(8)
    buffer.push(items(0, 8), 0)
    assert [item["n"] for item in buffer.sample(8, 0)] == list(range(8))


def test_importance_weights_follow_their_definition(make_advanced):
    buffer = make_advanced(4, alpha=1.0, beta=0.5)
    buffer.push([{"n": i, "priority": p} for i, p in enumerate([1.0, 2.0, 4.0])], 0)
    probability = {n: p / 7 for n, p in enumerate([1.0, 2.0, 4.0])}
    largest = (3 * probability[0]) ** -0.5
    for item in buffer.sample(3, 0):
        assert item["IS"] == pytest.approx((3 * probability[item["n"]]) ** -0.5 / largest)


def test_staleness_takes_the_oldest_of_several_iterations_and_minus_one_without(make_advanced):
    buffer = make_advanced(8)
    iters = [3, [4, 2, 9], torch.tensor([5, 6]), np.int64(1), torch.tensor(7), None]
    buffer.push([{"collect_iter": value} for value in iters] + [{}], 0)
    batch = {item["replay_buffer_idx"]: item["staleness"] for _ in range(20) for item in buffer.sample(7, np.int64(10))}
    assert batch == {0: 7, 1: 8, 2: 5, 3: 9, 4: 3, 5: -1, 6: -1}


def test_repeated_items_share_no_tensor_and_show_the_final_use_count(make_advanced):
    buffer = make_advanced(4)
    buffer.push([{"obs": torch.zeros(2), "priority": 1e6}, {"obs": torch.zeros(2), "priority": 1e-9}], 0)
    batch = buffer.sample(2, 0)
    assert [item["replay_buffer_idx"] for item in batch] == [0, 0]
    assert [item["use"] for item in batch] == [2, 2]
    batch[1]["obs"] += 1
    assert batch[0]["obs"].sum() == 0 and buffer._data[0]["obs"].sum() == 0


def test_too_few_items_give_none(make_advanced):
    buffer = make_advanced(8)
    assert buffer.sample(1, 0) is None and buffer.sample(0, 0) == []
    buffer.push(items(0, 2), 0)
    assert buffer.sample(3, 0) is None


@pytest.mark.differs(
    "counts `sample_range` by physical slots, which is wrong once the buffer has wrapped, and fails on a start of "
    "None or 0",
    "counts from the oldest item",
)
@pytest.mark.parametrize(
    "sample_range, expected",
    [
        (slice(-3, None), {8, 9, 10}),
        (slice(None, 2), {3, 4}),
        (slice(0, 3), {3, 4, 5}),
        (slice(-6, -2), {5, 6, 7, 8}),
        (slice(None), set(range(3, 11))),
        (slice(4, 6, 2), {7, 8}),
    ],
)
def test_sample_range_counts_from_the_oldest_item_also_after_wrapping(make_advanced, sample_range, expected):
    buffer = make_advanced(8)
    buffer.push(items(0, 8), 0)
    buffer.push(items(8, 11), 0)
    drawn = {item["n"] for _ in range(40) for item in buffer.sample(4, 0, sample_range)}
    assert drawn == expected


def test_a_useless_sample_range_is_refused(make_advanced):
    buffer = make_advanced(8)
    buffer.push(items(0, 8), 0)
    for useless in (slice(5, 5), slice(20, None)):
        with pytest.raises(ValueError, match="selects no item"):
            buffer.sample(1, 0, useless)
    with pytest.raises(TypeError):
        buffer.sample(1, 0, (0, 3))


def test_beta_anneals_by_a_step_fixed_at_construction(make_advanced):
    buffer = make_advanced(4, beta=0.5, anneal_step=4)
    buffer.push(items(0, 4), 0)
    buffer.sample(1, 0)
    assert buffer.beta == 0.625
    buffer.beta = 0.9
    buffer.sample(1, 0)
    assert buffer.beta == 1.0
    still = make_advanced(4, anneal_step=0)
    still.push(items(0, 4), 0)
    still.sample(1, 0)
    assert still.beta == 0.4


# ---- removal


@pytest.mark.differs(
    "counts used-up items whose files are tracked, and draws them again after an update",
    "removes them permanently",
)
def test_used_up_items_whose_files_are_tracked_stay_until_overwritten_but_are_not_drawn(make_advanced):
    buffer = make_advanced(3, max_use=1, enable_track_used_data=True, deepcopy=True)
    for i in range(4):
        Path(f"data_{i}").write_text("x")
    buffer.push([{"data_id": f"data_{i}"} for i in range(3)], 0)
    batch = buffer.sample(2, 0)
    used = sorted(item["replay_buffer_idx"] for item in batch)
    assert buffer.count() == 1 and all(buffer._data[slot]["priority"] == 0.0 for slot in used)
    buffer.update(info_of(batch, [5.0, 5.0]))
    assert buffer.count() == 1 and all(buffer._sum_tree[slot] == 0 for slot in used)
    assert buffer._max_priority == 1.0
    assert buffer.sample(2, 0) is None
    remaining = buffer.sample(1, 0)[0]["replay_buffer_idx"]
    assert remaining not in used and buffer.count() == 0
    buffer.push({"data_id": "data_3"}, 0)
    assert buffer.count() == 1
    buffer.close()
    assert list(Path().glob("data_*")) == []


# ---- update


@pytest.mark.parametrize(
    "priorities",
    [
        [1, 2],
        [np.float32(1), np.float32(2)],
        np.array([1, 2]),
        torch.tensor([[1.0], [2.0]]),
        [torch.tensor(1), torch.ones(1) * 2],
    ],
)
def test_update_takes_any_kind_of_numbers(make_advanced, priorities):
    buffer = make_advanced(4)
    buffer.push(items(0, 2), 0)
    buffer.update(info_of(buffer._data[:2], priorities))
    assert [item["priority"] for item in buffer._data[:2]] == [1.0 + 1e-5, 2.0 + 1e-5]
    assert buffer._max_priority == 2.0


def test_an_update_without_priority_is_ignored(make_advanced):
    buffer = make_advanced(4)
    buffer.update({})
    with pytest.raises(KeyError):
        buffer.update({"priority": [1.0]})


@pytest.mark.parametrize("wrong", [-0.1, float("nan"), float("inf")])
def test_a_wrong_priority_in_an_update_is_refused_and_nothing_changes(make_advanced, wrong):
    buffer = make_advanced(4)
    buffer.push(items(0, 2), 0)
    with pytest.raises(AssertionError):
        buffer.update(info_of(buffer._data[:2], [5.0, wrong]))
    assert buffer._data[0]["priority"] == 1.0


def test_an_update_of_uneven_lists_or_foreign_slots_is_refused(make_advanced):
    buffer = make_advanced(4)
    buffer.push(items(0, 2), 0)
    with pytest.raises(ValueError, match="one entry for each item"):
        buffer.update(info_of(buffer._data[:2], [1.0]))
    with pytest.raises(IndexError):
        buffer.update({"replay_unique_id": ["demo_0"], "replay_buffer_idx": [4], "priority": [1.0]})


# ---- the view of items


def test_the_view_shows_copies_of_items_with_their_current_metadata(make_advanced):
    buffer = make_advanced(4)
    buffer.push(items(0, 3), 0)
    assert len(buffer._data) == 4 and buffer._data[3] is None and buffer._data[-2]["n"] == 2
    shown = buffer._data[0]
    buffer.update(info_of([shown], [8.0]))
    assert (shown["priority"], buffer._data[0]["priority"]) == (1.0, 8.0 + 1e-5) and type(shown) is dict
    shown["n"] = 9
    assert buffer._data[0]["n"] == 0
    for _ in range(50):
        buffer.sample(3, 5)
    assert buffer._data[0]["use"] >= 50
    with pytest.raises(IndexError):
        buffer._data[4]
    with pytest.raises(TypeError):
        buffer._data[1] = {"n": 9}


# ---- limits, logs, states


def test_the_rate_limits_refuse_samples_and_pushes(make_advanced):
    limits = {"push_sample_rate_limit": {"max": 2, "min": 0.5}, "window_seconds": 5, "sample_min_limit_ratio": 1.5}
    buffer = make_advanced(200, thruput_controller=limits)
    buffer.push(items(0, 30), 0)
    assert [buffer.sample(19, 0) is None for _ in range(4)] == [False, False, False, True]
    assert buffer.sample(21, 0) is None
    for expected, taken in ((60, 30), (90, 30), (90, 0)):
        assert buffer.push(items(0, 30), 0) == taken
        assert buffer.count() == expected


def test_statistics_are_logged_at_the_first_and_every_nth_sample(make_advanced, tb):
    monitor = {"sampled_data_attr": {"print_freq": 3}}
    buffer = make_advanced(4, tb_logger=tb, monitor=monitor, anneal_step=10, beta=0.5)
    buffer.push([{"collect_iter": 1, "priority": p} for p in (1.0, 4.0)], 12)
    for train_iter in (2, 3, 4, 5):
        buffer.sample(2, train_iter)
    steps = sorted({(tag.split("/")[0], step) for tag, _, step in tb.scalars})
    assert steps == [("demo_iter", 2), ("demo_iter", 5), ("demo_step", 12)]
    first = {tag: value for tag, value, step in tb.scalars if step == 2}
    assert first["demo_iter/staleness_max"] == first["demo_iter/staleness_avg"] == 1
    assert first["demo_iter/beta"] == pytest.approx(0.55)
    names = {
        "use_avg",
        "use_max",
        "priority_avg",
        "priority_max",
        "priority_min",
        "staleness_avg",
        "staleness_max",
        "beta",
    }
    assert {tag.split("/")[1] for tag, _, _ in tb.scalars} == names


def test_save_and_load_keep_items_and_priorities(make_advanced):
    buffer, other = make_advanced(8), make_advanced(8, name="other")
    buffer.push([{"n": i, "obs": torch.ones(2) * i, "priority": i + 1.0} for i in range(11)], 0)
    buffer._data[4] = None
    buffer._valid_count -= 1
    buffer.save_data("folder/data")
    other.load_data("folder/data")
    assert (other.count(), other.push_count) == (7, 7)
    assert [(item["n"], item["priority"]) for item in other._data[:7]] == [(n, n + 1.0) for n in (3, 5, 6, 7, 8, 9, 10)]
    assert other._data[0]["replay_unique_id"] == "other_0"
    assert torch.equal(other._data[0]["obs"], torch.ones(2) * 3)


@pytest.mark.differs("pickles buffers to save them (hickle)", "writes them as msgpack, which runs no code")
def test_a_state_is_plain_data_that_code_free_files_hold(make_advanced):
    buffer, other = make_advanced(8), make_advanced(8)
    buffer.push([{"obs": torch.zeros(2), "n": i} for i in range(5)], 0)
    buffer.sample(2, 0)
    other.load_state_dict(unpack(pack(buffer.state_dict())))
    assert [item["use"] for item in other._data[:5]] == [item["use"] for item in buffer._data[:5]]
    assert [item["n"] for item in other.sample(4, 0)] == [item["n"] for item in buffer.sample(4, 0)]


def test_a_state_of_a_buffer_of_another_size_is_refused(make_advanced):
    with pytest.raises(ValueError, match="a buffer of 4"):
        make_advanced(4).load_state_dict(make_advanced(8).state_dict())


@pytest.mark.differs("checks outside of the lock whether there is enough to sample", "checks and draws under one lock")
def test_samples_updates_and_pushes_from_many_threads_keep_the_books_right(make_advanced):
    buffer = make_advanced(64, max_use=5)
    failures = []

    def work(seed: int) -> None:
        rng = np.random.default_rng(seed)
        try:
            for i in range(60):
                buffer.push(items(0, 8), i)
                batch = buffer.sample(8, i)
                if batch is not None:
                    buffer.update(info_of(batch, rng.random(8)))
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert buffer.push_count == 4 * 60 * 8
    assert_consistent(buffer)


# ---- columns


def columns_of(count: int, **more) -> Samples:
    numbers = np.arange(count)
    return Samples(Table({"n": Column(Kind.INT, numbers), "collect_iter": Column(Kind.INT, numbers), **more}))


def test_an_update_takes_the_columns_of_a_sample(make_advanced):
    buffer = make_advanced(8, name="with_underscore")
    buffer.push(columns_of(8), 0)
    columns = buffer.sample(8, 0).table.columns
    ids = columns["replay_unique_id"].values()
    assert list(ids) == [f"with_underscore_{n}" for n in range(8)]
    slots = columns["replay_buffer_idx"].values()
    buffer.push([{"n": 8, "collect_iter": 0}], 0)
    buffer.update({"replay_unique_id": ids, "replay_buffer_idx": slots, "priority": torch.arange(8) + 2})
    assert [item["priority"] for item in buffer._data] == [1.0, *[n + 2 + 1e-5 for n in range(1, 8)]]
    other = make_advanced(8, name="other")  # whose items have the same numbers and other names
    other.push(columns_of(8), 0)
    other.update({"replay_unique_id": ids, "replay_buffer_idx": slots, "priority": np.ones(8) * 3})
    assert all(item["priority"] == 1.0 for item in other._data)


@pytest.mark.differs("draws items beyond `max_staleness` if fresher items are stored before them", "never draws them")
@pytest.mark.parametrize("as_list", [False, True])
def test_no_item_as_old_as_max_staleness_is_handed_out_whatever_its_place(make_advanced, as_list):
    buffer = make_advanced(16, max_staleness=5)
    iters = [9, 2, 7, 3, 3, 8, 5, 4]
    buffer.push([{"collect_iter": [k, k + 5] if as_list else k} for k in iters], 0)
    drawn = {item["replay_buffer_idx"] for _ in range(30) for item in buffer.sample(4, 9)}
    assert drawn == {0, 2, 5, 6} and buffer.count() == 4
    buffer.push([{"collect_iter": [1] if as_list else 1}, {"collect_iter": [9] if as_list else 9}], 0)
    assert max(item["staleness"] for _ in range(30) for item in buffer.sample(4, 9)) == 4
    assert buffer.count() == 5 and buffer.sample(5, 10) is None and buffer.count() == 4
    assert_consistent(buffer)


def test_items_without_an_age_are_never_stale(make_advanced):
    buffer = make_advanced(8, max_staleness=2)
    buffer.push([{"n": 0}, {"n": 1, "collect_iter": None}, {"n": 2, "collect_iter": 0}], 0)
    assert {item["n"] for _ in range(20) for item in buffer.sample(2, 50)} == {0, 1}


@pytest.mark.parametrize("through_file", [False, True])
def test_items_that_max_use_retired_are_not_drawn_after_a_round_trip(make_advanced, through_file):
    cfg = {"max_use": 1, "enable_track_used_data": True}
    buffer, other = make_advanced(6, **cfg), make_advanced(6, name="other", **cfg)
    buffer.push([{"n": n, "data_id": f"no_such_file_{n}"} for n in range(6)], 0)
    used = {item["n"] for item in buffer.sample(3, 0)}
    state = buffer.state_dict()
    other.load_state_dict(unpack(pack(state)) if through_file else state)
    assert other.count() == buffer.count() == 6 - len(used)
    assert [item["priority"] for item in other._data] == [0.0 if n in used else 1.0 for n in range(6)]
    assert {item["n"] for item in other.sample(other.count(), 0)}.isdisjoint(used)


def test_the_view_of_slots_deep_copies_and_compares_as_a_list(make_advanced):
    buffer = make_advanced(3)
    buffer.push([{"obs": torch.zeros(2)}, {"obs": torch.ones(2)}], 0)
    copied = copy.deepcopy(buffer._data)
    assert type(copied) is list and copied[2] is None and type(copied[0]) is dict
    copied[1]["obs"] += 1
    assert buffer._data[1]["obs"].tolist() == [1, 1] and len(buffer._data) == 3
    numbers = make_advanced(2, name="numbers")
    numbers.push(items(0, 2), 0)
    assert numbers._data == list(numbers._data) and numbers._data == copy.deepcopy(numbers._data)
    assert numbers._data != [None, None]


def test_a_part_of_a_batch_asks_no_limit_and_weighs_by_the_smallest_weight_of_all(make_advanced) -> None:
    buffer = make_advanced(alpha=1.0, beta=1.0, thruput_controller={"sample_min_limit_ratio": 10})
    buffer.push([{"obs": i, "priority": priority} for i, priority in enumerate((2.0, 4.0))], 0)
    assert buffer.sample(1, 0) is None
    drawn = buffer.draw(6, 0, least_weight=1.0)
    assert [item["obs"] for item in drawn] == [0, 0, 1, 1, 1, 1]
    assert {item["obs"]: item["IS"] for item in drawn} == {0: 0.5, 1: 0.25}


def test_the_stock_is_what_can_be_drawn_after_stale_items_have_gone(make_advanced) -> None:
    buffer = make_advanced(alpha=1.0, max_staleness=5, thruput_controller={"window_seconds": 1e9})
    assert buffer.sampling_facts(0) == (0, 0.0, math.inf, 0.0, 0.0)
    rows = [{"obs": i, "priority": i + 1.0, "collect_iter": i} for i in range(3)]
    buffer.push(rows, 0)
    buffer.sample(2, 0)
    assert buffer.sampling_facts(5) == (2, 5.0, 2.0, pytest.approx(3.0), pytest.approx(2.0))
    assert buffer.count() == 2


@pytest.mark.parametrize(
    "form", [list, Table.of, lambda items: Samples(Table.of(items))], ids=["list", "table", "samples"]
)
def test_a_priority_of_several_numbers_is_refused_before_anything_is_stored(make_advanced, form):
    advanced, deque = make_advanced(4), DequeBufferWrapper({"replay_buffer_size": 4, "priority": True})
    for buffer in (advanced, deque):
        buffer.push([{"n": n} for n in range(3)], 0)
        with pytest.raises(TypeError, match="number"):
            buffer.push(form([{"n": 7, "priority": torch.ones(2)}, {"n": 8, "priority": torch.ones(2)}]), 0)
        assert (buffer.count(), buffer.push_count) == (3, 3)
        assert {item["n"] for _ in range(20) for item in buffer.sample(2, 0)} == {0, 1, 2}
