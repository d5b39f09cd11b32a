"""Column storage of buffers: a ring of slots backed by typed columns."""

from __future__ import annotations

import contextlib
import copy
import itertools
import logging
import math
import os
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from ding.data.ring import Array, BoolArray, Ring, RowRing, Slots
from ding.utils.data.plain_columns import from_plain, samples_of_state, samples_state, to_plain
from ding.utils.data.samples import (
    Column,
    Items,
    Kind,
    Node,
    Samples,
    Table,
    columns_of,
    is_same_structure,
    items_at,
    listed,
    map_node,
    node_items,
    packed,
    rows_of,
    table_of,
    with_end_flags,
)
from ding.utils.fast_copy import fastcopy
from ding.utils.segment_tree import IntArray

# Objects of these types cannot be changed, so they need no copies.
_IMMUTABLE = frozenset((type(None), bool, int, float, str, bytes))
_LINE_BYTES = 64  # of the cache
# Values of up to this many bytes are stored in one record per slot: a draw has one cache miss for all of them.
_RECORD_BYTES = 64
# Records above this size are padded to a line of the cache, so that none spans two lines.
_FULL_LINE = 52


class ColumnStore(Ring):
    """Store of dicts with the same keys in typed columns, and of any other items as Python objects.

    The first dicts define the columns. A `next_obs` that is the `obs` of another item is stored once. Items with other
    keys, or with a value that does not fit its column, are stored as objects, which is logged once as a warning. Items
    are copied when they are written and read. The store is not thread-safe.

    Args:
        size: number of slots.
        logger: the logger of the warnings.
        folder: folder of the files that the columns are mapped to; None for memory. Objects are always in memory.
        share_frames: whether to store frames that observations [C, ...] have in common once, if their numbers are known
            (see `Column`).
        fields: name and dtype of the owner's metadata of each slot, stored next to small values.

    Attributes:
        records: structured array [size] of the fields, which the owner may change, small values and row numbers. The
            first items and `reset` replace it.
        fields: the owner's fields of `records`, by name.
        columns: the columns [size] by key, undefined in slots that hold no row of them; None without columns.
        on_dropped: function that `report_dropped` calls with a list of the items that left the store. It may be set.
        dropped: the items that left since its last call, in parts; empty without `on_dropped`.
    """

    def __init__(
        self,
        size: int,
        logger: logging.Logger,
        folder: str | None = None,
        share_frames: bool = False,
        fields: Sequence[tuple[str, Any]] = (),
    ) -> None:
        self._logger, self._memory, self._share_frames = logger, _ColumnMemory(folder), share_frames
        self._own_fields = list(fields)
        self.records: Any = np.zeros(size, self._own_fields)
        self.on_dropped: Callable[[list[Any]], None] | None = None
        self.dropped: list[Items] = []
        super().__init__(size)

    def reset(self) -> None:
        """Empty all slots and remove the columns, but keep `push_count` and the owner's fields."""
        super().reset()
        self.columns: dict[str, Node] | None = None
        self._is_row: BoolArray = np.zeros(self.size, np.bool_)  # whether a slot holds a row of the columns
        self._objects: list[Any] | None = None  # the other items, by slot
        self._fields: dict[int, str] = {}  # record field of a small column, by the id of the column
        self._rings: list[tuple[RowRing, str]] = []  # with the record field of their row numbers
        if self.records.dtype != np.dtype(self._own_fields):
            self.records = self._with_own_fields(np.empty(self.size, self._own_fields))
        self._index_columns()
        self._memory.delete_files()

    def _index_columns(self) -> None:
        """Note the leaves of `columns`, and the format that leaves of items must have to be written to them."""
        self.fields: dict[str, Any] = {name: self.records[name] for name, _ in self._own_fields}
        self._leaves: list[Column] = list(columns_of(self.columns or {}))
        self._formats = list(map(_format_of, self._leaves))
        shared = {id(column) for ring, _ in self._rings for column in (ring.obs, ring.next_obs)}
        places = {id(column): place for place, column in enumerate(self._leaves)}
        self._pairs = [(places[id(r.obs)], places[id(r.next_obs)], r, name) for r, name in self._rings]
        # The leaves that are not in a ring: their places, and their record fields, if they have one.
        self._single = [
            (place, column, self._fields.get(id(column)))
            for place, column in enumerate(self._leaves)
            if id(column) not in shared
        ]
        self._is_flat = all(type(node) is Column for node in (self.columns or {}).values())

    # ---- the contents

    @property
    def nbytes(self) -> int:
        """Memory of all columns, in bytes, if all slots are in use, without the memory of objects."""
        apart = [column for _, column, field in self._single if field is None]
        arrays = sum(column.data.nbytes for column in apart if column.kind is not Kind.OBJECT)
        pointers = sum(column.kind is Kind.OBJECT for column in apart) + (self._objects is not None)
        rings = sum(ring.nbytes for ring, _ in self._rings)
        return int(arrays + 8 * pointers * self.size + rings + self.records.nbytes + self.held.nbytes)

    def put(self, items: Items) -> tuple[Slots, int]:
        """Write at most `size` items to the next slots, and return these and the number of overwritten items."""
        count = len(items)
        slots = self.next_slots(count)
        overwritten = int(np.count_nonzero(self.held[slots]))
        if overwritten and self.on_dropped is not None:
            self._note_dropped(slots)
        self.write(slots, items)
        self.advance(count)
        return slots, overwritten

    def write(self, slots: Slots, items: Items) -> None:
        """Write items to `slots`, overwriting items there, without changing the order and the counters."""
        if not isinstance(slots, slice):
            slots = _as_slice(slots)
        self.held[slots] = self._is_row[slots] = False
        table = items if isinstance(items, Table) else packed(items)
        if self.columns is None and table is not None:
            self._make_columns(table.columns)
        leaves = None if table is None else self._fitting(table.columns)
        if leaves is None and table is not None and self.columns is not None:
            columns, extended = with_end_flags(table.columns, self.columns), with_end_flags(self.columns, table.columns)
            if columns.keys() == extended.keys():
                self.columns = extended
                self._index_columns()
                leaves = self._fitting(columns)
        if leaves is None:
            self._write_objects(slots, rows_of(items))
        else:
            for obs, next_obs, ring, _ in self._pairs:
                ring.write(slots, leaves[obs], leaves[next_obs], self._is_row)
            for place, stored, _ in self._single:
                column = leaves[place]
                if stored.kind is Kind.OBJECT:
                    put_objects(stored.data, slots, _own_objects(column.items()))
                else:
                    stored.data[slots] = column.data if column.rows is None else column.data[column.rows]
            if self._objects is not None:
                put_objects(self._objects, slots, [None] * len(self.held[slots]))
            self._is_row[slots] = True
        self.held[slots] = True

    def _write_objects(self, slots: Slots, items: Sequence[Any]) -> None:
        if self._objects is None:
            if self.columns is not None or any(isinstance(item, dict) for item in items):
                self._warn_of_objects(items)
            self._objects = [None] * self.size
        put_objects(self._objects, slots, map(_stored, items))

    def read(self, slots: IntArray) -> Items:
        """Return the items in occupied `slots` [n]: a table if they are in columns, or else a list."""
        columns, _ = self.gather_with_fields(slots)
        if columns is not None:
            return Table(columns, size=len(slots))
        objects, is_row = self._objects or [], self._is_row[slots]
        rows = iter(rows_of(self.read(slots[is_row])) if is_row.any() else ())
        numbered = zip(slots.tolist(), is_row.tolist(), strict=True)
        return [next(rows) if is_row else _given(objects[slot]) for slot, is_row in numbered]

    def gather(self, slots: IntArray) -> dict[str, Node]:
        """Return copies of the columns at `slots` [n], which must be in columns."""
        columns, _ = self.gather_with_fields(slots)
        assert columns is not None
        return columns

    def gather_with_fields(self, slots: IntArray) -> tuple[dict[str, Node] | None, np.ndarray]:
        """Return copies of the columns at `slots` [n], None if some are not in columns, and of the records."""
        records = self.records.take(slots)
        if self.columns is None or (self._objects is not None and not self._is_row[slots].all()):
            return None, records
        leaves = self._leaves.copy()
        for obs, next_obs, ring, name in self._pairs:
            leaves[obs], leaves[next_obs] = ring.gather(records[name])
        for place, stored, field in self._single:
            if field is None:
                leaves[place] = _own_column(stored, slots)
            else:
                leaves[place] = Column(stored.kind, records[field], None, stored.steps)
        if self._is_flat:
            return dict(zip(self.columns, leaves, strict=True)), records
        return self._with_leaves(leaves), records

    def gather_shared(self, slots: IntArray, is_copied: bool = True) -> dict[str, Node]:
        """Return the columns at `slots` [n], which must be in columns, with shared observations still shared.

        The arrays are copies. If `is_copied` is False, they may be views of the store.
        """
        leaves = self._leaves.copy()
        for obs, next_obs, ring, _ in self._pairs:
            leaves[obs], leaves[next_obs] = ring.snapshot(slots, is_copied)
        is_in_front = len(slots) > 0 and slots[-1] == len(slots) - 1  # the first slots, in order
        for place, stored, field in self._single:
            if is_in_front and not is_copied and field is None and stored.kind is not Kind.OBJECT:
                leaves[place] = stored.take(slice(0, len(slots)))
            else:
                leaves[place] = _own_column(stored, slots)
        return self._with_leaves(leaves)

    def _with_leaves(self, leaves: list[Column]) -> dict[str, Node]:
        """Return `columns` with other leaves."""
        assert self.columns is not None
        others = iter(leaves)
        return {key: map_node(lambda _: next(others), node) for key, node in self.columns.items()}

    def empty(self, slots: IntArray, closes_gaps: bool = False) -> None:
        """Empty `slots`, see `release`; their items do not count as dropped."""
        self._free(slots)
        self.release(slots, closes_gaps)

    def _free(self, slots: IntArray) -> None:
        """Forget the rows and objects in `slots`."""
        self._is_row[slots] = False
        lists = [column.data for column in self._leaves if column.kind is Kind.OBJECT]
        for objects in [*lists, *([] if self._objects is None else [self._objects])]:
            put_objects(objects, slots, [None] * len(slots))

    def remove(self, slots: IntArray, closes_gaps: bool = False) -> None:
        """Remove the items in `slots`; see `release`."""
        self._note_dropped(slots)
        self.empty(slots, closes_gaps)

    def clear(self) -> None:
        """Remove all items and the columns, but keep `push_count` and the owner's fields."""
        self._note_dropped(self.occupied())
        self.reset()

    def _note_dropped(self, slots: Slots) -> None:
        """Keep the items in `slots`, where occupied, for `report_dropped`, before they leave."""
        if self.on_dropped is not None:
            numbers = np.arange(self.size)[slots]
            if len(held := numbers[self.held[slots]]):
                self.dropped.append(self.read(held))

    def report_dropped(self) -> None:
        """Pass the items that left since the last call, if any, to `on_dropped`.

        `on_dropped` may raise, or call the owner, so call this when all counts are right.
        """
        parts, self.dropped = self.dropped, []
        if parts and self.on_dropped is not None:
            self.on_dropped(listed(parts[0]) if len(parts) == 1 else [item for part in parts for item in rows_of(part)])

    def _with_own_fields(self, records: Any) -> Any:
        """Copy the owner's fields into new `records` and return them."""
        for name, _ in self._own_fields:
            records[name] = self.records[name]
        return records

    # ---- the columns of the first items

    def _make_columns(self, columns: dict[str, Node]) -> None:
        # Keys that share a column now may differ later.
        columns = {key: map_node(lambda column: column.take(slice(None)), node) for key, node in columns.items()}
        pairs = self._pairs_to_share(columns)
        shared = {id(column) for pair, _ in pairs for column in pair}
        small = [c for c in columns_of(columns) if 0 < c.itemsize <= _RECORD_BYTES and id(c) not in shared]
        self._make_records(small, pairs)
        made: dict[int, Column] = {}
        for i, column in enumerate(small):
            stored = made[id(column)] = Column(column.kind, self.records[f"column {i}"], None, column.steps)
            self._fields[id(stored)] = f"column {i}"
        for i, (pair, has_frames) in enumerate(pairs):
            ring = RowRing(self.size, pair, self._memory.allocate, has_frames, self.records[f"rows {i}"])
            self._rings.append((ring, f"rows {i}"))
            made.update(zip(map(id, pair), (ring.obs, ring.next_obs), strict=True))

        def make(column: Column) -> Column:
            if id(column) in made:
                return made[id(column)]
            if column.kind is Kind.OBJECT:
                return Column(Kind.OBJECT, [None] * self.size)
            data = self._memory.allocate((self.size, *_shape_of(column)), column.data.dtype)
            return Column(column.kind, data, None, column.steps)

        self.columns = {key: map_node(make, node) for key, node in columns.items()}
        self._index_columns()

    def _pairs_to_share(self, columns: dict[str, Node]) -> list[tuple[tuple[Column, Column], bool]]:
        """Return the pairs of `obs` and `next_obs` columns to store once, and whether as frames."""
        obs, next_obs = columns.get("obs"), columns.get("next_obs")
        if obs is None or next_obs is None or not is_same_structure(obs, next_obs):
            return []
        pairs = []
        for pair in zip(columns_of(obs), columns_of(next_obs), strict=True):
            if pair[0].kind is Kind.OBJECT or pair[0].steps or _format_of(pair[0]) != _format_of(pair[1]):
                continue
            rows = pair[0].rows
            if rows is not None and pair[1].rows is not None and pair[0].data is pair[1].data:
                has_frames = pair[0].frames is not None or rows.ndim > 1
                pairs.append((pair, self._share_frames and has_frames))
        return pairs

    def _make_records(self, small: list[Column], pairs: list[tuple[tuple[Column, Column], bool]]) -> None:
        fields: list[tuple[str, Any, tuple[int, ...]]] = [(name, dtype, ()) for name, dtype in self._own_fields]
        fields += [(f"column {i}", column.data.dtype, column.data.shape[1:]) for i, column in enumerate(small)]
        for i, ((obs, _), has_frames) in enumerate(pairs):
            fields.append((f"rows {i}", np.int32, (2, _shape_of(obs)[0]) if has_frames else (2,)))
        fields.sort(key=lambda field: -np.dtype(field[1]).itemsize)  # avoids gaps between the fields
        dtype = np.dtype(fields, align=True)
        if _FULL_LINE < dtype.itemsize < _LINE_BYTES:
            fields.append(("padding", np.uint8, (_LINE_BYTES - dtype.itemsize,)))
            dtype = np.dtype(fields, align=True)
        self.records = self._with_own_fields(self._memory.allocate((self.size,), dtype))

    # ---- values that do not fit

    def accepts(self, columns: dict[str, Node]) -> bool:
        """Return whether items with these columns fit the columns of the store."""
        return self._objects is None if self.columns is None else self._fitting(columns) is not None

    def _fitting(self, columns: dict[str, Node]) -> list[Column] | None:
        """Return the leaves of `columns` in the order of the store's, or None if some do not fit."""
        stored, leaves = self.columns or {}, []
        if columns.keys() != stored.keys():
            return None
        for key, node in stored.items():
            new = columns[key]
            if type(node) is Column and type(new) is Column:  # most are
                leaves.append(new)
            elif type(node) is Column and node.kind is Kind.OBJECT:
                leaves.append(Column(Kind.OBJECT, node_items(new)))
            elif is_same_structure(node, new):
                leaves.extend(columns_of(new))
            else:
                return None
        # As objects where the store has objects.
        for place, (column, (kind, steps, dtype, shape)) in enumerate(zip(leaves, self._formats, strict=True)):
            if kind is Kind.OBJECT:
                leaves[place] = column if column.kind is kind else column.as_objects()
            elif column.kind is not kind or column.steps is not steps:
                return None
            else:  # `_format_of`, without two calls for each leaf
                data, rows = column.data, column.rows
                own_shape = data.shape[1:] if rows is None or rows.ndim == 1 else rows.shape[1:] + data.shape[1:]
                if data.dtype != dtype or own_shape != shape:
                    return None
        return leaves

    def _warn_of_objects(self, items: Sequence[Any]) -> None:
        """Warn that one of `items` does not fit the columns, or the first item."""
        expected = _forms(self.columns) if self.columns is not None else _forms_of(items[0])
        other = next((forms for item in items if (forms := _forms_of(item)) != expected), {})
        differing = {key: (expected.get(key), other.get(key)) for key in {**expected, **other}}
        self._logger.warning(
            "items of a buffer should be dicts with the same keys, and values of one type and shape, but %s; other "
            "items are stored as Python objects, which takes more memory and time",
            ", ".join(f"{key!r} was {old} and is {new}" for key, (old, new) in differing.items() if old != new),
        )

    # ---- states

    def snapshot(self, is_copied: bool) -> dict[str, Any]:
        """Return the contents in plain values and arrays.

        These are the `samples` in `slots` and the `objects` in `object_slots`, the fields of all of these in ascending
        order, and the order of the slots. Unchanged values have the same position in the same array in the next
        snapshot.

        Args:
            is_copied: whether arrays are copies; otherwise they may be views of the store.
        """
        slots = np.flatnonzero(self.held)
        rows, others = np.flatnonzero(self._is_row), np.flatnonzero(self.held & ~self._is_row)
        state = {"size": self.size, "slots": rows, "object_slots": others, **self.order_state()}
        state["fields"] = {name: field[slots] for name, field in self.fields.items()}
        state["objects"] = samples_state(list(rows_of(self.read(others)))) if others.size else None
        table = Table(self.gather_shared(rows, is_copied), size=len(rows)) if rows.size else None
        state["samples"] = None if table is None else to_plain(table)
        return state

    def load(self, snapshot: dict[str, Any]) -> None:
        """Replace the contents by a `snapshot`.

        Raises:
            ValueError: the snapshot is of a store of another size, or has another format.
        """
        size = snapshot["size"]
        if size != self.size or not 0 <= snapshot["start"] < size:
            raise ValueError(
                f"a state of {size} slots that begins with {snapshot['start']} does not fit a buffer of {self.size}; "
                "construct the buffer with the replay_buffer_size of the state"
            )
        rows, others = (np.asarray(snapshot[name], np.int64) for name in ("slots", "object_slots"))
        samples = snapshot["samples"]
        items: Items = [] if samples is None else from_plain(samples)
        self.reset()
        self.restore_order(snapshot)
        order = self.positions_of(rows).argsort()  # the observations of the oldest items are freed first
        if len(order):
            self.write(rows[order], items_at(items, order))
        slots = np.sort(np.concatenate([rows, others]))
        for name, values in snapshot["fields"].items():
            self.fields[name][slots] = values
        if len(others):
            self._write_objects(others, samples_of_state(snapshot["objects"]))
            self.held[others] = True


