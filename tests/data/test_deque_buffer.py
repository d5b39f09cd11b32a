"""The deque buffer: order, ids, groups, views, files."""

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

from ding.data.buffer import Buffer, BufferedData, DequeBuffer, apply_middleware


def filled(size: int, count: int, **kwargs) -> DequeBuffer:
    buffer = DequeBuffer(size, **kwargs)
    for i in range(count):
        buffer.push(i)
    return buffer


def values(records) -> list:
    return [record.data for record in records]


def grouped(lengths: dict, **kwargs) -> DequeBuffer:
    buffer = DequeBuffer(100, **kwargs)
    for name, length in lengths.items():
        for i in range(length):
            buffer.push((name, i), {"group": name})
    return buffer


def test_the_oldest_record_leaves_a_full_buffer():
    buffer = filled(4, 6)
    assert values(buffer) == [2, 3, 4, 5]
    assert (buffer.count(), len(buffer), buffer[0].data, buffer.get(-1).data) == (4, 4, 2, 5)
    with pytest.raises(IndexError):
        buffer[4]


def test_a_buffer_needs_room():
    with pytest.raises(ValueError, match="size = 0"):
        DequeBuffer(0)


def test_sampling_draws_distinct_stored_records():
    buffer = filled(10, 13)
    records = buffer.sample(10)
    assert sorted(values(records)) == list(range(3, 13))
    assert all(record is buffer.get_by_index(record.index) for record in records)
    assert all(isinstance(record, BufferedData) and isinstance(record.index, str) for record in records)


def test_repeated_records_are_copies_that_share_no_tensor():
    buffer = DequeBuffer(1)
    buffer.push({"obs": torch.zeros(1)}, {"note": [1]})
    first, second = buffer.sample(2, replace=True)
    assert first is buffer[0] and second == BufferedData({"obs": torch.zeros(1)}, first.index, {"note": [1]})
    second.data["obs"] += 1
    assert first.data["obs"].item() == 0


def test_records_are_fetched_by_id_in_the_given_order():
    buffer = filled(5, 7)
    ids = [record.index for record in reversed(list(buffer))]
    assert values(buffer.sample(indices=ids)) == [6, 5, 4, 3, 2]
    assert values(buffer.sample(2, indices=ids[:2])) == [6, 5]
    for unknown in ("f" * 32, "short", "", 7):
        with pytest.raises(KeyError):
            buffer.sample(indices=[unknown])


@pytest.mark.parametrize(
    "kwargs",
    [{}, {"size": 0}, {"size": 2, "indices": ["a"]}, {"indices": ["a"], "groupby": "g"}, {"size": 1, "unroll_len": 2}],
)
def test_contradicting_arguments_are_refused(kwargs):
    with pytest.raises(AssertionError):
        filled(4, 4).sample(**kwargs)


def test_too_few_records_raise_or_give_nothing(caplog):
    buffer = filled(4, 3)
    with pytest.raises(ValueError, match="^There are less than"):
        buffer.sample(4)
    assert buffer.sample(4, ignore_insufficient=True) == [] and "There are less than 4" in caplog.text
    assert len(buffer.sample(9, replace=True)) == 9
    for ignore in (False, True):
        with pytest.raises(IndexError):
            DequeBuffer(2).sample(1, replace=True, ignore_insufficient=ignore)


def test_sample_range_is_by_position_and_takes_no_negative_bound():
    buffer = filled(8, 10)
    drawn = {record.data for _ in range(30) for record in buffer.sample(2, sample_range=slice(2, 6))}
    assert drawn == {4, 5, 6, 7}
    with pytest.raises(ValueError):
        buffer.sample(1, sample_range=slice(-2, None))


def test_update_replaces_what_is_given():
    buffer = DequeBuffer(3)
    record = buffer.push("a", {"n": 1})
    assert buffer.update(record.index, "b") is True and buffer[0] == BufferedData("b", record.index, {"n": 1})
    assert buffer.update(record.index, None, {"n": 2}) is True and buffer[0] == BufferedData(
        "b", record.index, {"n": 2}
    )
    assert buffer.update("missing", "c") is False


@pytest.mark.differs(
    "loses the ids of the other records in `DequeBuffer.delete`, so that updates reach wrong records and `max_use` "
    "is exceeded",
    "finds every remaining record by its id",
)
def test_after_a_delete_all_other_ids_still_find_their_records():
    buffer = DequeBuffer(10)
    records = [buffer.push(i) for i in range(10)]
    buffer.delete([records[i].index for i in (1, 3, 5)])
    newest = buffer.push(10)
    assert values(buffer) == [0, 2, 4, 6, 7, 8, 9, 10]
    for position, record in enumerate(buffer):
        assert buffer.indices.get(record.index) == position
        assert buffer.update(record.index, record.data * 10) is True
    assert values(buffer) == [0, 20, 40, 60, 70, 80, 90, 100] and newest.data == 100
    buffer.delete(records[9].index)
    buffer.delete([records[9].index, "unknown"])
    assert values(buffer) == [0, 20, 40, 60, 70, 80, 100] and len(buffer.indices) == 7


