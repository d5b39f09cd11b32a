"""The sequence buffer: windows of transitions in a row, never across the end of an episode."""

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ding.worker.replay_buffer import SequenceReplayBuffer
from tests.fakes import FakeWriter


def steps(start: int, stop: int, ends: tuple[int, ...] = ()) -> list[dict]:
    return [{"n": i, "done": i in ends} for i in range(start, stop)]


def numbers(windows: list[list[dict]]) -> list[list[int]]:
    return [[item["n"] for item in window] for window in windows]


def test_episodes_have_500_transitions_where_nothing_else_is_said(make_sequence):
    buffer = make_sequence(1200)
    buffer.push(steps(0, 1100), 0)
    starts = {window[0] for window in numbers(buffer.sample(60, 499, 0, replace=True))}
    assert starts == {0, 1, 500, 501}


@pytest.mark.differs(
    "mixes old and new transitions in the windows of a sequence buffer that wraps around, and assumes 500 "
    "transitions in every episode",
    "counts the episodes that are pushed, of at most `episode_length`",
)
def test_episodes_are_counted_over_pushes_and_over_the_end_of_the_ring(make_sequence):
    buffer = make_sequence(12, episode_length=5)
    for start in range(0, 28, 2):
        buffer.push(steps(start, start + 2), 0)
    windows = numbers(buffer.sample(100, 3, 0, replace=True))  # 16 to 27 are there
    assert {window[0] for window in windows} == {16, 17, 20, 21, 22, 25}


@pytest.mark.differs(
    "loops forever, with the lock, in a sequence buffer without a long enough episode",
    "returns None and logs the reason",
)
def test_no_episode_is_long_enough_gives_none_and_a_log_line_at_once(make_sequence):
    buffer = make_sequence(100, name="short", episode_length=500)
    buffer.push(steps(0, 100, ends=(49,)), 0)
    assert buffer.sample(1, 51, 0) is None
    assert "longest" in Path("exp/log/short/short_logger.txt").read_text()
    buffer.push(steps(100, 101), 0)
    assert numbers(buffer.sample(1, 50, 0)) in ([list(range(50, 100))], [list(range(51, 101))])


def test_too_few_transitions_give_none_unless_replaced(make_sequence):
    buffer = make_sequence(64)
    assert buffer.sample(2, 5, 0) is None and buffer.sample(1, 1, 0, replace=True) is None
    buffer.push(steps(0, 9), 0)
    assert buffer.sample(2, 5, 0) is None
    assert len(buffer.sample(20, 5, 0, replace=True)) == 20
    assert buffer.sample(0, 5, 0) == []


@pytest.mark.parametrize(("batch", "sequence"), [(-1, 4), (1, 0), (1, 33), (1, 65)])
def test_windows_that_can_never_be_are_refused(make_sequence, batch, sequence):
    buffer = make_sequence(64, episode_length=32)
    with pytest.raises(ValueError, match="sequence in \\[1, 32\\]"):
        buffer.sample(batch, sequence, 0)


def test_a_sample_range_is_not_implemented(make_sequence):
    with pytest.raises(NotImplementedError):
        make_sequence(64).sample(1, 5, 0, sample_range=slice(-10, None))


def test_what_is_handed_out_is_the_callers(make_sequence):
    buffer = make_sequence(8)
    obs = torch.zeros(1)
    buffer.push([{"obs": obs, "done": False}, {"obs": obs, "done": False}], 0)
    first, second = buffer.sample(2, 1, 0)
    first[0]["seen"] = True
    first.append("more")
    first[0]["obs"] += 5
    assert obs == second[0]["obs"] == 0 and "seen" not in second[0]
    assert all("seen" not in item for item in buffer._data[:2])


def test_a_state_rebuilds_episodes_and_draws(make_sequence):
    buffer, other = make_sequence(12, episode_length=5), make_sequence(12, name="other", episode_length=5)
    buffer.push(steps(0, 23, ends=(16,)), 0)
    other.push(steps(0, 3), 0)
    other.load_state_dict(buffer.state_dict())
    assert numbers(other.sample(4, 3, 0)) == numbers(buffer.sample(4, 3, 0))
    for each in (buffer, other):
        each.push(steps(23, 25), 0)
    assert all(map(np.array_equal, other._episodes(), buffer._episodes())) and buffer._steps == other._steps


def test_a_file_keeps_where_episodes_end(make_sequence):
    buffer, other = make_sequence(12, episode_length=5), make_sequence(32, name="other", episode_length=5)
    buffer.push(steps(0, 18), 0)  # 6 to 17 are there, in episodes of 4, 5 and 3
    buffer.save_data("data")
    other.push(steps(100, 102), 0)
    other.load_data("data")
    other.push(steps(200, 204), 0)
    _, starts, lengths = other._episodes()
    assert lengths.tolist() == [2, 4, 5, 3, 4] and starts[-1] == 14
    small = make_sequence(6, name="small", episode_length=5)
    small.load_data("data")
    assert small._episodes()[2].tolist() == [3, 3]


# Which transitions of a sequence buffer are of one episode, against a plain list of all that was ever pushed.


class History:
    """Remembers every item with the number of its episode."""

    def __init__(self, max_length: int | None) -> None:
        self.max_length, self.episode, self.length = max_length, 0, 0
        self.pushed: list[int] = []

    def push(self, dones: list[bool]) -> None:
        for done in dones:
            self.pushed.append(self.episode)
            self.length += 1
            if done or self.length == self.max_length:
                self.episode, self.length = self.episode + 1, 0

    def lengths(self, size: int) -> list[int]:
        kept = self.pushed[-size:]
        return [kept.count(episode) for episode in sorted(set(kept))]


def make(size: int, episode_length: int | None = None) -> SequenceReplayBuffer:
    return SequenceReplayBuffer({"replay_buffer_size": size, "episode_length": episode_length}, FakeWriter(), "exp")


def put(buffer: SequenceReplayBuffer, dones: list[bool]) -> None:
    buffer.push([{"n": buffer.push_count + i, "done": done} for i, done in enumerate(dones)], 0)


pushes = st.lists(st.lists(st.booleans(), min_size=1, max_size=20), max_size=12)


@settings(max_examples=50)
@given(st.integers(1, 12), pushes, st.integers(1, 5))
def test_windows_lie_within_one_episode_and_all_of_them_come_up(size, all_dones, length):
    with make(size) as buffer:
        episodes, n = History(None), 0
        for dones in all_dones:
            put(buffer, dones)
            episodes.push(dones)
            n += len(dones)
        first = max(0, n - size)
        possible = {i for i in range(first, n - length + 1) if len(set(episodes.pushed[i : i + length])) == 1}
        if length > size:
            return
        sampled = buffer.sample(300, length, 0, replace=True)
        if sampled is None:
            assert possible == set()
            return
        windows = [[item["n"] for item in window] for window in sampled]
        assert all(window == list(range(window[0], window[0] + length)) for window in windows)
        assert {window[0] for window in windows} == possible
