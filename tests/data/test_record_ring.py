"""Records of a deque buffer whose data lies in columns until somebody looks at it."""

from __future__ import annotations

import copy
import dataclasses
import pickle
import threading
import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from easydict import EasyDict
from hypothesis import given, settings
from hypothesis import strategies as st

from ding.data.buffer import BufferedData, DequeBuffer, DequeBufferWrapper
from ding.data.buffer.middleware import clone_object
from ding.policy.common_utils import default_preprocess_learn
from ding.utils.data.samples import Samples, Table
from ding.utils.fast_copy import fastcopy
from ding.utils.msgpack_helper import pack, unpack

CONFIGS: list[dict[str, Any]] = [
    {},
    {"max_use": 2},
    {"priority": True},
    {"priority": True, "priority_IS_weight": True},
    {"priority": True, "priority_IS_weight": True, "max_use": 3},
]
every_config = pytest.mark.parametrize("cfg", CONFIGS, ids=lambda cfg: "+".join(cfg) or "uniform")


@pytest.fixture(autouse=True)
def seed() -> None:
    np.random.seed(0)


def make(**cfg: Any) -> DequeBufferWrapper:
    return DequeBufferWrapper(EasyDict({"replay_buffer_size": 8, **cfg}))


def items(start: int, count: int, **more: Any) -> list[dict[str, Any]]:
    obs = [torch.full((2,), float(n)) for n in range(start, start + count + 1)]
    return [
        {
            "n": start + i,
            "obs": obs[i],
            "next_obs": obs[i + 1],
            "reward": torch.ones(1),
            "note": f"n{start + i}",
            **more,
        }
        for i in range(count)
    ]


def columns(start: int, count: int, **more: Any) -> Samples:
    samples = Samples(Table.of(items(start, count, **more)))
    assert samples is not None
    return samples


def plain(item: Any) -> Any:
    """An item in values that can be compared."""
    if isinstance(item, dict):
        return {key: plain(value) for key, value in item.items()}
    return (str(item.dtype), item.tolist()) if isinstance(item, torch.Tensor) else item


def plain_all(batch: Any) -> Any:
    return None if batch is None else [plain(item) for item in batch]


def records_of(buffer: DequeBufferWrapper) -> list[Any]:
    return [(plain(record.data), plain(record.meta)) for record in buffer.buffer]


def is_in_columns(batch: Any) -> bool:
    return isinstance(batch, Samples) and batch.table is not None


# ---- what is handed out


@pytest.mark.differs(
    "the `deque` buffer stores the pushed dicts and hands them out",
    "samples in columns stay in columns: `sample` hands out copies of them, in columns, until a record is accessed; "
    "pushed dicts are stored as they are",
)
@every_config
def test_samples_go_through_in_columns_and_are_the_newest_items(cfg):
    buffer = make(**cfg)
    for start in range(0, 700, 7):
        buffer.push(columns(start, 7))
    assert (buffer.count(), buffer.push_count) == (8, 700)
    batch = buffer.sample(8)
    assert is_in_columns(batch)
    expected = {item["n"]: plain(item) for item in items(692, 8)}
    weights = ("IS", "priority_IS")
    for item in batch:
        assert plain({key: value for key, value in item.items() if key not in weights}) == expected[item["n"]]
        assert all((key in item) is ("priority_IS_weight" in cfg) for key in weights)


operations = st.lists(
    st.one_of(
        st.tuples(st.just("push"), st.integers(1, 12)),
        st.tuples(st.just("push with priorities"), st.integers(1, 3)),
        st.tuples(st.just("push dicts"), st.integers(1, 3)),
        st.tuples(st.just("sample"), st.integers(1, 6)),
        st.tuples(st.just("look"), st.integers(0, 7)),
        st.tuples(st.just("delete"), st.integers(0, 7)),
        st.tuples(st.just("replace"), st.integers(0, 7)),
        st.tuples(st.just("discard"), st.integers(2, 4)),
        st.tuples(st.just("reload"), st.just(0)),
        st.tuples(st.just("clear"), st.just(0)),
    ),
    max_size=25,
)


