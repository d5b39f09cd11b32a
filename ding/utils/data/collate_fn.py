"""Collation of samples into batches, and the reverse.

The type of the first sample determines how its key is collated, so that a batch of dicts needs one stack per key.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch.distributions import Distribution

from ding.utils.data.nested import ByType, is_mapping, is_namedtuple, is_treetensor, map_tensors
from ding.utils.data.samples import Column, Items, Kind, Node, Samples, Table, node_items, rows_of, table_of

_KEEP_LIST_PREFIX = ["collate_ignore"]
# Names are faster than lookups in an enum.
_OBJECT, _TENSOR, _ARRAY, _FLOAT = Kind.OBJECT, Kind.TENSOR, Kind.ARRAY, Kind.FLOAT


def default_collate(batch: Any, cat_1dim: bool = True, ignore_prefix: list[str] = _KEEP_LIST_PREFIX) -> Any:
    """Collate B samples into the same structure with a leading dimension B.

    Tensors, arrays and numpy scalars keep their dtype, float becomes float32, int int64, bool bool. Strings and bytes
    become a list. Dicts are collated by the keys of the first one, sequences and namedtuples entry by entry, up to the
    length of the shortest. Trees of tensors become dicts. The result owns its memory.

    Args:
        batch: the samples, whose type is that of the first one. A tree of tensors that is already a batch becomes a
            dict.
        cat_1dim: whether to collate items of shape (1,) to shape (B,) instead of (B, 1).
        ignore_prefix: values of keys with such a prefix become a list. For nested dicts, the default is used.

    Raises:
        TypeError: a sample is None, an array of strings or objects, or of an unknown type.

    Example:
        >>> default_collate([{"obs": torch.zeros(4), "done": False}, {"obs": torch.ones(4), "done": True}])["obs"].shape
        torch.Size([2, 4])
    """
    if isinstance(batch, Samples | Table):
        table = table_of(batch)
        if table is not None and table.columns and len(table):
            return collate_columns(table.columns, None, cat_1dim, tuple(ignore_prefix))
    if is_treetensor(type(batch)):
        return batch.json()
    first = batch[0]
    if is_mapping(first):
        return _collate_dicts(batch, cat_1dim, tuple(ignore_prefix))
    return _COLLATE[type(first)](batch, cat_1dim)


def _collate_dicts(
    batch: Sequence[Mapping[Any, Any]], cat_1dim: bool, ignore: tuple[str, ...] = tuple(_KEEP_LIST_PREFIX)
) -> dict[Any, Any]:
    columns = {key: Column(_OBJECT, [sample[key] for sample in batch]) for key in batch[0]}
    return collate_columns(columns, None, cat_1dim, ignore)


def collate_columns(
    columns: Mapping[Any, Node],
    keys: Iterable[str] | None = None,
    cat_1dim: bool = True,
    ignore: tuple[str, ...] = tuple(_KEEP_LIST_PREFIX),
    splits_steps: bool = True,
) -> dict[Any, Any]:
    """Collate the columns of a table, with the same result as `default_collate` for its rows.

    Args:
        columns: the columns, of at least one sample.
        keys: keys to collate; None for all. Missing keys are skipped.
        cat_1dim: see `default_collate`.
        ignore: see `ignore_prefix` of `default_collate`.
        splits_steps: whether items that are lists of L entries become L batches [N, ...] instead of one [N, L, ...].

    Raises:
        TypeError: a value cannot be collated.

    Example:
        >>> collate_columns({"obs": Column(Kind.TENSOR, np.zeros((2, 4)))})["obs"].shape
        torch.Size([2, 4])
    """
    result: dict[Any, Any] = {}
    key: Any = None
    try:
        for key in columns if keys is None else keys:
            node = columns.get(key)
            if node is None:
                continue
            if isinstance(key, str) and key.startswith(ignore):
                result[key] = node_items(node)
            elif type(node) is not Column or node.kind is _OBJECT:
                result[key] = _collate_node(node, cat_1dim)
            else:  # numbers, without a call for each key
                kind, values = node.kind, node.data if node.rows is None else node.data.take(node.rows, axis=0)
                is_row = values.ndim == 2 + node.steps and values.shape[-1] == 1
                if cat_1dim and is_row and (kind is _TENSOR or kind is _ARRAY):
                    values = values[..., 0]
                if kind is _FLOAT:
                    with np.errstate(over="ignore"):
                        batch = torch.from_numpy(values.astype(np.float32))  # three times as fast as torch
                else:
                    batch = torch.from_numpy(values.copy() if node.rows is None else values)
                is_split = node.steps and splits_steps
                result[key] = [batch[:, i].clone() for i in range(batch.shape[1])] if is_split else batch
    except (TypeError, ValueError, RuntimeError) as error:
        if type(error) not in (TypeError, ValueError, RuntimeError):
            raise
        raise type(error)(f"in {key!r}: {error}") from error
    return result


def _collate_node(node: Node, cat_1dim: bool) -> Any:
    if isinstance(node, dict):
        return collate_columns(node, None, cat_1dim)
    if isinstance(node, Column):
        if node.kind is not _OBJECT:
            return collate_columns({"entry": node}, None, cat_1dim)["entry"]
        objects = node.items()
        return _COLLATE[type(objects[0])](objects, cat_1dim)
    parts = [_collate_node(part, cat_1dim) for part in node]
    return type(node)(*parts) if is_namedtuple(type(node)) else parts


def _collate_tensors(batch: Sequence[torch.Tensor], cat_1dim: bool) -> torch.Tensor:
    # cat also accepts longer items after a first one of shape (1,), but the result is not a batch.
    if cat_1dim and batch[0].shape == (1,):
        result = torch.cat(tuple(batch))
        if len(result) != len(batch):
            raise RuntimeError(f"shapes differ: {sorted({tuple(item.shape) for item in batch})}")
        return result
    return torch.stack(tuple(batch))


def _collate_arrays(batch: Sequence[np.ndarray], cat_1dim: bool) -> torch.Tensor:
    first = batch[0]
    if first.dtype.kind in "USOV":
        raise TypeError(f"cannot collate an array of dtype {first.dtype}; it must be of numbers or bools")
    result = torch.from_numpy(np.array(batch))
    if cat_1dim and first.shape == (1,):
        return result.flatten()
    return result


def _collate_numpy_scalars(batch: Sequence[np.generic], cat_1dim: bool) -> torch.Tensor:
    return torch.from_numpy(np.array(batch))


def _collate_floats(batch: Sequence[float], cat_1dim: bool) -> torch.Tensor:
    return torch.tensor(batch, dtype=torch.float32)


def _collate_integers(batch: Sequence[int], cat_1dim: bool) -> torch.Tensor:
    # Without a dtype, because torch would truncate a float that follows an int.
    return torch.tensor(batch)


def _collate_texts(batch: Sequence[Any], cat_1dim: bool) -> Sequence[Any]:
    return batch if isinstance(batch, list) else list(batch)


def _collate_namedtuples(batch: Sequence[Any], cat_1dim: bool) -> Any:
    return type(batch[0])(*_collate_sequences(batch, cat_1dim))


def _collate_sequences(batch: Sequence[Sequence[Any]], cat_1dim: bool) -> list[Any]:
    columns: Iterable[tuple[Any, ...]] = zip(*batch)  # noqa: B905 the shortest sample counts
    return [_COLLATE[type(column[0])](column, cat_1dim) for column in columns]


def _collate_trees(batch: Sequence[Any], cat_1dim: bool) -> Any:
    return default_collate([tree.json() for tree in batch], cat_1dim)


_COLLATE: ByType = ByType(
    "collate",
    (torch.Tensor, _collate_tensors),
    (np.ndarray, _collate_arrays),
    ((str, bytes), _collate_texts),
    (np.generic, _collate_numpy_scalars),
    (float, _collate_floats),
    (int, _collate_integers),
    (Mapping, _collate_dicts),
    (is_namedtuple, _collate_namedtuples),
    (Sequence, _collate_sequences),
    (is_treetensor, _collate_trees),
)


_STATES = ["prev_state", "prev_actor_state", "prev_critic_state"]


def default_decollate(batch: Any, ignore: list[str] = _STATES) -> list[Any]:
    """Split a batch into its B items, the reverse of `default_collate`.

    A tensor [B, ...] becomes B tensors [...] that share its memory, a tensor (B,) B tensors of shape (1,). A dict
    becomes B dicts, where B is the length of its first value; values of the keys in `ignore` are indexed unchanged. A
    sequence becomes B tuples, a distribution a list of B times None.

    Raises:
        TypeError: the batch, or a value in it, is of another type.
    """
    items: list[Any] = _DECOLLATE[type(batch)](batch, ignore)
    return items


def _decollate_tensor(batch: torch.Tensor, ignore: Sequence[str]) -> list[torch.Tensor]:
    return list(torch.split(batch, 1) if batch.ndim == 1 else batch.unbind(0))


def _decollate_dict(batch: Mapping[Any, Any], ignore: Sequence[str]) -> list[dict[Any, Any]]:
    columns = {k: v if k in ignore else _DECOLLATE[type(v)](v, ignore) for k, v in batch.items()}
    size = len(next(iter(columns.values()), ()))
    return [{key: column[i] for key, column in columns.items()} for i in range(size)]


def _decollate_sequence(batch: Sequence[Any], ignore: Sequence[str]) -> list[tuple[Any, ...]]:
    return list(zip(*(_DECOLLATE[type(item)](item, ignore) for item in batch)))  # noqa: B905 the shortest counts


def _decollate_distribution(batch: Distribution, ignore: Sequence[str]) -> list[None]:
    return [None] * batch.batch_shape[0]


def _decollate_text(batch: Any, ignore: Sequence[str]) -> list[Any]:
    raise TypeError(f"cannot decollate text: {batch!r}")


_DECOLLATE: ByType = ByType(
    "decollate",
    (torch.Tensor, _decollate_tensor),
    (Mapping, _decollate_dict),
    ((str, bytes), _decollate_text),
    (Sequence, _decollate_sequence),
    (Distribution, _decollate_distribution),
)


def split_output(output: Any) -> list[Any]:
    """Split what a policy returned for a batch of E envs into a dict for each; numbers become tensors of shape (1,).

    Recurrent states are stacked like the rest, or a list with the state of each env. An output other than a dict is
    split as by `default_decollate`.
    """
    if not is_mapping(output):
        return default_decollate(output)
    return default_decollate(output, [key for key in _STATES if not is_mapping(output.get(key))])


def timestep_collate(batch: Sequence[Any]) -> dict[str, Any]:
    """Collate B sequences of T steps into tensors [T, B, ...].

    Args:
        batch: b dicts `{key: [T values]}` with a key `prev_state`, or B lists of T trees of tensors, unchanged.

    Returns:
        `{key: [T, B, ...]}`; `prev_state` is a list over T of tuples (for trees: lists) of the B states.

    Raises:
        KeyError: a sample has no `prev_state`.
    """
    table = table_of(batch)
    if table is not None:
        keys, states = list(table.columns), node_items(table.columns["prev_state"])
    elif isinstance(batch[0], (list, tuple)):
        return _timestep_collate_trees(batch)
    else:
        keys, states = list(batch[0]), [sample["prev_state"] for sample in batch]
    keys.remove("prev_state")
    result = collate_steps(batch, keys)
    result["prev_state"] = list(zip(*states))  # noqa: B905 the shortest counts
    return result


def collate_steps(batch: Items, keys: Iterable[str]) -> dict[str, Any]:
    """Collate the `keys` of B sequences, which are dicts of lists of T values, into tensors [T, B, ...].

    A key with a single value per sequence becomes a tensor [B, ...]. Keys that the first sequence lacks are skipped.
    Items of shape (1,) are collated as numbers.
    """
    table = table_of(batch)
    if table is not None:
        return {key: _stack_node(table.columns[key]) for key in keys if key in table.columns}
    samples = rows_of(batch)
    keys = [key for key in keys if key in samples[0]]
    result: dict[str, Any] = _stack_steps(default_collate([{key: sample[key] for key in keys} for sample in samples]))
    return result


def _stack_node(node: Node) -> Any:
    if isinstance(node, Column) and node.steps:
        return collate_columns({"entry": node}, splits_steps=False)["entry"].transpose(0, 1).contiguous()
    if isinstance(node, dict):
        return {key: _stack_node(value) for key, value in node.items()}
    return _stack_steps(_collate_node(node, True))


def _stack_steps(data: Any) -> Any:
    """Stack each list of T tensors [B, ...] into one tensor [T, B, ...]."""
    if is_mapping(data):
        return {key: _stack_steps(value) for key, value in data.items()}
    return torch.stack(data) if type(data) is list and data and isinstance(data[0], torch.Tensor) else data


def _timestep_collate_trees(batch: Sequence[Sequence[Any]]) -> dict[str, Any]:
    samples = [[step.json() for step in sample] for sample in batch]
    states = [[step.pop("prev_state") for step in sample] for sample in samples]
    batch_first = default_collate([default_collate(sample) for sample in samples], cat_1dim=False)
    result: dict[str, Any] = map_tensors(lambda tensor: tensor.transpose(0, 1), batch_first)
    result["prev_state"] = [list(step) for step in zip(*states)]  # noqa: B905 the shortest counts
    return result


def diff_shape_collate(batch: Sequence[Any]) -> Any:
    """Collate like `default_collate`, but leave items that cannot be stacked in a list.

    These are items with a None among them, tensors or arrays of different shapes, and strings. Items of shape (1,) are
    stacked to (B, 1).

    Raises:
        TypeError: a sample is of an unknown type.
    """
    first = batch[0]
    if any(item is None for item in batch) or isinstance(first, (str, bytes)):
        return batch
    if is_mapping(first):
        return {key: diff_shape_collate([sample[key] for sample in batch]) for key in first}
    if isinstance(first, Sequence):
        columns = [diff_shape_collate(list(column)) for column in zip(*batch)]  # noqa: B905 the shortest counts
        return type(first)(*columns) if is_namedtuple(type(first)) else columns
    if isinstance(first, (torch.Tensor, np.ndarray)) and any(
        getattr(item, "shape", None) != first.shape for item in batch
    ):
        return batch
    return _COLLATE[type(first)](batch, False)


def ttorch_collate(x: Sequence[Any], json: bool = False, cat_1dim: bool = True) -> Any:
    """Collate trees of tensors into one tree, or into dicts with `json`. See `default_collate` for `cat_1dim`.

    Raises:
        ImportError: DI-treetensor is not installed and `json` is false.
    """
    batch = default_collate(x, cat_1dim)
    if json:
        return batch
    try:
        import treetensor.torch as ttorch
    except ImportError as error:
        raise ImportError("ttorch_collate without json=True needs DI-treetensor: install the extra 'tree'") from error
    return ttorch.as_tensor(batch)
