import os
import pickle

import numpy as np
import pytest
import torch

from ding.utils.file_helper import atomic_write, read_file, remove_file, save_file, sweep_temporary


class RunsCode:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (self.path,)


def test_a_saved_file_reads_back_equal(tmp_path):
    path = tmp_path / "deep" / "ckpt.pth.tar"
    save_file(path, {"model": {"w": torch.arange(3)}, "last_iter": 5, "names": ["a", ("b", None)]})
    data = read_file(str(path))
    assert data["model"]["w"].tolist() == [0, 1, 2] and data["last_iter"] == 5 and data["names"] == ["a", ("b", None)]
    assert os.listdir(path.parent) == ["ckpt.pth.tar"]


def test_numpy_scalars_and_arrays_read_back_without_trust(tmp_path):
    path = tmp_path / "x"
    data = {"f": np.float32(1.5), "i": np.int64(3), "b": np.bool_(True), "a": np.arange(4.0), "u": np.array(["x"])}
    data |= {"bytes": b"\xff", "set": frozenset([3]), "object": np.array([None, "x"], dtype=object)}
    save_file(path, data)
    loaded = read_file(path)
    for key, value in data.items():
        assert type(loaded[key]) is type(value) and np.array_equal(loaded[key], value)


@pytest.mark.guarantees("files")
def test_reading_runs_no_code_unless_the_file_is_trusted(tmp_path):
    path, made = tmp_path / "evil", tmp_path / "made"
    save_file(path, RunsCode(str(made)))
    with pytest.raises(pickle.UnpicklingError, match="trust_pickle=True only if you trust"):
        read_file(path)
    assert not made.exists()
    read_file(path, trust_pickle=True)
    assert made.exists()


@pytest.mark.guarantees("files")
@pytest.mark.parametrize("content", [b"", b"hello", None])
def test_a_file_that_torch_has_not_written_or_that_ends_early_is_named(content, tmp_path):
    path = tmp_path / "x"
    if content is None:
        save_file(path, {"a": np.ones(1000)})
        content = path.read_bytes()[:1000]
    path.write_bytes(content)
    with pytest.raises(pickle.UnpicklingError, match=f"{path} is damaged"):
        read_file(path)


@pytest.mark.guarantees("files")
def test_a_failed_save_leaves_the_old_file_and_no_other(tmp_path):
    path = tmp_path / "x"
    save_file(path, 1)
    with pytest.raises((AttributeError, pickle.PicklingError)):
        save_file(path, lambda: None)
    assert read_file(path) == 1 and os.listdir(tmp_path) == ["x"]


@pytest.mark.guarantees("files")
def test_readers_see_the_old_content_until_the_writer_is_done(tmp_path):
    path = tmp_path / "x"
    path.write_text("old")
    with atomic_write(path, "w") as file:
        file.write("new ü")
        file.flush()
        assert path.read_text() == "old"
    assert path.read_text(encoding="utf-8") == "new ü"


def test_atomic_write_cleans_up_after_an_interrupt(tmp_path):
    with pytest.raises(KeyboardInterrupt), atomic_write(tmp_path / "x") as file:
        file.write(b"half")
        raise KeyboardInterrupt
    assert list(tmp_path.iterdir()) == []


def test_a_lock_is_taken_when_asked_for(tmp_path):
    path = tmp_path / "x"
    save_file(path, 1, use_lock=True)
    assert read_file(path, use_lock=True) == 1
    assert sorted(os.listdir(tmp_path)) == ["x", "x.lock"]


def test_a_missing_file_is_file_not_found(tmp_path):
    with pytest.raises(FileNotFoundError):
        read_file(tmp_path / "missing")


@pytest.mark.differs(
    "removes files by an unquoted `rm -rf` of a shell, in the background",
    "removes them before it returns",
)
def test_remove_file_deletes_at_once_files_folders_and_links_but_not_what_links_point_to():
    os.makedirs("folder/sub")
    for name in ("file", "name with spaces; rm x", "x", "folder/sub/y"):
        with open(name, "w"):
            pass
    os.symlink("folder", "link")
    remove_file("link")
    assert os.path.exists("folder/sub/y") and not os.path.lexists("link")
    for name in ("folder", "file", "name with spaces; rm x"):
        remove_file(name)
    assert os.listdir() == ["x"]
    remove_file("missing")


@pytest.mark.parametrize("call", [read_file, remove_file, lambda path, **kw: save_file(path, 1, **kw)])
def test_remote_stores_are_refused_clearly(call):
    for path, fs_type in (("s3://bucket/x", None), ("S3://bucket/x", None), ("x", "ceph"), ("x", "mc")):
        with pytest.raises(NotImplementedError, match="remote store"):
            call(path, fs_type=fs_type)
    with pytest.raises(AssertionError, match="fs_type = 'ftp'"):
        call("x", fs_type="ftp")
    assert os.listdir() == []


@pytest.mark.differs(
    "treats local paths that begin with `s3` as remote, and pickles locally without a client",
    "treats only `s3://` as remote, and raises an error without a client",
)
def test_a_local_folder_whose_name_begins_with_s3_is_local():
    save_file("s3stuff/x", 1)
    assert read_file("s3stuff/x") == 1 and read_file("s3stuff/x", fs_type="normal") == 1
    assert os.listdir("s3stuff") == ["x"]


def test_old_temporary_files_of_killed_writers_are_swept_and_nothing_else(tmp_path):
    with atomic_write(tmp_path / "y") as file:
        (tmp_path / os.listdir(tmp_path)[0].replace(".y.", ".x.")).touch()
        for path in tmp_path.glob(".x.*"):
            os.utime(path, (0, 0))
        file.write(b"mine")
        sweep_temporary(tmp_path)
    assert os.listdir(tmp_path) == ["y"]
    sweep_temporary(tmp_path / "missing")
