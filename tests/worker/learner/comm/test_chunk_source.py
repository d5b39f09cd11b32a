"""Batches out of chunks of which some are missing, damaged or late."""

import os
import pickle
import sys
import threading

import numpy as np
import pytest
import torch

from ding.utils.compression_helper import get_data_decompressor
from ding.utils.data import default_collate
from ding.utils.data.plain_columns import from_plain
from ding.utils.data.samples import Samples
from ding.worker.learner.comm import FlaskFileSystemLearner, chunk_source, flask_fs_learner
from ding.worker.learner.comm.chunk_source import ChunkReader, ChunkSource, read_patiently
from ding.worker.transport.chunk import encode_chunk, pick_sample, to_content
from ding.worker.transport.stores import FolderSampleStore, SampleStore
from tests.worker.learner.comm.workers import entry
from tests.worker.transport.sites import DEADLINE_S, assert_same, read_sample


class Shelf(SampleStore):
    """Chunks by name, and how often each was asked for."""

    def __init__(self):
        self.chunks, self.asked = {}, []

    def put(self, name, *values):
        self.chunks[name] = encode_chunk([{"obs": value} for value in values], "lz4")

    def read(self, name):
        self.asked.append(name)
        if name not in self.chunks:
            raise FileNotFoundError(f"no {name}")
        return self.chunks[name]

    def names(self, among):
        return self.chunks.keys() & among


class Clock:
    """A time that passes by waiting only; at `close_at` the waits end."""

    def __init__(self, close_at=1e9):
        self.now, self.close_at = 0.0, close_at

    def wait(self, wait_s):
        self.now += wait_s
        return self.now >= self.close_at


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(chunk_source, "monotonic", lambda: clock.now)
    return clock


@pytest.fixture
def shelf():
    return Shelf()


@pytest.fixture
def loader(shelf, clock):
    loader = ChunkSource(ChunkReader(shelf), 5.0, clock.wait)
    loader.warnings = []
    loader.warn = loader.warnings.append
    yield loader
    loader.stop()


def rows(*names):
    """A sample out of each of these chunks; those of one chunk in order."""
    return [entry(name, names[:place].count(name)) for place, name in enumerate(names)]


def values(batch):
    return [sample["obs"] for sample in batch]


def test_a_batch_is_read_chunk_by_chunk_and_comes_in_its_order(loader, shelf):
    shelf.put("a", 1, 2)
    shelf.put("b", 3)
    batch, count = loader.load(rows("a", "b", "a"))
    assert (values(batch), count) == ([1, 3, 2], 3)
    assert shelf.asked == ["a", "b"] and batch[1]["replay_unique_id"] == "b_0"
    assert loader.bad_files == set() and loader.warnings == []


def test_all_missing_files_of_a_batch_together_are_waited_for_no_longer_than_one(loader, clock):
    assert loader.load(rows("x", "y", "z", "x")) == (None, 0)
    assert 4.5 < clock.now <= 5.0
    assert loader.bad_files == {"x", "y", "z"}


def test_a_file_that_is_late_is_waited_for(loader, shelf, clock):
    clock.wait = lambda wait_s: (shelf.put("x", 7) if wait_s else None, False)[1]
    loader._wait = clock.wait
    assert values(loader.load(rows("x"))[0]) == [7]
    assert loader.bad_files == set()


def test_what_can_be_read_of_bad_batches_makes_up_batches_of_the_full_size(loader, shelf):
    shelf.put("a", *range(10))
    given = [entry("a", 0), entry("x", 0), entry("a", 1)]
    assert loader.load(given) == (None, 2)
    batch, count = loader.load([entry("a", 2), entry("a", 3), entry("x", 1)])
    assert (values(batch), count) == ([0, 1, 2], 2)
    whole, _ = loader.load([entry("a", n) for n in (7, 8, 9)])
    assert values(whole) == [7, 8, 9]
    batch, _ = loader.load([entry("a", 4), entry("x", 2), entry("a", 5)])
    assert values(batch) == [3, 4, 5]  # each sample once, with its own metadata
    assert [sample["replay_unique_id"] for sample in batch] == ["a_3", "a_4", "a_5"]


class Evil:
    def __reduce__(self):
        return os.mkdir, ("hacked",)


GOOD = encode_chunk([{"obs": 1}], "lz4")


