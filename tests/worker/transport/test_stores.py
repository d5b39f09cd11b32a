import os
import pickle
import tracemalloc

import numpy as np
import pytest
import torch

from ding.worker.learner.comm.chunk_source import ChunkReader
from ding.worker.transport.chunk import encode_chunk
from ding.worker.transport.stores import (
    FolderPolicyStore,
    FolderSampleStore,
    MemoryPolicyStore,
    MemorySampleStore,
    forget_memory_stores,
)
from tests.worker.transport.policy_store_contract import PolicyStoreContract

SAMPLE_STORES = [FolderSampleStore, MemorySampleStore]
POLICY_STORES = [FolderPolicyStore, MemoryPolicyStore]


@pytest.fixture
def root(tmp_path):
    path = str(tmp_path / "new" / "folder")
    yield path
    forget_memory_stores(path)


class Evil:
    def __reduce__(self):
        return os.mkdir, ("hacked",)


def killed_writer(folder):
    """Leave the temporary file of a process that was killed long ago while it wrote."""
    (folder / ".x.0123.tmp").touch()
    os.utime(folder / ".x.0123.tmp", (0, 0))


@pytest.mark.parametrize("store", [FolderSampleStore, FolderPolicyStore])
def test_opening_a_folder_sweeps_what_killed_writers_have_left(store, tmp_path):
    killed_writer(tmp_path)
    store(str(tmp_path))
    assert os.listdir(tmp_path) == []


def test_a_store_can_be_swept_later(tmp_path):
    store = FolderSampleStore(str(tmp_path))
    killed_writer(tmp_path)
    store.write("a", b"")
    store.sweep()
    assert os.listdir(tmp_path) == ["a"]


@pytest.mark.parametrize("store", SAMPLE_STORES)
def test_what_one_writes_another_reads_until_it_is_deleted(store, root):
    store(root).write("a", b"data")
    other = store(root)
    assert other.read("a") == other.read(os.path.join(root, "a")) == b"data"
    other.delete("a")
    other.delete("a")
    with pytest.raises(FileNotFoundError):
        store(root).read("a")


def test_a_file_that_cannot_be_deleted_keeps_no_other(root):
    store = FolderSampleStore(root)
    for name in ("a", "b"):
        store.write(name, b"data")
    os.mkdir(os.path.join(root, "folder"))
    with pytest.raises(OSError, match="folder"):
        store.delete("a", "folder", "b")
    assert store.names() == set()


@pytest.mark.parametrize("store", SAMPLE_STORES)
def test_names_cannot_leave_the_root(store, root):
    for name in ("../a", "/tmp/a", f"{root}/../a"):
        with pytest.raises(ValueError):
            store(root).read(name)
        with pytest.raises(ValueError):
            store(root).write(name, b"")


def test_a_symbolic_link_is_not_followed(root, tmp_path):
    samples, policies = FolderSampleStore(root), FolderPolicyStore(root)
    secret = tmp_path / "secret"
    torch.save({"model": {}, "iter": 0}, secret)
    os.symlink(secret, os.path.join(root, "link"))
    with pytest.raises(OSError):
        samples.read("link")
    with pytest.raises(ValueError, match="is a symbolic link"):
        policies.read("link")


@pytest.fixture(params=POLICY_STORES)
def opened(request, root):
    """Opens the same store for somebody else."""
    return lambda: request.param(root)


class TestPolicyStore(PolicyStoreContract):
    """In a folder, and in memory."""


def test_weights_that_were_damaged_or_removed_since_are_written_again(root):
    store = FolderPolicyStore(root)
    token = store.write("p", {"iter": 1})
    with open(os.path.join(root, "p"), "wb") as file:
        file.write(b"damaged")
    token = store.write("p", {"iter": 1}, token)
    assert store.read("p").state == {"iter": 1}
    os.remove(os.path.join(root, "p"))
    store.write("p", {"iter": 1}, token)
    assert store.read("p").state == {"iter": 1}