class _ColumnMemory:
    """Allocation of the arrays of a store, in memory or as mapped files.

    Args:
        folder: folder of the files, created with the first one. None for memory.
    """

    def __init__(self, folder: str | None) -> None:
        self._folder = folder
        self._files: list[str] = []
        self._numbers = itertools.count()

    def allocate(self, shape: tuple[int, ...], dtype: np.dtype) -> Array:
        """Return an uninitialized array, aligned to a line of the cache; memory is committed when it is written."""
        if self._folder is None:
            memory = np.empty(math.prod(shape) * dtype.itemsize + _LINE_BYTES, np.uint8)
            array: Array = np.ndarray(shape, dtype, memory, -memory.ctypes.data % _LINE_BYTES)
            return array
        os.makedirs(self._folder, exist_ok=True)
        name = os.path.join(self._folder, f"{os.getpid()}_{id(self):x}_{next(self._numbers)}.column")
        self._files.append(name)
        return np.asarray(np.memmap(name, dtype, "w+", shape=shape))

    def delete_files(self) -> None:
        """Delete the files of all arrays."""
        for name in self._files:
            with contextlib.suppress(FileNotFoundError):  # the folder was cleared
                os.remove(name)
        self._files.clear()


def _shape_of(column: Column) -> tuple[int, ...]:
    """Return the shape of one value, including its number of frames if it refers to several."""
    frames: tuple[int, ...] = () if column.rows is None else column.rows.shape[1:]
    shape: tuple[int, ...] = column.data.shape[1:]
    return frames + shape


