"""What stores of samples and weights promise, and the names of their files."""

import io
import os
import pickle
import zipfile

import pytest
import torch

from ding.worker.learner.comm.chunk_source import ChunkReader
from ding.worker.transport.stores import (
    FolderPolicyStore,
    FolderSampleStore,
    check_plain_name,
    name_under,
)
from tests.worker.transport.policy_store_contract import PolicyStoreContract
from tests.worker.transport.sites import read_sample


@pytest.fixture
def root(tmp_path):
    return str(tmp_path / "new" / "folder")


# Names.


@pytest.mark.parametrize("name", ["policy_1", "env_0_a-b.c", "x" * 200, "ünï"])
def test_plain_names_pass(name):
    assert check_plain_name(name) == name


@pytest.mark.parametrize(
    "name",
    ["", ".", "..", "../x", "/etc/passwd", "a/b", "a\\b", "C:x", ".hidden", "a\0b", "a\nb", "x" * 201, None, 3, b"x"],
)
def test_names_that_could_lead_elsewhere_are_refused(name):
    for check in (check_plain_name, lambda name: name_under("root", name)):
        with pytest.raises(ValueError, match="file name"):
            check(name)


def test_a_path_under_the_root_is_its_name(tmp_path):
    assert name_under("./exp/data", "exp/data/x") == name_under("./exp/data", "x") == "x"
    assert name_under(".", "./x") == name_under(str(tmp_path), "./x") == name_under(".", str(tmp_path / "x")) == "x"


@pytest.mark.parametrize(
    "path", ["exp/data/../x", "exp/data/sub/x", "exp/database/x", "/exp/data/x", "exp/data/..", "exp/data/"]
)
def test_a_path_elsewhere_is_refused(path):
    with pytest.raises(ValueError):
        name_under("exp/data", path)


# Samples.


def test_what_one_writes_another_reads_until_it_is_deleted(root):
    FolderSampleStore(root).write("a", b"data")
    other = FolderSampleStore(root)
    assert other.read("a") == other.read(os.path.join(root, "a")) == b"data"
    other.delete("a")
    other.delete("a")
    with pytest.raises(FileNotFoundError):
        FolderSampleStore(root).read("a")


def test_a_store_tells_what_is_in_it_and_what_of_some_names(root):
    store = FolderSampleStore(root)
    assert store.names() == set()
    for name in ("a", "b", "c"):
        store.write(name, b"content")
    store.delete("b")
    assert store.names() == {"a", "c"}
    assert store.names({"a", f"{root}/c", "b"}) == {"a", f"{root}/c"} and store.names(()) == set()


def test_samples_cannot_leave_the_root(root):
    store = FolderSampleStore(root)
    for name in ("../a", "/tmp/a", f"{root}/../a"):
        for act in (store.read, store.delete, lambda name: store.write(name, b""), lambda name: store.names({name})):
            with pytest.raises(ValueError):
                act(name)


def test_of_a_folder_only_files_count_that_are_whole(tmp_path):
    store = FolderSampleStore(str(tmp_path))
    store.write("a", b"")
    (tmp_path / ".b.tmp").write_bytes(b"")
    (tmp_path / "folder").mkdir()
    assert store.names() == {"a"}


@pytest.mark.parametrize("store", [FolderSampleStore, FolderPolicyStore])
def test_opening_a_folder_sweeps_what_killed_writers_have_left(store, tmp_path):
    (tmp_path / ".x.0123.tmp").touch()
    os.utime(tmp_path / ".x.0123.tmp", (0, 0))
    store(str(tmp_path))
    assert os.listdir(tmp_path) == []


def test_a_folder_that_cannot_be_written_to_is_named_at_once(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    with pytest.raises(PermissionError):
        FolderSampleStore(str(tmp_path))


@pytest.mark.guarantees("files")
def test_a_pickle_among_the_samples_is_not_run(root):
    store = FolderSampleStore(root)
    store.write("a", pickle.dumps(Evil()))
    for compressor in ("none", "lz4", "zlib"):
        with pytest.raises(ValueError):
            read_sample(ChunkReader(store), {"data_id": "a", "compressor": compressor})
    assert not os.path.exists("hacked")


class Evil:
    def __reduce__(self):
        return os.mkdir, ("hacked",)


# Weights.


class TestPolicyStore(PolicyStoreContract):
    """In a folder."""

    @pytest.fixture
    def opened(self, root):
        """Opens the same store for somebody else."""
        return lambda: FolderPolicyStore(root)


def test_damaged_weights_are_an_error_that_names_the_file(root):
    store, path = FolderPolicyStore(root), os.path.join(root, "p")
    store.write("p", {"model": {"w": torch.ones(2)}, "iter": 1})
    with open(path, "rb") as file:
        data = file.read()
    for length in (0, 1, 30, len(data) // 2, len(data) - 1):
        with open(path, "wb") as file:
            file.write(data[:length])
        with pytest.raises((ValueError, pickle.UnpicklingError), match=path):
            store.read("p")
    torch.save([1], path)
    with pytest.raises(ValueError, match=f"{path} holds a list"):
        store.read("p")


def test_a_pickle_among_the_weights_is_run_only_if_it_is_trusted(root):
    torch.save({"model": Evil(), "iter": 0}, os.path.join(FolderPolicyStore(root).root, "p"))
    with pytest.raises(pickle.UnpicklingError):
        FolderPolicyStore(root).read("p")
    assert not os.path.exists("hacked")
    FolderPolicyStore(root, trust_pickle=True).read("p")
    assert os.path.exists("hacked")


@pytest.mark.guarantees("files")
@pytest.mark.parametrize("name", ["system", "Popen", "eval"])
def test_no_function_that_weights_name_is_called(root, name):
    module = {"system": "os", "Popen": "subprocess", "eval": "builtins"}[name]
    store, archive = FolderPolicyStore(root), io.BytesIO()
    with zipfile.ZipFile(archive, "w") as target:
        code = f"\x80\x02c{module}\n{name}\n(X\x05\x00\x00\x00touch\x74R.".encode("latin1")
        target.writestr("archive/data.pkl", code)
        target.writestr("archive/version", "3\n")
    with open(os.path.join(root, "policy"), "wb") as file:
        file.write(archive.getvalue())
    with pytest.raises(pickle.UnpicklingError, match=f"(?i:unsupported) .*{name}"):
        store.read("policy")
