"""Column storage of buffers: a ring of slots backed by typed columns."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from ding.data.columns import (
    LINE_BYTES,
    ColumnMemory,
    can_hold,
    can_share,
    columns_of_items,
    described,
    own_column,
    own_item,
    own_node,
    own_objects,
    packed_columns,
    shape_of,
    signature,
    unpacked_columns,
)
from ding.data.ring import Ring
from ding.data.row_ring import RowRing
from ding.utils.data.samples import (
    END_FLAGS,
    Column,
    Kind,
    Node,
    Samples,
    columns_of,
    is_same_structure,
    map_node,
    node_items,
    with_end_flags,
)
from ding.utils.segment_tree import IntArray

# Values of up to this many bytes are stored in one record per slot: a draw has one cache miss for all of them.
_RECORD_BYTES = 64
# Records above this size are padded to a line of the cache, so that none spans two lines.
_FULL_LINE = 52


class ColumnStore(Ring):
    """Stores dicts with the same keys in typed columns, and any other items as Python objects.

    The first items define the columns. A `next_obs` that is the `obs` of another item is stored once. If a value does
    not fit its column, this column stores objects after that; if the keys of an item differ, the whole store does.
    Each change is logged once as a warning. Items are copied when they are written and read. Not thread-safe.

    Args:
        size: Number of slots.
        logger: Logs the warnings.
        folder: Folder of the files that the columns are mapped to; None for memory. Objects are always in memory.
        share_frames: Whether to store frames that successive image observations [C, ...] have in common once.
        fields: Name and dtype of the owner's metadata of each slot, stored next to small values.

    Attributes:
        records: Structured array [size] of the fields, which the owner may change, small values and row numbers. The
            first items and `reset` replace it.
    """

    def __init__(
        self,
        size: int,
        logger: logging.Logger,
        folder: str | None = None,
        share_frames: bool = False,
        fields: Sequence[tuple[str, Any]] = (),
    ) -> None:
        super().__init__(size)
        self._logger, self._memory, self._share_frames = logger, ColumnMemory(folder), share_frames
        self._columns: dict[str, Node] | None = None
        self._rings: list[tuple[str, RowRing]] = []  # with the record field of their row numbers
        self._signature: list[Any] = []  # of the columns
        self._own_fields = list(fields)
        self.records: Any = np.zeros(size, self._own_fields)
        self._fields: dict[int, str] = {}  # record field of a small column, by the id of the column
        self._objects: list[Any] | None = None  # the items by slot, if they are not in columns

    # ---- the contents

    @property
    def columns(self) -> dict[str, Node] | None:
        """The columns [size] by key, undefined in empty slots; None without columns."""
        return self._columns

    @property
    def is_empty(self) -> bool:
        """Whether nothing was stored since construction or `reset`."""
        return self._columns is None and self._objects is None

    @property
    def nbytes(self) -> int:
        """Memory of all columns if all slots are in use, without the memory of objects."""
        rings = [ring for _, ring in self._rings]
        counted = {id(column) for ring in rings for column in (ring.obs, ring.next_obs)}
        counted.update(self._fields)
        own = [column for column in columns_of(self._columns or {}) if id(column) not in counted]
        arrays = sum(column.data.nbytes for column in own if column.kind is not Kind.OBJECT)
        pointers = sum(column.kind is Kind.OBJECT for column in own) + (self._objects is not None)
        apart = arrays + 8 * pointers * self.size + sum(ring.nbytes for ring in rings)
        return int(apart + self.records.nbytes + self.held.nbytes)

    def put(self, items: Sequence[Any]) -> None:
        """Write at most `size` items to the next slots; items there are overwritten."""
        count = len(items)
        self.write(self.next_slots(count), items)
        self.advance(count)

    def write(self, slots: IntArray | slice, items: Sequence[Any], columns: dict[str, Node] | None = None) -> None:
        """Write items to `slots`; items there are overwritten. Counters do not change.

        Args:
            columns: Those of `items`, if the caller knows them.
        """
        self.held[slots] = False
        if self._objects is None:
            columns = columns_of_items(items) if columns is None else columns
            if self._columns is None and columns is not None:
                self._make_columns(columns)
            pairs = None if columns is None else self._conform(columns)
            if pairs is None:
                self._make_objects(items)
            else:
                self._write_columns(slots, pairs)
        if self._objects is not None:
            for slot, item in zip(_numbers(slots), items, strict=True):
                self._objects[slot] = own_item(item)
        self.held[slots] = True

    def empty(self, slots: IntArray) -> None:
        """Remove the items in `slots`. Unlike `remove`, keeps `head`."""
        self.held[slots] = False
        self._forget_objects(slots)

    def read(self, slots: IntArray) -> Sequence[Any]:
        """Returns the items in occupied `slots` [n]: `Samples`, or a list of objects."""
        if self._columns is not None:
            return Samples(self.gather(slots), size=len(slots))
        objects = self._objects or []
        return [own_item(objects[slot]) for slot in slots.tolist()]

    def gather(self, slots: IntArray) -> dict[str, Node]:
        """Returns copies of the columns at `slots` [n]. Requires `columns`."""
        columns, _ = self.gather_with_fields(slots)
        assert columns is not None
        return columns

    def gather_with_fields(self, slots: IntArray) -> tuple[dict[str, Node] | None, np.ndarray]:
        """Returns copies of the columns at `slots` [n], None without columns, and of the records with the fields."""
        records = self.records.take(slots)
        if self._columns is None:
            return None, records
        shared: dict[int, Column] = {}
        for name, ring in self._rings:
            shared[id(ring.obs)], shared[id(ring.next_obs)] = ring.gather(records[name])
        return self._gathered(slots, records, shared), records

    def gather_shared(self, slots: IntArray, is_copied: bool = True) -> dict[str, Node]:
        """Returns the columns at `slots` [n], with shared observations still shared. Requires `columns`.

        The arrays are copies. If `is_copied` is False, they may be views of the store.
        """
        assert self._columns is not None
        shared: dict[int, Column] = {}
        for _, ring in self._rings:
            shared[id(ring.obs)], shared[id(ring.next_obs)] = ring.snapshot(slots, is_copied)
        if not is_copied and len(slots) and slots[-1] == len(slots) - 1:  # the first slots, in order
            for column in columns_of(self._columns):
                is_separate = id(column) not in shared and id(column) not in self._fields
                if is_separate and column.kind is not Kind.OBJECT:
                    shared[id(column)] = Column(column.kind, column.data[: len(slots)], None, column.steps)
        return self._gathered(slots, self.records.take(slots), shared)

    def _gathered(self, slots: IntArray, records: np.ndarray, shared: dict[int, Column]) -> dict[str, Node]:
        """Returns the columns at `slots`: from `records`, from `shared` (by the id of the column), else copied."""
        fields = self._fields

        def own(column: Column) -> Column:
            if id(column) in fields:
                return Column(column.kind, records[fields[id(column)]], None, column.steps)
            return shared[id(column)] if id(column) in shared else own_column(column, slots)

        gathered = {}
        for key, node in (self._columns or {}).items():
            if id(node) in fields:  # most columns: without the calls, this takes half the time
                gathered[key] = Column(node.kind, records[fields[id(node)]], None, node.steps)
            else:
                gathered[key] = shared[id(node)] if id(node) in shared else map_node(own, node)
        return gathered

    def remove(self, slots: IntArray) -> None:
        """Empty `slots`."""
        self.release(slots)
        self._forget_objects(slots)

    def reset(self) -> None:
        """Empty all slots and remove the columns. `push_count` does not change."""
        super().reset()
        self._reset_columns()

    def _reset_columns(self) -> None:
        self._columns = self._objects = None
        self._rings, self._fields = [], {}
        if self.records.dtype != np.dtype(self._own_fields):
            self.records = self._with_own_fields(np.empty(self.size, self._own_fields))
        self._memory.delete_files()

    def _with_own_fields(self, records: Any) -> Any:
        """Copy the owner's fields into new `records` and return them."""
        for name, _ in self._own_fields:
            records[name] = self.records[name]
        return records

    # ---- writing

    def _write_columns(self, slots: IntArray | slice, pairs: list[tuple[Column, Column]]) -> None:
        new = {id(stored): column for stored, column in pairs}
        for _, ring in self._rings:
            ring.write(slots, new.pop(id(ring.obs)), new.pop(id(ring.next_obs)), self.held)
        for stored, column in pairs:
            if id(stored) not in new:
                continue
            if stored.kind is not Kind.OBJECT:
                stored.data[slots] = column.values()
                continue
            for slot, value in zip(_numbers(slots), own_objects(column.items()), strict=True):
                stored.data[slot] = value

    def _make_columns(self, columns: dict[str, Node]) -> None:
        # Keys that share a column now may differ later.
        columns = {
            key: map_node(lambda c: Column(c.kind, c.data, c.rows, c.steps), node) for key, node in columns.items()
        }
        pairs = self._pairs_to_share(columns)
        shared = {id(column) for pair, _ in pairs for column in pair}
        small = [c for c in columns_of(columns) if 0 < c.itemsize <= _RECORD_BYTES and id(c) not in shared]
        self._make_records(small, pairs)
        made: dict[int, Column] = {}
        for i, column in enumerate(small):
            name = f"column {i}"
            stored = made[id(column)] = Column(column.kind, self.records[name], None, column.steps)
            self._fields[id(stored)] = name
        for (pair, has_frames), name in zip(pairs, self._names_of_numbers(pairs), strict=True):
            ring = RowRing(self.size, pair, self._memory.allocate, has_frames, self.records[name])
            self._rings.append((name, ring))
            made.update(zip(map(id, pair), (ring.obs, ring.next_obs), strict=True))

        def make(column: Column) -> Column:
            return made[id(column)] if id(column) in made else self._make_column(column)

        self._columns = {key: map_node(make, node) for key, node in columns.items()}
        self._signature = signature(self._columns.values())

    def _pairs_to_share(self, columns: dict[str, Node]) -> list[tuple[tuple[Column, Column], bool]]:
        """Returns the pairs of `obs` and `next_obs` columns to store once, and whether as frames."""
        obs, next_obs = columns.get("obs"), columns.get("next_obs")
        if obs is None or next_obs is None or not is_same_structure(obs, next_obs):
            return []
        pairs = []
        for pair in zip(columns_of(obs), columns_of(next_obs), strict=True):
            has_frames = self._share_frames and len(shape_of(pair[0])) >= 3 and shape_of(pair[0])[0] > 1
            if can_share(*pair, by_frames=has_frames):
                pairs.append((pair, has_frames))
        return pairs

    @staticmethod
    def _names_of_numbers(pairs: Sequence[Any]) -> list[str]:
        return [f"rows {i}" for i in range(len(pairs))]

    def _make_records(self, small: list[Column], pairs: list[tuple[tuple[Column, Column], bool]]) -> None:
        fields: list[tuple[str, Any, tuple[int, ...]]] = [(name, dtype, ()) for name, dtype in self._own_fields]
        fields += [(f"column {i}", column.data.dtype, column.data.shape[1:]) for i, column in enumerate(small)]
        for name, ((obs, _), has_frames) in zip(self._names_of_numbers(pairs), pairs, strict=True):
            fields.append((name, np.int32, (2, shape_of(obs)[0]) if has_frames else (2,)))
        fields.sort(key=lambda field: -np.dtype(field[1]).itemsize)  # avoids gaps between the fields
        dtype = np.dtype(fields, align=True)
        if _FULL_LINE < dtype.itemsize < LINE_BYTES:
            fields.append(("padding", np.uint8, (LINE_BYTES - dtype.itemsize,)))
            dtype = np.dtype(fields, align=True)
        self.records = self._with_own_fields(self._memory.allocate((self.size,), dtype))

    def _make_column(self, column: Column) -> Column:
        if column.kind is Kind.OBJECT:
            return Column(Kind.OBJECT, [None] * self.size)
        data = self._memory.allocate((self.size, *shape_of(column)), column.data.dtype)
        return Column(column.kind, data, None, column.steps)

    # ---- values that do not fit

    def accepts(self, columns: dict[str, Node]) -> bool:
        """Returns whether items with these columns fit the columns of the store as they are."""
        stored = self._columns
        return self.is_empty if stored is None else can_hold(stored, columns)

    def _conform(self, columns: dict[str, Node]) -> list[tuple[Column, Column]] | None:
        """Pair each stored column with the one of `columns` to write to it, changing kinds if necessary.

        Returns None if the keys differ.
        """
        stored = self._columns
        assert stored is not None
        if columns.keys() == stored.keys():
            nodes = list(map(columns.__getitem__, stored))
            if signature(nodes) == self._signature:
                return list(zip(stored.values(), nodes, strict=True))
        else:
            flags = [flag for flag in END_FLAGS if flag in columns or flag in stored]
            columns, extended = with_end_flags(columns, flags), with_end_flags(stored, flags)
            if columns.keys() != extended.keys():
                return None
            self._columns = stored = extended
        pairs: list[tuple[Column, Column]] = []
        for key, node in stored.items():
            if not can_hold(node, columns[key]):
                self._warn(key, described(node), described(columns[key]))
                stored[key] = Column(Kind.OBJECT, self._as_objects(node))
            if isinstance(stored[key], Column) and stored[key].kind is Kind.OBJECT:
                pairs.append((stored[key], Column(Kind.OBJECT, node_items(columns[key]))))
                continue
            for old, new in zip(columns_of(stored[key]), columns_of(columns[key]), strict=True):
                pairs.append((old, new.as_objects() if old.kind is Kind.OBJECT else new))
        self._signature = signature(stored.values())
        return pairs

    def _as_objects(self, node: Node) -> list[Any]:
        """Returns the stored values by slot, and gives up the columns."""
        self._unshare(columns_of(node))
        slots, objects = np.flatnonzero(self.held), [None] * self.size
        for slot, value in zip(slots.tolist(), node_items(own_node(node, slots)), strict=True):
            objects[slot] = value
        for column in columns_of(node):
            self._fields.pop(id(column), None)
        return objects

    def _unshare(self, columns: Iterable[Column]) -> None:
        """Store the `obs` and `next_obs` that one of `columns` belongs to separately."""
        for column in columns:
            for name, ring in [named for named in self._rings if column in (named[1].obs, named[1].next_obs)]:
                self._rings.remove((name, ring))
                slots = np.flatnonzero(self.held)
                for each in (ring.obs, ring.next_obs):
                    values = own_column(each, slots).values()
                    each.data, each.rows = self._memory.allocate((self.size, *values.shape[1:]), values.dtype), None
                    each.data[slots] = values

    def _make_objects(self, items: Sequence[Any]) -> None:
        """Store whole items as objects after this call, because some of `items` do not fit the columns."""
        keys: Any = self._columns.keys() if self._columns is not None else getattr(items[0], "keys", list)()
        other = next((item for item in items if isinstance(item, dict) and item.keys() != keys), None)
        if self._columns is not None or other is not None:
            got = items[0] if other is None else sorted(map(str, other))
            self._logger.warning(
                "items of a buffer should be dicts with the same keys: expected %s, got %.200s; "
                "all items are stored as Python objects now, which takes more memory and time",
                sorted(map(str, keys)),
                got,
            )
        objects: list[Any] = [None] * self.size
        if self._columns is not None:
            slots = np.flatnonzero(self.held)
            for slot, item in zip(slots.tolist(), self.read(slots), strict=True):
                objects[slot] = item
        self._reset_columns()
        self._objects = objects

    def _warn(self, key: str, expected: str, got: str) -> None:
        self._logger.warning(
            "the values of %r should have one type and shape: expected %s, got %s; "
            "they are stored as Python objects now, which takes more memory and time",
            key,
            expected,
            got,
        )

    def _forget_objects(self, slots: IntArray) -> None:
        lists = [column.data for column in columns_of(self._columns or {}) if column.kind is Kind.OBJECT]
        for objects in [*lists, *([] if self._objects is None else [self._objects])]:
            for slot in slots.tolist():
                objects[slot] = None

    # ---- states

    def snapshot(self, is_copied: bool = True) -> dict[str, Any]:
        """Returns plain values and arrays: ascending `slots` [n], and `columns` with `arrays`, or `items`.

        Unchanged values have the same position in the same array in the next snapshot.

        Args:
            is_copied: If False, arrays may be views of the store.
        """
        slots = np.flatnonzero(self.held)
        if self._columns is not None:
            return {"size": self.size, "slots": slots, **packed_columns(self.gather_shared(slots, is_copied))}
        items = list(self.read(slots))
        packed = [i for i, item in enumerate(items) if isinstance(item, Samples) and item.columns]
        for i in packed:
            items[i] = packed_columns(items[i].columns)
        return {"size": self.size, "slots": slots, "items": items, "packed": packed}

    def load(self, snapshot: dict[str, Any], counters: Mapping[str, Any]) -> None:
        """Replace the contents by a `snapshot`; `counters` are those of `Ring.restore`.

        Raises:
            ValueError: If it is of a store of another size.
        """
        size, tail = snapshot["size"], counters["tail"]
        if size != self.size or not 0 <= tail < self.size:
            raise ValueError(
                f"a state of {size} slots with tail {tail} does not fit a buffer of {self.size}; "
                "construct the buffer with the replay_buffer_size of the state"
            )
        slots = np.asarray(snapshot["slots"], np.int64)
        items: Sequence[Any]
        if "columns" in snapshot:
            items = Samples(unpacked_columns(snapshot))
        else:
            items = list(snapshot["items"])
            for i in snapshot.get("packed", ()):
                items[i] = Samples(unpacked_columns(items[i]))
        self.reset()
        if len(slots):
            self.write(slots, items)
        self.restore(slots, counters)


def _numbers(slots: IntArray | slice) -> Iterable[int]:
    return range(slots.start, slots.stop) if isinstance(slots, slice) else slots.tolist()
