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
    END_FLAGS,
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
# Items of a state that are written at once.
_LOADED_AT_ONCE = 1024
# Records above this size are padded to a line of the cache, so that none spans two lines.
_FULL_LINE = 52


class ColumnStore(Ring):
    """Store of dicts with the same keys in typed columns, and of any other items as Python objects.

    The first dicts define the columns. A `next_obs` that is the `obs` of another item is stored once. If a value does
    not fit its column, this column stores objects from then on; an item with other keys is stored as an object. Each is
    logged once as a warning. Items are copied when they are written and read. The store is not thread-safe.

    Args:
        size: number of slots.
        logger: the logger of the warnings.
        folder: folder of the files that the columns are mapped to; None for memory. Objects are always in memory.
        share_frames: whether to store frames that successive image observations [C, ...] have in common once.
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
        table = items if isinstance(items, Table) else _packed(items)
        if self.columns is None and table is not None:
            self._make_columns(table.columns)
        leaves = None if table is None else self._fitting(table.columns) or self._conform(table.columns)
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
            self._warn_of_objects(items)
            self._objects = [None] * self.size
        put_objects(self._objects, slots, map(_stored, items))

    def _are_rows(self, slots: IntArray) -> bool:
        """Return whether the items in `slots` are in columns."""
        return self.columns is not None and (self._objects is None or bool(self._is_row[slots].all()))

    def read(self, slots: IntArray, is_shared: bool = False) -> Items:
        """Return the items in occupied `slots` [n]: a table if they are in columns, or else a list.

        Args:
            is_shared: whether shared observations of a table are still shared.
        """
        if self._are_rows(slots):
            return Table(self.gather_shared(slots) if is_shared else self.gather(slots), size=len(slots))
        objects, is_row = self._objects or [], self._is_row[slots]
        rows = iter(rows_of(self.read(slots[is_row])) if is_row.any() else ())
        numbered = zip(slots.tolist(), is_row.tolist(), strict=True)
        return [next(rows) if is_row else self._given(objects[slot]) for slot, is_row in numbered]

    def _given(self, stored: Any) -> Any:
        """Return a copy of a stored object; a table becomes a list."""
        return Samples(_stored(stored)) if isinstance(stored, Table) else _stored(stored)

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
            return made[id(column)] if id(column) in made else self._make_column(column)

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
            shape = _shape_of(pair[0])
            has_frames = self._share_frames and len(shape) >= 3 and shape[0] > 1 and pair[0].itemsize > 0
            are_rows = pair[0].data is pair[1].data and pair[0].rows is not None and pair[1].rows is not None
            if has_frames or are_rows:
                pairs.append((pair, has_frames))
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

    def _make_column(self, column: Column) -> Column:
        if column.kind is Kind.OBJECT:
            return Column(Kind.OBJECT, [None] * self.size)
        data = self._memory.allocate((self.size, *_shape_of(column)), column.data.dtype)
        return Column(column.kind, data, None, column.steps)

    # ---- values that do not fit

    def accepts(self, columns: dict[str, Node]) -> bool:
        """Return whether items with these columns fit the columns of the store as they are."""
        return self._objects is None if self.columns is None else _can_hold(self.columns, columns)

    def _fitting(self, columns: dict[str, Node]) -> list[Column] | None:
        """Return the leaves of `columns` in the order of the store's, or None if some do not fit as they are."""
        stored, leaves = self.columns or {}, []
        if len(columns) != len(stored):
            return None
        for key, node in stored.items():
            new = columns.get(key)
            if type(node) is Column and type(new) is Column:  # most are
                leaves.append(new)
            elif new is None or not is_same_structure(node, new):
                return None
            else:
                leaves.extend(columns_of(new))
        for column, (kind, steps, dtype, shape) in zip(leaves, self._formats, strict=True):
            if column.kind is not kind:
                return None
            if kind is not Kind.OBJECT:
                data, rows = column.data, column.rows
                own_shape = data.shape[1:] if rows is None or rows.ndim == 1 else rows.shape[1:] + data.shape[1:]
                if data.dtype != dtype or own_shape != shape or column.steps is not steps:
                    return None
        return leaves

    def _conform(self, columns: dict[str, Node]) -> list[Column] | None:
        """Return the leaves like `_fitting`, changing kinds of columns if necessary; None if the keys differ."""
        stored = self.columns
        assert stored is not None
        flags = [flag for flag in END_FLAGS if flag in columns or flag in stored]
        columns, extended = with_end_flags(columns, flags), with_end_flags(stored, flags)
        if columns.keys() != extended.keys():
            return None
        self.columns = extended
        leaves: list[Column] = []
        for key, node in extended.items():
            if not _can_hold(node, columns[key]):
                self._logger.warning(
                    "the values of %r should have one type and shape: expected %s, got %s; "
                    "they are stored as Python objects now, which takes more memory and time",
                    key,
                    _described(node),
                    _described(columns[key]),
                )
                extended[key] = Column(Kind.OBJECT, self._as_objects(node))
            new = columns[key]
            if isinstance(extended[key], Column) and extended[key].kind is Kind.OBJECT:
                new = Column(Kind.OBJECT, node_items(new))
            pairs = zip(columns_of(extended[key]), columns_of(new), strict=True)
            leaves += [new.as_objects() if old.kind is Kind.OBJECT else new for old, new in pairs]
        self._index_columns()
        return leaves

    def _as_objects(self, node: Node) -> list[Any]:
        """Return the stored values by slot, and give up the columns."""
        slots, objects = np.flatnonzero(self._is_row), [None] * self.size
        for column in columns_of(node):
            self._unshare(column, slots)
            self._fields.pop(id(column), None)
        put_objects(objects, slots, node_items(map_node(lambda column: _own_column(column, slots), node)))
        return objects

    def _unshare(self, column: Column, slots: IntArray) -> None:
        """Store the `obs` and `next_obs` that `column` may belong to, with values in `slots`, separately."""
        for ring, name in [named for named in self._rings if column in (named[0].obs, named[0].next_obs)]:
            self._rings.remove((ring, name))
            for each in (ring.obs, ring.next_obs):
                values = _own_column(each, slots).values()
                each.data, each.rows = self._memory.allocate((self.size, *values.shape[1:]), values.dtype), None
                each.data[slots] = values

    def _warn_of_objects(self, items: Sequence[Any]) -> None:
        """Warn that some of `items` do not fit the columns, unless neither they nor others are dicts."""
        keys: Any = self.columns.keys() if self.columns is not None else getattr(items[0], "keys", list)()
        other = next((item for item in items if isinstance(item, dict) and item.keys() != keys), None)
        if self.columns is not None or other is not None:
            self._logger.warning(
                "items of a buffer should be dicts with the same keys: expected %s, got %.200s; "
                "items with other keys are stored as Python objects, which takes more memory and time",
                sorted(map(str, keys)),
                items[0] if other is None else sorted(map(str, other)),
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
        state["samples"] = None if table is None else to_plain(table, verbatim=True)
        return state

    def load(self, snapshot: dict[str, Any]) -> None:
        """Replace the contents by a `snapshot`, whose `samples` may also be a list of items.

        Fields that it lacks do not change.

        Raises:
            ValueError: the snapshot is of a store of another size, or has another format.
        """
        if not {"object_slots", "samples", "start"} <= snapshot.keys():
            raise ValueError("the state of the buffer is of an earlier version, and cannot be loaded")
        size = snapshot["size"]
        if size != self.size or not 0 <= snapshot["start"] < size:
            raise ValueError(
                f"a state of {size} slots that begins with {snapshot['start']} does not fit a buffer of {self.size}; "
                "construct the buffer with the replay_buffer_size of the state"
            )
        rows, others = (np.asarray(snapshot[name], np.int64) for name in ("slots", "object_slots"))
        samples = snapshot["samples"]
        items: Items = from_plain(samples, verbatim=True) if isinstance(samples, dict) else samples or []
        self.reset()
        self.restore_order(snapshot)
        # The oldest items first, as they were pushed: their observations are freed first. In parts, because frames that
        # are stored once are expanded when they are written.
        order = self.positions_of(rows).argsort()
        for start in range(0, len(order), _LOADED_AT_ONCE):
            part = order[start : start + _LOADED_AT_ONCE]
            self.write(rows[part], items_at(items, part))
        slots = np.sort(np.concatenate([rows, others]))
        for name, values in snapshot["fields"].items():
            if name in self.fields:
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


def _packed(items: Sequence[Any]) -> Table | None:
    """Return a table of dicts with the same keys, or None for other items; end flags may be missing in some."""
    table = Table.of(items)
    if table is None and all(type(item) is dict and item for item in items):
        groups = [list(group) for _, group in itertools.groupby(items, dict.keys)]
        parts = [Table.of(group) for group in groups]
        table = Table.joined([part for part in parts if part is not None])
    return table


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


def _can_hold(stored: Node, node: Node) -> bool:
    """Return whether values of `node` can be written to the columns of `stored`."""
    if isinstance(stored, Column) and stored.kind is Kind.OBJECT:
        return True
    if not is_same_structure(stored, node):
        return False
    pairs = zip(columns_of(stored), columns_of(node), strict=True)
    return all(old.kind is Kind.OBJECT or _format_of(old) == _format_of(new) for old, new in pairs)


def _described(node: Node) -> str:
    """Return a description of a node, for warnings."""
    if not isinstance(node, Column):
        return f"a {type(node).__name__} of {sorted(map(str, node)) if isinstance(node, dict) else len(node)}"
    if node.kind is Kind.OBJECT:
        return "an object"
    shape = f"of shape {list(_shape_of(node))}" if _shape_of(node) else ""
    return " ".join(filter(None, (node.kind.value, str(node.data.dtype), shape)))


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
