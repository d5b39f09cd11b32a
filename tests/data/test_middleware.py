"""The middleware of the deque buffer."""

import numpy as np
import pytest
import torch

from ding.data.buffer import BufferedData, DequeBuffer
from ding.data.buffer.middleware import (
    PriorityExperienceReplay,
    clone_object,
    group_sample,
    padding,
    sample_range_view,
    staleness_check,
    use_time_check,
)


def values(records) -> list:
    return [record.data for record in records]


def per_buffer(size: int = 8, count: int = 0, **kwargs) -> tuple[DequeBuffer, PriorityExperienceReplay]:
    buffer = DequeBuffer(size)
    per = PriorityExperienceReplay(buffer, **kwargs)
    buffer.use(per)
    for i in range(count):
        buffer.push({"n": i})
    return buffer, per


def test_cloned_records_share_nothing_with_what_was_pushed():
    buffer = DequeBuffer(2).use(clone_object())
    data = {"obs": torch.zeros(1), "list": [1]}
    buffer.push(data, meta={"m": np.zeros(1)})
    data["list"].append(2)
    sampled = buffer.sample(1)[0]
    sampled.data["obs"] += 1
    sampled.meta["m"] += 1
    assert buffer[0].data == {"obs": torch.zeros(1), "list": [1]} and buffer[0].meta["m"][0] == 0
    assert buffer.update(sampled.index, {"obs": 5}) is True


def test_a_record_leaves_after_max_use_samples():
    buffer = DequeBuffer(10)
    buffer.use(use_time_check(buffer, max_use=2))
    for i in range(10):
        buffer.push(i)
    uses = dict.fromkeys(range(10), 0)
    for _ in range(2):
        for record in buffer.sample(10):
            uses[record.data] += 1
            assert record.meta["use_count"] == uses[record.data]
    assert set(uses.values()) == {2} and buffer.count() == 0
    with pytest.raises(ValueError, match="There are less than"):
        buffer.sample(1)


def test_use_counts_work_on_groups_and_begin_anew_with_each_record():
    buffer = DequeBuffer(2)
    buffer.use(use_time_check(buffer, max_use=50))
    for i in range(30):
        buffer.push(i, {"g": 0})
        counts = [record.meta["use_count"] for record in buffer.sample(1, groupby="g")[0]]
        assert counts == ([2, 1] if i else [1])


def test_records_older_than_max_staleness_leave_before_the_sample():
    buffer = DequeBuffer(20)
    buffer.use(staleness_check(buffer, max_staleness=10))
    for i in range(20):
        buffer.push({"n": i}, meta={"train_iter_data_collected": i})
    records = buffer.sample(18, size=10)
    assert buffer.count() == 12 and buffer[0].meta["staleness"] == 10
    assert all(record.meta["staleness"] <= 10 for record in records)
    assert len(buffer.sample(train_iter_sample_data=18, size=5)) == 5


def test_staleness_needs_to_know_both_iterations():
    buffer = DequeBuffer(2)
    buffer.use(staleness_check(buffer))
    for arguments in ((1,), (1, {"train_iter_data_collected": 0})):
        with pytest.raises(AssertionError):
            buffer.push(*arguments)
    with pytest.raises(AssertionError):
        buffer.push(1, meta={})
    with pytest.raises(TypeError):
        buffer.sample(size=1)


@pytest.mark.parametrize(
    "bounds, expected", [((2, 4), {2, 3}), ((-3, None), {7, 8, 9}), ((None, 2), {0, 1}), ((-4, -2), {6, 7})]
)
def test_a_range_view_samples_within_its_bounds(bounds, expected):
    buffer = DequeBuffer(10)
    for i in range(10):
        buffer.push(i)
    view = buffer.view().use(sample_range_view(buffer, *bounds))
    assert {record.data for _ in range(40) for record in view.sample(2)} == expected
    assert len(view.sample(5, replace=True)) == 5 and view.push(10).data == 10
    with pytest.raises(ValueError):
        view.sample(size=5)


