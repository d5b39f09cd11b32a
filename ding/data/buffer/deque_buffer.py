"""A buffer that keeps the newest records in order of arrival."""

from __future__ import annotations

import copy
import itertools
import logging
import math
import secrets
from bisect import bisect_left
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, overload

import numpy as np

from ding.data.buffer.buffer import Buffer, BufferedData, KeepsRecords, apply_middleware
from ding.data.buffer_interface import MemoryCheck, read_data_file, write_data_file
from ding.data.column_store import ColumnStore, put_objects
from ding.data.ring import Slots
from ding.utils.data.samples import Table, rows_of
from ding.utils.default_helper import new_generator
from ding.utils.fast_copy import fastcopy
from ding.utils.segment_tree import FloatArray, IntArray

_NUMBER_DIGITS = 16

# Name and dtype of what is kept for each slot, and the keys of it in the metadata.
_FIELDS = (("number", np.int64), ("use", np.int64), ("priority", np.float64))
_META_KEYS = {"use": "use_count", "priority": "priority"}

Meta = dict[str, Any] | None


class RecordRing(ColumnStore, Sequence[BufferedData]):
    """At most `maxlen` records in slots; appending to a full ring removes the oldest one. It is not thread-safe.

    Tables are stored in columns. A record object is created when it is accessed, and then stored instead. An id is a
    random prefix and a number that counts up.

    Attributes:
        fields: by slot, the `number` in the id, -1 for an empty slot; how often middleware counted a `use` of the
            record; and the `priority` that middleware gave it, or NaN. The metadata of rows of the columns consist of
            these.
        version: a number that changes with every change of the contents.
    """

    def __init__(self, maxlen: int) -> None:
        self.version = self._next_number = 0
        self._prefix = secrets.token_hex(8)
        super().__init__(maxlen, logging.getLogger("ding"), fields=_FIELDS)

    def reset(self) -> None:
        """Empty all slots and remove the columns."""
        super().reset()
        self._objects: list[Any] = [None] * self.size  # the records that were created
        for (name, _), empty in zip(_FIELDS, (-1, 0, math.nan), strict=True):
            self.fields[name][:] = empty
        self.version += 1

    @property
    def maxlen(self) -> int:
        """The capacity; setting it keeps the newest records."""
        return self.size

    @maxlen.setter
    def maxlen(self, maxlen: int) -> None:
        if maxlen != self.size:
            records = self.dicts()
            self._note_dropped(self.occupied()[:-maxlen])
            self._fill(records[-maxlen:], maxlen)

    def __len__(self) -> int:
        return self.filled

    @overload
    def __getitem__(self, position: int) -> BufferedData: ...
    @overload
    def __getitem__(self, position: slice) -> list[BufferedData]: ...
    def __getitem__(self, position: int | slice) -> BufferedData | list[BufferedData]:
        count = self.filled
        if isinstance(position, slice):
            return self.take(self.occupied()[position])
        if not -count <= position < count:
            raise IndexError(f"position = {position} is not allowed; it must be in [-{count}, {count})")
        return self.take(np.array([self.slots_at(position % count)]))[0]

    def __iter__(self) -> Iterator[BufferedData]:
        return iter(self[:])

    def __getstate__(self) -> dict[str, Any]:
        return {**self.snapshot(is_copied=True), "version": self.version}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state["size"])  # type: ignore[misc]
        self.load(state)
        self.version = state["version"]

    # ---- writing

    def append(self, data: Any, meta: Meta) -> BufferedData:
        """Append a record of `data` and return it."""
        slot, number = self.tail, self._next_number
        if self.held[slot] and (self.on_dropped is not None or self._is_row[slot]):
            self._note_dropped(np.array([slot]))
            self._free(np.array([slot]))
        record = self._objects[slot] = BufferedData(data, self._id(number), meta)
        fields = self.fields
        fields["number"][slot], fields["use"][slot], fields["priority"][slot] = number, 0, math.nan
        self.held[slot] = True
        self._next_number += 1
        self.version += 1
        self.advance(1)
        if self.dropped:
            self.report_dropped()
        return record

    def extend(self, table: Table, priorities: FloatArray | None = None) -> None:
        """Append the samples of a table, with their `priorities`, if any, without creating record objects."""
        for start in range(0, len(table), self.size):
            part = table if len(table) <= self.size else table.take(slice(start, start + self.size))
            slots, numbers = self.next_slots(len(part)), self._next_number + np.arange(len(part))
            self.fields["number"][slots], self.fields["use"][slots] = numbers, 0
            self.fields["priority"][slots] = math.nan if priorities is None else priorities[start : start + self.size]
            self.put(part)
            self._next_number += len(part)
            self.version += 1
        self.report_dropped()

    def _write_objects(self, slots: Slots, items: Iterable[Any]) -> None:
        numbers = np.arange(self.size)[slots]
        records = zip(items, self.ids(numbers), self._metas_of_rows(numbers), strict=True)
        put_objects(self._objects, numbers, [BufferedData(*record) for record in records])

    def _given(self, stored: BufferedData) -> Any:
        return stored.data

    # ---- access

    def position(self, index: Any) -> int | None:
        """Return the position of the record with the id `index`, or None."""
        try:
            number = int(index[-_NUMBER_DIGITS:], 16)
        except (ValueError, TypeError):
            return None
        if not self.filled or index != self._id(number):
            return None
        numbers = self.fields["number"]

        def number_at(position: int) -> int:
            return int(numbers[self.slots_at(position)])

        position = number - number_at(0)  # without deletions, the numbers are consecutive
        if not (0 <= position < self.filled and number_at(position) == number):
            position = bisect_left(range(self.filled), number, key=number_at)
        return position if position < self.filled and number_at(position) == number else None

    def find_slots(self, indices: Iterable[Any]) -> list[int | None]:
        """Return the slots of the records with the ids `indices`, None for an unknown id."""
        return [None if i is None else int(self.slots_at(i)) for i in map(self.position, indices)]

    def take(self, slots: IntArray) -> list[BufferedData]:
        """Return the records in `slots`."""
        rows = slots[self._is_row[slots]]
        if rows.size:
            rows = np.unique(rows)
            items = rows_of(self.read(rows))
            self._free(rows)
            self._write_objects(rows, items)
        return [self._objects[slot] for slot in slots.tolist()]

    def ids(self, slots: IntArray) -> list[str]:
        """Return the ids of the records in `slots`."""
        return [self._id(number) for number in self.fields["number"][slots].tolist()]

    def _id(self, number: int) -> str:
        return f"{self._prefix}{number:0{_NUMBER_DIGITS}x}"

    def metas(self, slots: IntArray) -> list[Meta]:
        """Return the metadata of the records in `slots`."""
        records = map(self._objects.__getitem__, slots.tolist())
        rows = self._metas_of_rows(slots)
        return [meta if record is None else record.meta for record, meta in zip(records, rows, strict=True)]

    def _metas_of_rows(self, slots: IntArray) -> list[Meta]:
        """Return the metadata of the records in `slots`, which are rows of the columns."""
        metas: list[Meta] = []
        uses, priorities = self.fields["use"][slots].tolist(), self.fields["priority"][slots].tolist()
        for slot, use, priority in zip(slots.tolist(), uses, priorities, strict=True):
            meta = {"priority": priority, "priority_idx": slot} if priority == priority else {}
            metas.append({**meta, "use_count": use} if use else meta or None)
        return metas

    def note(self, slots: IntArray, field: str, values: Any) -> None:
        """Set a field of the records in `slots` [n] to `values` [n], also in the metadata of created records."""
        self.fields[field][slots] = values
        for slot in slots[~self._is_row[slots]].tolist():
            record = self._objects[slot]
            record.meta = record.meta if record.meta is not None else {}
            record.meta[_META_KEYS[field]] = self.fields[field][slot].item()
            if field == "priority":
                record.meta["priority_idx"] = slot

    def dicts(self) -> list[dict[str, Any]]:
        """Return dicts of id, data (shared with the ring, unless in columns) and meta (a shallow copy)."""
        slots = self.occupied()
        records = zip(self.ids(slots), rows_of(self.read(slots)), self.metas(slots), strict=True)
        return [{"index": index, "data": data, "meta": copy.copy(meta)} for index, data, meta in records]

    # ---- removal

    def delete(self, positions: Iterable[int]) -> None:
        """Remove the records at `positions`."""
        slots = self.slots_at(np.array(sorted(positions), np.int64))
        if slots.size:
            self.remove(slots, closes_gaps=True)
            self.fields["number"][slots] = -1
            self.version += 1
            self.report_dropped()

    def clear(self) -> None:
        """Remove all records."""
        super().clear()
        self.report_dropped()

    def replace(self, records: Sequence[Mapping[str, Any]], maxlen: int) -> None:
        """Replace all records by those that `dicts` returned, at most `maxlen`.

        They keep their ids, unless these come from several rings.
        """
        super().clear()
        self._fill(records, maxlen)

    def _fill(self, records: Sequence[Mapping[str, Any]], maxlen: int) -> None:
        push_count, next_number, dropped = self.push_count, self._next_number, self.dropped
        self._resize(maxlen)
        self.dropped = []  # is reported at the end
        prefixes = {record["index"][:-_NUMBER_DIGITS] for record in records}
        if len(prefixes) == 1:
            self._prefix = prefixes.pop()
        for record in records:
            if not prefixes:
                self._next_number = int(record["index"][-_NUMBER_DIGITS:], 16)
            self.append(record["data"], record["meta"])
        self._next_number, self.push_count = max(next_number, self._next_number), push_count
        self.dropped = dropped
        self.report_dropped()

    def _resize(self, maxlen: int) -> None:
        """Set the capacity of a ring whose contents do not count any more."""
        self.size, self.records = maxlen, np.zeros(maxlen, list(_FIELDS))
        self.reset()

    # ---- states

    def snapshot(self, is_copied: bool) -> dict[str, Any]:
        """Return the records in plain values and arrays; data that is not in columns is shared with the ring.

        Args:
            is_copied: whether arrays are copies; otherwise they may be views of the columns.
        """
        state = super().snapshot(is_copied)
        metas = [copy.copy(meta) for meta in self.metas(state["object_slots"])]
        return {**state, "metas": metas, "prefix": self._prefix, "next_number": self._next_number}

    def load(self, snapshot: dict[str, Any]) -> None:
        """Replace all records, and the capacity, by those of a `snapshot`."""
        super().clear()
        self._resize(snapshot["size"])
        self._prefix, self._next_number = snapshot["prefix"], snapshot["next_number"]
        super().load(snapshot)
        for slot, meta in zip(np.asarray(snapshot["object_slots"]).tolist(), snapshot["metas"], strict=True):
            self._objects[slot].meta = copy.copy(meta)
        self.report_dropped()


