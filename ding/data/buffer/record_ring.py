"""Storage of records in order of arrival, with access by position and by id."""

from __future__ import annotations

import copy
import logging
import secrets
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, overload

import numpy as np

from ding.data.buffer.buffer import BufferedData
from ding.data.column_store import ColumnStore
from ding.utils.data.samples import Samples, part_of
from ding.utils.segment_tree import IntArray

_NUMBER_DIGITS = 16

Meta = dict[str, Any] | None


class RecordRing(Sequence[BufferedData]):
    """At most `maxlen` records in slots. Appending to a full ring removes the oldest one. Not thread-safe.

    `Samples` are stored in columns. A record object is created when it is accessed; then its slot holds this object,
    and the columns no longer count. An id is a random prefix and a number that counts up.

    Attributes:
        numbers: int64 [maxlen], by slot: the numbers in the ids; -1 for an empty slot.
        uses: int64 [maxlen], by slot: how often middleware counted a use of the record.
        version: Changes with every change of the contents.
        on_dropped: Called with the data of the records that left the ring. May be set.
    """

    def __init__(self, maxlen: int) -> None:
        self.on_dropped: Callable[[list[Any]], None] | None = None
        self.version = self._next_number = 0
        self._prefix = secrets.token_hex(8)
        self._make(maxlen)

    def _make(self, maxlen: int) -> None:
        self._maxlen = maxlen
        # All slots, as a ring: from `_start` on the `_count` occupied ones by age, then the free ones.
        self._order = np.arange(maxlen)
        self._start = self._count = 0
        self.numbers, self.uses = np.full(maxlen, -1), np.zeros(maxlen, np.int64)
        self._store = ColumnStore(maxlen, logging.getLogger("ding"))
        self._records: list[BufferedData | None] = [None] * maxlen
        self._metas: list[Meta] = [None] * maxlen  # of slots without a record object
        self.version += 1

    @property
    def maxlen(self) -> int:
        """Capacity. Setting it keeps the newest records."""
        return self._maxlen

    @maxlen.setter
    def maxlen(self, maxlen: int) -> None:
        if maxlen != self._maxlen:
            records = self.dicts()
            self._fill(records[-maxlen:], maxlen)
            self._report([record["data"] for record in records[:-maxlen]])

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, position: int) -> BufferedData: ...
    @overload
    def __getitem__(self, position: slice) -> list[BufferedData]: ...
    def __getitem__(self, position: int | slice) -> BufferedData | list[BufferedData]:
        count = self._count
        if isinstance(position, slice):
            return self.take(self.slots[position])
        if not -count <= position < count:
            raise IndexError(f"position = {position} is not allowed; it must be in [-{count}, {count})")
        slot = int(self._order[(position % count + self._start) % self._maxlen])
        return self._records[slot] or self.take(np.array([slot]))[0]

    def __iter__(self) -> Iterator[BufferedData]:
        return iter(self[:])

    @property
    def slots(self) -> IntArray:
        """int64 [n]: the slots of all records, oldest first."""
        return self.slots_at(np.arange(self._count))

    def slots_at(self, positions: IntArray) -> IntArray:
        """Returns the slots of the records at `positions`, which must not be negative."""
        return self._order.take(positions + self._start, mode="wrap")

    @property
    def nbytes(self) -> int:
        """Memory of a full ring of `Samples`, without record objects."""
        return int(self._store.nbytes + 3 * self._order.nbytes + 16 * self._maxlen)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.state(), "version": self.version}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.on_dropped, self.version = None, 0
        self._make(len(state["order"]))
        self.load(state)
        self.version = state["version"]

    # ---- writing

    def next_slots(self, count: int) -> IntArray:
        """Returns the slots of the next `count` records; they are repeated if there are not so many."""
        return self.slots_at(np.arange(self._count, self._count + count))

    def append(self, data: Any, meta: Meta) -> BufferedData:
        """Append a record of `data` and return it."""
        slot = int(self._order[(self._start + self._count) % self._maxlen])
        dropped = self._leaving(np.array([slot])) if self.on_dropped is not None else []
        record = BufferedData(data, f"{self._prefix}{self._next_number:0{_NUMBER_DIGITS}x}", meta)
        if self._store.held[slot]:
            self._store.remove(np.array([slot]))
        self._records[slot], self.numbers[slot], self.uses[slot] = record, self._next_number, 0
        self._next_number += 1
        self.version += 1
        if self._count < self._maxlen:
            self._count += 1
        else:
            self._start = (self._start + 1) % self._maxlen
        self._report(dropped)
        return record

    def extend(self, samples: Samples, metas: Sequence[Meta] | None = None) -> None:
        """Append `samples` in columns, with their `metas`, if any. No record object is created."""
        count, size = len(samples), self._maxlen
        if count <= size:
            self._extend(samples, metas, count)
            return
        for start in range(0, count, size):
            part = part_of(samples, start, start + size)
            self._extend(part, None if metas is None else metas[start : start + size], len(part))

    def _extend(self, samples: Samples, metas: Sequence[Meta] | None, count: int) -> None:
        records = self._records
        slots = self.next_slots(count)
        dropped = self._leaving(slots) if self.on_dropped is not None else []
        self._store.write(slots, samples, samples.columns)
        for slot, meta in zip(slots.tolist(), metas or [None] * count, strict=True):
            records[slot], self._metas[slot] = None, meta
        self.numbers[slots], self.uses[slots] = np.arange(self._next_number, self._next_number + count), 0
        self._next_number += count
        self.version += 1
        free = min(self._maxlen - self._count, count)
        self._count += free
        self._start = (self._start + count - free) % self._maxlen
        self._report(dropped)

    def _leaving(self, slots: IntArray) -> Sequence[Any]:
        """Returns the data of the records in those of `slots` that are occupied."""
        return self.data(slots[self.numbers[slots] >= 0])

    def _report(self, dropped: Sequence[Any]) -> None:
        if len(dropped) and self.on_dropped is not None:
            self.on_dropped(list(dropped))

    # ---- access

    def position(self, index: Any) -> int | None:
        """Returns the position of the record with the id `index`, or None."""
        try:
            number = int(index[-_NUMBER_DIGITS:], 16)
        except (ValueError, TypeError):
            return None
        if not self._count or index != self._id(number):
            return None

        def number_at(position: int) -> int:
            return int(self.numbers[self._order[(position + self._start) % self._maxlen]])

        position = number - number_at(0)  # without deletions, the numbers are consecutive
        if not (0 <= position < self._count and number_at(position) == number):
            position = bisect_left(range(self._count), number, key=number_at)
        return position if position < self._count and number_at(position) == number else None

    def find_slots(self, indices: Iterable[Any]) -> list[int | None]:
        """Returns the slots of the records with the ids `indices`, None for an unknown id."""
        positions = map(self.position, indices)
        return [None if i is None else int(self._order[(i + self._start) % self._maxlen]) for i in positions]

    def take(self, slots: IntArray) -> list[BufferedData]:
        """Returns the records in `slots`."""
        records = self._records
        missing = [slot for slot in dict.fromkeys(slots.tolist()) if records[slot] is None]
        if missing:
            places = np.array(missing)
            for slot, data, index in zip(missing, self._store.read(places), self.ids(places), strict=True):
                records[slot] = BufferedData(data, index, self._metas[slot])
            self._store.remove(places)
        return [record for record in map(records.__getitem__, slots.tolist()) if record is not None]

    def samples(self, slots: IntArray) -> Samples | None:
        """Returns copies of the data in `slots`, if all of it is in columns."""
        if not len(slots) or not self._store.held[slots].all():
            return None
        data = self._store.read(slots)
        return data if isinstance(data, Samples) else None

    def data(self, slots: IntArray) -> Sequence[Any]:
        """Returns the data in `slots`, without creating record objects. What is in columns is copied."""
        samples = self.samples(slots)
        if samples is not None:
            return samples
        in_columns = iter(self._store.read(slots[self._store.held[slots]]))
        held = map(self._records.__getitem__, slots.tolist())
        return [next(in_columns) if record is None else record.data for record in held]

    def ids(self, slots: IntArray) -> list[str]:
        """Returns the ids of the records in `slots`."""
        return [self._id(number) for number in self.numbers[slots].tolist()]

    def _id(self, number: int) -> str:
        return f"{self._prefix}{number:0{_NUMBER_DIGITS}x}"

    def metas(self, slots: IntArray) -> list[Meta]:
        """Returns the metadata of the records in `slots`."""
        records, metas = self._records, self._metas
        return [metas[slot] if (record := records[slot]) is None else record.meta for slot in slots.tolist()]

    def set_metas(self, slots: IntArray, key: str, values: Iterable[Any]) -> None:
        """Set `key` in the metadata of the records in `slots` [n] to `values` [n]."""
        for slot, value in zip(slots.tolist(), values, strict=True):
            record = self._records[slot]
            meta = self._metas[slot] if record is None else record.meta
            if meta is not None:
                meta[key] = value
            elif record is None:
                self._metas[slot] = {key: value}
            else:
                record.meta = {key: value}

    def dicts(self) -> list[dict[str, Any]]:
        """Returns dicts of id, data (shared with the ring, unless in columns) and meta (a shallow copy)."""
        slots = self.slots
        records = zip(self.ids(slots), self.data(slots), self.metas(slots), strict=True)
        return [{"index": index, "data": data, "meta": copy.copy(meta)} for index, data, meta in records]

    # ---- removal

    def delete(self, positions: Iterable[int]) -> None:
        """Remove the records at `positions`."""
        gone = np.array(sorted(positions), np.int64)
        if not gone.size:
            return
        slots, order = self.slots_at(gone), np.roll(self._order, -self._start)
        dropped = self.data(slots) if self.on_dropped is not None else []
        kept, free = np.delete(order[: self._count], gone), order[self._count :]
        self._order, self._start, self._count = np.concatenate([kept, np.sort(slots)[::-1], free]), 0, len(kept)
        self._store.remove(slots)
        self.numbers[slots] = -1
        for slot in slots.tolist():
            self._records[slot] = self._metas[slot] = None
        self.version += 1
        self._report(dropped)

    def replace(self, records: Sequence[Mapping[str, Any]], maxlen: int) -> None:
        """Replace all records by those that `dicts` returned, at most `maxlen`.

        They keep their ids, unless these are of several rings.
        """
        self.clear()
        self._fill(records, maxlen)

    def _fill(self, records: Sequence[Mapping[str, Any]], maxlen: int) -> None:
        self._make(maxlen)
        prefixes = {record["index"][:-_NUMBER_DIGITS] for record in records}
        next_number = self._next_number
        if len(prefixes) == 1:
            self._prefix = prefixes.pop()
        for record in records:
            if not prefixes:
                self._next_number = int(record["index"][-_NUMBER_DIGITS:], 16)
            self.append(record["data"], record["meta"])
        self._next_number = max(next_number, self._next_number)

    def clear(self) -> None:
        """Remove all records."""
        dropped = self.data(self.slots) if self.on_dropped is not None else []
        self._make(self._maxlen)
        self._report(dropped)

    # ---- states

    def state(self, is_copied: bool = True) -> dict[str, Any]:
        """Returns the records in plain values and arrays. Data that is not in columns is shared with the ring.

        Args:
            is_copied: If False, arrays may be views of the columns.
        """
        slots = self.slots
        own = slots[~self._store.held[slots]]
        metas = [copy.copy(meta) for meta in self.metas(slots)]
        return {
            "prefix": self._prefix,
            "next_number": self._next_number,
            "order": np.roll(self._order, -self._start),
            "numbers": self.numbers[slots],
            "metas": None if not any(metas) else metas,
            "columns": self._store.snapshot(is_copied),
            "objects": dict(zip(own.tolist(), self.data(own), strict=True)),
        }

    def load(self, state: Mapping[str, Any]) -> None:
        """Replace all records, and the capacity, by those of a `state`."""
        self.clear()
        self._make(len(state["order"]))
        self._prefix, self._next_number = state["prefix"], state["next_number"]
        self._order, self._count = np.array(state["order"]), len(state["numbers"])
        slots = self.slots
        self.numbers[slots] = state["numbers"]
        for slot, meta in zip(slots.tolist(), state["metas"] or (), strict=False):
            self._metas[slot] = copy.copy(meta)
        self._store.load(state["columns"], self._store.counters())
        for slot, data in state["objects"].items():
            self._records[slot] = BufferedData(data, self.ids(np.array([slot]))[0], self._metas[slot])