def groups_buffer(*middleware) -> DequeBuffer:
    buffer = DequeBuffer(20)
    for name, length in {"a": 5, "b": 2}.items():
        for i in range(length):
            buffer.push((name, i), {"g": name})
    for layer in middleware:
        buffer.use(layer)
    return buffer


def test_group_sample_takes_consecutive_records():
    buffer = groups_buffer(group_sample(3))
    seen = set()
    for _ in range(60):
        for group in buffer.sample(2, groupby="g"):
            name, first = group[0].data
            assert values(group) == [(name, first + i) for i in range(3 if name == "a" else 2)]
            seen.add((name, first))
    assert seen == {("a", 0), ("a", 1), ("a", 2), ("b", 0)}


def test_group_sample_may_cut_windows_or_shuffle():
    cut = groups_buffer(group_sample(3, max_use_in_group=False))
    lengths = {len(group) for _ in range(60) for group in cut.sample(2, groupby="g")}
    assert lengths == {1, 2, 3}
    shuffled = groups_buffer(group_sample(3, ordered_in_group=False))
    for _ in range(10):
        assert sorted(len(set(values(group))) for group in shuffled.sample(2, groupby="g")) == [2, 3]


def test_group_sample_needs_groups():
    buffer = groups_buffer(group_sample(3))
    with pytest.raises(Exception, match="groupby"):
        buffer.sample(2)
    assert buffer.push(0, {"g": "a"}).data == 0


def test_padding_makes_groups_equally_long():
    none = sorted(groups_buffer(padding("none")).sample(2, groupby="g"), key=lambda group: group[0].data)
    assert [len(group) for group in none] == [5, 5]
    assert none[1][2:] == [BufferedData(None, None, None)] * 3
    random = sorted(groups_buffer(padding()).sample(2, groupby="g"), key=lambda group: group[0].data)
    assert set(values(random[1])) == {("b", 0), ("b", 1)} and len(random[1]) == 5
    assert len(groups_buffer(padding()).sample(3)) == 3
    both = groups_buffer(padding("none"), group_sample(3)).sample(2, groupby="g")
    assert [len(group) for group in both] == [3, 3]
    with pytest.raises(ValueError, match="policy = 'zero'"):
        padding("zero")


# ---- priorities


def test_priority_is_taken_from_meta_or_data_or_is_the_largest():
    buffer, per = per_buffer(4)
    data = {"n": 0, "priority": 5.0}
    buffer.push(data)
    buffer.push({"n": 1}, {"priority": 2.0})
    buffer.push({"n": 2})
    assert [r.meta["priority"] for r in buffer] == [5.0, 2.0, 1.0] and [r.meta["priority_idx"] for r in buffer] == [
        0,
        1,
        2,
    ]
    assert data == {"n": 0, "priority": 5.0} and buffer[0].data == {"n": 0}
    assert len(per.buffer_idx) == 3


def test_draws_follow_priority_and_carry_importance_weights():
    buffer, per = per_buffer(
        4, priority_power_factor=1.0, IS_weight_power_factor=0.5, IS_weight_anneal_train_iter=10**9
    )
    for priority in (1.0, 3.0):
        buffer.push({"priority": priority}, None)
    records = [record for _ in range(200) for record in buffer.sample(4)]
    share = np.mean([record.meta["priority"] == 3.0 for record in records])
    assert share == pytest.approx(0.75, abs=0.01)
    for record in records:
        weight = record.meta["priority_IS"]
        assert weight.dtype == torch.float32 and weight.shape == (1,) and record.data["priority_IS"] is weight
        assert weight.item() == pytest.approx((1 / record.meta["priority"]) ** 0.5, rel=1e-5)
    assert "priority_IS" not in buffer[0].data and "priority_IS" not in buffer[0].meta


def test_without_importance_weights_stored_records_are_handed_out():
    buffer, _ = per_buffer(4, 2, IS_weight=False)
    records = buffer.sample(2)
    assert [record is buffer[i] for i, record in enumerate(records)] == [True, True]
    buffer.delete(records[0].index)
    assert buffer.count() == 1


