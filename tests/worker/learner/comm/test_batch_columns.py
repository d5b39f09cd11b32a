"""Batches as one gather out of chunks in columns: the same samples that one by one would be."""

import sys
import threading

import numpy as np
import pytest
import torch

from ding.utils.data import default_collate
from ding.utils.data.plain_columns import from_plain
from ding.utils.data.samples import Samples
from ding.worker.learner.comm.chunk_source import ChunkReader, ChunkSource
from ding.worker.transport.chunk import encode_chunk, pick_sample, to_content
from tests.worker.learner.comm.test_chunk_source import Shelf
from tests.worker.learner.comm.workers import entry


def transitions(count, seed=0, **more):
    """A fragment whose `next_obs` are the `obs` of the next ones."""
    obs = list(torch.randn(count + 1, 4, generator=torch.Generator().manual_seed(seed)))
    return [
        {
            "obs": obs[i],
            "next_obs": obs[i + 1],
            "action": torch.tensor([i]),
            "reward": torch.tensor([i + 0.5]),
            "done": i == count - 1,
            "mask": [np.float32(i), np.float32(seed)],
            "note": f"{seed}_{i}",
            **more,
        }
        for i in range(count)
    ]


def put(shelf, name, items):
    shelf.chunks[name] = encode_chunk(items, "lz4")


def assert_same(one, other):
    """Equal in types, dtypes, values and the order of keys."""
    assert type(one) is type(other)
    if isinstance(one, dict):
        assert list(one) == list(other)
    if isinstance(one, (dict, list)):
        assert len(one) == len(other)
        for key in one if isinstance(one, dict) else range(len(one)):
            assert_same(one[key], other[key])
    elif isinstance(one, (torch.Tensor, np.ndarray, np.generic)):
        assert one.dtype == other.dtype and one.shape == other.shape and (one == other).all()
    else:
        assert one == other


def one_by_one(shelf, rows):
    """The batch as a reader that keeps nothing finds it, sample by sample."""
    return [pick_sample(ChunkReader(shelf).samples(row["data_id"], row["compressor"]), row) for row in rows]


@pytest.fixture
def shelf():
    return Shelf()


@pytest.fixture
def make_loader(shelf):
    made = []

    def make(**how):
        made.append(ChunkSource(ChunkReader(shelf, **how), 0.0, threading.Event().wait))
        return made[-1]

    yield make
    for loader in made:
        loader.stop()


def loaded(loader, rows):
    batch, count = loader.load(rows)
    assert count == len(rows)
    return batch


def test_a_batch_in_columns_holds_what_its_samples_one_by_one_hold(shelf, make_loader):
    for number in range(3):
        put(shelf, f"c{number}", transitions(5, number))
    rows = [entry(f"c{i % 3}", i % 5, priority=0.5 + i, IS=1.0, policy_iter=[i, 1]) for i in (7, 0, 11, 7, 4)]
    batch = loaded(make_loader(), rows)
    assert type(batch) is Samples and batch.table is not None
    assert_same(list(batch), one_by_one(shelf, rows))


def test_metadata_replace_what_a_sample_says_under_the_same_key(shelf, make_loader):
    put(shelf, "c", transitions(2, priority=9.0))
    batch = loaded(make_loader(), [entry("c", i, priority=0.25 * i) for i in (1, 0)])
    assert batch.table is not None and [item["priority"] for item in batch] == [0.25, 0.0]


def test_a_changed_item_is_trained_and_changes_no_other_batch(shelf, make_loader):
    put(shelf, "c", transitions(3))
    loader, rows = make_loader(), [entry("c", i) for i in (0, 1)]
    batch = loaded(loader, rows)
    batch[0]["obs"] += 100.0
    batch[1]["reward"] = torch.tensor([7.0])
    collated = default_collate(batch)
    assert collated["obs"][0].tolist() == (transitions(3)[0]["obs"] + 100.0).tolist()
    assert collated["reward"].tolist() == [0.5, 7.0]
    again = loaded(loader, rows)
    assert again.table is not None
    assert_same(list(again), one_by_one(shelf, rows))


@pytest.mark.parametrize("budget_bytes", [0, 3000, 2**20])
def test_batches_stay_right_while_chunks_come_move_and_go(shelf, make_loader, budget_bytes):
    rng, loader = np.random.default_rng(1), make_loader(budget_bytes=budget_bytes)
    sizes = {}
    for number in range(60):
        name = f"c{number}"
        sizes[name] = int(rng.integers(1, 90))
        put(shelf, name, transitions(sizes[name], number))
        names = rng.choice(list(sizes)[-20:], 8).tolist()
        rows = [entry(name, int(rng.integers(sizes[name]))) for name in names]
        batch = loaded(loader, rows)
        assert batch.table is not None
        assert_same(list(batch), one_by_one(shelf, rows))


@pytest.mark.parametrize(
    "odd",
    [
        transitions(2, extra=1),
        [{**step, "obs": torch.zeros(5)} for step in transitions(2)],
        [{**step, "reward": 1} for step in transitions(2)],
        [transitions(2), transitions(3)],
    ],
)
def test_a_chunk_unlike_the_others_is_read_sample_by_sample(shelf, make_loader, odd, caplog):
    put(shelf, "c", transitions(2))
    put(shelf, "odd", odd)
    loader, rows = make_loader(), [entry("c", 0), entry("odd", 1), entry("c", 1)]
    batch = loaded(loader, rows)
    assert_same(list(batch), one_by_one(shelf, rows))
    assert loaded(loader, [entry("c", 1), entry("c", 0)]).table is not None
    assert caplog.text == ""


def test_a_part_of_a_trajectory_comes_as_a_list_of_dicts(shelf, make_loader):
    put(shelf, "c", transitions(6))
    rows = [entry("c", 0, unroll_split_begin=begin, unroll_len=3) for begin in (0, 2)]
    batch = loaded(make_loader(), rows)
    assert [[step["note"] for step in part] for part in batch] == [["0_0", "0_1", "0_2"], ["0_2", "0_3", "0_4"]]


def calls_of_loading(loader, rows):
    """How many Python functions a load of these rows calls."""
    calls = []
    sys.setprofile(lambda frame, event, arg: calls.append(frame) if event == "call" else None)
    try:
        loader.load(rows)
    finally:
        sys.setprofile(None)
    return len(calls)


def test_a_batch_of_cached_chunks_takes_no_call_for_each_sample(shelf, make_loader):
    for number in range(64):
        put(shelf, f"c{number}", transitions(2, number))
    loader, metadata = make_loader(), [entry(f"c{number}", number % 2) for number in range(64)]
    loaded(loader, metadata)
    few, many = (from_plain(to_content(metadata[:size])) for size in (16, 64))
    assert calls_of_loading(loader, few) == calls_of_loading(loader, many) < 60
