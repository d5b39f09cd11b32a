"""Observations that several samples refer to, stored once."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from ding.utils.data.samples import Column
from ding.utils.segment_tree import IntArray

Array = npt.NDArray[np.generic]
# Makes an array of a shape and dtype, whose contents do not matter.
Allocate = Callable[[tuple[int, ...], np.dtype], Array]

# More room than the first push asks for, and how much is added when there is not enough.
_SPARE, _GROWTH = 1.03, 1.12
# The newest frames, of which later pushes may share some, are so small a part of the ring, or those of the last push.
_RECENT = 1 / 16


class RowRing:
    """Rows written round and round, which the columns `obs` and `next_obs` of a store refer to. Not thread-safe.

    A row stays while a slot that holds an item refers to it. With `share_frames` a row is a frame: an observation
    [C, ...] refers to C of them, and those that it has in common with the observation before it, or with a recent push,
    are stored once: a fragment goes on where the fragment before it of the same env has ended.

    Args:
        size: slots of the store.
        first: the values of the first push, `obs` and `next_obs`; their number of rows for each item is expected of
            later ones, too. Where there are more, the ring grows.
        allocate: makes arrays.
        share_frames: whether to store frames.
        numbers: int32 [size, 2], or [size, 2, C] with `share_frames`: for each slot the rows of its obs and those of
            its next_obs; written here.

    Attributes:
        obs, next_obs: the columns of the store; `rows` are int32 [size], or [size, C].
    """

    def __init__(
        self, size: int, first: tuple[Column, Column], allocate: Allocate, share_frames: bool, numbers: Array
    ) -> None:
        units, obs_rows, _ = _units_of(*first, share_frames)
        self._allocate, self._share_frames = allocate, share_frames
        each = len(units) / len(obs_rows)
        # The fragments to come share the frames that they begin with.
        needed = _SPARE * (min(each, 1.0) if share_frames else each) * size
        self._capacity = max(int(min(needed, 2 * size * obs_rows[0].size)), len(units))
        self._data = allocate((self._capacity, *units.shape[1:]), units.dtype)
        self._next = self._used = 0
        self._recent: dict[int, int] = {}  # where frames are, by their checksum; the newest last
        self._numbers: Any = numbers
        self.obs, self.next_obs = (
            Column(column.kind, self._data, self._numbers[:, i]) for i, column in enumerate(first)
        )

    @property
    def nbytes(self) -> int:
        """Bytes of the rows, when the ring is full."""
        return int(self._data.nbytes)

    def write(self, slots: IntArray | slice, obs: Column, next_obs: Column, held: npt.NDArray[np.bool_]) -> None:
        """Store values in `slots`, which are not among those that `held` [size] says to hold an item."""
        units, obs_rows, next_rows = _units_of(obs, next_obs, self._share_frames)
        self._make_room(len(units), held)
        places = self._put_frames(units) if self._share_frames else self._put(units)
        self._numbers[slots, 0] = places[obs_rows]
        self._numbers[slots, 1] = places[next_rows]

    def gather(self, numbers: npt.NDArray[np.int32]) -> tuple[Column, Column]:
        """The values in the slots that have these row `numbers` [n, 2], or [n, 2, C]; copied."""
        values: Any = self._data.take(numbers, axis=0)
        return Column(self.obs.kind, values[:, 0]), Column(self.next_obs.kind, values[:, 1])

    def snapshot(self, slots: IntArray, is_copied: bool = True) -> tuple[Column, Column]:
        """The values in `slots` as columns of one array, in which they are stored once and at the same place, too."""
        rows = self._numbers[slots]
        data = self._data[: int(rows.max(initial=-1)) + 1]
        data = data.copy() if is_copied else data
        return Column(self.obs.kind, data, rows[:, 0]), Column(self.next_obs.kind, data, rows[:, 1])

    @property
    def _first(self) -> int:
        """Where the oldest row is."""
        return (self._next - self._used) % self._capacity

    def _make_room(self, count: int, held: npt.NDArray[np.bool_]) -> None:
        if self._capacity - self._used < count:
            self._reclaim(held)
            if self._capacity - self._used < max(count, self._capacity // 64):  # else it would be short again at once
                self._grow(max(int(_GROWTH * self._capacity), self._used + count))

    def _put_frames(self, frames: Array) -> IntArray:
        """Store those of `frames` that recent pushes have not brought; returns where each is."""
        checksums = [zlib.crc32(frame) for frame in frames]
        places = np.array([self._find(*pair) for pair in zip(checksums, frames, strict=True)], np.int64)
        new = np.flatnonzero(places < 0)
        places[new] = self._put(frames[new])
        # A frame that is shared gets no younger: an item that refers to old rows would keep all newer ones, too.
        for i in new.tolist():
            self._recent.pop(checksums[i], None)
            self._recent[checksums[i]] = int(places[i])
        while len(self._recent) > max(len(frames), int(_RECENT * self._capacity)):
            del self._recent[next(iter(self._recent))]
        return places

    def _find(self, checksum: int, frame: Array) -> int:
        """Where a recent push has put an equal frame; -1 where none has, or it is gone."""
        place = self._recent.get(checksum, -1)
        is_used = place >= 0 and (place - self._first) % self._capacity < self._used
        return place if is_used and np.array_equal(self._data[place], frame) else -1

    def _put(self, units: Array) -> IntArray:
        count = len(units)
        places = (self._next + np.arange(count)) % self._capacity
        self._data[places] = units
        self._next = (self._next + count) % self._capacity
        self._used += count
        return places

    def _reclaim(self, held: npt.NDArray[np.bool_]) -> None:
        """Give up the rows before the first one that is referred to."""
        ages = (self._numbers[held] - self._first) % self._capacity
        self._used -= int(ages.min(initial=self._used))

    def _grow(self, capacity: int) -> None:
        data = self._allocate((capacity, *self._data.shape[1:]), self._data.dtype)
        first = self._first
        data[: self._used] = self._data[(first + np.arange(self._used)) % self._capacity]
        self._numbers[:] = (self._numbers - first) % self._capacity
        self._recent = {checksum: (place - first) % self._capacity for checksum, place in self._recent.items()}
        self.obs.data = self.next_obs.data = data
        self._data, self._capacity, self._next = data, capacity, self._used


def _units_of(obs: Column, next_obs: Column, share_frames: bool) -> tuple[Array, IntArray, IntArray]:
    """What to store, and which of it each `obs` and each `next_obs` is: [N], or [N, C] frames."""
    rows, obs_rows, next_rows = _rows_of(obs, next_obs)
    if not share_frames:
        return rows, obs_rows, next_rows
    frames, numbers = _frames_of(rows)
    return frames, numbers[obs_rows], numbers[next_rows]


def _rows_of(obs: Column, next_obs: Column) -> tuple[Array, IntArray, IntArray]:
    """The different rows, in order, and which of them each `obs` and each `next_obs` is."""
    if obs.data is not next_obs.data or obs.rows is None or next_obs.rows is None or obs.rows.ndim > 1:
        values = np.stack([obs.values(), next_obs.values()], axis=1)
        numbers = np.arange(0, 2 * len(values), 2)
        return values.reshape(2 * len(values), *values.shape[2:]), numbers, numbers + 1
    first = int(min(obs.rows.min(), next_obs.rows.min()))
    stop = int(max(obs.rows.max(), next_obs.rows.max())) + 1
    is_used = np.zeros(stop - first, np.bool_)
    is_used[obs.rows - first] = is_used[next_obs.rows - first] = True
    numbers = is_used.cumsum() - 1
    rows = obs.data[first:stop] if is_used.all() else obs.data[first:stop][is_used]
    return rows, numbers[obs.rows - first], numbers[next_obs.rows - first]


def shared_rows(obs: Column, next_obs: Column) -> tuple[Column, Column]:
    """The same values, as rows of an array that holds nothing else."""
    rows, obs_rows, next_rows = _rows_of(obs, next_obs)
    data = rows.copy()
    return Column(obs.kind, data, obs_rows), Column(next_obs.kind, data, next_rows)


def _frames_of(rows: Array) -> tuple[Array, IntArray]:
    """The different frames of `rows` [M, C, ...], in order, and which of them each row has, [M, C].

    A row that has all but its last frame in common with the row before it brings one frame, an equal one none.
    """
    stack = rows.shape[1]
    count = np.full(len(rows), stack)
    axes = tuple(range(1, rows.ndim))
    count[1:][(rows[1:, :-1] == rows[:-1, 1:]).all(axis=axes)] = 1
    count[1:][(rows[1:] == rows[:-1]).all(axis=axes)] = 0
    is_brought = np.arange(stack) >= stack - count[:, None]
    brought = rows[is_brought]
    is_new = np.ones(len(brought), np.bool_)  # an episode begins with the same frame several times
    is_new[1:] = (brought[1:] != brought[:-1]).any(axis=axes[:-1])
    numbers = is_new.cumsum() - 1
    last = count.cumsum() - 1
    return brought[is_new], numbers[last[:, None] + np.arange(1 - stack, 1)]
