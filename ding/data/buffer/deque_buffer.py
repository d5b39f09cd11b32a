"""A buffer that keeps the newest records in order of arrival."""

from __future__ import annotations

import copy
import itertools
import logging
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from ding.data.buffer.buffer import Buffer, BufferedData, KeepsRecords, apply_middleware
from ding.data.buffer.record_ring import RecordRing
from ding.data.data_file import read_data_file, write_data_file
from ding.data.memory_check import MemoryCheck
from ding.data.random_source import new_generator
from ding.utils.fast_copy import fastcopy
from ding.utils.segment_tree import IntArray


class DequeBuffer(Buffer):
    """Buffer of the newest records: pushing to a full buffer removes the oldest record. Not thread-safe.

    Args:
        size: Capacity, in records.
        sliced: Whether windows of a grouped sample start at multiples of `unroll_len`.

    Attributes:
        storage: The records, oldest first.
        indices: Maps ids to positions in `storage`.
        memory_check: Estimates the memory from the first push. To base it on more items, call its `estimate` before.

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
        """Capacity, in records. `load_data` sets it to that of the file."""
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
            size: Number of records, or of groups with `groupby`.
            indices: Ids of the records to return, in this order; None, False or an empty list to sample.
            replace: Whether to sample with replacement.
            sample_range: Positions to sample from; 0 is the oldest record. Bounds must not be negative.
            ignore_insufficient: Return `[]` and log a warning, instead of raising, if there are too few.
            groupby: Sample groups of records with the same value of this meta key. A group is a list in order of
                arrival.
            unroll_len: Return only a random window of this many consecutive records of each group.

        Raises:
            AssertionError: If the arguments contradict each other.
            ValueError: If there are too few records or groups, or `sample_range` has negative bounds.
            IndexError: If there is nothing to sample from, with `replace`.
            KeyError: If an id in `indices` is unknown.
        """
        size = _check_arguments(size, indices, groupby, unroll_len)
        if groupby is not None:
            groups = self._groups(groupby, sample_range, unroll_len)
            chosen = self._choose(groups, size, replace, ignore_insufficient)
            drawn = [self._cut(group, unroll_len) for group in chosen]
            flat = iter(copy_repeats([record for group in drawn for record in group]))
            return [list(itertools.islice(flat, len(group))) for group in drawn]
        if indices:
            return copy_repeats(self._fetch(indices))
        candidates: Sequence[BufferedData] = self.storage
        if sample_range is not None:
            candidates = _within(self.storage, sample_range)
        return copy_repeats(self._choose(candidates, size, replace, ignore_insufficient))

    def draw(self, size: int) -> IntArray:
        """Returns the slots of `size` distinct records, drawn uniformly as by `sample`.

        Raises:
            ValueError: If there are fewer records.
        """
        return self.storage.slots_at(self.rng.choice(len(self.storage), size, replace=False))

    def _choose(self, candidates: Sequence[Any], size: int, replace: bool, ignore_insufficient: bool) -> list[Any]:
        count = len(candidates)
        if replace:
            if count == 0:
                raise IndexError("an empty buffer cannot be sampled; push first")
            chosen = self.rng.integers(0, count, size)
        elif size <= count:
            chosen = self.rng.choice(count, size, replace=False)
        else:
            message = f"size = {size} is not allowed: there are {count} records or groups to sample from"
            if not ignore_insufficient:
                raise ValueError(message)
            logging.getLogger("ding").warning(message)
            return []
        if isinstance(candidates, RecordRing):
            return self.storage.take(self.storage.slots_at(chosen))
        return [candidates[i] for i in chosen.tolist()]

    def _fetch(self, indices: list[str]) -> list[BufferedData]:
        slots = [slot for slot in self.storage.find_slots(indices) if slot is not None]
        if len(slots) < len(indices):
            for index in indices:
                self.get_by_index(index)  # raises for the unknown one
        return self.storage.take(np.array(slots))

    def _groups(self, key: str, sample_range: slice | None, unroll_len: int | None) -> list[list[BufferedData]]:
        groups = list(self._meta_index.groups(key).values())
        if sample_range is not None:
            allowed = set(_within(range(len(self.storage)), sample_range))
            groups = [[i for i in group if i in allowed] for group in groups]
        return [[self.storage[i] for i in group] for group in groups if len(group) >= (unroll_len or 1)]

    def _cut(self, group: list[BufferedData], unroll_len: int | None) -> list[BufferedData]:
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
        """Replace the `data` and `meta` of a record, unless None. Returns False if the id `index` is unknown."""
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
        """Remove the record(s) with the id(s) `indices`. Ignores unknown ids."""
        ids = [indices] if isinstance(indices, str) else indices
        positions = {self.indices.get(index) for index in ids}
        self.storage.delete({position for position in positions if position is not None})

    @apply_middleware("clear")
    def clear(self) -> None:
        """Remove all records."""
        self.storage.clear()
        self._meta_index.clear()

    def count(self) -> int:
        """Returns the number of records."""
        return len(self.storage)

    def get(self, idx: int) -> BufferedData:
        """Returns the record at position `idx`; 0 is the oldest."""
        return self.storage[idx]

    def get_by_index(self, index: str) -> BufferedData:
        """Returns the record with the id `index`.

        Raises:
            KeyError: If the id is unknown.
        """
        position = self.indices.get(index)
        if position is None:
            raise KeyError(f"index = {index!r} is unknown: the record was not pushed here, or has left the buffer")
        return self.storage[position]

    def __iter__(self) -> Iterator[BufferedData]:
        return iter(self.storage)

    def view(self) -> DequeBuffer:
        """Returns a buffer without middleware that shares the records: changes of either affect both."""
        view = copy.copy(self)
        view._middleware = []
        return view

    def save_data(self, file_name: str) -> None:
        """Write all records to `file_name` as code-free msgpack. Creates parent folders."""
        write_data_file(file_name, "records", [{"size": self.size}, *self.storage.dicts()])

    def load_data(self, file_name: str) -> None:
        """Replace all records, and the capacity, by those of a file that `save_data` wrote.

        Raises:
            ValueError: If it is another kind of file.
        """
        (header, *records), _ = read_data_file(file_name, "records")
        self.storage.replace(records, header["size"])
        self._rebuild()

    def state_dict(self, is_copied: bool = True) -> dict[str, Any]:
        """Returns the records in plain values and arrays. Data that is not in columns is shared with the buffer.

        Args:
            is_copied: If False, arrays may be views of the buffer.
        """
        return self.storage.state(is_copied)

    def load_state_dict(self, _state_dict: dict[str, Any]) -> None:
        """Replace all records, and the capacity, by those of a state. Calls `rebuild` of each middleware that has it.

        Raises:
            ValueError: If the state is of an earlier version.
        """
        if "order" not in _state_dict:
            raise ValueError(
                "the state of a deque buffer is of an earlier version and cannot be loaded; save its items with "
                "save_data of that version, and load them with load_data"
            )
        self.storage.load(_state_dict)
        self._rebuild()

    def _rebuild(self) -> None:
        for middleware in self._middleware:
            if isinstance(middleware, KeepsRecords):
                middleware.rebuild()