class DequeBuffer(Buffer):
    """Buffer of the newest records: pushing to a full buffer removes the oldest record. It is not thread-safe.

    Args:
        size: capacity, in records.
        sliced: whether windows of a grouped sample start at multiples of `unroll_len`.

    Attributes:
        storage: the records, oldest first.
        indices: maps ids to positions in `storage`.
        memory_check: the estimate of the memory, made from the first push. To base it on more items, call its
            `estimate` before.

    Example:
        >>> buffer = DequeBuffer(size=2)
        >>> for i in range(3):
        ...     record = buffer.push({"step": i}, meta={"episode": 0})
        >>> [r.data["step"] for r in buffer], buffer.indices.get(record.index)
        ([1, 2], 1)
        >>> [[r.data["step"] for r in group] for group in buffer.sample(1, groupby="episode")]
        [[1, 2]]
    """

    def __init__(self, size: int, sliced: bool = False) -> None:
        self.storage = RecordRing(size)
        super().__init__(size)
        self.indices = BufferIndex(self.storage)
        self._meta_index = MetaIndex(self.storage)
        self.sliced = sliced
        self.rng = new_generator()
        self.memory_check = MemoryCheck(logging.getLogger("ding"))

    @property
    def size(self) -> int:
        """The capacity, in records; `load_data` sets it to that of the file."""
        return self.storage.maxlen

    @size.setter
    def size(self, size: int) -> None:
        self.storage.maxlen = size

    @property
    def meta_index(self) -> MetaIndex:
        """The values of all records by each meta key that samples were grouped by.

        Setting it to a mapping uses only its keys.
        """
        return self._meta_index

    @meta_index.setter
    def meta_index(self, meta_index: Mapping[str, Any]) -> None:
        self._meta_index = MetaIndex(self.storage, meta_index)

    @apply_middleware("push")
    def push(self, data: Any, meta: dict[str, Any] | None = None) -> BufferedData:
        """Append `data` with `meta` and return the record."""
        if not self.memory_check.is_done:
            self.memory_check.estimate([(data, meta)], self.size)
        return self.storage.append(data, meta)

    @apply_middleware("sample")
    def sample(
        self,
        size: int | None = None,
        indices: list[str] | None = None,
        replace: bool = False,
        sample_range: slice | None = None,
        ignore_insufficient: bool = False,
        groupby: str | None = None,
        unroll_len: int | None = None,
    ) -> list[Any]:
        """Sample `size` records uniformly, or return those with the ids `indices`.

        The first occurrence of a record is the stored object, further ones are copies.

        Args:
            size: number of records, or of groups with `groupby`.
            indices: ids of the records to return, in this order; None, False or an empty list to sample.
            replace: whether to sample with replacement.
            sample_range: positions to sample from; 0 is the oldest record. Bounds must not be negative.
            ignore_insufficient: whether to return `[]` and log a warning, instead of raising, if there are too few.
            groupby: a meta key: sample groups of records with the same value of it. A group is a list in order of
                arrival.
            unroll_len: number of consecutive records of a random window; of each group, only this window is returned.

        Raises:
            AssertionError: the arguments contradict each other.
            ValueError: there are too few records or groups, or `sample_range` has negative bounds.
            IndexError: there is nothing to sample from, with `replace`.
            KeyError: an id in `indices` is unknown.
        """
        size = _check_arguments(size, indices, groupby, unroll_len)
        storage = self.storage
        if groupby is not None:
            groups = self._groups(groupby, sample_range, unroll_len)
            chosen = self._choose(len(groups), size, replace, ignore_insufficient)
            drawn = [self._cut(groups[i], unroll_len) for i in chosen.tolist()]
            positions = np.array([position for group in drawn for position in group], np.int64)
            records = iter(self._records(storage.slots_at(positions)))
            return [list(itertools.islice(records, len(group))) for group in drawn]
        if indices:
            slots = storage.find_slots(indices)
            if None in slots:
                self.get_by_index(indices[slots.index(None)])  # raises
            return self._records(np.array(slots))
        if sample_range is None:
            positions = self._choose(len(storage), size, replace, ignore_insufficient)
        else:
            among = np.array(_within(len(storage), sample_range), np.int64)
            positions = among[self._choose(len(among), size, replace, ignore_insufficient)]
        return self._records(storage.slots_at(positions))

    def draw(self, size: int) -> IntArray:
        """Return the slots of `size` distinct records, drawn uniformly as by `sample`.

        Raises:
            ValueError: there are fewer records.
        """
        slots: IntArray = self.storage.slots_at(self._choose(len(self.storage), size, False, False))
        return slots

    def _records(self, slots: IntArray) -> list[BufferedData]:
        return copy_repeats(self.storage.take(slots), slots)

    def _choose(self, count: int, size: int, replace: bool, ignore_insufficient: bool) -> IntArray:
        """Return `size` numbers in [0, `count`), or none."""
        if replace:
            if count == 0:
                raise IndexError("an empty buffer cannot be sampled; push first")
            return self.rng.integers(0, count, size)
        if size <= count:
            return self.rng.choice(count, size, replace=False)
        # Programs look for the first words, which are DI-engine's.
        message = f"There are less than {size} records or groups to sample from, {count}; push more, or lower size"
        if not ignore_insufficient:
            raise ValueError(message)
        logging.getLogger("ding").warning(message)
        return np.zeros(0, np.int64)

    def _groups(self, key: str, sample_range: slice | None, unroll_len: int | None) -> list[list[int]]:
        """Return the positions of the groups of records that may be sampled."""
        groups: Iterable[list[int]] = self._meta_index.groups(key).values()
        if sample_range is not None:
            allowed = set(_within(len(self.storage), sample_range))
            groups = [[i for i in group if i in allowed] for group in groups]
        return [group for group in groups if len(group) >= (unroll_len or 1)]

    def _cut(self, group: list[int], unroll_len: int | None) -> list[int]:
        if unroll_len is None or unroll_len <= 1:
            return group
        last = len(group) - unroll_len
        if self.sliced:
            windows = -(-len(group) // unroll_len)
            start = min(last, unroll_len * int(self.rng.integers(0, windows)))
        else:
            start = int(self.rng.integers(0, last + 1))
        return group[start : start + unroll_len]

    @apply_middleware("update")
    def update(self, index: str, data: Any = None, meta: dict[str, Any] | None = None) -> bool:
        """Replace the `data` and `meta` of a record, unless None, and return whether the id `index` is known."""
        position = self.indices.get(index)
        if position is None:
            return False
        record = self.storage[position]
        if data is not None:
            record.data = data
        if meta is not None:
            record.meta = meta
        self.storage.version += 1
        return True

    @apply_middleware("delete")
    def delete(self, indices: str | Iterable[str]) -> None:
        """Remove the record(s) with the id(s) `indices`; unknown ids are ignored."""
        positions = {self.indices.get(index) for index in ([indices] if isinstance(indices, str) else indices)}
        self.storage.delete({position for position in positions if position is not None})

    @apply_middleware("clear")
    def clear(self) -> None:
        """Remove all records."""
        self._meta_index.clear()
        self.storage.clear()

    def count(self) -> int:
        """Return the number of records."""
        return len(self.storage)

    def get(self, idx: int) -> BufferedData:
        """Return the record at position `idx`; 0 is the oldest."""
        return self.storage[idx]

    def get_by_index(self, index: str) -> BufferedData:
        """Return the record with the id `index`.

        Raises:
            KeyError: the id is unknown.
        """
        position = self.indices.get(index)
        if position is None:
            raise KeyError(f"index = {index!r} is unknown: the record was not pushed here, or has left the buffer")
        return self.storage[position]

    def __iter__(self) -> Iterator[BufferedData]:
        return iter(self.storage)

    def view(self) -> DequeBuffer:
        """Return a buffer without middleware that shares the records, so that changes of either affect both."""
        view = copy.copy(self)
        view._middleware = []
        return view

    def save_data(self, file_name: str) -> None:
        """Write all records to `file_name` as code-free msgpack, creating parent folders."""
        write_data_file(file_name, "records", [{"size": self.size}, *self.storage.dicts()])

    def load_data(self, file_name: str) -> None:
        """Replace all records, and the capacity, by those of a file that `save_data` wrote.

        Raises:
            ValueError: it is another kind of file.
        """
        (header, *records), _ = read_data_file(file_name, "records")
        try:
            self.storage.replace(records, header["size"])
        finally:  # `on_dropped` may raise
            self._rebuild()

    def state_dict(self, is_copied: bool = True) -> dict[str, Any]:
        """Return the records in plain values and arrays; data that is not in columns is shared with the buffer.

        Args:
            is_copied: whether arrays are copies; otherwise they may be views of the buffer.
        """
        return self.storage.snapshot(is_copied)

    def load_state_dict(self, _state_dict: dict[str, Any]) -> None:
        """Replace all records, and the capacity, by those of a state, and call `rebuild` of middleware that has it.

        Raises:
            ValueError: the state is of an earlier version.
        """
        if "object_slots" not in _state_dict:
            raise ValueError(
                "the state of a deque buffer is of an earlier version and cannot be loaded; save its items with "
                "save_data of that version, and load them with load_data"
            )
        try:
            self.storage.load(_state_dict)
        finally:  # `on_dropped` may raise
            self._rebuild()

    def _rebuild(self) -> None:
        for middleware in self._middleware:
            if isinstance(middleware, KeepsRecords):
                middleware.rebuild()


class BufferIndex:
    """The positions of records by their ids."""

    def __init__(self, storage: RecordRing) -> None:
        self._storage = storage

    def get(self, index: str) -> int | None:
        """Return the position of the record with the id `index`, or None."""
        return self._storage.position(index)

    def __contains__(self, index: str) -> bool:
        return self.get(index) is not None

    def __len__(self) -> int:
        return len(self._storage)


class MetaIndex(Mapping[str, Any]):
    """The values of all records, in order, by each meta key that was used for grouping; None where missing."""

    def __init__(self, storage: RecordRing, used: Iterable[str] = ()) -> None:
        self._storage = storage
        self._used: set[str] = set(used)
        self._groups: dict[str, tuple[int, dict[Any, list[int]]]] = {}

    def groups(self, key: str) -> dict[Any, list[int]]:
        """Return the positions of the records by their value of `key`, without records that lack the key."""
        self._used.add(key)
        version, groups = self._groups.get(key, (None, {}))
        if version != self._storage.version:
            groups = {}
            for position, meta in enumerate(self._storage.metas(self._storage.occupied())):
                if meta is not None and key in meta:
                    groups.setdefault(meta[key], []).append(position)
            self._groups[key] = (self._storage.version, groups)
        return groups

    def __getitem__(self, key: str) -> deque[Any]:
        if key not in self._used:
            raise KeyError(f"no sample was grouped by {key!r}; call sample with groupby={key!r} first")
        return deque((meta or {}).get(key) for meta in self._storage.metas(self._storage.occupied()))

    def __iter__(self) -> Iterator[str]:
        return iter(self._used)

    def __len__(self) -> int:
        return len(self._used)

    def clear(self) -> None:
        """Remove all keys."""
        self._used.clear()
        self._groups.clear()


def _check_arguments(size: int | None, indices: list[str] | None, groupby: str | None, unroll_len: int | None) -> int:
    """Check the arguments of `sample`, and return the number of records or groups to draw."""
    if not size and not indices:
        raise AssertionError(f"size = {size}, indices = {indices} is not allowed; give a size >= 1, or indices")
    if size and indices and len(indices) != size:
        raise AssertionError(f"size = {size} is not the number of indices, {len(indices)}; give only one of the two")
    if groupby and indices:
        raise AssertionError("groupby and indices cannot be combined; give only one of the two")
    if unroll_len and not groupby:
        raise AssertionError("unroll_len cuts windows from groups; give groupby too")
    return size or len(indices or ())


def _within(count: int, sample_range: slice) -> list[int]:
    """Return the numbers in [0, `count`) that a slice without negative bounds selects."""
    return list(itertools.islice(range(count), sample_range.start, sample_range.stop, sample_range.step))


def copy_repeats(items: list[Any], slots: IntArray) -> list[Any]:
    """Replace, in place, all but the first of the `items` [n] with the same slot in `slots` [n] by copies."""
    seen: set[int] = set()
    for i, slot in enumerate(slots.tolist()):
        if slot in seen:
            items[i] = fastcopy.copy(items[i])
        seen.add(slot)
    return items
