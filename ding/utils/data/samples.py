"""Training samples in columns, and the list of dicts that users get.

A column holds one key of all samples in one array; a table holds the columns of N samples. Collectors fill tables,
buffers store and gather them, policies turn them into batches. Where a list of dicts is documented, users get
`Samples`: a list that is made of a table on first access to an item. After that, only the items count, so that changes
to them have an effect.
"""

from __future__ import annotations

import copy
import enum
import itertools
import math
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import torch

from ding.utils.data.nested import is_mapping, is_namedtuple, leaves, map_leaves, parts_of, rebuilt

IntArray = npt.NDArray[np.int64]
RowNumbers = npt.NDArray[Any]  # integers
Index: TypeAlias = "IntArray | slice"

# Dtypes in which a tensor and a numpy array can share memory.
SHARED_DTYPES = frozenset(
    (
        *(torch.float16, torch.float32, torch.float64, torch.complex64, torch.complex128, torch.bool),
        *(torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64),
    )
)
_NUMBER_KINDS = frozenset("biufc")


class Kind(enum.Enum):
    """The type of the items of a column."""

    TENSOR = "tensor"
    ARRAY = "array"
    SCALAR = "numpy scalar"
    FLOAT = "float"
    INT = "int"
    BOOL = "bool"
    OBJECT = "object"


class Column:
    """The N values of one key: rows of one array, or a list of objects. Must not be changed in place.

    Args:
        kind: type of the items.
        data: array [M, *shape]; for `Kind.OBJECT`, a list of M objects.
        rows: integers [N], the rows of `data` that are the values; None for all in order. Columns with the same `data`
            share rows: the `next_obs` of a sample is the `obs` of the next one.
        steps: whether an item is a list of L entries of type `kind`. Then `data` is [M, L, *shape].
        frames: integers [M, C], the numbers of the frames that the values [C, ...] in `data` consist of. Frames with
            the same number are equal, also those of other columns. None if unknown.
    """

    __slots__ = ("data", "frames", "kind", "rows", "steps")

    def __init__(
        self,
        kind: Kind,
        data: Any,
        rows: RowNumbers | None = None,
        steps: bool = False,
        frames: RowNumbers | None = None,
    ) -> None:
        self.kind = kind
        self.data = data
        self.rows = rows
        self.steps = steps
        self.frames = frames

    def __len__(self) -> int:
        return len(self.data) if self.rows is None else len(self.rows)

    def values(self) -> Any:
        """Return the values as one array [N, *shape] or a list of objects: without `rows`, `data` itself."""
        if self.rows is None:
            return self.data
        if self.kind is Kind.OBJECT:
            return [self.data[row] for row in self.rows.tolist()]
        return self.data.take(self.rows, axis=0)

    def take(self, index: Index) -> Column:
        """Return the values at `index` (positions [K], or a slice), without copying arrays."""
        if self.rows is not None:
            return Column(self.kind, self.data, self.rows[index], self.steps, self.frames)
        if not isinstance(index, slice):
            return Column(self.kind, self.data, index, self.steps, self.frames)
        return Column(
            self.kind, self.data[index], None, self.steps, None if self.frames is None else self.frames[index]
        )

    def items(self) -> list[Any]:
        """Return the values as a list of items of the type `kind`, which own their memory."""
        values, kind = self.values(), self.kind
        if kind is Kind.OBJECT:
            return values if self.rows is not None else list(values)
        if self.steps:
            return [Column(kind, value).items() for value in values]
        return _ITEMS[kind](values)

    def matches(self, other: Column) -> bool:
        """Return whether values of `other` can be in one array with values of this column."""
        if self.kind is not other.kind or self.steps is not other.steps:
            return False
        if self.kind is Kind.OBJECT:
            return True
        same: bool = self.data.dtype == other.data.dtype and self.data.shape[1:] == other.data.shape[1:]
        return same

    def compact(self) -> Column:
        """Return a column with the same values in an array that holds nothing else."""
        return self if self.rows is None else Column(self.kind, self.values(), None, self.steps)

    def as_objects(self) -> Column:
        """Return a column of objects with the same values."""
        return self if self.kind is Kind.OBJECT else Column(Kind.OBJECT, self.items())

    @property
    def itemsize(self) -> int:
        """Size of one value in bytes; 0 for objects."""
        if self.kind is Kind.OBJECT:
            return 0
        size: int = self.data.itemsize * math.prod(self.data.shape[1:])
        return size


