"""The column store against a list of dicts, and what it stores once, maps to files or cannot store in columns."""

from __future__ import annotations

import copy
import logging
import pickle
import shutil
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
import torch
from easydict import EasyDict
from hypothesis import given, settings
from hypothesis import strategies as st

from ding.data.column_store import ColumnStore
from ding.utils.data.samples import Column, Kind, Samples, Table, rows_of
from ding.utils.msgpack_helper import pack, unpack
from ding.worker.replay_buffer import AdvancedReplayBuffer, NaiveReplayBuffer, create_buffer
from tests.worker.replay_buffer.conftest import FakeTb

LOGGER = logging.getLogger("ding")


def store_of(size: int, **more) -> ColumnStore:
    return ColumnStore(size, LOGGER, **more)


def nested_obs(n: int) -> dict:
    return {"image": torch.full((2, 3), n % 250, dtype=torch.uint8), "vector": (np.full(2, float(n)), n)}


def fragment(first: int, length: int, nested: bool = False, shares: bool = True) -> list[dict]:
    """`length` transitions in a row, whose observations tell their number."""
    make = nested_obs if nested else lambda n: torch.tensor([float(n), -float(n)])
    obs = [make(n) for n in range(first, first + length + 1)]
    return [
        {
            "obs": obs[i],
            "next_obs": obs[i + 1] if shares else make(first + i + 1),
            "action": torch.tensor([n % 3]),
            "reward": np.float32(n / 2),
            "done": i == length - 1,
            "collect_iter": n,
            "name": f"n{n}",
        }
        for i, n in enumerate(range(first, first + length))
    ]


def as_samples(items: list[dict]) -> list[dict]:
    table = Table.of(items)
    return items if table is None else Samples(table)


def shown(items) -> list:
    """The items with their types, dtypes and all numbers, so that two lists can be compared."""
    return [exact(item) for item in items]


def exact(item):
    if isinstance(item, dict):
        return dict, [(key, exact(value)) for key, value in item.items()]
    if isinstance(item, list | tuple):
        return type(item), [exact(value) for value in item]
    if isinstance(item, torch.Tensor | np.ndarray | np.generic):
        return type(item), item.dtype, tuple(item.shape), np.asarray(item).tobytes()
    return type(item), item


class Twin:
    """Slots as a list of dicts."""

    def __init__(self, size: int) -> None:
        self.size, self.slots, self.tail = size, [None] * size, 0

    def put(self, items: list[dict]) -> None:
        for item in copy.deepcopy(items):
            self.slots[self.tail] = item
            self.tail = (self.tail + 1) % self.size


def assert_alike(store: ColumnStore, twin: Twin) -> None:
    held = [slot for slot, item in enumerate(twin.slots) if item is not None]
    assert np.flatnonzero(store.held).tolist() == held
    assert shown(rows_of(store.read(np.array(held, np.int64)))) == shown(twin.slots[slot] for slot in held)


operations = st.lists(
    st.tuples(
        st.sampled_from(
            ["fragment", "apart", "samples", "shuffled", "other", "odd", "remove", "reset", "state", "packed state"]
        ),
        st.integers(1, 9),
        st.randoms(use_true_random=False),
    ),
    max_size=14,
)


