"""Batches out of chunks of which some are missing, damaged or late."""

import os
import pickle
import threading

import numpy as np
import pytest

from ding.worker.learner.comm import chunk_source
from ding.worker.learner.comm.chunk_source import ChunkReader, ChunkSource
from ding.worker.transport.chunk import encode_chunk
from ding.worker.transport.stores import FolderSampleStore, SampleStore
from tests.worker.learner.comm.workers import entry
from tests.worker.transport.sites import DEADLINE_S


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


def test_a_file_that_was_missing_once_is_not_waited_for_again(loader, shelf, clock):
    loader.load(rows("x"))
    waited_s = clock.now
    assert loader.load(rows("x")) == (None, 0)
    assert clock.now == waited_s and len(loader.warnings) == 1
    assert loader.warnings[0].startswith("the chunk 'x' is bad, its samples are skipped: the samples 'x' could not")


def test_the_more_files_do_not_come_the_shorter_is_the_wait(loader, clock):
    waited_s = []
    for name in "abcdefgh":
        before_s = clock.now
        loader.load(rows(name))
        waited_s.append(clock.now - before_s)
    assert waited_s[0] > 4.5 and waited_s == sorted(waited_s, reverse=True)
    assert 0 < waited_s[-1] <= 0.1 and sum(waited_s) < 11


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


@pytest.mark.differs(
    "unpickles samples, weights and files that a task names, so that whoever sends them can run code in a worker",
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
    assert reader.sample(meta) == {"x": 2, **meta}
    assert reader.samples("c", "lz4") == [{"x": 0}, {"x": 1}, {"x": 2}]
    store.delete("c")
    first = reader.sample({**meta, "data_index": 0})  # kept decoded
    first["x"] = 7
    assert reader.sample({**meta, "data_index": 0})["x"] == 0
    with pytest.raises(ValueError, match="it has no sample 3"):
        reader.sample({**meta, "data_index": 3})
    reader.clear()
    with pytest.raises(FileNotFoundError):
        reader.sample(meta)


def test_each_step_of_a_sequence_gets_the_metadata(store):
    store.write("c", encode_chunk([[{"x": 0}, {"x": 1}]], "none"))
    steps = ChunkReader(store).sample({"data_id": "c", "IS": 0.5})
    assert steps == [{"x": 0, "data_id": "c", "IS": 0.5}, {"x": 1, "data_id": "c", "IS": 0.5}]


def test_what_is_no_sample_is_an_error(store):
    store.write("c", encode_chunk([7, [{"x": 1}, 7]], "none"))
    for index in range(2):
        with pytest.raises(ValueError, match="holds a int instead of a sample"):
            ChunkReader(store).sample({"data_id": "c", "data_index": index})


@pytest.mark.guarantees("files")
@pytest.mark.parametrize("cut", [0, 1, 10, -1])
def test_a_truncated_chunk_is_a_bad_one_and_the_others_are_read(loader, shelf, cut):
    shelf.put("good", 1.0, 2.0, 3.0)
    shelf.chunks["cut"] = shelf.chunks["good"][:cut]
    assert loader.load([entry("cut", 0), entry("good", 2)]) == (None, 1)
    assert loader.bad_files == {"cut"}


def test_the_least_recently_used_chunk_goes_when_the_budget_is_spent(store):
    data = encode_chunk([{"x": 0}])
    for name in "abc":
        store.write(name, data)
    reader = ChunkReader(store, budget_bytes=2 * len(data))
    for name in "abac":
        reader.sample({"data_id": name, "compressor": "lz4"})
    assert reader.size_bytes == 2 * len(data)
    for name in "abc":
        store.delete(name)
    for name in "ac":
        assert reader.sample({"data_id": name, "compressor": "lz4"})["x"] == 0
    with pytest.raises(FileNotFoundError):
        reader.sample({"data_id": "b", "compressor": "lz4"})


def test_the_newest_chunk_is_kept_even_when_it_exceeds_the_budget(store):
    store.write("a", encode_chunk([{"x": 0}]))
    reader = ChunkReader(store, budget_bytes=0)
    reader.sample({"data_id": "a", "compressor": "lz4"})
    store.delete("a")
    assert reader.sample({"data_id": "a", "compressor": "lz4"})["x"] == 0
    with pytest.raises(ValueError, match="budget_bytes = -1 is not allowed"):
        ChunkReader(store, budget_bytes=-1)


def test_deleted_chunks_are_forgotten_long_before_the_budget_is_used_up_and_no_other_is_read_twice(store):
    rng, reads, read = np.random.default_rng(0), [], store.read
    reader = ChunkReader(store)
    store.read = lambda name: reads.append(name) or read(name)
    live = []
    for i in range(200):  # some chunks are so small that hardly any batch has a sample of them
        live.append(f"chunk{i}")
        store.write(live[-1], encode_chunk([{"x": live[-1]}], "none"))
        for name in live[-1], *(name for name in live if name.endswith("7") and not rng.integers(1000)):
            assert reader.sample({"data_id": name})["x"] == name
        if len(live) > 20:
            store.delete(live.pop(0))
    for name in live:
        reader.sample({"data_id": name})
    assert reader.size_bytes <= 2 * sum(len(read(name)) for name in live)
    assert len(reads) == len(set(reads)) == 200
