"""States of runs on disk."""

import errno
import os
import re
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from ding.utils import state_folder
from ding.utils.msgpack_helper import pack, unpack
from ding.utils.state_folder import StateError, StateFolder


def _large(seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, 3 << 20, dtype=np.uint8).reshape(3, 1024, 1024)


def _chunks(folder: Path) -> set[str]:
    return set(os.listdir(folder / "chunks"))


def _newest(folder: Path) -> Path:
    return max(folder.glob("state_*.msgpack"))


def test_a_state_comes_back_as_it_was_with_large_and_small_arrays(tmp_path: Path) -> None:
    tensor = torch.arange(50_000, dtype=torch.float64).reshape(100, 500).t()
    state = {
        "large": _large(),
        "small": np.arange(3),
        "tensor": tensor,
        "half": torch.ones(40_000, dtype=torch.bfloat16),
        "nested": [{"again": (1, _large(1)[:, ::2])}, 2**80, None, "text", b"bytes"],
        5: np.float32(0.5),
    }
    assert StateFolder(tmp_path).write(state, {"iter": 7}) > 3 << 20
    read, about = StateFolder(tmp_path).read() or pytest.fail("no state")
    assert about == {"iter": 7}
    np.testing.assert_array_equal(read["large"], state["large"])
    np.testing.assert_array_equal(read["nested"][0]["again"][1], _large(1)[:, ::2])
    np.testing.assert_array_equal(read["small"], np.arange(3))
    assert torch.equal(read["tensor"], tensor) and torch.equal(read["half"], state["half"])
    assert read["half"].dtype is torch.bfloat16 and read["large"].flags.writeable
    assert read["nested"][1:] == [2**80, None, "text", b"bytes"] and read[5] == 0.5


def test_an_array_that_is_shared_within_a_state_is_one_array_again(tmp_path: Path) -> None:
    large = _large()
    StateFolder(tmp_path).write({"a": large, "b": [large]}, {})
    state, _ = StateFolder(tmp_path).read() or pytest.fail("no state")
    assert state["a"] is state["b"][0]
    assert len(_chunks(tmp_path)) == 3


def test_only_the_chunks_that_changed_are_written(tmp_path: Path) -> None:
    folder, large = StateFolder(tmp_path), _large()
    first = folder.write({"large": large}, {})
    assert folder.write({"large": large}, {}) < 1000 < first
    large[1, 0, 0] ^= 1
    assert 1 << 20 < folder.write({"large": large}, {}) < (1 << 20) + 1000
    state, _ = folder.read() or pytest.fail("no state")
    np.testing.assert_array_equal(state["large"], large)


def test_states_beyond_those_to_keep_go_with_the_chunks_that_nobody_needs(tmp_path: Path) -> None:
    folder = StateFolder(tmp_path, keep=2)
    for i in range(4):
        folder.write({"large": _large(i)}, {"iter": i})
        assert len(_chunks(tmp_path)) == 3 * min(i + 1, 2)
    assert [saved.about["iter"] for saved in folder.states()] == [2, 3]
    assert [saved.size_bytes > 3 << 20 for saved in folder.states()] == [True, True]


def test_a_folder_without_states_has_none(tmp_path: Path) -> None:
    assert StateFolder(tmp_path / "missing").read() is None
    assert StateFolder(tmp_path).about() is None