def _format_of(column: Column) -> tuple[Kind, bool, Any, Any]:
    """Return the kind, steps, dtype and shape of the values, which are equal for columns that fit each other."""
    if column.kind is Kind.OBJECT:
        return Kind.OBJECT, False, None, None
    return column.kind, column.steps, column.data.dtype, _shape_of(column)


def _forms(columns: dict[str, Node]) -> dict[str, Any]:
    """Return the kind, dtype and shape of the values of each key, for warnings."""

    def form(column: Column) -> str:
        is_object = column.kind is Kind.OBJECT
        return "object" if is_object else f"{column.kind.value} {column.data.dtype} {list(_shape_of(column))}"

    return {str(key): map_node(form, node) for key, node in columns.items()}


def _forms_of(item: Any) -> dict[str, Any]:
    table = Table.of([item])
    return {} if table is None else _forms(table.columns)


def _as_slice(slots: IntArray) -> Slots:
    """Return a slice for consecutive slots, which is faster."""
    if not len(slots):
        return slots
    first, last = int(slots[0]), int(slots[-1])
    is_consecutive = last - first == len(slots) - 1 and (slots[1:] > slots[:-1]).all()
    return slice(first, last + 1) if is_consecutive else slots


def put_objects(objects: list[Any], slots: Slots, values: Iterable[Any]) -> None:
    """Set the `objects` at `slots` [n] to `values` [n]."""
    numbers: Iterable[int] = range(slots.start, slots.stop) if isinstance(slots, slice) else slots.tolist()
    for slot, value in zip(numbers, values, strict=True):
        objects[slot] = value