def look(buffer: DequeBufferWrapper, held: BufferedData, step: int) -> None:
    held.data["seen"] = step


def delete(buffer: DequeBufferWrapper, held: BufferedData, step: int) -> None:
    buffer.buffer.delete(held.index)


def replace(buffer: DequeBufferWrapper, held: BufferedData, step: int) -> None:
    buffer.buffer.update(held.index, {"n": -step}, {**(held.meta or {}), "priority": 2.0})


def sample(buffer: DequeBufferWrapper, number: int) -> Any:
    if not buffer.count():
        return None
    batch = plain_all(buffer.sample(number))
    buffer.update({"priority": [1.0 + n for n in range(number)]})
    return batch


def reload(buffer: DequeBufferWrapper, number: int) -> None:
    buffer.load_state_dict(unpack(pack(buffer.freeze())))


def discard(buffer: DequeBufferWrapper, number: int) -> int:
    return buffer.discard(lambda item: item["n"] % number == 0)


WITH_A_RECORD = {"look": look, "delete": delete, "replace": replace}
WITH_A_NUMBER = {"sample": sample, "discard": discard, "reload": reload, "clear": lambda buffer, _: buffer.clear()}


def do(buffer: DequeBufferWrapper, form: Callable[..., Any], step: int, operation: str, number: int) -> Any:
    if operation in WITH_A_RECORD:
        inner = buffer.buffer
        return WITH_A_RECORD[operation](buffer, inner[number], step) if number < len(inner) else None
    if operation in WITH_A_NUMBER:
        return WITH_A_NUMBER[operation](buffer, number)
    more = {"priority": float(number)} if operation == "push with priorities" else {}
    return buffer.push(items(step * 100, number) if operation == "push dicts" else form(step * 100, number, **more))


@every_config
@settings(max_examples=40)
@given(steps=operations)
def test_columns_and_dicts_give_the_same(cfg, steps):
    """Whatever is done to a buffer that is given columns, and to one that is given dicts."""
    outcomes = []
    for form in (columns, items):
        np.random.seed(0)
        buffer, dropped = make(**cfg), []
        buffer.on_dropped = lambda gone, dropped=dropped: dropped.extend(map(plain, gone))
        told = [do(buffer, form, step, *operation) for step, operation in enumerate(steps)]
        outcomes.append((told, dropped, records_of(buffer)))
    assert outcomes[0] == outcomes[1]


def test_what_was_handed_out_stays_while_rows_are_written_again():
    buffer = make()
    buffer.push(columns(0, 8))
    batch = buffer.sample(8)
    for start in range(8, 200, 8):
        buffer.push(columns(start, 8))
    assert sorted(item["n"] for item in batch) == list(range(8))
    assert all(item["obs"].tolist() == [item["n"]] * 2 for item in batch)


def test_weights_are_columns_and_the_same_in_a_batch_as_with_dicts():
    batches = []
    for form in (columns, items):
        np.random.seed(0)
        buffer = make(priority=True, priority_IS_weight=True)
        buffer.push(form(0, 8, action=torch.zeros(1), done=False))
        buffer.sample(8)
        buffer.update({"priority": np.arange(1.0, 9.0)})
        batches.append(buffer.sample(6))
    assert is_in_columns(batches[0]) and not isinstance(batches[1], Samples)
    held = batches[0].table.columns
    assert held["priority_IS"].data.shape == (6, 1) and held["priority_IS"].data.dtype == np.float32
    assert held["IS"].values().tolist() == held["priority_IS"].values()[:, 0].tolist()
    ours, theirs = (
        default_preprocess_learn(batch, use_priority_IS_weight=True, use_priority=True) for batch in batches
    )
    assert torch.equal(ours["weight"], theirs["weight"]) and torch.equal(ours["obs"], theirs["obs"])


# ---- records