class BufferIndex:
    """Maps ids of records to positions."""

    def __init__(self, storage: RecordRing) -> None:
        self._storage = storage

    def get(self, index: str) -> int | None:
        """Returns the position of the record with the id `index`, or None."""
        return self._storage.position(index)

    def __contains__(self, index: str) -> bool:
        return self.get(index) is not None

    def __len__(self) -> int:
        return len(self._storage)


class MetaIndex(Mapping[str, Any]):
    """Maps each meta key that was used for grouping to the values of all records in order, None if missing."""

    def __init__(self, storage: RecordRing, used: Iterable[str] = ()) -> None:
        self._storage = storage
        self._used: set[str] = set(used)
        self._groups: dict[str, tuple[int, dict[Any, list[int]]]] = {}

    def groups(self, key: str) -> dict[Any, list[int]]:
        """Returns the positions of the records by their value of `key`. Records without the key are left out."""
        self._used.add(key)
        version, groups = self._groups.get(key, (None, {}))
        if version != self._storage.version:
            groups = {}
            for position, meta in enumerate(self._storage.metas(self._storage.slots)):
                if meta is not None and key in meta:
                    groups.setdefault(meta[key], []).append(position)
            self._groups[key] = (self._storage.version, groups)
        return groups

    def __getitem__(self, key: str) -> deque[Any]:
        if key not in self._used:
            raise KeyError(f"no sample was grouped by {key!r}; call sample with groupby={key!r} first")
        return deque((meta or {}).get(key) for meta in self._storage.metas(self._storage.slots))

    def __iter__(self) -> Iterator[str]:
        return iter(self._used)

    def __len__(self) -> int:
        return len(self._used)

    def clear(self) -> None:
        """Remove all keys."""
        self._used.clear()
        self._groups.clear()


def _check_arguments(size: int | None, indices: list[str] | None, groupby: str | None, unroll_len: int | None) -> int:
    """Check the arguments of `sample`; returns the number of records or groups to draw."""
    if not size and not indices:
        raise AssertionError(f"size = {size}, indices = {indices} is not allowed; give a size >= 1, or indices")
    if size and indices and len(indices) != size:
        raise AssertionError(f"size = {size} is not the number of indices, {len(indices)}; give only one of the two")
    if groupby and indices:
        raise AssertionError("groupby and indices cannot be combined; give only one of the two")
    if unroll_len and not groupby:
        raise AssertionError("unroll_len cuts windows from groups; give groupby too")
    return size or len(indices or ())


def _within(items: Iterable[Any], sample_range: slice) -> list[Any]:
    return list(itertools.islice(items, sample_range.start, sample_range.stop, sample_range.step))


def copy_repeats(records: list[BufferedData]) -> list[BufferedData]:
    """Replace all but the first occurrence of each record by copies, in place. Returns `records`."""
    seen: set[int] = set()
    for i, record in enumerate(records):
        if id(record) in seen:
            records[i] = fastcopy.copy(record)
        seen.add(id(record))
    return records
