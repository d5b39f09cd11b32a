"""The soak command: it counts what it is to count, and takes little memory for it."""

import itertools
import tracemalloc

import numpy as np
import pytest

from ding.utils.data.samples import Column, Kind, Samples, Table
from tests.soak import SeenSamples, Soak


def metadata(chunk, indices):
    columns = {"data_id": Column(Kind.OBJECT, [chunk] * len(indices)), "data_index": Column(Kind.INT, indices)}
    return Samples(Table(columns))


def test_samples_that_come_again_are_doubled():
    seen = SeenSamples(100)
    seen.add([{"data_id": "a", "data_index": 0}, {"data_id": "a", "data_index": 2}, {"data_id": "b", "data_index": 0}])
    assert seen.doubled == 0
    seen.add([{"data_id": "a", "data_index": 1}, {"data_id": "b", "data_index": 0}])
    assert seen.doubled == 1
    seen.add(metadata("a", np.array([0, 1, 2, 3, 3])))
    assert seen.doubled == 5


def test_the_oldest_chunks_are_forgotten():
    seen = SeenSamples(6)
    for chunk in ("a", "b", "c"):
        seen.add(metadata(chunk, np.arange(3)))
    seen.add(metadata("b", np.arange(3)))
    assert seen.doubled == 3
    seen.add(metadata("a", np.arange(3)))
    assert seen.doubled == 3


def test_metadata_stay_in_columns():
    samples = metadata("a", np.arange(3))
    SeenSamples(6).add(samples)
    assert samples.table is not None


def test_the_samples_that_were_seen_take_little_memory():
    seen, numbers = SeenSamples(100_000), itertools.count()
    sizes = []
    tracemalloc.start()
    try:
        for _ in range(3):
            for _ in range(1250):
                seen.add(metadata(f"env_1ed4e899-bfa6-4443-bbf1-b26d89874888_{next(numbers)}", np.arange(80)))
            sizes.append(tracemalloc.get_traced_memory()[0])
    finally:
        tracemalloc.stop()
    assert seen.doubled == 0
    assert max(sizes) < 8 * 100_000  # bytes; a set of pairs takes 13 MB


@pytest.mark.slow
def test_a_minute_of_ten_seconds_has_its_row_and_its_verdict(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    soak = Soak(1, 10.0, "local")
    assert soak.run() == 0
    output = capsys.readouterr().out
    assert "samples doubled: 0; tasks lost: 0; missing: []; shared: +0\ngood" in output
    row = next(line for line in output.splitlines() if line.strip().startswith("1 |")).split(" | ")
    samples, updates, restarts = int(row[2]), int(row[3]), int(row[5])
    assert samples > 0 and updates > 0 and restarts == 0
