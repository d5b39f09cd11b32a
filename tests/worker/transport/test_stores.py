import os
import pickle

import pytest
import torch

from ding.worker.transport.chunk import encode_chunk
from ding.worker.transport.chunk_reader import ChunkReader
from ding.worker.transport.stores import (
    FolderPolicyStore,
    FolderSampleStore,
    MemoryPolicyStore,
    MemorySampleStore,
    forget_memory_stores,
)

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


@pytest.mark.parametrize("store", SAMPLE_STORES)
def test_what_one_writes_another_reads_until_it_is_deleted(store, root):
    store(root).write("a", b"data")
    other = store(root)
    assert other.read("a") == other.read(os.path.join(root, "a")) == b"data"
    other.delete("a")
    other.delete("a")
    with pytest.raises(FileNotFoundError):
        store(root).read("a")


@pytest.mark.parametrize("store", SAMPLE_STORES + POLICY_STORES)
def test_names_cannot_leave_the_root(store, root):
    for name in ("../a", "/tmp/a", f"{root}/../a"):
        with pytest.raises(ValueError):
            store(root).read(name)
        with pytest.raises(ValueError):
            store(root).write(name, {})


def test_a_symbolic_link_is_not_followed(root, tmp_path):
    samples, policies = FolderSampleStore(root), FolderPolicyStore(root)
    secret = tmp_path / "secret"
    torch.save({"model": {}, "iter": 0}, secret)
    os.symlink(secret, os.path.join(root, "link"))
    with pytest.raises(OSError):
        samples.read("link")
    with pytest.raises(ValueError, match="is a symbolic link"):
        policies.read("link")


@pytest.mark.parametrize("store", POLICY_STORES)
def test_weights_are_read_once_per_version(store, root):
    writer, reader = store(root), store(root)
    with pytest.raises(FileNotFoundError):
        reader.read("p")
    writer.write("p", {"model": {"w": torch.ones(2)}, "iter": 1})
    version = reader.read("p")
    assert version.state["iter"] == 1 and version.state["model"]["w"].tolist() == [1, 1]
    assert reader.read("p", version.token) is None
    writer.write("p", {"model": {"w": torch.zeros(2)}, "iter": 2})
    newer = reader.read("p", version.token)
    assert newer.state["iter"] == 2 and newer.token != version.token


def test_a_pickle_among_the_weights_is_not_run(root, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    torch.save({"model": Evil(), "iter": 0}, os.path.join(FolderPolicyStore(root).root, "p"))
    with pytest.raises(pickle.UnpicklingError):
        FolderPolicyStore(root).read("p")
    assert not os.path.exists("hacked")
    FolderPolicyStore(root, trust_pickle=True).read("p")
    assert os.path.exists("hacked")


def test_a_pickle_among_the_samples_is_not_run(root, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    store = FolderSampleStore(root)
    store.write("a", pickle.dumps(Evil()))
    for compressor in ("none", "lz4", "zlib"):
        with pytest.raises(ValueError):
            ChunkReader(store).sample({"data_id": "a", "compressor": compressor})
    assert not os.path.exists("hacked")


@pytest.mark.parametrize(("store", "key"), [(FolderSampleStore, "path_data"), (FolderPolicyStore, "path_policy")])
def test_a_folder_that_cannot_be_made_is_named_at_once(store, key, tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match=f"the folder {key} cannot be made"):
        store(str(tmp_path / "file" / "folder"))


def test_a_folder_that_cannot_be_written_to_is_named_at_once(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    with pytest.raises(PermissionError, match="the folder path_data cannot be written to"):
        FolderSampleStore(str(tmp_path))


def test_samples_are_read_out_of_their_chunks(root):
    store = MemorySampleStore(root)
    store.write("c", encode_chunk([{"x": i} for i in range(3)]))
    meta = {"data_id": "c", "data_index": 2, "compressor": "lz4", "priority": 0.5}
    reader = ChunkReader(store)
    assert reader.sample(meta) == {"x": 2, **meta}
    store.delete("c")
    first = reader.sample({**meta, "data_index": 0})  # kept decoded
    first["x"] = 7
    assert reader.sample({**meta, "data_index": 0})["x"] == 0
    with pytest.raises(ValueError, match="the chunk 'c' has 3 samples, there is no sample 3"):
        reader.sample({**meta, "data_index": 3})
    reader.clear()
    with pytest.raises(FileNotFoundError):
        reader.sample(meta)


def test_each_step_of_a_sequence_gets_the_metadata(root):
    store = MemorySampleStore(root)
    store.write("c", encode_chunk([[{"x": 0}, {"x": 1}]], "none"))
    steps = ChunkReader(store).sample({"data_id": "c", "IS": 0.5})
    assert steps == [{"x": 0, "data_id": "c", "IS": 0.5}, {"x": 1, "data_id": "c", "IS": 0.5}]


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
