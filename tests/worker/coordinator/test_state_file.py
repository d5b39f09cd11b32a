"""The file of a coordinator's state: whole, of this run, or refused."""

import os
import zlib
from pathlib import Path

import numpy as np
import pytest

from ding.utils import compression_helper
from ding.utils.msgpack_helper import pack, unpack
from ding.worker.coordinator.saved_run import (
    STATE_FILE,
    RunIdentity,
    StateError,
    read_state,
    remove_state,
    write_state,
)

RUN = RunIdentity("exp", 3)
STATE = {"samples": 5, "rows": [{"data_id": "a", "data_index": i} for i in range(50)], "books": np.arange(3)}


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "folder" / STATE_FILE)


def test_a_state_comes_back_as_it_was(path):
    size = write_state(path, RUN, STATE)
    assert os.path.getsize(path) == size and os.listdir(os.path.dirname(path)) == [STATE_FILE]
    back = read_state(path, RUN)
    assert back["books"].tolist() == [0, 1, 2]
    assert {**back, "books": None} == {**STATE, "books": None}


@pytest.mark.parametrize(("other", "name"), [(RunIdentity("exp2", 3), "exp2"), (RunIdentity("exp", 4), "4")])
def test_the_state_of_another_run_is_refused(path, other, name):
    write_state(path, other, STATE)
    with pytest.raises(StateError, match=f"is the state of another run: .*{name}.*; this one has exp_name = 'exp'"):
        read_state(path, RUN)


@pytest.mark.parametrize("share", [0, 0.1, 0.5, 0.99])
def test_a_truncated_file_is_refused(path, share):
    size = write_state(path, RUN, STATE)
    os.truncate(path, int(share * size))
    with pytest.raises(StateError, match="is damaged"):
        read_state(path, RUN)


def test_a_file_with_a_wrong_byte_is_refused(path):
    write_state(path, RUN, STATE)
    content = bytearray(Path(path).read_bytes())
    content[-10] ^= 1
    Path(path).write_bytes(content)
    with pytest.raises(StateError, match="its checksum is wrong"):
        read_state(path, RUN)


@pytest.mark.parametrize("content", [{"format": "another"}, [1, 2], {"format": "ding-coordinator", "version": 2}])
def test_other_files_are_refused(path, content):
    os.makedirs(os.path.dirname(path))
    Path(path).write_bytes(pack(content))
    with pytest.raises(StateError, match="no state of a coordinator of version 3; remove it to begin anew"):
        read_state(path, RUN)


def rewritten(path, body):
    """The file of a state with another body, and the checksum of that."""
    write_state(path, RUN, STATE)
    content = {**unpack(Path(path).read_bytes()), "body": body, "checksum": zlib.crc32(body)}
    Path(path).write_bytes(pack(content))


def test_a_state_that_announces_more_than_it_holds_is_refused(path, monkeypatch):
    column = {"size": 2**40, "columns": ["dict", {"__column__": ["same", 1]}], "blocks": []}
    rewritten(path, zlib.compress(pack({"rows": {"__column__": column}})))
    with pytest.raises(StateError, match=r"is damaged .*cannot hold 1099511627776 samples"):
        read_state(path, RUN)
    rewritten(path, zlib.compress(bytes(10**6)))
    monkeypatch.setattr(compression_helper, "_MAX_EXPANDED", 10**5)
    with pytest.raises(StateError, match="is damaged .*expands to more than 100000 bytes"):
        read_state(path, RUN)


@pytest.mark.parametrize("content", [b"nothing", zlib.compress(pack({"rows": {"__column__": 3}}))])
def test_a_state_that_is_none_is_refused(path, content):
    rewritten(path, content)
    with pytest.raises(StateError, match="is damaged"):
        read_state(path, RUN)


def test_what_cannot_be_written_leaves_the_file_before(path):
    write_state(path, RUN, {"a": 1})
    with pytest.raises(TypeError, match="cannot be packed"):
        write_state(path, RUN, {"a": object()})
    assert read_state(path, RUN) == {"a": 1}
    assert unpack(Path(path).read_bytes())["seed"] == 3


def test_a_file_that_is_not_there():
    with pytest.raises(FileNotFoundError):
        read_state("nowhere", RUN)
    remove_state("nowhere")


def test_a_file_is_removed(path):
    write_state(path, RUN, STATE)
    remove_state(path)
    assert not os.path.exists(path)