def _array_items(values: np.ndarray) -> list[Any]:
    if values.ndim == 1:  # indexing would give numpy scalars
        return [values[i : i + 1].copy().reshape(()) for i in range(len(values))]
    return [row.copy() for row in values]


_ITEMS: dict[Kind, Callable[[np.ndarray], list[Any]]] = {
    Kind.TENSOR: lambda values: list(map(torch.from_numpy, _array_items(values))),
    Kind.ARRAY: _array_items,
    Kind.SCALAR: list,
    Kind.FLOAT: np.ndarray.tolist,
    Kind.INT: np.ndarray.tolist,
    Kind.BOOL: np.ndarray.tolist,
}

# A column, or a dict, list, tuple or namedtuple of nodes if the items are such containers.
Node: TypeAlias = Any

# Nodes are nested data whose leaves are columns.
map_node = map_leaves
columns_of: Callable[[Node], Iterator[Column]] = leaves


def is_same_structure(one: Node, other: Node) -> bool:
    """Return whether two nodes have the same keys, lengths and types at all depths."""
    if type(one) is not type(other):
        return False
    if is_mapping(one):
        return one.keys() == other.keys() and all(is_same_structure(one[key], other[key]) for key in one)
    return type(one) is Column or (len(one) == len(other) and all(map(is_same_structure, one, other)))


def node_items(node: Node) -> list[Any]:
    """Return the values of a node as a list of items."""
    return node.items() if type(node) is Column else _items_of(node, node_items)


def _items_of(node: Node, rows_of_part: Callable[[Node], list[Any]]) -> list[Any]:
    rows = zip(*(rows_of_part(part) for _, part in parts_of(node)), strict=True)
    if is_mapping(node):  # a third of the cost of `rebuilt`
        keys = tuple(node)
        return [dict(zip(keys, row, strict=True)) for row in rows]
    return [rebuilt(node, row) for row in rows]


def node_rows(node: Node) -> list[Any]:
    """Return the values of a node as a list of items that are views of its arrays; see `node_items` for copies."""
    if type(node) is not Column:
        return _items_of(node, node_rows)
    if node.kind is Kind.OBJECT:
        return list(node.data)
    if node.steps:
        return [node_rows(Column(node.kind, values)) for values in node.data]
    if node.kind is Kind.ARRAY:
        return list(node.data) if node.data.ndim > 1 else [node.data[i, ...] for i in range(len(node.data))]
    return list(torch.from_numpy(node.data).unbind(0)) if node.kind is Kind.TENSOR else node.items()


def node_values(node: Node) -> Any:
    """Return the values of a column as one array, those of another node as a list of items."""
    return node.values() if type(node) is Column else node_items(node)


def values_of(items: Items, key: str) -> Any:
    """Return the values of a key of dicts as one array, or as a list, with None for a dict without it.

    Return None for a table without it.
    """
    table = items if type(items) is Table else table_of(items)
    if table is None:
        return [item.get(key) for item in rows_of(items)]
    node = table.columns.get(key)
    if type(node) is Column:
        return node.data if node.rows is None else node.values()
    return None if node is None else node_items(node)