def test_a_pickle_among_the_weights_is_not_run(root, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    torch.save({"model": Evil(), "iter": 0}, os.path.join(FolderPolicyStore(root).root, "p"))
    with pytest.raises(pickle.UnpicklingError):
        FolderPolicyStore(root).read("p")
    assert not os.path.exists("hacked")
    FolderPolicyStore(root, trust_pickle=True).read("p")
    assert os.path.exists("hacked")


def written(root):
    """A store with weights under `p`, the file's path and content."""
    store = FolderPolicyStore(root)
    store.write("p", {"model": {"w": torch.ones(2)}, "iter": 1})
    path = os.path.join(root, "p")
    with open(path, "rb") as file:
        return store, path, file.read()


def replace(path, data):
    os.remove(path)
    with open(path, "wb") as file:
        file.write(data)


def test_damaged_weights_are_an_error_that_names_the_file(root):
    store, path, data = written(root)
    for length in (0, 1, 30, len(data) // 2, len(data) - 1):
        replace(path, data[:length])
        with pytest.raises((ValueError, pickle.UnpicklingError), match=f"^(the weights in )?{path} "):
            store.read("p")
    torch.save([1], path)
    with pytest.raises(ValueError, match=f"{path} holds a list, not weights"):
        store.read("p")
    assert store.damaged_count == 0


def test_whoever_has_weights_passes_damaged_ones_over_and_gets_the_next(root, caplog):
    store, path, data = written(root)
    known = store.read("p").token
    for count, damaged in enumerate((data[:-1], data[:-2]), 1):
        replace(path, damaged)
        assert store.read("p", known) is None and store.read("p", known) is None
        assert store.damaged_count == len(caplog.records) == count
        assert path in caplog.records[-1].getMessage()
    with pytest.raises(pickle.UnpicklingError, match="is damaged"):
        store.read("p")
    FolderPolicyStore(root).write("p", {"model": {}, "iter": 3})
    assert store.read("p", known).state["iter"] == 3


def test_a_pickle_in_new_weights_is_passed_over_and_not_run(root, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    store, path, _ = written(root)
    known = store.read("p").token
    torch.save({"model": Evil(), "iter": 0}, path)
    assert store.read("p", known) is None and store.damaged_count == 1
    assert not os.path.exists("hacked")


def test_weights_that_vanish_while_they_are_read_are_none(root, monkeypatch):
    store, path, _ = written(root)

    def vanish(path, flags):
        raise FileNotFoundError(path)

    monkeypatch.setattr(os, "open", vanish)
    with pytest.raises(FileNotFoundError):
        store.read("p")


def test_a_pipe_in_a_folder_is_not_waited_for(root):
    samples, policies = FolderSampleStore(root), FolderPolicyStore(root)
    os.mkfifo(os.path.join(root, "pipe"))
    with pytest.raises(ValueError, match="pipe is not a regular file; samples are read from regular files in"):
        samples.read("pipe")
    with pytest.raises(ValueError, match="is not a regular file"):
        policies.read("pipe")


@pytest.mark.guarantees("files")
def test_a_pickle_among_the_samples_is_not_run(root, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    store = FolderSampleStore(root)
    store.write("a", pickle.dumps(Evil()))
    for compressor in ("none", "lz4", "zlib"):
        with pytest.raises(ValueError):
            ChunkReader(store).sample({"data_id": "a", "compressor": compressor})
    assert not os.path.exists("hacked")


def test_a_folder_that_cannot_be_written_to_is_named_at_once(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    with pytest.raises(PermissionError, match="the folder path_data is not writable"):
        FolderSampleStore(str(tmp_path))


def test_samples_are_read_out_of_their_chunks(root):
    store = MemorySampleStore(root)
    store.write("c", encode_chunk([{"x": i} for i in range(3)]))
    meta = {"data_id": "c", "data_index": 2, "compressor": "lz4", "priority": 0.5}
    reader = ChunkReader(store)
    assert reader.sample(meta) == {"x": 2, **meta}
    assert reader.samples("c", "lz4") == [{"x": 0}, {"x": 1}, {"x": 2}]
    store.delete("c")
    first = reader.sample({**meta, "data_index": 0})  # kept decoded
    first["x"] = 7
    assert reader.sample({**meta, "data_index": 0})["x"] == 0
    with pytest.raises(ValueError, match="the chunk 'c' has 3 samples; it has no sample 3"):
        reader.sample({**meta, "data_index": 3})
    reader.clear()
    with pytest.raises(FileNotFoundError):
        reader.sample(meta)


def test_each_step_of_a_sequence_gets_the_metadata(root):
    store = MemorySampleStore(root)
    store.write("c", encode_chunk([[{"x": 0}, {"x": 1}]], "none"))
    steps = ChunkReader(store).sample({"data_id": "c", "IS": 0.5})
    assert steps == [{"x": 0, "data_id": "c", "IS": 0.5}, {"x": 1, "data_id": "c", "IS": 0.5}]


def test_what_is_no_sample_is_an_error(root):
    store = MemorySampleStore(root)
    store.write("c", encode_chunk([7, [{"x": 1}, 7]], "none"))
    for index in range(2):
        with pytest.raises(ValueError, match="the chunk 'c' holds a int instead of a sample"):
            ChunkReader(store).sample({"data_id": "c", "data_index": index})


def test_a_file_that_is_too_large_for_samples_is_not_read(tmp_path):
    store = FolderSampleStore(str(tmp_path))
    with open(tmp_path / "sparse", "wb") as file:
        file.truncate(2**40)
    with pytest.raises(ValueError, match="sparse is too large for samples: 1099511627776 bytes"):
        store.read("sparse")


def test_a_few_large_samples_do_not_make_room_for_many(root):
    store = MemorySampleStore(root)
    samples = [{"obs": np.full(2**20, i), "n": i} for i in range(2)]
    store.write("c", encode_chunk(samples))
    reader = ChunkReader(store)
    tracemalloc.start()
    try:
        assert reader.sample({"data_id": "c", "data_index": 1, "compressor": "lz4"})["n"] == 1
        assert tracemalloc.get_traced_memory()[1] < 30 * samples[0]["obs"].nbytes
    finally:
        tracemalloc.stop()


def test_the_least_recently_used_chunk_goes_when_the_budget_is_spent(root):
    store = MemorySampleStore(root)
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


def test_the_newest_chunk_is_kept_even_when_it_exceeds_the_budget(root):
    store = MemorySampleStore(root)
    store.write("a", encode_chunk([{"x": 0}]))
    reader = ChunkReader(store, budget_bytes=0)
    reader.sample({"data_id": "a", "compressor": "lz4"})
    store.delete("a")
    assert reader.sample({"data_id": "a", "compressor": "lz4"})["x"] == 0
    with pytest.raises(ValueError, match="budget_bytes = -1 is not allowed"):
        ChunkReader(store, budget_bytes=-1)


def test_deleted_chunks_are_forgotten_long_before_the_budget_is_used_up_and_no_other_is_read_twice():
    store, rng = MemorySampleStore("aging"), np.random.default_rng(0)
    reader, reads = ChunkReader(store), []
    read = store.read
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
    assert len(live) <= len(reader._chunks) <= 2 * len(live)
    assert sum(kept.size_bytes for kept in reader._chunks.values()) == reader.size_bytes
    assert len(reads) == len(set(reads)) == 200
    forget_memory_stores("aging")


@pytest.mark.parametrize("make", [FolderSampleStore, MemorySampleStore])
def test_a_store_says_which_of_some_names_it_has(make, root):
    store = make(root)
    store.write("a", b"1")
    store.write("b", b"2")
    assert store.names({"a", f"{root}/b", "c"}) == {"a", f"{root}/b"} and store.names(()) == set()
    with pytest.raises(ValueError):
        store.names({"../a"})