def test_data_that_was_looked_at_is_the_records_own_and_changes_of_it_count():
    buffer = make()
    buffer.push(columns(0, 8))
    record = buffer.buffer[3]
    data = record.data
    assert data is record.data is buffer.buffer.get_by_index(record.index).data and data["n"] == 3
    data["n"] = 33
    batch = buffer.sample(8)
    assert sum(item is data for item in batch) == 1
    assert sorted(item["n"] for item in batch) == [0, 1, 2, 4, 5, 6, 7, 33]


def test_only_who_looks_ends_the_columns(tmp_path):
    buffer = make(max_use=9)
    buffer.push(columns(0, 8))
    buffer.save_data(str(tmp_path / "data"))
    buffer.state_dict()
    buffer.freeze()
    assert buffer.discard(lambda item: item["n"] == 5) == 1
    buffer.buffer.delete(buffer.buffer[0].index)
    assert is_in_columns(buffer.sample(6))


def test_held_records_and_their_copies_outlive_their_rows():
    buffer = make()
    buffer.push(columns(0, 8))
    record, other = buffer.buffer[0], buffer.buffer[1]
    copied = fastcopy.copy(other)
    for start in range(8, 400, 8):
        buffer.push(columns(start, 8))
    assert plain(record.data) == plain(items(0, 1)[0])
    assert plain(copied.data) == plain(other.data) == plain(items(1, 1)[0])
    copied.data["obs"] += 1
    assert other.data["obs"].tolist() == [1.0, 1.0]


def test_records_are_read_in_one_thread_while_another_pushes():
    buffer = make(replay_buffer_size=200)
    buffer.push(columns(0, 200))
    records, start = list(buffer.buffer), threading.Barrier(2)

    def push() -> None:
        start.wait(10)
        for i in range(200, 1000, 20):
            buffer.push(columns(i, 20))

    thread = threading.Thread(target=push)
    thread.start()
    start.wait(10)
    expected = [plain(item) for item in items(0, 200)]
    assert [plain(record.data) for record in records[::2]] == expected[::2]
    thread.join()
    assert [plain(record.data) for record in records] == expected


def test_a_record_that_stays_while_many_come_and_go_keeps_its_data():
    buffer = make()
    buffer.push(columns(0, 3))
    for start in range(3, 400):
        buffer.push(columns(start, 1))
        buffer.buffer.delete(buffer.buffer[1].index)
    assert [plain(item) for item in sorted(buffer.sample(3), key=lambda item: item["n"])] == [
        plain(items(n, 1)[0]) for n in (0, 398, 399)
    ]


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, lambda record: pickle.loads(pickle.dumps(record))])
def test_a_record_is_a_dataclass_and_copies_as_one(duplicate):
    buffer = make()
    buffer.push(columns(0, 2))
    record = buffer.buffer[1]
    other = duplicate(record)
    assert type(other) is BufferedData and other.index == record.index and plain(other.data) == plain(items(1, 1)[0])
    assert [field.name for field in dataclasses.fields(record)] == ["data", "index", "meta"]
    assert dataclasses.replace(record, data=1) == BufferedData(1, record.index) == BufferedData(1, record.index, None)
    assert repr(BufferedData(1, "a")) == "BufferedData(data=1, index='a', meta=None)"
    with pytest.raises(AttributeError):
        record.other = 1


def test_a_copied_buffer_holds_the_same():
    buffer = make(priority=True)
    buffer.push(columns(0, 5))
    other = copy.deepcopy(buffer.buffer)
    buffer.clear()
    buffer.push(columns(50, 8))
    assert [record.data["n"] for record in other] == [0, 1, 2, 3, 4]


def test_views_and_groups_see_the_data():
    buffer = make()
    buffer.push(columns(0, 4))
    for i, record in enumerate(buffer.buffer):
        buffer.buffer.update(record.index, meta={"half": i % 2})
    groups = buffer.buffer.view().sample(2, groupby="half")
    assert sorted([record.data["n"] for record in group] for group in groups) == [[0, 2], [1, 3]]


# ---- what users put before the records later