class Table:
    """N samples in columns. Immutable: neither the table nor its columns may be changed in place.

    Args:
        columns: `{key: column}`, or nested nodes if a value is itself a dict or list; all of one length.
        chained: whether `next_obs` is the same object as the `obs` of the next row if both are the same row of an
            array, as in the transitions of a trajectory.
        size: number of samples N. None for that of the columns.
        lengths: lengths [P] of the successive trajectory fragments that the samples form; their sum is N. None for one
            fragment. `compact`, `with_columns` and `without` keep them, `take` and `joined` do not.

    Example:
        >>> done = Column(Kind.BOOL, np.array([False, True]))
        >>> table = Table({"obs": Column(Kind.TENSOR, np.eye(2)), "done": done})
        >>> len(table), table.take(np.array([1])).without("obs").rows()
        (2, [{'done': True}])
    """

    __slots__ = ("columns", "is_chained", "lengths", "_size")

    def __init__(
        self,
        columns: Mapping[str, Node],
        *,
        chained: bool = False,
        size: int | None = None,
        lengths: IntArray | None = None,
    ) -> None:
        self.columns: dict[str, Node] = dict(columns)
        self.is_chained = chained
        self.lengths = lengths
        if size is None:
            size = next((len(column) for column in columns_of(self.columns)), 0)
        self._size = size

    @classmethod
    def of(cls, items: Items) -> Table | None:
        """Return a copy of `items` in columns, or None if they are not dicts with the same keys.

        Values of one kind, shape and dtype share an array; others become a column of objects. A `next_obs` that is the
        same object as the `obs` of the next item is stored once. Items that are already in columns are not copied.
        """
        if isinstance(items, Table):
            return items
        if isinstance(items, Samples) and items.table is not None:
            return items.table
        values = _values_by_key(items) if items else None
        if values is None:
            return None
        columns = _pack_observations(values["obs"], values["next_obs"]) if {"obs", "next_obs"} <= values.keys() else {}
        return cls({key: columns[key] if key in columns else pack(values[key]) for key in values})

    @classmethod
    def joined(cls, parts: Sequence[Table]) -> Table | None:
        """Concatenate tables; return None if they differ in keys or structure.

        End flags that only some of them have are added by `with_end_flags`.
        """
        if len(parts) == 1:
            return parts[0].with_lengths(None)
        known = [part.columns for part in parts]
        flags = {flag for part in known for flag in END_FLAGS if flag in part}
        if flags:
            known = [with_end_flags(part, flags) for part in known]
        first = known[0]
        if not all(is_same_structure(first, part) for part in known[1:]):
            return None
        blocks: dict[tuple[int, ...], tuple[Any, dict[int, int]]] = {}
        is_chained = all(part.is_chained for part in parts)
        return cls(map_node(lambda *parts: _joined(parts, blocks), first, *known[1:]), chained=is_chained)

    def __len__(self) -> int:
        return self._size

    def rows(self) -> list[dict[str, Any]]:
        """Return a new list of the samples as dicts, which own their memory."""
        items = node_items(self.columns) if self.columns else []
        if self.is_chained:
            _chain(items, self.columns)
        return items

    def take(self, index: Index) -> Table:
        """Return the samples at `index` (positions [K], or a slice)."""
        is_chained = self.is_chained and isinstance(index, slice)
        columns = {
            key: node.take(index) if type(node) is Column else map_node(lambda column: column.take(index), node)
            for key, node in self.columns.items()
        }
        size = len(range(self._size)[index]) if isinstance(index, slice) else len(index)
        return Table(columns, chained=is_chained, size=size)

    def with_columns(self, **columns: Node) -> Table:
        """Return the samples with these columns added or replaced."""
        size = self._size if self.columns else None
        return Table({**self.columns, **columns}, chained=self.is_chained, size=size, lengths=self.lengths)

    def without(self, *keys: str) -> Table:
        """Return the samples without the columns of these keys, if there are any."""
        columns = {key: node for key, node in self.columns.items() if key not in keys}
        return Table(columns, chained=self.is_chained, size=self._size, lengths=self.lengths)

    def with_lengths(self, lengths: IntArray | None) -> Table:
        """Return the samples as fragments of these `lengths`."""
        if lengths is self.lengths:
            return self
        return Table(self.columns, chained=self.is_chained, size=self._size, lengths=lengths)

    def compact(self) -> Table:
        """Return the samples in arrays that hold nothing else; shared rows stay shared."""
        rows_of: dict[int, list[IntArray]] = {}
        for column in columns_of(self.columns):
            if column.rows is not None:
                rows_of.setdefault(id(column.data), []).append(column.rows)
        gathered: dict[int, tuple[Any, IntArray, RowNumbers | None]] = {}

        def compact(column: Column) -> Column:
            if column.rows is None or len(rows_of[id(column.data)]) == 1 or column.kind is Kind.OBJECT:
                return column.compact()
            known = gathered.get(id(column.data))
            if known is None:
                kept = np.unique(np.concatenate(rows_of[id(column.data)]))
                if len(kept) == len(column.data):
                    return column
                new_rows = np.zeros(len(column.data), np.int64)
                new_rows[kept] = np.arange(len(kept))
                frames = None if column.frames is None else column.frames[kept]
                known = gathered[id(column.data)] = column.data.take(kept, axis=0), new_rows, frames
            return Column(column.kind, known[0], known[1][column.rows], column.steps, known[2])

        return Table(map_node(compact, self.columns), chained=self.is_chained, lengths=self.lengths)