# ---- copies


def _own_column(column: Column, slots: IntArray) -> Column:
    """Return a copy of the values of a column at `slots`."""
    values = column.take(slots).values()
    return Column(column.kind, _own_objects(values) if column.kind is Kind.OBJECT else values, None, column.steps)


def _own_objects(values: list[Any]) -> list[Any]:
    """Return copies of objects; immutable objects and objects of unknown types are shared."""
    return values if _IMMUTABLE.issuperset(map(type, values)) else [fastcopy.copy(value) for value in values]


def _stored(item: Any) -> Any:
    """Return a copy of an item that is a dict or a table, and any other item itself."""
    if type(item) is dict:
        return fastcopy.copy(item)
    table = table_of(item)
    if table is not None:
        return Table({key: map_node(_own_if_objects, node) for key, node in table.columns.items()})
    return copy.copy(item) if isinstance(item, dict) else item


def _given(stored: Any) -> Any:
    """Return a copy of a stored object; a table becomes a list."""
    return Samples(_stored(stored)) if isinstance(stored, Table) else _stored(stored)


def _own_if_objects(column: Column) -> Column:
    return Column(Kind.OBJECT, _own_objects(column.items())) if column.kind is Kind.OBJECT else column


def own_table(table: Table) -> Table:
    """Return the samples in new arrays; shared observations stay shared."""
    columns = table.compact().columns
    copies = {id(column.data): column.data.copy() for column in columns_of(columns) if column.kind is not Kind.OBJECT}

    def own(column: Column) -> Column:
        if column.kind is Kind.OBJECT:
            return _own_if_objects(column)
        return Column(column.kind, copies[id(column.data)], column.rows, column.steps)

    return Table({key: map_node(own, node) for key, node in columns.items()})
