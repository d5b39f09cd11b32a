"""A buffer that keeps the newest records in order of arrival."""

from __future__ import annotations

import copy
import itertools
import logging
import secrets
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any

from ding.data.buffer.buffer import Buffer, BufferedData, RecordListener, apply_middleware
from ding.data.buffer_interface import read_data_file, write_data_file
from ding.utils.data.plain_columns import from_plain, to_plain
from ding.utils.default_helper import new_generator
from ding.utils.fast_copy import fastcopy

_numbers = itertools.count()


class DequeBuffer(Buffer):
    """Buffer of the newest records: pushing to a full buffer removes the oldest record. It is not thread-safe.

    Args:
        size: capacity, in records.
        sliced: whether windows of a grouped sample start at multiples of `unroll_len`.

    Attributes:
        storage: the records, oldest first. Read only; `push`, `delete` and `clear` change it.
        listeners: told of each record that is added or removed; views have the same.

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
        super().__init__(size)
        self.storage: deque[BufferedData] = deque()
        self._records: dict[str, BufferedData] = {}  # by id
        self._prefix = secrets.token_hex(8)  # of ids
        self._meta_keys: set[str] = set()  # that samples were grouped by
        self.listeners: list[RecordListener] = []
        self.sliced = sliced
        self.rng = new_generator()

    @property
    def indices(self) -> dict[str, int]:
        """The positions of the records in `storage` by their ids."""
        return {record.index: position for position, record in enumerate(self.storage)}

    @property
    def meta_index(self) -> dict[str, deque[Any]]:
        """The values of all records by each meta key that samples were grouped by; None where missing."""
        return {key: deque((record.meta or {}).get(key) for record in self.storage) for key in self._meta_keys}

    @apply_middleware("push")
    def push(self, data: Any, meta: dict[str, Any] | None = None) -> BufferedData:
        """Append `data` with `meta` and return the record."""
        record = BufferedData(data, f"{self._prefix}{next(_numbers):016x}", meta)
        self._append(record)
        return record

    def _append(self, record: BufferedData) -> None:
        if len(self.storage) >= self.size:
            self._remove([self.storage[0].index])
        self.storage.append(record)
        self._records[record.index] = record
        for listener in self.listeners:
            listener.added(record)

    def _remove(self, indices: Iterable[str]) -> None:
        removed = [record for index in indices if (record := self._records.pop(index, None)) is not None]
        if len(removed) == 1 and removed[0] is self.storage[0]:
            self.storage.popleft()
        elif removed:
            kept = [record for record in self.storage if record.index in self._records]
            self.storage.clear()
            self.storage.extend(kept)
        for listener in self.listeners:
            listener.removed(removed)

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
            indices: ids of the records to return, in this order; None to sample.
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
        if indices:
            return _copy_repeats([self.get_by_index(index) for index in indices])
        records: deque[BufferedData] | list[BufferedData] = self.storage
        if sample_range is not None:
            records = list(itertools.islice(records, sample_range.start, sample_range.stop, sample_range.step))
        if groupby is None:
            drawn_records = [records[i] for i in self._choose(len(records), size, replace, ignore_insufficient)]
            return _copy_repeats(drawn_records) if replace else drawn_records
        self._meta_keys.add(groupby)
        groups: dict[Any, list[BufferedData]] = {}
        for record in records:
            if record.meta is not None and groupby in record.meta:
                groups.setdefault(record.meta[groupby], []).append(record)
        long_enough = [group for group in groups.values() if len(group) >= (unroll_len or 1)]
        chosen = self._choose(len(long_enough), size, replace, ignore_insufficient)
        drawn = [self._cut(long_enough[i], unroll_len) for i in chosen]
        flat = iter(_copy_repeats(list(itertools.chain.from_iterable(drawn))))
        return [list(itertools.islice(flat, len(group))) for group in drawn]

    def _choose(self, count: int, size: int, replace: bool, ignore_insufficient: bool) -> list[int]:
        """Return `size` numbers in [0, `count`), or none."""
        chosen: list[int] = []
        if replace:
            if count == 0:
                raise IndexError("an empty buffer cannot be sampled; push first")
            chosen = self.rng.integers(0, count, size).tolist()
        elif size <= count:
            chosen = self.rng.choice(count, size, replace=False).tolist()
        else:
            # Programs look for the first words, which are DI-engine's.
            message = f"There are less than {size} records or groups to sample from, {count}; push more, or lower size"
            if not ignore_insufficient:
                raise ValueError(message)
            logging.getLogger("ding").warning(message)
        return chosen

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
        """Replace the `data` and `meta` of a record, unless None, and return whether the id `index` is known."""
        record = self._records.get(index)
        if record is None:
            return False
        if data is not None:
            record.data = data
        if meta is not None:
            record.meta = meta
        return True

    @apply_middleware("delete")
    def delete(self, indices: str | Iterable[str]) -> None:
        """Remove the record(s) with the id(s) `indices`; unknown ids are ignored."""
        self._remove([indices] if isinstance(indices, str) else indices)

    @apply_middleware("clear")
    def clear(self) -> None:
        """Remove all records."""
        self._meta_keys.clear()
        self._remove(list(self._records))

    def count(self) -> int:
        """Return the number of records."""
        return len(self.storage)

    def get(self, idx: int) -> BufferedData:
        """Return the record at position `idx`; 0 is the oldest."""
        count = len(self.storage)
        if not -count <= idx < count:
            raise IndexError(f"position = {idx} is not allowed; it must be in [-{count}, {count})")
        return self.storage[idx]

    def get_by_index(self, index: str) -> BufferedData:
        """Return the record with the id `index`.

        Raises:
            KeyError: the id is unknown.
        """
        if index not in self._records:
            raise KeyError(f"index = {index!r} is unknown: the record was not pushed here, or has left the buffer")
        return self._records[index]

    def __iter__(self) -> Iterator[BufferedData]:
        return iter(self.storage)

    def view(self) -> DequeBuffer:
        """Return a buffer without middleware that shares the records, so that changes of either affect both."""
        view = copy.copy(self)
        view._middleware = []
        return view

    def save_data(self, file_name: str) -> None:
        """Write all records to `file_name` as code-free msgpack, creating parent folders."""
        records = [{"index": record.index, "data": record.data, "meta": record.meta} for record in self.storage]
        write_data_file(file_name, "records", [{"size": self.size}, *records])

    def load_data(self, file_name: str) -> None:
        """Replace all records, and the capacity, by those of a file that `save_data` wrote.

        Raises:
            ValueError: it is another kind of file.
        """
        (header, *records), _ = read_data_file(file_name, "records")
        self._replace(header["size"], [BufferedData(**record) for record in records])

    def state_dict(self) -> dict[str, Any]:
        """Return the records in plain values and arrays; data that does not fit columns is shared with the buffer."""
        return {
            "size": self.size,
            "ids": [record.index for record in self.storage],
            "data": to_plain([record.data for record in self.storage]),
            "metas": to_plain([copy.copy(record.meta) for record in self.storage]),
        }

    def load_state_dict(self, _state_dict: dict[str, Any]) -> None:
        """Replace all records, and the capacity, by those of a state."""
        data, metas = (from_plain(_state_dict[key]) for key in ("data", "metas"))
        parts = zip(data, _state_dict["ids"], metas, strict=True)
        self._replace(_state_dict["size"], [BufferedData(*part) for part in parts])

    def _replace(self, size: int, records: list[BufferedData]) -> None:
        self._remove(list(self._records))
        self.size = size
        for record in records:
            self._append(record)


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


def _copy_repeats(records: list[BufferedData]) -> list[BufferedData]:
    """Replace, in place, all but the first occurrence of each record by copies."""
    seen: set[str] = set()
    for i, record in enumerate(records):
        if record.index in seen:
            records[i] = fastcopy.copy(record)
        seen.add(record.index)
    return records