def _chain(items: list[dict[str, Any]], columns: Mapping[str, Node]) -> None:
    """Set `next_obs` to the `obs` of the next item if both are the same row."""
    if "obs" not in columns or "next_obs" not in columns:
        return
    is_same = np.ones(max(len(items) - 1, 0), np.bool_)
    for before, after in zip(columns_of(columns["obs"]), columns_of(columns["next_obs"]), strict=False):
        if before.data is not after.data or before.rows is None or after.rows is None:
            return
        is_same &= before.rows[1:] == after.rows[:-1]
    for row in np.flatnonzero(is_same).tolist():
        items[row]["next_obs"] = items[row + 1]["obs"]


class Samples(list[Any]):
    """The list of dicts of a table, which are created on first access to an item.

    The dicts own their memory and may be kept and changed, as in any list. Code that works on batches asks `table_of`
    for the table, so that the dicts are not created.

    Attributes:
        table: the table as long as no item was accessed, then None.

    Example:
        >>> samples = Samples(Table({"done": Column(Kind.BOOL, np.array([False, True]))}))
        >>> len(samples), samples.table is None, samples[1]["done"], samples.table is None
        (2, False, True, True)
    """

    __slots__ = ("table",)

    def __init__(self, table: Table) -> None:
        super().__init__()
        self.table: Table | None = table

    def _create_items(self) -> None:
        """Create the items, once."""
        table = self.table
        if table is not None:
            items = table.rows()
            self.table = None
            list.extend(self, items)

    def __len__(self) -> int:
        table = self.table
        return list.__len__(self) if table is None else table._size

    def __bool__(self) -> bool:
        return len(self) > 0

    def __getitem__(self, key: Any) -> Any:
        self._create_items()
        return list.__getitem__(self, key)

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        self._create_items()
        return list, (list(self),)

    def __copy__(self) -> list[Any]:
        return list(self)

    def __deepcopy__(self, memo: dict[int, Any]) -> list[Any]:
        table = self.table
        if table is not None and all(column.kind is not Kind.OBJECT for column in columns_of(table.columns)):
            return Samples(table)  # each creates its own items, and tables never change
        self._create_items()
        return [copy.deepcopy(item, memo) for item in list.__iter__(self)]


def _with_items(name: str) -> Callable[..., Any]:
    method = getattr(list, name, None)

    def on_items(self: Samples, *args: Any, **kwargs: Any) -> Any:
        for samples in (self, *args):
            if isinstance(samples, Samples):
                samples._create_items()
        if method is None:  # __radd__: a plain list on the left
            return args[0] + list(self)
        return method(self, *args, **kwargs)

    on_items.__name__, on_items.__doc__ = name, method.__doc__ if method else None
    return on_items