@settings(max_examples=120)
@given(st.integers(1, 20), operations, st.booleans(), st.booleans())
def test_any_series_of_operations_leaves_the_items_of_the_twin(size, series, nested, frames):
    store, twin, number = store_of(size, share_frames=frames), Twin(size), 0
    for name, count, random in series:
        if name in ("fragment", "apart", "samples", "shuffled", "other"):
            items = fragment(number, min(count, size), nested, shares=name != "apart")
            number += count
            if name == "other":
                for item in items:
                    item["reward"], item["action"] = number, torch.zeros(random.randint(1, 2))
            pushed = as_samples(items) if name in ("samples", "shuffled") else items
            if name == "shuffled":
                order = random.sample(range(len(items)), len(items))
                pushed, items = Samples(pushed.table.take(np.array(order))), [items[i] for i in order]
            store.put(pushed)
            twin.put(items)
        elif name == "odd":
            items = [random.choice([{"n": number}, {**fragment(number, 1)[0], "more": 1}, number, "text"])] * min(
                2, size
            )
            number += 1
            store.put(items)
            twin.put(items)
        elif name == "remove":
            held = [slot for slot, item in enumerate(twin.slots) if item is not None]
            gone = random.sample(held, min(count, len(held)))
            store.remove(np.array(gone, np.int64))
            for slot in gone:
                twin.slots[slot] = None
        elif name == "reset":
            store.reset()
            twin = Twin(size)
        else:
            state = store.snapshot(is_copied=True) if name == "state" else unpack(pack(store.snapshot(is_copied=False)))
            other = store_of(size, share_frames=frames)
            other.put(fragment(500, min(size, 3), nested))
            other.load(state)
            store = other
        assert_alike(store, twin)


# ---- what is stored once


@pytest.mark.differs("`next_obs` and the next item's `obs` are two arrays", "stored once")
def test_observations_of_neighbours_are_stored_once():
    store, apart = store_of(1000), store_of(1000)
    for first in range(0, 5000, 50):
        store.put(fragment(first, 50))
        apart.put(fragment(first, 50, shares=False))
    assert_numbers(store, 4000)
    assert_numbers(apart, 4000)
    assert store.nbytes < apart.nbytes - 1000 * 8 * 0.85 + 8 * 1000  # numbers of rows come instead


def assert_numbers(store: ColumnStore, first: int) -> None:
    items = rows_of(store.read(store.occupied()))
    assert [item["obs"][0].item() for item in items] == list(range(first, first + len(items)))
    assert [item["next_obs"][0].item() for item in items] == list(range(first + 1, first + len(items) + 1))


def test_items_are_written_to_slots_in_any_order():
    store, slots = store_of(8), np.array([2, 4, 3, 5])
    store.write(slots, fragment(0, 4))
    assert [item["name"] for item in rows_of(store.read(slots))] == ["n0", "n1", "n2", "n3"]


def test_more_rows_than_the_first_push_had_find_room():
    store, twin = store_of(60), Twin(60)
    for first, length in [(0, 30), *((100 + 10 * i, 1) for i in range(70)), (1000, 7), (2000, 60)]:
        items = fragment(first, length, shares=length > 1)
        store.put(items)
        twin.put(items)
        assert_alike(store, twin)


def stacked(first: int, length: int, channels: int = 4, size: int = 32) -> list[dict]:
    """Transitions of one episode whose observations are the last `channels` frames; it begins with equal ones."""
    rng = np.random.default_rng(first)
    frames = rng.integers(0, 256, (length + 1, size, size), dtype=np.uint8)
    frames = np.concatenate([np.repeat(frames[:1], channels - 1, axis=0), frames])
    obs = [torch.from_numpy(frames[i : i + channels].copy()) for i in range(length + 1)]
    return [{"obs": obs[i], "next_obs": obs[i + 1], "done": i == length - 1} for i in range(length)]


@pytest.mark.differs("frames of stacked images are stored as often as they are stacked", "once, with `share_frames`")
def test_frames_that_observations_share_are_stored_once_and_come_back_as_they_were():
    store, whole, twin = store_of(200, share_frames=True), store_of(200), Twin(200)
    for first in range(12):
        items = stacked(first, 40)
        for each in (store, whole):
            each.put(items)
        twin.put(items)
        assert_alike(store, twin)
    frame = 32 * 32
    assert store.nbytes < 1.3 * 200 * frame and whole.nbytes > 4 * 200 * frame


def test_short_fragments_share_the_frames_that_they_begin_with():
    store, twin = store_of(200, share_frames=True), Twin(200)
    envs = [stacked(first, 240) for first in (0, 1000)]
    for start in range(0, 240, 8):
        items = [item for env in envs for item in env[start : start + 8]]
        store.put(items)
        twin.put(items)
    assert_alike(store, twin)
    assert store.nbytes < 1.2 * 200 * 32 * 32


