"""The column store against a list of dicts, and what it stores once, maps to files or cannot store in columns."""

import copy
import logging
import tracemalloc

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ding.data.column_store import ColumnStore
from ding.utils.data.samples import Column, Kind, Samples, Table, rows_of
from ding.utils.msgpack_helper import pack, unpack
from ding.worker.replay_buffer import NaiveReplayBuffer, create_buffer
from tests.fakes import FakeWriter

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


@settings(max_examples=60)
@given(st.integers(1, 20), operations, st.booleans())
def test_any_series_of_operations_leaves_the_items_of_the_twin(size, series, nested):
    store, twin, number = store_of(size), Twin(size), 0
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
            other = store_of(size)
            other.put(fragment(500, min(size, 3), nested))
            other.load(state)
            store = other
        assert_alike(store, twin)


# ---- what is stored once


@pytest.mark.differs(
    "stores `obs` and `next_obs` as objects, each frame as often as it is stacked",
    "stores them once, in typed columns; `share_frames` stores each frame once, `storage: memmap` in files",
)
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


def stacked(first: int, length: int, channels: int = 4, size: int = 32) -> Table:
    """Transitions of one episode whose observations are the last `channels` frames, which are numbered."""
    frames = np.random.default_rng(first).integers(0, 256, (length + channels, size, size), dtype=np.uint8)
    rows, numbers = np.arange(length), np.arange(length + 1)[:, None] + np.arange(channels)
    data, names = frames[numbers], 10**4 * first + numbers
    obs, next_obs = (Column(Kind.TENSOR, data, part, False, names) for part in (rows, rows + 1))
    return Table({"obs": obs, "next_obs": next_obs, "done": Column(Kind.BOOL, rows == length - 1)})


def put(items: Table, *stores: ColumnStore | Twin) -> None:
    for store in stores:
        store.put(items.rows() if isinstance(store, Twin) else items)


def test_frames_that_observations_share_are_stored_once_and_come_back_as_they_were():
    store, whole, twin = store_of(200, share_frames=True), store_of(200), Twin(200)
    for first in range(12):
        put(stacked(first, 40), store, whole, twin)
        assert_alike(store, twin)
    frame = 32 * 32
    assert store.nbytes < 1.3 * 200 * frame and whole.nbytes > 4 * 200 * frame


@pytest.mark.parametrize("pushed", [150, 260])
def test_a_state_of_frames_is_loaded_without_expanding_them_and_stays_as_small(pushed):
    store, other, twin = store_of(200, share_frames=True), store_of(200, share_frames=True), Twin(200)
    for first in range(0, pushed, 10):
        put(stacked(first, 10, size=64), store, twin)
    state = store.snapshot(is_copied=False)
    tracemalloc.start()
    other.load(state)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1.8 * store.nbytes
    for first in range(5000, 5400):
        put(stacked(first, 10, size=64), store, other, twin)
    assert_alike(other, twin)
    assert other.nbytes < 1.1 * store.nbytes


# ---- files


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


# ---- what does not fit


def warnings_of(caplog) -> list[str]:
    return [record.message for record in caplog.records if record.levelno == logging.WARNING]


@pytest.mark.parametrize("other", [{"n": 1, "more": 2}, {"m": 1}, 7, "text", [{"n": 1}]])
def test_an_item_that_differs_is_stored_as_an_object_with_one_warning(caplog, other):
    store, items = store_of(6), [{"n": 0}, {"n": 1}, other, {"n": 2}, other]
    for item in items:
        store.put([item])
    assert list(rows_of(store.read(store.occupied()))) == items
    (warning,) = warnings_of(caplog)
    assert "same keys" in warning
    assert isinstance(store.read(np.array([3, 0])), Table) and isinstance(store.read(np.array([3, 2])), list)
    loaded = store_of(6)
    loaded.load(unpack(pack(store.snapshot(is_copied=True))))
    for each in (store, loaded):
        each.put([{"n": 3}] * 4)
        assert list(rows_of(each.read(each.occupied()))) == [{"n": 2}, other, *[{"n": 3}] * 4]


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
    "hands out the stored items themselves, and writes ids, priorities and importance weights into the dicts that "
    "were pushed",
    "copies items that are pushed and sampled",
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

    with NaiveReplayBuffer({"replay_buffer_size": 4}, FakeWriter(), "exp") as buffer:
        items = [{"x": copy.deepcopy(value)}, {"x": [0] if ragged else copy.deepcopy(value)}]
        before = shown(items)
        buffer.push(items, 0)
        change(items[0])
        for item in buffer.sample(2, 0):
            change(item)
        for item in buffer.sample(4, 0, replace=True):
            change(item)
        assert shown(buffer._data[:2]) == before


def test_samples_that_were_drawn_stay_as_they_were_while_the_buffer_goes_on():
    with NaiveReplayBuffer({"replay_buffer_size": 8}, FakeWriter(), "exp") as buffer:
        buffer.push(fragment(0, 8), 0)
        batch = buffer.sample(8, 0)
        buffer.push(fragment(100, 8), 0)
        assert sorted(item["obs"][0].item() for item in batch) == list(range(8))
