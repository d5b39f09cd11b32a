"""Rings: the order of the slots of a buffer, and the rows of observations that several slots share."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from ding.utils.data.samples import Column, Items, Kind, rows_of, table_of
from ding.utils.segment_tree import IntArray

BoolArray = npt.NDArray[np.bool_]
# Slot numbers, or a slice with start and stop.
Slots = IntArray | slice


class Ring:
    """Order of `size` slots, and which of them hold an item. Slots are written at `tail`, which wraps around.

    Position 0 is the oldest written slot, the highest position the newest one. A slot that is emptied keeps its
    position, unless gaps are closed. The ring is not thread-safe.

    Attributes:
        held: bool [size], whether a slot holds an item.
        filled: number of positions: slots written since the ring was empty, at most `size`.
        valid_count: number of items that can be sampled, set by the owner.
        push_count: number of items written so far.

    Example:
        >>> ring = Ring(3)
        >>> ring.advance(3)
        >>> ring.advance(1)
        >>> ring.tail, ring.slots_at(np.arange(3)).tolist()
        (1, [1, 2, 0])
    """

    def __init__(self, size: int) -> None:
        self.size, self.push_count = size, 0
        self.reset()

    def reset(self) -> None:
        """Empty all slots, but keep `push_count`."""
        self.held: BoolArray = np.zeros(self.size, np.bool_)
        self._order: IntArray | None = None  # the slots, if they are not in their own order
        self._start = self.filled = self.valid_count = 0  # `_start` is the place of position 0 in the order

    @property
    def tail(self) -> int:
        """The slot that is written next."""
        place = (self._start + self.filled) % self.size
        return place if self._order is None else int(self._order[place])

    @property
    def head(self) -> int:
        """The oldest slot that holds an item; `tail` if the ring is empty."""
        slots = self.occupied()
        return int(slots[0]) if slots.size else self.tail

    def slots_at(self, positions: Any) -> Any:
        """Return the slots at `positions`, an array or a number; the newest is followed by those written next."""
        places = (positions + self._start) % self.size
        return places if self._order is None else self._order[places]

    def positions_of(self, slots: IntArray) -> IntArray:
        """Return the positions of `slots`, the inverse of `slots_at`."""
        places = slots if self._order is None else self._order.argsort()[slots]
        positions: IntArray = (places - self._start) % self.size
        return positions

    def slots_in(self, sample_range: slice) -> IntArray:
        """Return the slots of a range of positions, whose step is ignored, oldest first."""
        return self._by_position()[: self.filled][sample_range.start : sample_range.stop]

    def occupied(self) -> IntArray:
        """Return the slots that hold an item, oldest first."""
        slots = self._by_position()[: self.filled]
        return slots[self.held[slots]]

    def _by_position(self) -> IntArray:
        order = np.arange(self.size) if self._order is None else self._order
        return np.roll(order, -self._start)

    def next_slots(self, count: int) -> Slots:
        """Return the next `count` slots, as a slice, which is faster, if they are easily seen to be one."""
        first = (self._start + self.filled) % self.size
        if self._order is None and first + count <= self.size:
            return slice(first, first + count)
        slots: IntArray = self.slots_at(self.filled + np.arange(count))
        return slots

    def advance(self, count: int) -> None:
        """Count the next `count` <= `size` slots as written; the owner marks them in `held`."""
        self.push_count += count
        self.filled += count
        if self.filled > self.size:
            self._start = (self._start + self.filled) % self.size
            self.filled = self.size

    def release(self, slots: IntArray, closes_gaps: bool = False) -> None:
        """Mark `slots` as empty; without any item, the ring restarts at `tail`.

        Args:
            closes_gaps: whether empty slots give up their positions, and are written next.
        """
        self.held[slots] = False
        if closes_gaps:
            by_position = self._by_position()
            written, free = by_position[: self.filled], by_position[self.filled :]
            is_held = self.held[written]
            self._order = np.concatenate([written[is_held], np.sort(written[~is_held])[::-1], free])
            self._start, self.filled = 0, int(np.count_nonzero(is_held))
        elif not self.held.any():
            self._start, self.filled = (self._start + self.filled) % self.size, 0

    def order_state(self) -> dict[str, Any]:
        """Return the order and the counters for `restore_order`."""
        counters = {"start": self._start, "filled": self.filled, "order": self._order}
        return {**counters, "valid_count": self.valid_count, "push_count": self.push_count}

    def restore_order(self, state: Mapping[str, Any]) -> None:
        """Set the order and the counters to those of a ring of the same size; `held` does not change."""
        self._start, self.filled, order = state["start"], state["filled"], state["order"]
        self._order = None if order is None else np.array(order, np.int64)
        self.valid_count, self.push_count = state["valid_count"], state["push_count"]


def done_flags(items: Items) -> BoolArray:
    """Return whether each of `items` ends an episode, bool [n]; see `ends_episode`."""
    table = table_of(items)
    done = None if table is None else table.columns.get("done")
    if isinstance(done, Column) and done.kind is not Kind.OBJECT:
        flags: BoolArray = np.all(np.asarray(done.values(), np.bool_).reshape(len(items), -1), axis=1)
        return flags
    return np.fromiter(map(ends_episode, rows_of(items)), np.bool_, len(items))


def ends_episode(item: Any) -> bool:
    """Return whether `item` is a dict with a true `done`; if `done` has one flag per player, all must be true."""
    done = item.get("done") if isinstance(item, Mapping) else None
    return bool(done) if done is None or type(done) is bool else bool(torch.as_tensor(done).all())


Array = npt.NDArray[np.generic]
# Returns an uninitialized array of a shape and dtype.
Allocate = Callable[[tuple[int, ...], np.dtype], Array]

# Initial capacity relative to the estimate from the first push, and the factor by which it grows.
_SPARE, _GROWTH = 1.03, 1.12
# Most frames by item that are expected: fragments share their first ones, unless steps between them were dropped.
_FRAMES = 1.125
# Rows that are moved or compared at once: so many images stay in the cache.
_CHUNK = 32
# Frames that later pushes may share: at least this part of the ring, and those of the last push.
_RECENT = 1 / 16


class RowRing:
    """A ring of rows to which the columns `obs` and `next_obs` of a store refer. It is not thread-safe.

    A row is kept as long as an occupied slot refers to it. With `share_frames` a row is a frame, and an observation
    [C, ...] refers to C rows. Frames with the same number, see `Column`, are stored once, also those of a recent push,
    since a fragment begins with the observation that ends the previous fragment of its env.

    Args:
        size: number of slots of the store.
        first: the `obs` and `next_obs` of the first push. The capacity is estimated from their rows per item; the ring
            grows if later pushes have more.
        allocate: function that allocates arrays.
        share_frames: whether rows are frames.
        numbers: int32 [size, 2], or [size, 2, C] with `share_frames`: the rows of the obs and the next_obs of each
            slot. The ring writes to it.

    Attributes:
        obs, next_obs: the columns of the store. `rows` are int32 [size], or [size, C].
    """

    def __init__(
        self, size: int, first: tuple[Column, Column], allocate: Allocate, share_frames: bool, numbers: Array
    ) -> None:
        data, chosen, _, obs_rows, _ = _frames_of(*first) if share_frames else _rows_of(*first)
        each = len(chosen) / len(obs_rows)
        self._allocate, self._share_frames = allocate, share_frames
        self._capacity = max(int(_SPARE * (min(each, _FRAMES) if share_frames else each) * size), len(chosen))
        self._data = allocate((self._capacity, *data.shape[1:]), data.dtype)
        # Rows are counted from the beginning; the row with the count n is at n % capacity. Those in [begin, end) are
        # kept.
        self._begin = self._end = 0
        self._recent: dict[int, int] = {}  # the count of a frame by its number, newest last
        self._numbers: Any = numbers
        self.obs, self.next_obs = (
            Column(column.kind, self._data, self._numbers[:, i]) for i, column in enumerate(first)
        )

    @property
    def nbytes(self) -> int:
        """Number of allocated bytes."""
        return int(self._data.nbytes)

    def write(self, slots: Slots, obs: Column, next_obs: Column, held: BoolArray) -> None:
        """Store values in `slots`, which must be empty according to `held` [size]."""
        rows = _frames_of(obs, next_obs) if self._share_frames else _rows_of(obs, next_obs)
        data, chosen, names, obs_rows, next_rows = rows
        if self._capacity - self._end + self._begin < len(chosen):
            self._make_room(len(chosen), held)
        places = (self._put(data, chosen) if names is None else self._put_once(data, chosen, names)) % self._capacity
        self._numbers[slots, 0] = places[obs_rows]
        self._numbers[slots, 1] = places[next_rows]

    def gather(self, numbers: npt.NDArray[np.int32]) -> tuple[Column, Column]:
        """Return copies of the values of slots with these row `numbers` [n, 2], or [n, 2, C]."""
        values: Any = self._data.take(numbers, axis=0)
        return Column(self.obs.kind, values[:, 0]), Column(self.next_obs.kind, values[:, 1])

    def snapshot(self, slots: IntArray, is_copied: bool) -> tuple[Column, Column]:
        """Return the values in `slots` as columns of one array, which holds each row once, at its row number."""
        rows = self._numbers[slots]
        data = self._data[: int(rows.max(initial=-1)) + 1]
        data = data.copy() if is_copied else data
        return Column(self.obs.kind, data, rows[:, 0]), Column(self.next_obs.kind, data, rows[:, 1])

    # ---- writing

    def _put(self, data: Array, chosen: IntArray) -> IntArray:
        """Append the rows `chosen` of `data`, and return their counts."""
        place, count = self._end % self._capacity, len(chosen)
        split = min(count, self._capacity - place)
        for start, part in ((place, chosen[:split]), (0, chosen[split:])):
            if len(part):  # "clip" writes to `out` without a buffer
                np.take(data, part, axis=0, out=self._data[start : start + len(part)], mode="clip")
        self._end += count
        return np.arange(self._end - count, self._end)

    def _put_once(self, frames: Array, chosen: IntArray, names: IntArray) -> IntArray:
        """Append the frames `chosen` unless frames of these numbers are among the recent ones; return their counts."""
        keys = names.tolist()
        counts = np.array([self._recent.get(key, -1) for key in keys])
        new = np.flatnonzero(counts < self._begin)
        counts[new] = self._put(frames, chosen[new])
        for i in new.tolist():
            self._recent.pop(keys[i], None)
            self._recent[keys[i]] = int(counts[i])
        recent = max(len(keys), int(_RECENT * self._capacity))
        if len(self._recent) > 2 * recent:  # rarely: removing the oldest one by one takes longer
            self._recent = dict(list(self._recent.items())[-recent:])
        return counts

    # ---- rows that are not needed any more

    def _make_room(self, count: int, held: BoolArray) -> None:
        """Free at least `count` rows, and enough that not every write has to free some."""
        # As unsigned numbers, rows before that of `_begin`, which come after the end of the ring, are the largest.
        ages = (self._numbers - np.int32(self._begin % self._capacity)).view(np.uint32).reshape(len(held), -1)
        oldest = functools.reduce(np.minimum, ages.T)[held]
        if len(oldest):
            age = int(oldest.min().astype(np.int32))
            self._begin += age if age >= 0 else age + self._capacity
        else:
            self._begin = self._end
        if self._capacity - self._end + self._begin < max(count, self._capacity // 64):
            self._repack(count, held)

    def _repack(self, count: int, held: BoolArray) -> None:
        """Keep only the rows with references, in a larger array if they leave too little space."""
        first, capacity = self._begin % self._capacity, self._capacity
        ages = np.unique((self._numbers[held] - first) % capacity)
        used = len(ages)
        start, data = first, self._data
        if capacity - used < max(count, capacity // 16):
            start, capacity = 0, max(int(_GROWTH * capacity), used + count)
            data = self._allocate((capacity, *self._data.shape[1:]), self._data.dtype)
        for at in range(0, used, _CHUNK):  # a row never moves to where one is that has yet to be moved
            rows = ages[at : at + _CHUNK]
            data[(start + np.arange(at, at + len(rows))) % capacity] = self._data[(first + rows) % self._capacity]
        counts = np.full(self._capacity, -1)  # of the kept rows, by their age
        counts[ages] = start + np.arange(used)
        self._numbers[held] = counts[(self._numbers[held] - first) % self._capacity] % capacity
        recent = {name: old - self._begin for name, old in self._recent.items() if old >= self._begin}
        self._recent = {name: int(counts[age]) for name, age in recent.items() if counts[age] >= 0}
        self.obs.data = self.next_obs.data = self._data = data
        self._capacity, self._begin, self._end = capacity, start, start + used


# An array of rows, those that are used, in order, their numbers if they are known, and the indices of these rows for
# `obs` and `next_obs`: [N], or [N, C] of frames.
UsedRows = tuple[Array, IntArray, "IntArray | None", IntArray, IntArray]


def _rows_of(obs: Column, next_obs: Column) -> UsedRows:
    """Return the rows of two columns of N observations."""
    if obs.data is not next_obs.data or obs.rows is None or next_obs.rows is None or obs.rows.ndim > 1:
        values = np.stack([obs.values(), next_obs.values()], axis=1)
        rows = np.arange(2 * len(values))
        return values.reshape(len(rows), *values.shape[2:]), rows, None, rows[::2], rows[1::2]
    is_used = np.zeros(len(obs.data), np.bool_)
    is_used[obs.rows] = is_used[next_obs.rows] = True
    numbers = is_used.cumsum() - 1
    return obs.data, np.flatnonzero(is_used), None, numbers[obs.rows], numbers[next_obs.rows]


def _frames_of(obs: Column, next_obs: Column) -> UsedRows:
    """Return the frames of two columns of N observations; those of unknown numbers are all distinct."""
    if obs.data is next_obs.data and obs.rows is not None and obs.rows.ndim > 1:  # of a state, with frames as rows
        both: Any = np.array([obs.rows, next_obs.rows])
        chosen, places = np.unique(both, return_inverse=True)
        places = places.reshape(both.shape)
        return obs.data, chosen, None, places[0], places[1]
    data, used, _, obs_rows, next_rows = _rows_of(obs, next_obs)
    are_known = obs.frames is not None and data is obs.data
    data, stack = np.ascontiguousarray(data), data.shape[1]
    frames, chosen = data.reshape(len(data) * stack, *data.shape[2:]), used[:, None] * stack + np.arange(stack)
    if obs.frames is None or not are_known:
        places = np.arange(chosen.size).reshape(chosen.shape)
        return frames, chosen.reshape(-1), None, places[obs_rows], places[next_rows]
    names, first, places = np.unique(obs.frames[used], return_index=True, return_inverse=True)
    places = places.reshape(chosen.shape)
    return frames, chosen.reshape(-1)[first], names, places[obs_rows], places[next_rows]