def looked(seen: list[Any]) -> Callable[..., Any]:
    def middleware(action: str, chain: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        if action == "push":
            seen.append(args[0])
        return chain(*args, **kwargs)

    return middleware


def test_middleware_added_later_sees_dicts():
    buffer, seen = make(priority=True), []
    buffer.push(columns(0, 2))
    buffer.buffer.use(looked(seen))
    buffer.push(columns(2, 2))
    assert [plain(item) for item in seen] == [plain(item) for item in items(2, 2)]
    assert sorted(record.data["n"] for record in buffer.buffer) == [0, 1, 2, 3]


@pytest.mark.differs(
    "a `push` or `sample` that is assigned to a `deque` buffer's `buffer` is called",
    "samples in columns pass it by; use middleware or a subclass, which get records",
)
def test_a_buffer_exchanged_later_is_given_dicts():
    class Doubling(DequeBuffer):
        def push(self, data: Any, meta: Any = None) -> BufferedData:
            return super().push({**data, "n": 2 * data["n"]}, meta)

    buffer = make()
    buffer.buffer = Doubling(8)
    buffer.push(columns(1, 2))
    assert [item["n"] for item in sorted(buffer.sample(2), key=lambda item: item["n"])] == [2, 4]


def test_middleware_that_changes_samples_is_heard():
    buffer = make()
    buffer.push(columns(0, 4))

    def add(action: str, chain: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        result = chain(*args, **kwargs)
        for record in result if action == "sample" else ():
            record.data["twice"] = 2 * record.data["n"]
        return result

    buffer.buffer.use(add)
    assert sorted((item["n"], item["twice"]) for item in buffer.sample(4)) == [(0, 0), (1, 2), (2, 4), (3, 6)]


def test_clones_of_records_in_columns_hold_their_data():
    buffer = make()
    buffer.push(columns(0, 4))
    buffer.buffer.use(clone_object())
    batch = sorted(buffer.sample(4), key=lambda item: item["n"])
    assert [plain(item) for item in batch] == [plain(item) for item in items(0, 4)]


def test_priorities_are_taken_out_of_the_columns():
    buffer = make(priority=True)
    pushed = columns(0, 3, priority=4.0)
    buffer.push(pushed)
    assert [record.meta["priority"] for record in buffer.buffer] == [4.0] * 3
    assert "priority" not in buffer.buffer[0].data and "priority" in pushed[0]


def test_middleware_added_later_is_called_at_each_sample():
    buffer, sizes = make(), []
    buffer.push(columns(0, 8))
    assert is_in_columns(buffer.sample(4))
    buffer.buffer.use(lambda action, chain, *args, **kwargs: (sizes.append(args[-1]), chain(*args, **kwargs))[1])
    assert len(buffer.sample(5)) == 5 and sizes == [5]


def test_a_capacity_that_is_changed_later_keeps_the_records_in_order():
    buffer = make()
    buffer.push(columns(0, 11))
    buffer.buffer.size = 12
    buffer.push(columns(11, 3))
    assert [plain(record.data) for record in buffer.buffer] == [plain(item) for item in items(3, 11)]
    buffer.push(columns(14, 4))
    assert [record.data["n"] for record in buffer.buffer] == list(range(6, 18))


def test_transitions_that_nobody_looks_at_take_few_bytes():
    count, data = 20_000, {"obs": torch.zeros(4), "next_obs": torch.zeros(4), "action": 0, "reward": 1.0}
    part = Samples(Table.of([data] * 100))
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    buffer = make(replay_buffer_size=count)
    for _ in range(count // 100 + 10):
        buffer.push(part)
        buffer.sample(50)
    each = (tracemalloc.get_traced_memory()[0] - before) / count
    tracemalloc.stop()
    assert buffer.count() == count and each <= 120


def test_a_record_that_stays_does_not_keep_the_observations_of_those_that_left():
    buffer = make()
    buffer.push(columns(0, 3))
    sizes = []
    for start in range(3, 2000):
        buffer.push(columns(start, 1))
        buffer.buffer.delete(buffer.buffer.storage.ids(buffer.buffer.storage.occupied()[1:2]))
        sizes.append(buffer.buffer.storage.nbytes)
    assert is_in_columns(buffer.sample(3)) and max(sizes[100:]) == sizes[100]
