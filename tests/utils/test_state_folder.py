"""States of runs on disk."""

import os
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch

from ding.utils.state_folder import StateError, StateFolder


def _large(seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, 3 << 20, dtype=np.uint8).reshape(3, 1024, 1024)


def _newest(folder: Path) -> Path:
    return max(folder.glob("state_*.zip"))


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


def test_states_beyond_those_to_keep_are_removed(tmp_path: Path) -> None:
    folder = StateFolder(tmp_path, keep=2)
    for i in range(4):
        folder.write({"large": _large(i)}, {"iter": i})
    assert [saved.about["iter"] for saved in folder.states()] == [2, 3]
    assert [saved.size_bytes > 3 << 20 for saved in folder.states()] == [True, True]


@pytest.mark.guarantees("files")
@pytest.mark.parametrize("damage", ["cut", "flip", "empty", "missing array", "version"])
def test_a_damaged_state_is_passed_over_with_a_warning(
    damage: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = StateFolder(tmp_path, keep=2)
    folder.write({"large": _large(0)}, {"iter": 0})
    folder.write({"large": _large(1)}, {"iter": 1})
    path = _newest(tmp_path)
    content = path.read_bytes()
    if damage == "cut":
        path.write_bytes(content[:-9])
    elif damage == "flip":
        path.write_bytes(content[: 1 << 20] + bytes([content[1 << 20] ^ 1]) + content[(1 << 20) + 1 :])
    elif damage == "empty":
        path.write_bytes(b"")
    elif damage == "missing array":
        with zipfile.ZipFile(path) as old, zipfile.ZipFile(tmp_path / "new", "w") as new:
            new.comment = old.comment
            for name in ("about", "state"):
                new.writestr(name, old.read(name))
        os.replace(tmp_path / "new", path)
    else:
        _set_version(path, b"99")
    again = StateFolder(tmp_path, keep=2)
    state, about = again.read() or pytest.fail("no state")
    assert about == {"iter": 0}
    np.testing.assert_array_equal(state["large"], _large(0))
    assert "state_000002" in caplog.text and "trying the previous state" in caplog.text
    again.write({}, {"iter": 2})
    assert [*again.states()][-1].about == {"iter": 2} and _newest(tmp_path).name == "state_000003.zip"


def _set_version(path: Path, version: bytes) -> None:
    with zipfile.ZipFile(path, "a") as archive:
        archive.comment = b"ding-run-state " + version


def test_states_can_be_cleared(tmp_path: Path) -> None:
    folder = StateFolder(tmp_path)
    folder.clear()
    folder.write({"large": _large()}, {})
    folder.clear()
    assert folder.read() is None and [*folder.states()] == []


@pytest.mark.guarantees("files")
def test_states_that_are_all_damaged_are_an_error_not_a_new_beginning(tmp_path: Path) -> None:
    StateFolder(tmp_path).write({"a": 1}, {})
    _newest(tmp_path).write_bytes(b"nothing")
    with pytest.raises(StateError, match="no state in .* can be read.*remove"):
        StateFolder(tmp_path).read()


def test_a_state_that_cannot_be_written_leaves_those_of_before(tmp_path: Path) -> None:
    folder = StateFolder(tmp_path)
    folder.write({"large": _large()}, {"iter": 0})
    with pytest.raises(TypeError, match="cannot be packed"):
        folder.write({"large": _large(1), "old": _large(), "odd": object()}, {"iter": 1})
    assert os.listdir(tmp_path) == ["state_000001.zip"]
    assert (folder.read() or pytest.fail("no state"))[1] == {"iter": 0}
