"""Storage of observations that several samples refer to."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from ding.utils.data.samples import Column
from ding.utils.segment_tree import IntArray

Array = npt.NDArray[np.generic]
# Returns an uninitialized array of a shape and dtype.
Allocate = Callable[[tuple[int, ...], np.dtype], Array]

# Initial capacity relative to the estimate from the first push, and the factor by which it grows.
_SPARE, _GROWTH = 1.03, 1.12
# Most frames by item that are expected: fragments share their first ones, unless steps between them were dropped.
_FRAMES = 1.125
# Rows that are moved at once.
_CHUNK = 64
# Frames that later pushes may share: this part of the ring, or at least those of the last push.
_RECENT = 1 / 16


class RowRing:
    """A ring of rows that the columns `obs` and `next_obs` of a store refer to. Not thread-safe.

    A row is kept as long as an occupied slot refers to it. With `share_frames` a row is a frame, and an observation
    [C, ...] refers to C rows. Frames in common with the previous observation or with a recent push are stored once: a
    fragment begins with the observation that ends the previous fragment of its env.

    Args:
        size: Number of slots of the store.
        first: The `obs` and `next_obs` of the first push. The capacity is estimated from their rows per item; the ring
            grows if later pushes have more.
        allocate: Allocates arrays.
        share_frames: Whether rows are frames.
        numbers: int32 [size, 2], or [size, 2, C] with `share_frames`: the rows of the obs and the next_obs of each
            slot. The ring writes to it.

    Attributes:
        obs, next_obs: The columns of the store. `rows` are int32 [size], or [size, C].
    """

    def __init__(
        self, size: int, first: tuple[Column, Column], allocate: Allocate, share_frames: bool, numbers: Array
    ) -> None:
        units, obs_rows, _, _ = _units_of(*first, share_frames)
        self._allocate, self._share_frames = allocate, share_frames
        each = len(units) / len(obs_rows)
        needed = _SPARE * (min(each, _FRAMES) if share_frames else each) * size
        self._capacity = max(int(min(needed, 2 * size * obs_rows[0].size)), len(units))
        self._data = allocate((self._capacity, *units.shape[1:]), units.dtype)
        self._next = self._used = 0
        self._recent: dict[int, int] = {}  # row of a frame by its checksum, newest last
        self._numbers: Any = numbers
        self.obs, self.next_obs = (
            Column(column.kind, self._data, self._numbers[:, i]) for i, column in enumerate(first)
        )

    @property
    def nbytes(self) -> int:
        """Allocated bytes."""
        return int(self._data.nbytes)

    def write(self, slots: IntArray | slice, obs: Column, next_obs: Column, held: npt.NDArray[np.bool_]) -> None:
        """Store values in `slots`, which must be empty according to `held` [size]."""
        units, obs_rows, next_rows, checksums = _units_of(obs, next_obs, self._share_frames)
        self._ensure_free(len(units), held)
        places = self._put_frames(units, checksums) if self._share_frames else self._put(units)
        self._numbers[slots, 0] = places[obs_rows]
        self._numbers[slots, 1] = places[next_rows]

    def gather(self, numbers: npt.NDArray[np.int32]) -> tuple[Column, Column]:
        """Returns copies of the values of slots with these row `numbers` [n, 2], or [n, 2, C]."""
        values: Any = self._data.take(numbers, axis=0)
        return Column(self.obs.kind, values[:, 0]), Column(self.next_obs.kind, values[:, 1])

    def snapshot(self, slots: IntArray, is_copied: bool = True) -> tuple[Column, Column]:
        """Returns the values in `slots` as columns of one array, which holds each row once, at its row number."""
        rows = self._numbers[slots]
        data = self._data[: int(rows.max(initial=-1)) + 1]
        data = data.copy() if is_copied else data
        return Column(self.obs.kind, data, rows[:, 0]), Column(self.next_obs.kind, data, rows[:, 1])

    @property
    def _first(self) -> int:
        """The oldest row."""
        return (self._next - self._used) % self._capacity

    def _ensure_free(self, count: int, held: npt.NDArray[np.bool_]) -> None:
        if self._capacity - self._used < count:
            self._reclaim(held)
            if self._capacity - self._used < max(count, self._capacity // 64):  # avoids a reclaim at each write
                self._repack(count, held)

    def _put_frames(self, frames: Array, checksums: list[int]) -> IntArray:
        """Store the `frames`, of which no two are equal, unless they are among the recent ones; returns their rows."""
        places = np.array([self._find(*pair) for pair in zip(checksums, frames, strict=True)], np.int64)
        new = np.flatnonzero(places < 0)
        places[new] = self._put(frames[new])
        # A shared frame does not become newer: an item that refers to an old row keeps all newer rows alive.
        for i in new.tolist():
            self._recent.pop(checksums[i], None)
            self._recent[checksums[i]] = int(places[i])
        while len(self._recent) > max(len(frames), int(_RECENT * self._capacity)):
            del self._recent[next(iter(self._recent))]
        return places

    def _find(self, checksum: int, frame: Array) -> int:
        """Returns the row of an equal frame of a recent push, or -1."""
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
        """Free the rows before the oldest one that is referred to."""
        ages = (self._numbers[held] - self._first) % self._capacity
        self._used -= int(ages.min(initial=self._used))

    def _repack(self, count: int, held: npt.NDArray[np.bool_]) -> None:
        """Keep only the rows that are referred to, in a larger array if they leave too little space."""
        first, capacity = self._first, self._capacity
        ages = np.unique((self._numbers[held] - first) % capacity)
        used = len(ages)
        start, data = first, self._data
        if capacity - used < max(count, capacity // 16):
            start, capacity = 0, max(int(_GROWTH * capacity), used + count)
            data = self._allocate((capacity, *self._data.shape[1:]), self._data.dtype)
        for at in range(0, used, _CHUNK):  # a row never moves to where one is that has yet to be moved
            rows = ages[at : at + _CHUNK]
            data[(start + np.arange(at, at + len(rows))) % capacity] = self._data[(first + rows) % self._capacity]
        places = np.full(self._capacity, -1)  # of the kept rows, by their age
        places[ages] = (start + np.arange(used)) % capacity
        self._numbers[held] = places[(self._numbers[held] - first) % self._capacity]
        recent = ((checksum, places[(place - first) % self._capacity]) for checksum, place in self._recent.items())
        self._recent = {checksum: int(place) for checksum, place in recent if place >= 0}
        self.obs.data = self.next_obs.data = data
        self._data, self._capacity, self._next, self._used = data, capacity, (start + used) % capacity, used


def _units_of(obs: Column, next_obs: Column, share_frames: bool) -> tuple[Array, IntArray, IntArray, list[int]]:
    """Returns the distinct rows (or frames) to store, and their indices for `obs` and `next_obs`: [N], or [N, C].

    The last value are the checksums of frames.
    """
    rows, obs_rows, next_rows = _rows_of(obs, next_obs)
    if not share_frames:
        return rows, obs_rows, next_rows, []
    frames, numbers, checksums = _frames_of(rows, obs_rows, next_rows)
    return frames, numbers[obs_rows], numbers[next_rows], checksums


def _rows_of(obs: Column, next_obs: Column) -> tuple[Array, IntArray, IntArray]:
    """Returns the distinct rows in order, and their indices [N] for `obs` and `next_obs`."""
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
    """Returns columns with the same values, as rows of a new array that holds nothing else."""
    rows, obs_rows, next_rows = _rows_of(obs, next_obs)
    data = rows.copy()
    return Column(obs.kind, data, obs_rows), Column(next_obs.kind, data, next_rows)


def _frames_of(rows: Array, obs_rows: IntArray, next_rows: IntArray) -> tuple[Array, IntArray, list[int]]:
    """Returns the distinct frames of `rows` [M, C, ...] in order, their indices [M, C] by row, and their checksums.

    A row that is the row before it shifted by one frame adds one frame, an equal row none. Before the row of a next_obs
    comes that of its obs, before others the previous one.
    """
    rows = np.ascontiguousarray(rows)
    count, stack = rows.shape[:2]
    before = np.arange(count) - 1
    before[next_rows] = np.where(obs_rows < next_rows, obs_rows, before[next_rows])
    source: Any = np.arange(count * stack).reshape(
        count, stack
    )  # equal frames of earlier rows, or the frames themselves
    moved = _equal_rows(rows, before, np.arange(1, count), 1)
    source[moved, :-1] = source[before[moved], 1:]
    rest = np.setdiff1d(np.arange(1, count), moved, assume_unique=True)
    equal = _equal_rows(rows, before, rest, 0)
    source[equal] = source[before[equal]]
    flat: IntArray = source.reshape(-1)
    while (flat[flat] != flat).any():  # the earlier row may have it of another one
        flat = flat[flat]
    frames = rows.reshape(len(flat), *rows.shape[2:])
    own = np.flatnonzero(flat == np.arange(len(flat)))
    first: dict[int, int] = {}
    checksums = {}
    for i in own.tolist():
        checksum = zlib.crc32(frames[i])
        like = first.setdefault(checksum, i)
        if like != i and np.array_equal(frames[i], frames[like]):  # as at the beginning of an episode
            flat[i] = like
        else:
            checksums[i] = checksum
    flat = flat[flat]
    is_own = flat == np.arange(len(flat))
    return frames[is_own], (is_own.cumsum() - 1)[flat].reshape(count, stack), list(checksums.values())


def _equal_rows(rows: Array, before: IntArray, chosen: IntArray, shift: int) -> IntArray:
    """Returns those of the rows `chosen` that are the rows before them, shifted by so many frames."""
    for i in range(rows.shape[1] - shift):
        same = rows[chosen, i] == rows[before[chosen], i + shift]
        chosen = chosen[same.all(axis=tuple(range(1, same.ndim)))]
    return chosen
