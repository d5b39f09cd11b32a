"""How many Python calls into the package a block of samples takes: as many for a large one as for a small one."""

from __future__ import annotations

import gc
import os
import sys
from typing import Any

import numpy as np
import pytest

import ding
from ding.utils.data.samples import Column, Kind, Samples, Table
from ding.worker import AdvancedReplayBuffer, NaiveReplayBuffer
from ding.worker.replay_buffer.utils import ThruputController


def block(count: int) -> Samples:
    obs, rows = np.zeros((count + 1, 4), np.float32), np.arange(count)
    columns = {"obs": Column(Kind.TENSOR, obs, rows), "next_obs": Column(Kind.TENSOR, obs, rows + 1)}
    numbers = {key: Column(Kind.FLOAT, np.ones(count)) for key in ("reward", "priority")}
    return Samples(Table({**columns, **numbers, "collect_iter": Column(Kind.INT, np.zeros(count, np.int64))}))


def calls_of(function: Any, *args: Any) -> int:
    """Calls of functions of the package, while `function` runs."""
    root, before, count = os.path.dirname(ding.__file__), sys.getprofile(), 0

    def profile(frame: Any, event: str, arg: Any) -> None:
        nonlocal count
        count += event == "call" and frame.f_code.co_filename.startswith(root)

    gc.collect()
    gc.disable()  # what others left behind may call functions of the package when it is deleted
    sys.setprofile(profile)
    try:
        function(*args)
    finally:
        sys.setprofile(before)
        gc.enable()
    return count


@pytest.mark.parametrize(
    "make",
    [
        lambda: AdvancedReplayBuffer({"replay_buffer_size": 5000}),
        lambda: NaiveReplayBuffer({"replay_buffer_size": 5000}),
    ],
    ids=["advanced", "naive"],
)
def test_a_block_takes_as_many_calls_whatever_its_size(make, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(ThruputController, "_decay", lambda self: None)  # once a second
    buffer, calls = make(), {}
    for i, size in enumerate((64, 64, 1000)):  # the first push makes the columns
        push = calls_of(buffer.push, block(size), 0)
        sample = calls_of(buffer.sample, 64, 0) if size == 64 else calls_of(buffer.sample, 1000, 0)
        batch = buffer.sample(size, 0)
        info = {
            key: batch.table.columns[key].values()
            for key in ("replay_unique_id", "replay_buffer_idx")
            if key in batch.table.columns
        }
        # Falling priorities: the smallest weight never has to be searched for.
        update = calls_of(buffer.update, {**info, "priority": np.full(size, 0.5 ** (i + 1))})
        calls[size] = push, sample, update
    assert calls[1000] == calls[64] and max(calls[64]) <= 60
    buffer.close()
