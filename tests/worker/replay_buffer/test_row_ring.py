"""The rows that slots refer to, and how they are freed."""

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


def test_removed_slots_free_their_rows_when_there_is_no_other_space():
    slots = Slots(60, 20)
    capacity = len(slots.ring.obs.data)
    for start in range(0, 6000, 20):
        slots.write(start, 20)
        if start % 60 == 0:
            slots.held[np.random.default_rng(start).choice(60, 20, replace=False)] = False
        slots.check()
    assert len(slots.ring.obs.data) == capacity


@pytest.mark.parametrize(
    ("seed", "size", "most", "frames"), [*((seed, 12, 7, 30) for seed in range(4)), (0, 60, 8, 250), (8, 60, 8, 30)]
)
def test_rows_are_kept_as_long_as_slots_refer_to_them(seed, size, most, frames):
    rng, held, numbers = np.random.default_rng(seed), np.zeros(size, np.bool_), np.zeros((size, 2, 2), np.int32)
    stored, ring = np.zeros((2, size, 2, 1, 1), np.uint8), None
    for _ in range(60):
        count = int(rng.integers(1, most))
        first = rng.integers(size - count + 1)
        slots = slice(first, first + count)
        images = rng.integers(0, frames, (2, count, 2, 1, 1)).astype(np.uint8)  # some frames are those of earlier slots
        data = images.reshape(-1, 2, 1, 1)
        obs, next_obs = (
            Column(Kind.ARRAY, data, rows, False, data.reshape(-1, 2).astype(np.int64))
            for rows in np.arange(2 * count).reshape(2, count)
        )
        if ring is None:
            ring = RowRing(size, (obs, next_obs), np.empty, True, numbers)
        held[slots] = False
        ring.write(slots, obs, next_obs, held)
        held[slots], stored[:, slots] = True, images
        held[rng.random(size) < 0.1] = False
        one, other = ring.gather(numbers[held])
        assert np.array_equal(one.data, stored[0, held]) and np.array_equal(other.data, stored[1, held])