# All other methods that read or write items.
for _name in (
    *(
        "__iter__",
        "__reversed__",
        "__contains__",
        "__repr__",
        "__eq__",
        "__ne__",
        "__lt__",
        "__le__",
        "__gt__",
        "__ge__",
    ),
    *("__add__", "__radd__", "__iadd__", "__mul__", "__rmul__", "__imul__", "__setitem__", "__delitem__"),
    *("append", "extend", "insert", "remove", "pop", "clear", "index", "count", "sort", "reverse", "copy"),
):
    setattr(Samples, _name, _with_items(_name))


# The argument of functions on columns: a table, or a list of samples, which are dicts by default.
Items: TypeAlias = "Table | Sequence[Any]"


def table_of(items: Items) -> Table | None:
    """Return the table behind `items`, which are a table or `Samples` of which no item was accessed; None for others.

    To pack dicts, see `Table.of`.
    """
    if isinstance(items, Samples):
        return items.table
    return items if isinstance(items, Table) else None


def listed(items: Items) -> list[Any]:
    """Return `items` as a list: a list itself, or `Samples` of a table."""
    if isinstance(items, Table):
        return Samples(items)
    return items if isinstance(items, list) else list(items)


def like(items: Items, table: Table) -> Any:
    """Return `table` in the form of `items`: the table, or a new list."""
    return table if isinstance(items, Table) else Samples(table)


def replaced(items: Items, table: Table) -> Any:
    """Return `items`, which are in columns, with `table` as their content; `Samples` are modified in place."""
    if isinstance(items, Samples):
        items.table = table
        return items
    return table


def with_columns(items: Items, **columns: Column) -> Any:
    """Return `items` with these columns added or replaced; a list and its dicts are modified in place."""
    table = table_of(items)
    if table is not None:
        return replaced(items, table.with_columns(**columns))
    for key, column in columns.items():
        for item, value in zip(rows_of(items), column.items(), strict=True):
            item[key] = value
    return items


def part_of(items: Items, start: int, stop: int | None) -> Any:
    """Return `items[start:stop]` in the form of `items`, without creating items of a table."""
    table = table_of(items)
    return rows_of(items)[start:stop] if table is None else like(items, table.take(slice(start, stop)))


def packed(items: Items) -> Table | None:
    """Return a copy of `items` in columns like `Table.of`, with end flags that only some have filled in.

    See `with_end_flags`.
    """
    table = Table.of(items)
    if table is None and all(type(item) is dict and item for item in rows_of(items)):
        parts = [Table.of(list(group)) for _, group in itertools.groupby(rows_of(items), dict.keys)]
        table = Table.joined([part for part in parts if part is not None]) if parts else None
    return table


def items_at(items: Items, rows: IntArray) -> Items:
    """Return the items in these rows, as a table if they are in columns, without creating items."""
    table = table_of(items)
    return [rows_of(items)[row] for row in rows.tolist()] if table is None else table.take(rows)


def lengths_of(items: Items) -> IntArray:
    """Return the lengths [P] of the trajectory fragments of `items`: those of a table, else a single one."""
    table = table_of(items)
    return np.array([len(items)]) if table is None or table.lengths is None else table.lengths


def last_rows(items: Items) -> IntArray:
    """Return the row of the last item of each trajectory fragment that has any; see `lengths_of`."""
    lengths = lengths_of(items)
    rows: IntArray = (lengths.cumsum() - 1)[lengths > 0]
    return rows


def concatenate_items(parts: Sequence[Items]) -> Items:
    """Concatenate `parts`, into a table if all are in columns and fit together; a single part is returned itself."""
    if len(parts) == 1:
        return parts[0]
    tables = [table for part in parts if (table := table_of(part)) is not None]
    joined = Table.joined(tables) if parts and len(tables) == len(parts) else None
    return [item for part in parts for item in rows_of(part)] if joined is None else joined


