"""Where episodes end in a ring, against a plain list of all that was ever pushed."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ding.data.ring import EpisodeEnds, Ring, done_flags, ends_episode
from ding.utils.data.samples import Samples, Table


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


def put(ring: Ring, ends: EpisodeEnds, dones: list[bool]) -> None:
    for start in range(0, len(dones), ring.size):
        chunk = np.array(dones[start : start + ring.size])
        ends.mark_next(chunk)
        ring.advance(len(chunk))


pushes = st.lists(st.lists(st.booleans(), min_size=1, max_size=20), max_size=12)


@settings(max_examples=100)
@given(st.integers(1, 12), st.one_of(st.none(), st.integers(1, 9)), pushes)
def test_episodes_are_those_of_the_history(size, max_length, all_dones):
    ring = Ring(size)
    ends, history = EpisodeEnds(ring, max_length), History(max_length)
    for dones in all_dones:
        put(ring, ends, dones)
        history.push(dones)
        starts, lengths = ends.episodes()
        assert [n for n in lengths.tolist() if n] == history.lengths(size)
        assert (starts[1:] == np.cumsum(lengths)[:-1]).all()
        assert ends.steps == history.length


@settings(max_examples=100)
@given(st.integers(1, 12), pushes, st.integers(1, 5))
def test_windows_lie_within_one_episode_and_all_of_them_come_up(size, all_dones, length):
    ring, rng, n = Ring(size), np.random.default_rng(0), 0
    ends = EpisodeEnds(ring, None)
    episodes = History(None)
    for dones in all_dones:
        put(ring, ends, dones)
        episodes.push(dones)
        n += len(dones)
    first = max(0, n - size)
    possible = {i for i in range(first, n - length + 1) if len(set(episodes.pushed[i : i + length])) == 1}
    slots = ends.draw(300, length, rng)
    if slots is None:
        assert possible == set()
        return
    numbers = np.zeros(size, np.int64)
    numbers[np.arange(first, n) % size] = np.arange(first, n)
    windows = numbers[slots].tolist()
    assert all(window == list(range(window[0], window[0] + length)) for window in windows)
    assert {window[0] for window in windows} == possible


def test_an_episode_is_drawn_uniformly_whatever_its_length():
    ring, rng = Ring(100), np.random.default_rng(0)
    ends = EpisodeEnds(ring, None)
    put(ring, ends, [i in (9, 99) for i in range(100)])
    slots = ends.draw(4000, 5, rng)
    assert np.mean(slots[:, 0] < 10) == pytest.approx(0.5, abs=0.03)


def test_an_emptied_slot_parts_an_episode_in_two():
    ring = Ring(8)
    ends = EpisodeEnds(ring, None)
    put(ring, ends, [i == 5 for i in range(8)])
    ring.release(np.array([2, 7]))
    starts, lengths = ends.episodes()
    assert list(zip(starts.tolist(), lengths.tolist(), strict=True)) == [(0, 2), (3, 3), (6, 1), (8, 0)]


def test_cut_ends_the_episode_under_way():
    ring = Ring(8)
    ends = EpisodeEnds(ring, 5)
    ends.end_current()
    assert not ends.is_last.any()
    put(ring, ends, [False] * 3)
    ends.end_current()
    ends.end_current()
    put(ring, ends, [False] * 5)
    assert ends.episodes()[1].tolist() == [3, 5, 0]


def test_marks_can_be_found_anew_from_the_items():
    ring = Ring(8)
    ends = EpisodeEnds(ring, 4)
    dones = [i == 6 for i in range(12)]
    put(ring, ends, dones)
    ends.steps = 9
    ends.mark_all(np.array(dones[4:]))
    assert ends.episodes()[1].tolist() == [3, 4, 1]
    assert ends.steps == 1
    ring.reset()
    ends.mark_all(np.array([], np.bool_))
    assert ends.episodes()[1].tolist() == [0]


@pytest.mark.parametrize(
    ("item", "is_last"),
    [
        ({"done": True}, True),
        ({"done": np.bool_(False)}, False),
        ({"done": torch.tensor([True])}, True),
        ({"done": np.array([1.0], np.float32)}, True),
        ({"done": [True, False]}, False),
        ({"done": [True, True]}, True),
        ({}, False),
        ("text", False),
    ],
)
def test_done_flags_of_every_kind_are_understood(item, is_last):
    assert ends_episode(item) is is_last
    assert done_flags([item, item]).tolist() == [is_last, is_last]
    table = Table.of([item, item])
    if table is not None:
        samples = Samples(table)
        assert done_flags(table).tolist() == done_flags(samples).tolist() == [is_last, is_last]
        assert samples.table is table