@pytest.mark.parametrize("damage", ["cut", "flip", "empty", "chunk", "missing chunk", "version"])
def test_a_damaged_state_is_passed_over_with_a_warning_and_removed_by_the_next(
    damage: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = StateFolder(tmp_path, keep=2)
    folder.write({"large": _large(0)}, {"iter": 0})
    before = _chunks(tmp_path)
    folder.write({"large": _large(1)}, {"iter": 1})
    path, chunk = _newest(tmp_path), tmp_path / "chunks" / min(_chunks(tmp_path) - before)
    content = path.read_bytes()
    if damage == "cut":
        path.write_bytes(content[:-9])
    elif damage == "flip":
        path.write_bytes(content[:-9] + bytes([content[-9] ^ 1]) + content[-8:])
    elif damage == "empty":
        path.write_bytes(b"")
    elif damage == "chunk":
        chunk.write_bytes(chunk.read_bytes()[:-1] + b"?")
    elif damage == "missing chunk":
        chunk.unlink()
    else:
        path.write_bytes(pack({**unpack(content), "version": 99}))
    again = StateFolder(tmp_path, keep=2)
    state, about = again.read() or pytest.fail("no state")
    assert about == {"iter": 0}
    np.testing.assert_array_equal(state["large"], _large(0))
    assert re.search("state_000002|chunks", caplog.text) and "trying the previous state" in caplog.text
    again.write({}, {"iter": 2})
    assert [saved.about["iter"] for saved in again.states()] == [0, 2]
    assert not path.exists() and _newest(tmp_path).name == "state_000003.msgpack"


def _forge(folder: Path, **changes: Any) -> None:
    """Change what the newest state says of its first array."""
    path = _newest(folder)
    body = unpack(unpack(path.read_bytes())["body"])
    body["arrays"][0].update(changes)
    packed = pack(body)
    path.write_bytes(pack({**unpack(path.read_bytes()), "body": packed, "checksum": zlib.crc32(packed)}))


@pytest.mark.parametrize("kind", ["array", "tensor"])
@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"shape": [2**40]}, "the chunks of an array of 8796093022208 bytes have 800000"),
        ({"shape": [10]}, "the chunks of an array of 80 bytes have 800000"),
        ({"chunks": []}, "the chunks of an array of 800000 bytes have 0"),
        ({"chunks": [["0" * 40, 800_000]]}, "the chunk .* of a state is missing"),
        ({"dtype": "nothing"}, "cannot be read"),
        ({"dtype": "m8[s/0]"}, "cannot be read"),
        ({"shape": "large"}, "cannot be read"),
        ({"chunks": [3]}, "cannot be read"),
    ],
)
def test_an_array_that_its_chunks_do_not_fill_is_refused_before_memory_is_taken(
    kind: str, changes: dict[str, Any], told: str, tmp_path: Path
) -> None:
    large = np.arange(100_000)
    StateFolder(tmp_path).write({"large": large if kind == "array" else torch.from_numpy(large)}, {})
    chunks = _chunks(tmp_path)
    _forge(tmp_path, **changes)
    with pytest.raises(StateError, match=told):
        StateFolder(tmp_path).read()
    assert _chunks(tmp_path) == chunks  # they may belong to another state


def test_a_chunk_of_another_size_is_refused_and_stays(tmp_path: Path) -> None:
    StateFolder(tmp_path).write({"large": np.arange(100_000)}, {})
    [name] = _chunks(tmp_path)
    _forge(tmp_path, shape=[5], chunks=[[name, 40]])
    with pytest.raises(StateError, match="is damaged: it has not 40 bytes"):
        StateFolder(tmp_path).read()
    assert _chunks(tmp_path) == {name}


def test_a_state_that_goes_while_states_are_listed_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(2):
        StateFolder(tmp_path, keep=2).write({}, {"iter": number})
    read = state_folder._read_body

    def read_and_remove(path: str, *keys: str) -> Any:
        body = read(path, *keys)
        if body["about"]["iter"] == 0:  # the run that writes has just replaced it
            os.unlink(path)
        return body

    monkeypatch.setattr(state_folder, "_read_body", read_and_remove)
    assert [saved.about for saved in StateFolder(tmp_path).states()] == [{"iter": 1}]


def test_states_can_be_cleared(tmp_path: Path) -> None:
    folder = StateFolder(tmp_path)
    folder.clear()
    folder.write({"large": _large()}, {})
    folder.clear()
    assert folder.read() is None and not _chunks(tmp_path) and [*folder.states()] == []


def test_a_dict_that_looks_like_a_reference_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="a dict with the key '__array__' cannot be saved"):
        StateFolder(tmp_path).write({"a": {"__array__": 0}}, {})


def test_states_that_are_all_damaged_are_an_error_not_a_new_beginning(tmp_path: Path) -> None:
    StateFolder(tmp_path).write({"a": 1}, {})
    _newest(tmp_path).write_bytes(b"nothing")
    with pytest.raises(StateError, match="no state in .* can be read.*remove"):
        StateFolder(tmp_path).read()


def test_a_state_of_another_version_is_refused_in_one_line_that_says_what_to_do(tmp_path: Path) -> None:
    StateFolder(tmp_path).write({"a": 1}, {})
    path = _newest(tmp_path)
    path.write_bytes(pack({**unpack(path.read_bytes()), "version": 1}))
    with pytest.raises(StateError, match="is of version 1, but this package reads version 5; go on with"):
        StateFolder(tmp_path).read()