def rows_of(items: Items) -> Sequence[Any]:
    """Return the samples one by one: a list itself, or new dicts of a table."""
    return items.rows() if isinstance(items, Table) else items


def _values_by_key(items: Sequence[Any]) -> dict[str, list[Any]] | None:
    """Return the values of at least one dict by key, or None if they are not dicts with the same keys."""
    first = items[0]
    if type(first) is not dict or not first or set(map(type, items)) != {dict} or set(map(len, items)) != {len(first)}:
        return None
    try:  # dicts of one length that have all keys of the first have no others; comparing sets takes longer
        return {key: list(map(operator.itemgetter(key), items)) for key in first}
    except KeyError:
        return None


def _pack_observations(obs: list[Any], next_obs: list[Any]) -> dict[str, Node]:
    """Return the columns `obs` and `next_obs` of consecutive items, with shared rows."""
    ends = [*map(operator.is_not, obs[1:], next_obs), True]
    if all(ends):
        return {"obs": pack(obs), "next_obs": pack(next_obs)}
    is_end = np.array(ends)
    values, start = [], 0
    for stop in (np.flatnonzero(is_end) + 1).tolist():
        values += obs[start:stop]
        values.append(next_obs[stop - 1])
        start = stop
    node = pack(values)
    rows = np.arange(len(obs)) + is_end.cumsum() - is_end
    return {
        "obs": map_node(lambda column: column.take(rows), node),
        "next_obs": map_node(lambda column: column.take(rows + 1), node),
    }


def pack(values: list[Any]) -> Node:
    """Return the N >= 1 values of one key as a node; values that cannot be stacked become a column of objects."""
    first = values[0]
    kind = type(first)
    if len(set(map(type, values))) > 1:
        return Column(Kind.OBJECT, values)
    if issubclass(kind, torch.Tensor):
        return _pack_tensors(values)
    if kind is np.ndarray and first.dtype.kind in _NUMBER_KINDS:
        is_alike = len({value.dtype for value in values}) == 1 and len({value.shape for value in values}) == 1
        return Column(Kind.ARRAY, np.array(values)) if is_alike else Column(Kind.OBJECT, values)
    if kind in _NUMBERS:
        number, dtype = _NUMBERS[kind]
        try:
            return Column(number, np.array(values, dtype))
        except OverflowError:  # integers beyond 64 bits
            return Column(Kind.OBJECT, values)
    if issubclass(kind, np.generic) and first.dtype.kind in _NUMBER_KINDS:
        return Column(Kind.SCALAR, np.array(values))
    if kind is dict and (parts := _values_by_key(values)) is not None:
        return {key: pack(part) for key, part in parts.items()}
    if (kind in (list, tuple) or is_namedtuple(kind)) and first and len({len(value) for value in values}) == 1:
        return _pack_sequences(values)
    return Column(Kind.OBJECT, values)


_NUMBERS: dict[type, tuple[Kind, Any]] = {
    float: (Kind.FLOAT, np.float64),
    int: (Kind.INT, np.int64),
    bool: (Kind.BOOL, np.bool_),
}


def _pack_tensors(values: list[torch.Tensor]) -> Column:
    first = values[0]
    if (
        type(first) is not torch.Tensor
        or first.dtype not in SHARED_DTYPES
        or first.layout is not torch.strided
        or not first.is_cpu
        or len(set(map(operator.attrgetter("dtype"), values))) > 1
    ):
        return Column(Kind.OBJECT, values)
    try:
        return Column(Kind.TENSOR, torch.stack(values).detach().numpy())
    except RuntimeError:  # shapes, layouts or devices differ
        return Column(Kind.OBJECT, values)


