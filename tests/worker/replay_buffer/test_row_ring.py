"""The rows that slots refer to: how they are freed, and that equal checksums do not make frames equal."""

from __future__ import annotations

import numpy as np
import pytest

from ding.data.ring import RowRing
from ding.utils.data.samples import Column, Kind


class Slots:
    """A store of `size` slots that are written in order, and whose observations tell their numbers."""

    def __init__(self, size: int, first: int) -> None:
        self.held, self.numbers, self.next = np.zeros(size, np.bool_), np.zeros((size, 2), np.int32), 0
        self.values = np.zeros(size)
        self.ring = RowRing(size, self.columns(0, first), np.empty, False, self.numbers)

    @staticmethod
    def columns(start: int, count: int) -> tuple[Column, Column]:
        data, rows = np.arange(start, start + count + 1, dtype=np.float64), np.arange(count)
        return Column(Kind.ARRAY, data, rows), Column(Kind.ARRAY, data, rows + 1)

    def write(self, start: int, count: int) -> None:
        slots = (self.next + np.arange(count)) % len(self.held)
        self.held[slots] = False
        self.ring.write(slots, *self.columns(start, count), self.held)
        self.held[slots], self.values[slots] = True, start + np.arange(count)
        self.next = (self.next + count) % len(self.held)

    def check(self) -> None:
        obs, next_obs = self.ring.gather(self.numbers[self.held])
        assert obs.data.tolist() == self.values[self.held].tolist()
        assert next_obs.data.tolist() == (self.values[self.held] + 1).tolist()


@pytest.mark.parametrize("count", [1, 7, 50, 100])
def test_rows_of_overwritten_slots_are_freed_without_a_look_at_all_slots(count, monkeypatch):
    slots, looked_at = Slots(100, count), []
    oldest_of = RowRing._oldest_of

    def note(ring, parts, held):
        looked_at.append(sum(len(np.arange(100)[part]) for part in parts))
        return oldest_of(ring, parts, held)

    monkeypatch.setattr(RowRing, "_oldest_of", note)
    monkeypatch.setattr(RowRing, "_repack", None)  # never needed
    for start in range(0, 3000, count):
        slots.write(start, count)
        slots.check()
    assert looked_at and max(looked_at) <= max(count, 3)


def test_removed_slots_free_their_rows_when_there_is_no_other_space():
    slots = Slots(60, 20)
    capacity = len(slots.ring.obs.data)
    for start in range(0, 6000, 20):
        slots.write(start, 20)
        if start % 60 == 0:
            slots.held[np.random.default_rng(start).choice(60, 20, replace=False)] = False
        slots.check()
    assert len(slots.ring.obs.data) == capacity


@pytest.mark.parametrize("in_order", [True, False])
def test_frames_of_equal_checksums_are_compared_in_whatever_order_they_come(in_order, monkeypatch):
    monkeypatch.setattr("ding.data.ring._weights", lambda count: np.zeros(count, np.uint64))
    rng, held, numbers = np.random.default_rng(0), np.zeros(400, np.bool_), np.zeros((400, 2, 3), np.int32)
    images = rng.integers(0, 2, (401, 3, 1, 2)).astype(np.uint8)  # of 4 different frames
    images = np.repeat(images[:67], 6, axis=0)[:401] if in_order else images  # shown for a while
    starts, steps = np.arange(400) // 8 * 8, np.arange(400) % 8
    rows = starts + (np.array([steps, steps + 1]) if in_order else rng.integers(0, 9, (2, 400)))
    obs, next_obs = (Column(Kind.ARRAY, images, part) for part in rows)
    ring = RowRing(400, (obs, next_obs), np.empty, True, numbers)
    for start in range(0, 400, 8):
        part = np.arange(start, start + 8)
        ring.write(slice(start, start + 8), obs.take(part), next_obs.take(part), held)
        held[part] = True
    one, other = ring.gather(numbers)
    assert np.array_equal(one.data, images[rows[0]]) and np.array_equal(other.data, images[rows[1]])


@pytest.mark.parametrize(
    ("seed", "segment", "size", "most", "frames"),
    [*((seed, seed % 4 / 4, 12, 7, 30) for seed in range(8)), (0, 0.25, 60, 8, 250), (8, 0.25, 60, 8, 30)],
)
def test_rows_are_kept_as_long_as_slots_refer_to_them(seed, segment, size, most, frames, monkeypatch):
    monkeypatch.setattr("ding.data.ring._SEGMENT", segment)
    rng, held, numbers = np.random.default_rng(seed), np.zeros(size, np.bool_), np.zeros((size, 2, 2), np.int32)
    stored, ring = np.zeros((2, size, 2, 1, 1), np.uint8), None
    for _ in range(60):
        count = int(rng.integers(1, most))
        first = rng.integers(size - count + 1)
        slots = slice(first, first + count)
        images = rng.integers(0, frames, (2, count, 2, 1, 1)).astype(np.uint8)  # some frames are those of earlier slots
        obs, next_obs = (Column(Kind.ARRAY, values) for values in images)
        if ring is None:
            ring = RowRing(size, (obs, next_obs), np.empty, True, numbers)
        held[slots] = False
        ring.write(slots, obs, next_obs, held)
        held[slots], stored[:, slots] = True, images
        held[rng.random(size) < 0.1] = False
        one, other = ring.gather(numbers[held])
        assert np.array_equal(one.data, stored[0, held]) and np.array_equal(other.data, stored[1, held])
