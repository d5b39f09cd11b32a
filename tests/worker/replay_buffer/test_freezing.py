"""Buffers that are frozen, kept as bytes and loaded into others: they go on as if nothing had been."""

import numpy as np
import pytest
from easydict import EasyDict
from hypothesis import given, settings
from hypothesis import strategies as st

from ding.utils.data.samples import Column, Kind, Samples, Table
from ding.utils.msgpack_helper import pack, unpack
from ding.utils.state_folder import StateFolder
from ding.worker.replay_buffer import create_buffer

SIZE = 12
CONFIGS = {
    "advanced": {"type": "advanced", "max_use": 3},
    "advanced with limits": {
        "type": "advanced",
        "max_staleness": 3,
        "thruput_controller": {"push_sample_rate_limit": {"max": 2.5}, "window_seconds": 1e9},
        "monitor": {"sampled_data_attr": {"print_freq": 2}},
    },
    "naive": {"type": "naive"},
    "episode": {"type": "episode"},
    "elastic": {"type": "elastic", "set_buffer_size": lambda envstep: 5 + envstep},
    "deque": {"type": "deque", "max_use": 3},
    "deque with priorities": {"type": "deque", "priority": True, "priority_IS_weight": True},
}
every_kind = pytest.mark.parametrize("kind", CONFIGS)


def make(kind):
    return create_buffer(EasyDict(CONFIGS[kind], replay_buffer_size=SIZE), exp_name="exp")


def items(kind, first, count):
    rows = [{"n": n, "wide": [float(n)] * 9, "collect_iter": n // 4} for n in range(first, first + count)]
    return [[row] for row in rows] if kind == "episode" else rows


def play(buffer, kind, operations):
    """Do the same with any buffer of a kind; returns all batches."""
    batches, pushed = [], buffer.push_count
    for operation, count in operations:
        if operation == "push":
            buffer.push(items(kind, pushed, count), -1)
            pushed += count
        elif buffer.count() >= count:
            batch = buffer.sample(count, 1)
            batches.append(batch)
            if batch is None:
                continue
            if kind == "deque with priorities":
                buffer.update({"priority": [0.5 + item["n"] % 3 for item in batch]})
            if kind.startswith("advanced"):
                keys = ("replay_unique_id", "replay_buffer_idx")
                info = {key: [item[key] for item in batch] for key in keys}
                buffer.update({**info, "priority": [0.5 + item["n"] % 3 for item in batch]})
    return batches


def moved(buffer, kind, tell="freeze"):
    """Another buffer with the frozen state of this one."""
    other = make(kind)
    play(other, kind, [("push", 5), ("sample", 2)])
    other.load_state_dict(unpack(pack(getattr(buffer, tell)())))
    return other


operations = st.lists(st.tuples(st.sampled_from(["push", "sample"]), st.integers(1, 5)), max_size=12)


@every_kind
@settings(max_examples=25)
@given(before=operations, after=operations, tell=st.sampled_from(["freeze", "state_dict", "live_state"]))
def test_a_buffer_that_was_frozen_goes_on_as_the_one_that_was_not(kind, before, after, tell):
    buffer = make(kind)
    play(buffer, kind, before)
    other = moved(buffer, kind, tell)
    assert (other.count(), other.push_count) == (buffer.count(), buffer.push_count)
    assert play(other, kind, after) == play(buffer, kind, after)
    for each in (buffer, other):
        each.close()


@every_kind
def test_a_frozen_state_stays_as_it_is_while_the_buffer_goes_on(kind):
    buffer = make(kind)
    play(buffer, kind, [("push", 9), ("sample", 4)])
    frozen = buffer.freeze()
    before = pack(frozen)
    play(buffer, kind, [("push", 9), ("sample", 5), ("sample", 5)])
    assert pack(frozen) == before
    buffer.close()


@pytest.mark.parametrize("storage", ["memory", "memmap"])
def test_a_large_buffer_goes_on_from_a_folder_of_states(storage, tmp_path):
    cfg = EasyDict(type="advanced", replay_buffer_size=50_000, storage=storage)
    buffer, other = (create_buffer(cfg, exp_name=str(tmp_path / name)) for name in ("one", "other"))
    obs = np.random.default_rng(0).random((60_001, 8), np.float32)

    def push(start, stop):
        numbers = np.arange(start, stop)
        columns = {
            "obs": Column(Kind.ARRAY, obs, numbers),
            "next_obs": Column(Kind.ARRAY, obs, numbers + 1),
            "image": Column(Kind.ARRAY, obs[start:stop].reshape(-1, 2, 2, 2).repeat(5, axis=1)),
        }
        buffer.push(Samples(Table(columns)), -1)

    push(0, 49_000)
    folder = StateFolder(tmp_path / "state")
    for start, stop in ((49_000, 50_000), (50_000, 51_000), (51_000, 52_000)):
        push(start, stop)
        folder.write(buffer.live_state(), {})
    state, _ = folder.read()
    other.load_state_dict(state)
    one, again = buffer.sample(64, 0), other.sample(64, 0)
    assert all(np.array_equal(left["image"], right["image"]) for left, right in zip(one, again, strict=True))
    assert all(np.array_equal(left["next_obs"], right["next_obs"]) for left, right in zip(one, again, strict=True))
    for each in (buffer, other):
        each.close()


def sequences(lengths, size=SIZE, **cfg):
    """A buffer of transitions, in episodes of these lengths; the last one is under way."""
    buffer = create_buffer(EasyDict(type="sequence", replay_buffer_size=size, **cfg), exp_name="exp")
    n = 0
    for length in lengths:
        for step in range(length):
            is_last = step == length - 1 and n + 1 < sum(lengths)
            buffer.push([{"n": n, "done": is_last}], -1)
            n += 1
    return buffer


def windows(buffer, length):
    """All windows of this length there are."""
    drawn = (buffer.sample(1, length, 0, replace=True) for _ in range(200))
    return sorted({tuple(item["n"] for item in sample[0]) for sample in drawn if sample})


def test_an_episode_ends_where_a_transition_is_discarded():
    buffer = sequences([3, 5, 3])
    buffer.discard(lambda item: item["n"] == 5)
    assert windows(buffer, 2) == [(0, 1), (1, 2), (3, 4), (6, 7), (8, 9), (9, 10)]
    buffer.push([{"n": 11, "done": True}], -1)  # the episode under way goes on
    assert (9, 10, 11) in windows(buffer, 3)
    buffer.close()