@pytest.mark.guarantees("data")
def test_importance_weights_are_those_of_the_draw_also_of_records_that_leave_with_it():
    buffer = DequeBuffer(4)
    buffer.use(PriorityExperienceReplay(buffer, IS_weight=True)).use(use_time_check(buffer, max_use=1))
    for i in range(4):
        buffer.push({"obs": i}, meta={"priority": i + 1.0})
    sampled = buffer.sample(4)
    assert buffer.count() == 4 - len({record.index for record in sampled})
    weights = {record.data["obs"]: record.data["priority_IS"].item() for record in sampled}
    assert weights == pytest.approx({i: (i + 1.0) ** (-0.6 * 0.4) for i in weights})


def test_update_changes_the_priority_and_keeps_the_slot():
    buffer, per = per_buffer(4, 3)
    record = buffer[1]
    assert buffer.update(record.index, {"n": 10}, {"priority": 4.0, "mark": 1}) is None
    assert buffer[1].data == {"n": 10} and buffer[1].meta == {"priority": 4.0, "mark": 1, "priority_idx": 1}
    assert per.max_priority == 4.0 + 1e-5
    assert np.mean([r.data["n"] == 10 for _ in range(50) for r in buffer.sample(4)]) > 0.45
    buffer.update("unknown", None, {"priority": 50.0})
    assert per.max_priority == 4.0 + 1e-5


def test_wrong_updates_and_samples_are_refused():
    buffer, _ = per_buffer(4, 2)
    index = buffer[0].index
    for meta in ({"priority": -1.0}, {"priority": float("nan")}, {}, None):
        with pytest.raises(AssertionError):
            buffer.update(index, None, meta)
    with pytest.raises(TypeError):
        buffer.update(index, {"n": 3})
    with pytest.raises(TypeError):
        buffer.sample(indices=[index])
    with pytest.raises(AssertionError):
        per_buffer(2)[0].sample(1)


@pytest.mark.differs(
    "mixes up priorities of the deque buffer after a delete, which fails without importance weights",
    "keeps each with its record",
)
def test_delete_frees_slots_and_eviction_reuses_the_right_one():
    buffer, per = per_buffer(4, 4)
    buffer.delete([buffer[1].index, buffer[2].index, "unknown"])
    assert len(per.buffer_idx) == 2
    for i in range(4, 9):
        buffer.push({"n": i, "priority": float(i)})
        assert {per.buffer_idx[r.meta["priority_idx"]] for r in buffer} == {r.index for r in buffer}
        assert len(per.buffer_idx) == buffer.count()
    drawn = {record.data["n"] for _ in range(100) for record in buffer.sample(2)}
    assert drawn == {5, 6, 7, 8}


def test_priorities_survive_save_and_load(tmp_path):
    buffer, per = per_buffer(4)
    for priority in (1e-3, 9.0, 1e-3):
        buffer.push({"priority": priority})
    buffer.save_data(str(tmp_path / "data"))
    other, _ = per_buffer(8, 2)
    other.load_data(str(tmp_path / "data"))
    drawn = [record.meta["priority"] for _ in range(20) for record in other.sample(3)]
    assert np.mean([p == 9.0 for p in drawn]) > 0.9
    other.push({"n": 1})
    other.push({"n": 2})
    assert other.count() == other.size == 4


def test_a_state_restores_beta_priorities_and_draws():
    buffer, per = per_buffer(4, 4, IS_weight_anneal_train_iter=10)
    buffer.update(buffer[1].index, None, {"priority": 6.0})
    buffer.sample(2)
    other = DequeBuffer(4)
    restored = PriorityExperienceReplay(other, IS_weight_anneal_train_iter=10)
    other.use(restored)
    other.load_state_dict(buffer.state_dict())
    restored.load_state_dict(per.state_dict())
    assert (restored.beta, restored.max_priority) == (per.beta, per.max_priority) == (0.46, 6.0 + 1e-5)
    assert [r.index for r in other.sample(4)] == [r.index for r in buffer.sample(4)]