@pytest.mark.parametrize("nstep", [1, 3])
@pytest.mark.parametrize("has_rows", [False, True])
def test_frames_are_shared_by_steps_that_come_round_by_round(has_rows, nstep):
    store, twin, envs = store_of(400, share_frames=True), Twin(400), [stacked(first, 250) for first in (0, 1000, 2000)]
    for start in range(0, 240, 8):
        rounds = range(start, start + 8)
        items = [{**env[t], "next_obs": env[t + nstep - 1]["next_obs"]} for t in rounds for env in envs]
        samples = as_samples(items)
        if has_rows:
            data = np.stack([env[t]["obs"].numpy() for t in range(start, start + 8 + nstep) for env in envs])
            numbers = np.arange(len(items))
            obs, next_obs = (Column(Kind.TENSOR, data, numbers + shift) for shift in (0, nstep * len(envs)))
            samples = samples.table.with_columns(obs=obs, next_obs=next_obs)
        store.put(samples if has_rows else items)
        twin.put(items)
    assert_alike(store, twin)
    assert store.nbytes < 1.2 * 400 * 32 * 32


def test_rows_that_are_kept_longer_than_others_move_within_the_array():
    store, twin = store_of(200, share_frames=True), Twin(200)
    for first in range(0, 4000, 10):
        items = stacked(first, 10)
        store.put(items)
        twin.put(items)
        if first == 1000:
            data = store.columns["obs"].data
        if first % 30 == 0:  # one that stays, in front of many that go
            gone = np.flatnonzero(store.held)[5:-40]
            store.remove(gone)
            for slot in gone.tolist():
                twin.slots[slot] = None
    assert_alike(store, twin)
    assert store.columns["obs"].data is data


def test_a_frame_that_comes_up_again_and_again_keeps_no_old_frames():
    store, twin = store_of(100, share_frames=True), Twin(100)
    black = torch.zeros(4, 32, 32, dtype=torch.uint8)
    for first in range(0, 600, 10):
        items = stacked(first, 10)
        items[0] = {**items[0], "obs": black}
        store.put(items)
        twin.put(items)
    assert_alike(store, twin)
    assert store.nbytes < 2 * 100 * 32 * 32


@pytest.mark.parametrize("make", [np.asarray, torch.from_numpy], ids=["array", "tensor"])
def test_frames_that_do_not_overlap_are_all_stored(make):
    rng, store, twin = np.random.default_rng(0), store_of(30, share_frames=True), Twin(30)
    for _ in range(5):
        images = [make(rng.integers(0, 2, (3, 2, 2), dtype=np.uint8)) for _ in range(11)]
        items = [{"obs": images[i], "next_obs": images[i + 1]} for i in range(10)]
        store.put(items)
        twin.put(items)
        assert_alike(store, twin)


def test_frames_are_shared_by_a_buffer_that_is_told_to():
    cfg = {"replay_buffer_size": 100, "share_frames": True}
    with NaiveReplayBuffer(cfg, FakeTb(), "exp") as buffer, NaiveReplayBuffer(cfg, FakeTb(), "exp", "other") as other:
        buffer.push(stacked(0, 150), 0)
        other.load_state_dict(unpack(pack(buffer.state_dict())))
        for each in (buffer, other):
            assert shown(each._data) == shown(buffer._data)
            assert each._store.nbytes < 1.3 * 100 * 32 * 32


@pytest.mark.parametrize("pushed", [150, 260])
def test_a_state_of_frames_is_loaded_without_expanding_them_and_stays_as_small(pushed, monkeypatch):
    monkeypatch.setattr("ding.data.column_store._LOADED_AT_ONCE", 4)
    store, other, twin = store_of(200, share_frames=True), store_of(200, share_frames=True), Twin(200)
    for first in range(0, 10 * pushed, 10 * 10):
        items = stacked(first, 10, size=64)
        store.put(items)
        twin.put(items)
    state = store.snapshot(is_copied=False)
    tracemalloc.start()
    other.load(state)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1.8 * store.nbytes
    for first in range(5000, 9000, 10):
        items = stacked(first, 10, size=64)
        for each in (store, other):
            each.put(items)
        twin.put(items)
    assert_alike(other, twin)
    assert other.nbytes < 1.1 * store.nbytes


