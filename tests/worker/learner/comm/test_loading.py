"""Samples that come late or damaged, and `load_data_fn`."""

import threading

import pytest
import torch

from ding.utils.compression_helper import get_data_decompressor
from ding.worker.learner.comm import FlaskFileSystemLearner, flask_fs_learner
from ding.worker.learner.comm.chunk_source import read_patiently
from ding.worker.transport.chunk import encode_chunk

never = threading.Event().wait


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
    with pytest.raises(FileNotFoundError, match="nowhere"):
        FlaskFileSystemLearner.load_data_fn(str(tmp_path / "nowhere"), {}, None)
    assert list(tmp_path.iterdir()) == []