def test_a_state_that_cannot_be_written_leaves_those_of_before(tmp_path: Path) -> None:
    folder = StateFolder(tmp_path)
    folder.write({"large": _large()}, {"iter": 0})
    chunks = _chunks(tmp_path)
    with pytest.raises(TypeError, match="cannot be packed"):
        folder.write({"large": _large(1), "old": _large(), "odd": object()}, {"iter": 1})
    assert _chunks(tmp_path) == chunks and len(chunks) == 3
    assert (folder.read() or pytest.fail("no state"))[1] == {"iter": 0}


@pytest.mark.parametrize("files", [1, 3], ids=["one of three chunks", "all chunks"])
def test_a_disk_that_is_full_is_not_filled_with_chunks_of_states_that_were_not_saved(
    files: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, replace, renamed = StateFolder(tmp_path), os.replace, list[str]()
    folder.write({"large": _large()}, {"iter": 0})
    chunks = _chunks(tmp_path)

    def fill(source: str, target: str) -> None:
        if len(renamed) == files:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        renamed.append(target)
        replace(source, target)

    monkeypatch.setattr(os, "replace", fill)
    for attempt in range(2):
        renamed.clear()
        with pytest.raises(OSError, match="No space left on device"):
            folder.write({"large": _large(1 + attempt)}, {"iter": 1})
        assert _chunks(tmp_path) == chunks
    monkeypatch.undo()
    assert (folder.read() or pytest.fail("no state"))[1] == {"iter": 0}


def test_a_write_that_is_interrupted_after_its_file_is_in_place_keeps_its_chunks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replace = os.replace

    def interrupted(source: str, target: str) -> None:
        replace(source, target)
        if "state_" in os.path.basename(target):
            raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        StateFolder(tmp_path).write({"large": _large()}, {"iter": 0})
    state, _ = StateFolder(tmp_path).read() or pytest.fail("no state")
    np.testing.assert_array_equal(state["large"], _large())


def test_content_whose_chunk_was_damaged_is_written_again(tmp_path: Path) -> None:
    folder = StateFolder(tmp_path)
    folder.write({}, {"iter": 0})
    folder.write({"large": _large()}, {"iter": 1})
    chunk = tmp_path / "chunks" / min(_chunks(tmp_path))
    chunk.write_bytes(bytes(len(chunk.read_bytes())))
    assert (folder.read() or pytest.fail("no state"))[1] == {"iter": 0}
    folder.write({"large": _large()}, {"iter": 2})
    state, _ = folder.read() or pytest.fail("no state")
    np.testing.assert_array_equal(state["large"], _large())


def test_leftovers_of_a_killed_writer_go_with_the_next_state(tmp_path: Path) -> None:
    folder = StateFolder(tmp_path)
    folder.write({"a": 1}, {})
    (tmp_path / "chunks" / ("0123" * 10)).write_bytes(b"of a state that was never finished")
    folder.write({"a": 2}, {})
    assert _chunks(tmp_path) == set()


def test_what_is_no_chunk_stays_in_the_folder_of_chunks(tmp_path: Path) -> None:
    folder, chunks, outside = StateFolder(tmp_path), tmp_path / "chunks", tmp_path / "outside"
    folder.write({}, {})
    outside.write_bytes(b"outside")
    (chunks / ("0123" * 10)).symlink_to(outside)
    (chunks / "dangling").symlink_to(tmp_path / "missing")
    (chunks / "notes.txt").write_bytes(b"notes")
    (chunks / ("4567" * 10)).mkdir()
    names = _chunks(tmp_path)
    folder.write({}, {"iter": 1})
    folder.clear()
    assert _chunks(tmp_path) == names and len(names) == 4 and outside.read_bytes() == b"outside"


def test_a_linked_folder_of_chunks_is_refused_and_its_files_stay(tmp_path: Path) -> None:
    path, other = tmp_path / "run_state", tmp_path / "other"
    StateFolder(other).write({"large": _large()}, {})
    StateFolder(path).write({}, {"iter": 0})
    (path / "chunks").rmdir()
    (path / "chunks").symlink_to(other / "chunks")
    chunks = _chunks(other)
    for use in (lambda: StateFolder(path).write({}, {"iter": 1}), StateFolder(path).read):
        with pytest.raises(StateError, match="chunks is a symbolic link, which is not allowed"):
            use()
    assert StateFolder(path).about() == {"iter": 0}
    StateFolder(path).clear()
    assert StateFolder(path).about() is None and _chunks(other) == chunks and len(chunks) == 3


def test_a_folder_of_states_may_be_a_link(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "run_state").symlink_to(tmp_path / "disk")
    StateFolder(tmp_path / "run_state").write({"large": _large()}, {"iter": 1})
    assert StateFolder(tmp_path / "disk").about() == {"iter": 1}