def test_a_state_of_an_earlier_version_is_refused_and_changes_nothing():
    store = store_of(4)
    store.put([{"n": 1}])
    old = {"size": 4, "slots": np.arange(1), "columns": {"keys": ["n"], "nodes": []}, "arrays": []}
    with pytest.raises(ValueError, match="earlier version"):
        store.load(old)
    assert list(rows_of(store.read(store.occupied()))) == [{"n": 1}]


def test_observations_are_still_shared_after_items_are_discarded():
    with NaiveReplayBuffer({"replay_buffer_size": 1000}, FakeTb(), "exp") as buffer:
        for first in range(0, 1000, 50):
            buffer.push(fragment(first, 50), 0)
        buffer.discard(lambda item: item["collect_iter"] < 10)
        assert_numbers(buffer._store, 10)
        columns = buffer._store.columns
        assert columns["obs"].data is columns["next_obs"].data


# ---- files


@pytest.mark.differs("a buffer is as large as the memory", "`storage: memmap` maps its columns to files")
@pytest.mark.parametrize("name", ["naive", "advanced", "sequence"])
def test_columns_that_are_mapped_to_files_hold_what_columns_in_memory_hold(name, tmp_path):
    folder = tmp_path / "columns"
    cfg = {"type": name, "replay_buffer_size": 50}
    mapped = create_buffer({**cfg, "storage": "memmap", "storage_path": str(folder)}, exp_name="exp")
    plain = create_buffer(cfg, exp_name="exp")
    for first in range(0, 120, 8):
        for buffer in (mapped, plain):
            buffer.push(fragment(first, 8), 0)
    assert shown(mapped._data) == shown(plain._data)
    assert list(folder.iterdir())
    mapped.load_state_dict(plain.state_dict())
    assert shown(mapped._data) == shown(plain._data)
    sampled = mapped.sample(2, 4, 0) if name == "sequence" else mapped.sample(8, 0)
    before = shown(sampled)
    mapped.close()
    assert list(folder.iterdir()) == [] and shown(sampled) == before
    plain.close()


def test_two_buffers_may_map_their_columns_to_one_folder(tmp_path):
    cfg = {"replay_buffer_size": 20, "storage": "memmap", "storage_path": str(tmp_path)}
    one, other = (NaiveReplayBuffer(cfg, FakeTb(), "exp", name) for name in ("one", "other"))
    one.push(fragment(0, 20), 0)
    other.push(fragment(100, 20), 0)
    one.close()
    assert_numbers(other._store, 100)
    other.close()
    assert list(tmp_path.glob("*.column")) == []


def test_without_a_folder_the_files_lie_beside_the_log():
    with NaiveReplayBuffer({"replay_buffer_size": 4, "storage": "memmap"}, FakeTb(), "exp", "big") as buffer:
        buffer.push(fragment(0, 2), 0)
        assert list(Path("exp/log/big/columns").glob("*.column"))
        buffer.clear()
        assert not list(Path("exp/log/big/columns").glob("*.column"))
        buffer.push(fragment(5, 2), 0)
        assert_numbers(buffer._store, 5)


# ---- what does not fit


def warnings_of(caplog) -> list[str]:
    return [record.message for record in caplog.records if record.levelno == logging.WARNING]


@pytest.mark.differs(
    "items are stored as they come",
    "in typed columns that the first push decides; an item or value that does not fit is stored as an object, with "
    "one warning",
)
@pytest.mark.parametrize(
    ("key", "value", "expected", "got"),
    [
        ("reward", 3, "numpy scalar float32", "int int64"),
        ("action", torch.zeros(2), "tensor int64 of shape [1]", "tensor float32 of shape [2]"),
        ("obs", torch.zeros(3), "tensor float32 of shape [2]", "tensor float32 of shape [3]"),
        ("done", None, "bool", "an object"),
        ("obs", {"image": 1}, "tensor float32 of shape [2]", "a dict of ['image']"),
    ],
)
def test_a_value_that_does_not_fit_makes_objects_of_its_column_with_one_warning(caplog, key, value, expected, got):
    store, twin = store_of(6), Twin(6)
    for items in (fragment(0, 4), [{**item, key: value} for item in fragment(4, 1)]):
        store.put(items)
        twin.put(items)
    (warning,) = warnings_of(caplog)
    assert repr(key) in warning and expected in warning and got in warning
    for items in (fragment(5, 3), [{**item, key: value} for item in fragment(8, 2)]):
        store.put(items)
        twin.put(items)
    assert_alike(store, twin)
    assert len(warnings_of(caplog)) == 1 and store.columns is not None