def test_groups_hold_all_their_records_in_order():
    buffer = grouped({"a": 3, "b": 2, "c": 1})
    groups = {group[0].data[0]: values(group) for group in buffer.sample(3, groupby="group")}
    assert groups == {"a": [("a", 0), ("a", 1), ("a", 2)], "b": [("b", 0), ("b", 1)], "c": [("c", 0)]}
    assert list(buffer.meta_index["group"]) == ["a"] * 3 + ["b"] * 2 + ["c"]
    with pytest.raises(ValueError):
        buffer.sample(4, groupby="group")
    assert buffer.sample(4, groupby="group", ignore_insufficient=True) == []
    assert len(buffer.sample(4, groupby="group", replace=True)) == 4
    with pytest.raises(KeyError):
        buffer.meta_index["other"]


@pytest.mark.differs(
    "keeps deleted records in groups and views of the deque buffer, ignores `ignore_insufficient` for groups, and "
    "never draws a group's last window",
    "follows the records, and draws every window",
)
def test_groups_follow_overwriting_update_and_delete():
    buffer = DequeBuffer(4)
    records = [buffer.push(i, {"group": name}) for i, name in enumerate("aabbc")]

    def groups() -> list[list[int]]:
        found = buffer.sample(len(set(buffer.meta_index["group"])), groupby="group")
        return sorted(values(group) for group in found)

    buffer.sample(1, groupby="group")
    assert groups() == [[1], [2, 3], [4]]
    buffer.update(records[2].index, None, {"group": "c"})
    assert groups() == [[1], [2, 4], [3]]
    buffer.delete([records[1].index])
    assert groups() == [[2, 4], [3]]
    buffer.push(5, {"group": "d"})
    assert groups() == [[2, 4], [3], [5]]


def test_windows_are_consecutive_and_reach_both_ends():
    buffer = grouped({"a": 5, "b": 2})
    starts = set()
    for _ in range(60):
        window = values(buffer.sample(1, groupby="group", unroll_len=3)[0])
        starts.add(window[0])
        assert window == [("a", window[0][1] + i) for i in range(3)]
    assert starts == {("a", 0), ("a", 1), ("a", 2)}
    with pytest.raises(ValueError):
        buffer.sample(2, groupby="group", unroll_len=3)


def test_sliced_windows_start_at_multiples_and_the_last_one_ends_the_group():
    buffer = grouped({"a": 8}, sliced=True)
    view = buffer.view()
    for sampled in (buffer, view):
        starts = {sampled.sample(1, groupby="group", unroll_len=3)[0][0].data[1] for _ in range(60)}
        assert starts == {0, 3, 5}


def test_grouped_samples_take_a_range():
    buffer = grouped({"a": 3, "b": 3})
    groups = buffer.sample(2, groupby="group", sample_range=slice(2, 5))
    assert sorted(values(group) for group in groups) == [[("a", 2)], [("b", 0), ("b", 1)]]


def test_a_view_shares_records_but_not_middleware():
    buffer = filled(4, 4)
    buffer.use(lambda action, chain, *args, **kwargs: [] if action == "sample" else chain(*args, **kwargs))
    view = buffer.view()
    assert buffer.sample(2) == [] and len(view.sample(2)) == 2
    record = view.push(9)
    assert values(buffer) == [1, 2, 3, 9]
    view.delete([buffer[0].index, buffer[2].index])
    assert values(buffer) == values(view) == [2, 9]
    assert buffer.get_by_index(record.index) is record and buffer.update(record.index, 10) is True
    assert values(view) == [2, 10]


def test_middleware_wraps_in_order_of_use_and_may_cut_the_chain():
    buffer, calls = DequeBuffer(2), []

    def layer(name: str):
        def handle(action, chain, *args, **kwargs):
            calls.append((name, action))
            return None if action == "delete" else chain(*args, **kwargs)

        return handle

    assert buffer.use(layer("outer")).use(layer("inner")) is buffer
    record = buffer.push(1)
    buffer.delete(record.index)
    assert calls == [("outer", "push"), ("inner", "push"), ("outer", "delete")]
    assert buffer.count() == 1 and len(calls) == 3


def test_any_buffer_can_route_its_methods_through_middleware():
    class Doubling(DequeBuffer):
        @apply_middleware("push")
        def push(self, data, meta=None):
            return DequeBuffer.push.__wrapped__(self, 2 * data, meta)

    buffer = Doubling(2)
    buffer.use(lambda action, chain, *args, **kwargs: chain(args[0] + 1))
    assert buffer.push(1).data == 4 and isinstance(buffer, Buffer)


def test_save_and_load_keep_records_ids_groups_and_capacity(tmp_path):
    buffer, other = grouped({"a": 2, "b": 1}), DequeBuffer(2)
    buffer.push({"obs": torch.arange(2.0)}, {"group": "a", "w": np.ones(2)})
    buffer.save_data(str(tmp_path / "folder" / "data"))
    other.push("gone")
    other.load_data(str(tmp_path / "folder" / "data"))
    assert other.size == 100 and [r.index for r in other] == [r.index for r in buffer]
    assert torch.equal(other[3].data["obs"], torch.arange(2.0)) and other[3].meta["w"].tolist() == [1.0, 1.0]
    assert sorted(len(group) for group in other.sample(2, groupby="group")) == [1, 3]
    record = other.push("new")
    assert [other.indices.get(r.index) for r in other] == [0, 1, 2, 3, 4] and other[4] is record


def test_the_buffer_is_a_dataset():
    batches = list(DataLoader(filled(8, 8), batch_size=4, shuffle=True, collate_fn=values))
    assert sorted(sum(batches, [])) == list(range(8))