def _pack_sequences(values: list[Any]) -> Node:
    """Pack sequences of one length: lists of equal type and shape into one array, others entry by entry."""
    kind, length = type(values[0]), len(values[0])
    if kind is list:
        flat = pack([entry for value in values for entry in value])
        if isinstance(flat, Column) and flat.kind is not Kind.OBJECT and not flat.steps:
            shape = (len(values), length, *flat.data.shape[1:])
            return Column(flat.kind, flat.data.reshape(shape), None, steps=True)
    nodes = [pack([value[i] for value in values]) for i in range(length)]
    return rebuilt(values[0], nodes)


def _are_alike(parts: tuple[Column, ...]) -> bool:
    """Return whether all columns match the first, which is numeric; three times as fast as `Column.matches`."""
    first = parts[0]
    kind, steps, dtype, shape = first.kind, first.steps, first.data.dtype, first.data.shape[1:]
    for part in parts:
        if part.kind is not kind or part.steps is not steps:
            return False
        if part.data.dtype != dtype or part.data.shape[1:] != shape:
            return False
    return True


def column_of(values: torch.Tensor | npt.NDArray[np.bool_]) -> Column:
    """Return the column of N rows of a tensor, or of N bools."""
    if isinstance(values, np.ndarray):
        return Column(Kind.BOOL, values)
    if values.dtype in SHARED_DTYPES and values.is_cpu:
        return Column(Kind.TENSOR, values.numpy())
    return Column(Kind.OBJECT, list(values.unbind(0)))


def _joined(parts: tuple[Column, ...], blocks: dict[tuple[int, ...], tuple[Any, dict[int, int]]]) -> Column:
    """Concatenate columns; `blocks` caches arrays that are already concatenated."""
    first = parts[0]
    if first.kind is Kind.OBJECT or not _are_alike(parts):
        return Column(Kind.OBJECT, [item for part in parts for item in part.items()])
    arrays = {id(part.data): part.data for part in parts}
    key = tuple(arrays)
    found = blocks.get(key)
    if found is None:
        starts = dict(zip(key, itertools.accumulate(map(len, arrays.values()), initial=0), strict=False))
        found = blocks[key] = first.data if len(key) == 1 else np.concatenate(list(arrays.values())), starts
    data, starts = found
    if len(key) == len(parts) and not [part for part in parts if part.rows is not None]:
        return Column(first.kind, data, None, first.steps)
    rows = [starts[id(part.data)] + (np.arange(len(part.data)) if part.rows is None else part.rows) for part in parts]
    return Column(first.kind, data, np.concatenate(rows), first.steps, parts[-1].frames if len(key) == 1 else None)


# The flags for how an episode ended. Samples of envs that return only `done` do not have them.
END_FLAGS = ("terminated", "truncated")


def with_end_flags(columns: Mapping[str, Node], flags: Iterable[str]) -> dict[str, Node]:
    """Return `columns` with missing `flags` added: an episode end without flags counts as a termination.

    One that has only `terminated` or only `truncated`, which is false, counts as the other. Samples without a numeric
    `done` stay unchanged.
    """
    done = columns.get("done")
    missing = [flag for flag in END_FLAGS if flag in flags and flag not in columns]
    if not missing or not isinstance(done, Column) or done.kind is Kind.OBJECT:
        return dict(columns)
    ended: npt.NDArray[np.bool_] = np.asarray(done.values(), np.bool_)
    axes = 1 + done.steps  # samples, and their steps
    ended = np.all(ended.reshape(*ended.shape[:axes], -1), axis=axes)
    known = {flag: np.asarray(columns[flag].values(), np.bool_) for flag in END_FLAGS if flag in columns}
    cut_off = known.get("truncated", ended & ~known["terminated"] if "terminated" in known else np.zeros_like(ended))
    filled = {"terminated": ended & ~cut_off, "truncated": cut_off}
    return {**columns, **{flag: Column(Kind.BOOL, filled[flag], None, done.steps) for flag in missing}}