@pytest.mark.parametrize("other", [{"n": 1, "more": 2}, {"m": 1}, 7, "text", [{"n": 1}]])
def test_an_item_that_differs_is_stored_as_an_object_with_one_warning(caplog, other):
    store, items = store_of(6), [{"n": 0}, {"n": 1}, other, {"n": 2}, other]
    for item in items:
        store.put([item])
    assert list(rows_of(store.read(store.occupied()))) == items
    (warning,) = warnings_of(caplog)
    assert "expected ['n']" in warning
    assert isinstance(store.read(np.array([3, 0])), Table) and isinstance(store.read(np.array([3, 2])), list)
    loaded = store_of(6)
    loaded.load(unpack(pack(store.snapshot(is_copied=True))))
    for each in (store, loaded):
        each.put([{"n": 3}] * 4)
        assert list(rows_of(each.read(each.occupied()))) == [{"n": 2}, other, *[{"n": 3}] * 4]


def test_items_of_other_types_are_no_surprise_where_there_are_no_others(caplog):
    store = store_of(3)
    store.put([1, "a"])
    store.put([[2]])
    assert list(rows_of(store.read(store.occupied()))) == [1, "a", [2]] and warnings_of(caplog) == []
    store, item = store_of(3), EasyDict(n=1)
    store.put([item])
    for own in (item, rows_of(store.read(np.array([0])))[0]):
        own.n = 2
    assert rows_of(store.read(np.array([0]))) == [EasyDict(n=1)]  # a copy, as of any dict


@pytest.mark.parametrize("told_first", [True, False])
def test_end_flags_that_some_items_lack_are_filled_in(caplog, told_first):
    told = [{"done": True, "terminated": False, "truncated": True}]
    untold = [{"done": True}, {"done": False}]
    store = store_of(8)
    for items in (told, untold) if told_first else (untold, told):
        store.put(items)
    store.put(told + untold)
    seen = [(item["terminated"], item["truncated"]) for item in rows_of(store.read(store.occupied()))]
    filled = [(True, False), (False, False)]
    assert seen == ([(False, True), *filled] if told_first else [*filled, (False, True)]) + [(False, True), *filled]
    assert store.columns is not None and warnings_of(caplog) == []


# ---- whose memory it is


@pytest.mark.differs(
    "pushed and sampled items are the stored objects themselves",
    "who pushed or sampled an item that is a dict changes a copy",
)
@pytest.mark.parametrize("value", [torch.zeros(2), np.zeros(2), [1, 2], {"x": torch.zeros(1)}], ids=repr)
@pytest.mark.parametrize("ragged", [False, True])
def test_who_pushed_an_item_and_who_sampled_it_change_theirs_alone(value, ragged):
    def change(item: dict) -> None:
        item["new"] = 1
        if isinstance(item["x"], list):
            item["x"].append(5)
        elif isinstance(item["x"], dict):
            item["x"]["x"] += 1
        else:
            item["x"] += 1

    with NaiveReplayBuffer({"replay_buffer_size": 4}, FakeTb(), "exp") as buffer:
        items = [{"x": copy.deepcopy(value)}, {"x": [0] if ragged else copy.deepcopy(value)}]
        before = shown(items)
        buffer.push(items, 0)
        change(items[0])
        for item in buffer.sample(2, 0):
            change(item)
        for item in buffer.sample(4, 0, replace=True):
            change(item)
        assert shown(buffer._data[:2]) == before


