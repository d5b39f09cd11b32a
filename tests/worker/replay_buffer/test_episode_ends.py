"""Which transitions of a sequence buffer are of one episode, against a plain list of all that was ever pushed."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from ding.worker.replay_buffer import SequenceReplayBuffer
from tests.fakes import FakeWriter


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


@settings(max_examples=100)
@given(st.integers(1, 12), st.one_of(st.none(), st.integers(1, 9)), pushes)
def test_episodes_are_those_of_the_history(size, max_length, all_dones):
    with make(size, max_length) as buffer:
        history = History(max_length)
        for dones in all_dones:
            put(buffer, dones)
            history.push(dones)
            slots, starts, lengths = buffer._episodes()
            assert lengths.tolist() == history.lengths(size) and lengths.sum() == len(slots)
            assert (starts[1:] == np.cumsum(lengths)[:-1]).all()
            assert buffer._steps == history.length


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