@pytest.mark.guarantees("files")
@pytest.mark.differs(
    "unpickles samples, weights and files that a task names, so that their sender can run code in a worker",
    "reads data only, unless the worker's own config says `trust_pickle`",
)
@pytest.mark.parametrize("data", [b"", GOOD[:1], GOOD[: len(GOOD) // 2], GOOD[:-1], b"\x00" * 64, pickle.dumps(Evil())])
def test_a_damaged_file_is_passed_over_and_nothing_in_it_is_run(loader, shelf, data):
    shelf.chunks["x"] = data
    shelf.put("a", 1)
    assert loader.load(rows("a", "x")) == (None, 1)
    assert loader.bad_files == {"x"} and isinstance(loader.error, ValueError)
    assert os.listdir() == []


@pytest.mark.parametrize("error", [PermissionError("not yours"), MemoryError("it is too large")])
def test_a_file_that_the_system_refuses_to_read_is_bad(loader, shelf, error):
    def refuse(name):
        raise error

    shelf.read = refuse
    assert loader.load(rows("a")) == (None, 0)
    assert loader.error is error


def test_several_threads_read_the_files_of_a_batch(shelf):
    together = threading.Barrier(3)
    read = shelf.read
    shelf.read = lambda name: (together.wait(DEADLINE_S), read(name))[1]
    closed = threading.Event()
    loader = ChunkSource(ChunkReader(shelf), 0.0, closed.wait, threads=3)
    shelf.put("a", 1, 2)
    shelf.put("b", 3)
    assert loader.load(rows("a", "x", "b", "a")) == (None, 3)
    assert values(loader._left_over) == [1, 3, 2] and loader.bad_files == {"x"}
    closed.set()
    loader.stop()
    loader.stop()
    assert [thread.name for thread in threading.enumerate() if thread.name.startswith("learner_reader")] == []
    assert loader.load(rows("a")) == (None, 0)


# The reader.


@pytest.fixture
def store():
    yield FolderSampleStore("read")


def test_samples_are_read_out_of_their_chunks(store):
    store.write("c", encode_chunk([{"x": i} for i in range(3)]))
    meta = {"data_id": "c", "data_index": 2, "compressor": "lz4", "priority": 0.5}
    reader = ChunkReader(store)
    assert read_sample(reader, meta) == {"x": 2, **meta}
    assert reader.samples("c", "lz4") == [{"x": 0}, {"x": 1}, {"x": 2}]
    store.delete("c")
    first = read_sample(reader, {**meta, "data_index": 0})  # kept decoded
    first["x"] = 7
    assert read_sample(reader, {**meta, "data_index": 0})["x"] == 0
    with pytest.raises(ValueError, match="it has no sample 3"):
        read_sample(reader, {**meta, "data_index": 3})
    reader.clear()
    with pytest.raises(FileNotFoundError):
        read_sample(reader, meta)


def test_each_step_of_a_sequence_gets_the_metadata(store):
    store.write("c", encode_chunk([[{"x": 0}, {"x": 1}]], "none"))
    steps = read_sample(ChunkReader(store), {"data_id": "c", "IS": 0.5})
    assert steps == [{"x": 0, "data_id": "c", "IS": 0.5}, {"x": 1, "data_id": "c", "IS": 0.5}]


def test_what_is_no_sample_is_an_error(store):
    store.write("c", encode_chunk([7, [{"x": 1}, 7]], "none"))
    for index in range(2):
        with pytest.raises(ValueError, match="holds a int instead of a sample"):
            read_sample(ChunkReader(store), {"data_id": "c", "data_index": index})


def test_the_least_recently_used_chunk_goes_when_the_budget_is_spent(store):
    data = encode_chunk([{"x": 0}])
    for name in "abc":
        store.write(name, data)
    reader = ChunkReader(store, budget_bytes=2 * len(data))
    for name in "abac":
        read_sample(reader, {"data_id": name, "compressor": "lz4"})
    for name in "abc":
        store.delete(name)
    for name in "ac":
        assert read_sample(reader, {"data_id": name, "compressor": "lz4"})["x"] == 0
    with pytest.raises(FileNotFoundError):
        read_sample(reader, {"data_id": "b", "compressor": "lz4"})


def test_deleted_chunks_are_forgotten_long_before_the_budget_is_used_up_and_no_other_is_read_twice(store):
    rng, reads, read = np.random.default_rng(0), [], store.read
    reader = ChunkReader(store)
    store.read = lambda name: reads.append(name) or read(name)
    live = []
    for i in range(200):  # some chunks are so small that hardly any batch has a sample of them
        live.append(f"chunk{i}")
        store.write(live[-1], encode_chunk([{"x": live[-1]}], "none"))
        for name in live[-1], *(name for name in live if name.endswith("7") and not rng.integers(1000)):
            assert read_sample(reader, {"data_id": name})["x"] == name
        if len(live) > 20:
            store.delete(live.pop(0))
    for name in live:
        read_sample(reader, {"data_id": name})
    assert len(reader.missing(f"chunk{i}" for i in range(180))) > 150
    assert len(reads) == len(set(reads)) == 200


# Batches as one gather out of chunks in columns: the same samples that one by one would be.


def transitions(count, seed=0, **more):
    """A fragment whose `next_obs` are the `obs` of the next ones."""
    obs = list(torch.randn(count + 1, 4, generator=torch.Generator().manual_seed(seed)))
    return [
        {
            "obs": obs[i],
            "next_obs": obs[i + 1],
            "action": torch.tensor([i]),
            "reward": torch.tensor([i + 0.5]),
            "done": i == count - 1,
            "mask": [np.float32(i), np.float32(seed)],
            "note": f"{seed}_{i}",
            **more,
        }
        for i in range(count)
    ]


def put(shelf, name, items):
    shelf.chunks[name] = encode_chunk(items, "lz4")


def one_by_one(shelf, rows):
    """The batch as a reader that keeps nothing finds it, sample by sample."""
    return [pick_sample(ChunkReader(shelf).samples(row["data_id"], row["compressor"]), row) for row in rows]


@pytest.fixture
def make_loader(shelf):
    made = []

    def make(**how):
        made.append(ChunkSource(ChunkReader(shelf, **how), 0.0, threading.Event().wait))
        return made[-1]

    yield make
    for loader in made:
        loader.stop()


def loaded(loader, rows):
    batch, count = loader.load(rows)
    assert count == len(rows)
    return batch


def test_a_batch_in_columns_holds_what_its_samples_one_by_one_hold(shelf, make_loader):
    for number in range(3):
        put(shelf, f"c{number}", transitions(5, number))
    rows = [entry(f"c{i % 3}", i % 5, priority=0.5 + i, IS=1.0, policy_iter=[i, 1]) for i in (7, 0, 11, 7, 4)]
    batch = loaded(make_loader(), rows)
    assert type(batch) is Samples and batch.table is not None
    assert_same(list(batch), one_by_one(shelf, rows))


def test_metadata_replace_what_a_sample_says_under_the_same_key(shelf, make_loader):
    put(shelf, "c", transitions(2, priority=9.0))
    batch = loaded(make_loader(), [entry("c", i, priority=0.25 * i) for i in (1, 0)])
    assert batch.table is not None and [item["priority"] for item in batch] == [0.25, 0.0]


def test_a_changed_item_is_trained_and_changes_no_other_batch(shelf, make_loader):
    put(shelf, "c", transitions(3))
    loader, rows = make_loader(), [entry("c", i) for i in (0, 1)]
    batch = loaded(loader, rows)
    batch[0]["obs"] += 100.0
    batch[1]["reward"] = torch.tensor([7.0])
    collated = default_collate(batch)
    assert collated["obs"][0].tolist() == (transitions(3)[0]["obs"] + 100.0).tolist()
    assert collated["reward"].tolist() == [0.5, 7.0]
    again = loaded(loader, rows)
    assert again.table is not None
    assert_same(list(again), one_by_one(shelf, rows))


@pytest.mark.parametrize("budget_bytes", [0, 3000, 2**20])
def test_batches_stay_right_while_chunks_come_move_and_go(shelf, make_loader, budget_bytes):
    rng, loader = np.random.default_rng(1), make_loader(budget_bytes=budget_bytes)
    sizes = {}
    for number in range(60):
        name = f"c{number}"
        sizes[name] = int(rng.integers(1, 90))
        put(shelf, name, transitions(sizes[name], number))
        names = rng.choice(list(sizes)[-20:], 8).tolist()
        rows = [entry(name, int(rng.integers(sizes[name]))) for name in names]
        batch = loaded(loader, rows)
        assert batch.table is not None
        assert_same(list(batch), one_by_one(shelf, rows))


@pytest.mark.parametrize(
    "odd",
    [
        transitions(2, extra=1),
        [{**step, "obs": torch.zeros(5)} for step in transitions(2)],
        [{**step, "reward": 1} for step in transitions(2)],
        [transitions(2), transitions(3)],
    ],
)
def test_a_chunk_unlike_the_others_is_read_sample_by_sample(shelf, make_loader, odd, caplog):
    put(shelf, "c", transitions(2))
    put(shelf, "odd", odd)
    loader, rows = make_loader(), [entry("c", 0), entry("odd", 1), entry("c", 1)]
    batch = loaded(loader, rows)
    assert_same(list(batch), one_by_one(shelf, rows))
    assert loaded(loader, [entry("c", 1), entry("c", 0)]).table is not None
    assert caplog.text == ""


def test_a_part_of_a_trajectory_comes_as_a_list_of_dicts(shelf, make_loader):
    put(shelf, "c", transitions(6))
    rows = [entry("c", 0, unroll_split_begin=begin, unroll_len=3) for begin in (0, 2)]
    batch = loaded(make_loader(), rows)
    assert [[step["note"] for step in part] for part in batch] == [["0_0", "0_1", "0_2"], ["0_2", "0_3", "0_4"]]


def calls_of_loading(loader, rows):
    """How many Python functions a load of these rows calls."""
    calls = []
    sys.setprofile(lambda frame, event, arg: calls.append(frame) if event == "call" else None)
    try:
        loader.load(rows)
    finally:
        sys.setprofile(None)
    return len(calls)


def test_a_batch_of_cached_chunks_takes_no_call_for_each_sample(shelf, make_loader):
    for number in range(64):
        put(shelf, f"c{number}", transitions(2, number))
    loader, metadata = make_loader(), [entry(f"c{number}", number % 2) for number in range(64)]
    loaded(loader, metadata)
    few, many = (from_plain(to_content(metadata[:size])) for size in (16, 64))
    assert calls_of_loading(loader, few) == calls_of_loading(loader, many) < 60


# Samples that come late or damaged, and `load_data_fn`.


@pytest.mark.parametrize("kind", [FileNotFoundError, ValueError])
def test_what_is_late_is_read_when_it_is_there(kind):
    answers = [kind("not yet"), kind("not yet"), 7]
    waits = []

    def read():
        answer = answers.pop(0)
        if answer != 7:
            raise answer
        return answer

    assert read_patiently(read, "x", 20, lambda wait_s: waits.append(wait_s)) == 7
    assert waits == [0.01, 0.02]


def write(path, samples, compressor):
    path.write_bytes(encode_chunk(samples, compressor))
    return str(path)


@pytest.mark.parametrize("compressor", ["none", "lz4", "zlib"])
def test_load_data_fn_reads_one_sample_and_adds_the_metadata(tmp_path, compressor):
    path = write(tmp_path / "chunk", [{"obs": torch.tensor(1.0)}, {"obs": torch.tensor(2.0)}], compressor)
    decompressor = None if compressor == "none" else get_data_decompressor(compressor)
    sample = FlaskFileSystemLearner.load_data_fn(path, {"data_index": 1, "IS": 0.5}, decompressor)
    assert sample == {"obs": torch.tensor(2.0), "data_index": 1, "IS": 0.5}


def test_load_data_fn_reads_a_part_of_a_trajectory(tmp_path):
    path = write(tmp_path / "chunk", [{"obs": step} for step in range(4)], "none")
    load = FlaskFileSystemLearner.load_data_fn
    meta = {"unroll_split_begin": 1, "unroll_len": 2}
    assert load(path, meta, None) == [{"obs": 1, **meta}, {"obs": 2, **meta}]
    assert load(path, {"unroll_split_begin": 3}, None) == {"obs": 3, "unroll_split_begin": 3}


def test_load_data_fn_gives_up_on_a_file_that_does_not_come(tmp_path, monkeypatch):
    monkeypatch.setattr(flask_fs_learner, "READ_TIMEOUT_S", 0.02)
    with pytest.raises(FileNotFoundError):
        FlaskFileSystemLearner.load_data_fn(str(tmp_path / "nowhere"), {}, None)
    assert list(tmp_path.iterdir()) == []