def test_a_sampled_item_holds_and_pickles_to_its_own_bytes():
    obs = np.zeros((1000, 500), np.float32)
    columns = {"obs": Column(Kind.TENSOR, obs), "done": Column(Kind.BOOL, np.zeros(1000, np.bool_))}
    for cls in (NaiveReplayBuffer, AdvancedReplayBuffer):
        with cls({"replay_buffer_size": 2000}, FakeTb(), "exp") as buffer:
            buffer.push(Samples(Table(columns)), 0)
            batch = buffer.sample(64, 0)
            assert len(pickle.dumps(batch)) < 64 * (1.5 * 2000 + 8192)
            item = buffer.sample(64, 0)[5]
            assert item["obs"].untyped_storage().nbytes() == 2000 and len(pickle.dumps(item)) < 1.5 * 2000 + 8192


def test_samples_that_were_drawn_stay_as_they_were_while_the_buffer_goes_on():
    with NaiveReplayBuffer({"replay_buffer_size": 8}, FakeTb(), "exp") as buffer:
        buffer.push(fragment(0, 8), 0)
        batch = buffer.sample(8, 0)
        buffer.push(fragment(100, 8), 0)
        assert sorted(item["obs"][0].item() for item in batch) == list(range(8))


@pytest.mark.parametrize("shape", [(0,), (3, 0)])
def test_observations_without_content_may_come_apart_after_they_came_in_rows(shape):
    store = store_of(4)
    chain = [torch.zeros(shape) for _ in range(3)]
    store.put([{"obs": chain[i], "next_obs": chain[i + 1], "n": i} for i in range(2)])
    store.put([{"obs": torch.zeros(shape), "next_obs": torch.zeros(shape), "n": 2}])
    items = list(rows_of(store.read(np.arange(3))))
    shown = [(item["n"], item["obs"].shape, item["next_obs"].shape) for item in items]
    assert shown == [(i, shape, shape) for i in range(3)]


def test_a_folder_that_somebody_has_deleted_does_not_keep_a_buffer_from_clearing_and_closing(tmp_path):
    folder = tmp_path / "columns"
    store = store_of(4, folder=str(folder))
    store.put(fragment(0, 2))
    shutil.rmtree(folder)
    store.reset()
    store.put(fragment(7, 2))
    assert [item["collect_iter"] for item in rows_of(store.read(store.occupied()))] == [7, 8]
    shutil.rmtree(folder)
    store.reset()
    assert not folder.exists()


def test_what_the_owner_keeps_stays_when_columns_come_become_objects_and_go():
    store = store_of(4, fields=[("use", np.int64), ("weight", np.float64)])
    store.records["use"][:] = [5, 6, 7, 8]
    store.put([{"obs": np.ones(2), "reward": 0.5}, {"obs": np.zeros(2), "reward": 1.5}])
    store.records["weight"][1] = 0.25
    columns, records = store.gather_with_fields(np.array([1, 0, 1]))
    assert columns["reward"].data.tolist() == [1.5, 0.5, 1.5]
    assert records["use"].tolist() == [6, 5, 6] and records["weight"].tolist() == [0.25, 0.0, 0.25]
    store.put([{"other": 1}])
    columns, records = store.gather_with_fields(np.array([1, 2]))
    assert columns is None and records["use"].tolist() == [6, 7] and records["weight"].tolist() == [0.25, 0.0]
    store.reset()
    assert store.records["use"].tolist() == [5, 6, 7, 8] and store.records["weight"].tolist() == [0.0, 0.25, 0.0, 0.0]


def test_keys_that_begin_with_one_column_may_differ_later():
    store, same = store_of(4), Column(Kind.INT, np.array([1, 2]))
    store.put(Samples(Table({"one": same, "name": Column(Kind.OBJECT, ["a", "b"]), "other": same})))
    store.put([{"one": 5, "name": "c", "other": 6}])
    assert list(rows_of(store.read(np.array([1, 2])))) == [
        {"one": 2, "name": "b", "other": 2},
        {"one": 5, "name": "c", "other": 6},
    ]
