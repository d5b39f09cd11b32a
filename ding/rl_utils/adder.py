"""Conversion of the transitions of trajectory fragments into train samples: advantages, n-step returns, unrolls.

Transitions are dicts of tensors, in the order of one fragment. Each has `done`, and `terminated` and `truncated` if
they are known. A table of transitions becomes a table of samples, a list a list, which is in columns. A table may
contain several fragments, one after the other, and has their `lengths`; then so does the table of samples.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ding.rl_utils.returns import bootstrap_mask, ends_of_rows, gae_columns
from ding.utils.data.samples import (
    Column,
    IntArray,
    Items,
    Kind,
    Node,
    Table,
    column_of,
    is_same_structure,
    items_at,
    lengths_of,
    like,
    map_node,
    node_items,
    node_values,
    pack,
    packed,
    rows_of,
    table_of,
    with_columns,
)

Transition = dict[str, Any]
BoolArray = npt.NDArray[np.bool_]

# The flags that say how a trajectory ended: an n-step sample takes them from its last step. Where sums end, whichever
# flag says so, `ends_of_rows` tells.
_END_FLAGS = ("done", "terminated", "truncated")

# Values of a null step under these keys; all others are those of the last step.
_ZEROED = ("obs", "next_obs", "action", "reward")
_NULL_VALUES: dict[str, Any] = {
    **dict.fromkeys(_ZEROED, 0.0),
    "done": True,
    "terminated": True,
    "truncated": False,
    "null": True,
    "value_gamma": 0.0,
}


def _table(data: Items) -> Table:
    """Return transitions in columns; end flags that only some have are filled in.

    Raises:
        ValueError: they have not the same keys.
    """
    table = table_of(data)
    if table is None:
        table = packed([dict(transition) for transition in rows_of(data)])
    if table is None:
        keys = sorted({str(sorted(map(str, transition))) for transition in rows_of(data)})
        raise ValueError(f"transitions of one trajectory must have the same keys, but have {' and '.join(keys)}")
    return table


def get_gae(data: Items, last_value: Tensor, gamma: float, gae_lambda: float, cuda: bool = False) -> Any:
    """Write `adv` [1] into each transition and return `data`, or return the table with this column.

    `last_value` [1] (for several fragments [P, 1]) is the value after the last transition: zero where the episode is
    over. With `cuda` the computation runs on the GPU, and the advantages are returned to the CPU.
    """
    return _with_advantages(data, stacked(data, "value"), last_value, gamma, gae_lambda, cuda) if len(data) else data


def get_gae_with_default_last_value(
    data: Items, done: bool | BoolArray, gamma: float, gae_lambda: float, cuda: bool = False
) -> Any:
    """Call `get_gae` with the last value zero if `done`; otherwise drop the last transition and use its value.

    An episode that is `done` because it was cut off (its last transition is truncated, not terminated) counts as not
    done. Unless `done`, the last transition needs only a `value`. Without transitions nothing happens. `done` is [P]
    for several fragments.
    """
    if len(data) == 0:
        return data
    lengths = lengths_of(data)
    rows = np.maximum(lengths.cumsum() - 1, 0)  # the last of each fragment
    flags = _flags(_table(items_at(data, rows)))
    ended = np.broadcast_to(np.asarray(done, np.bool_).reshape(-1), lengths.shape)
    goes_on = ~ended | bootstrap_mask(ended, flags.get("terminated"), flags.get("truncated"))
    value = stacked(data, "value")
    last_value = value[rows]
    last_value[~goes_on] = 0
    gives_up = goes_on & (lengths > 0)
    if gives_up.any():
        is_kept = np.ones(len(data), np.bool_)
        is_kept[rows[gives_up]] = False
        value, data = value[is_kept], _kept(data, is_kept, lengths - gives_up)
    return _with_advantages(data, value, last_value, gamma, gae_lambda, cuda)


def _kept(data: Any, is_kept: BoolArray, lengths: IntArray) -> Any:
    """Return the transitions that are kept; `lengths` are the resulting lengths of the fragments."""
    rows, table = np.flatnonzero(is_kept), table_of(data)
    if table is None:
        return items_at(data, rows)
    kept_lengths = None if table.lengths is None else lengths
    return like(data, Table(table.take(rows).columns, chained=table.is_chained, size=len(rows), lengths=kept_lengths))


def _with_advantages(data: Any, value: Tensor, last_value: Any, gamma: float, gae_lambda: float, cuda: bool) -> Any:
    reward = stacked(data, "reward") if len(data) else value
    if cuda:
        value, reward = value.cuda(), reward.cuda()
    lengths = lengths_of(data)
    advantages = gae_columns(value, reward, gamma, gae_lambda, last_value, lengths=lengths).cpu()
    return with_columns(data, adv=column_of(advantages))


def stacked(data: Any, key: str) -> Tensor:
    """Return the entries of all transitions, [T, *shape]; numbers, as the rewards of some envs are, become [T].

    Do not modify them in place.

    Raises:
        KeyError: a transition has no such entry.
    """
    table = table_of(data)
    if table is not None and key in table.columns:
        return _as_tensor(table.columns[key])
    transitions = rows_of(data)
    for i, transition in enumerate(transitions):
        if key not in transition:
            raise KeyError(
                f"transition {i} of {len(data)} has no {key!r}, only {', '.join(map(repr, transition)) or 'nothing'}; "
                "a last row without reward, which lends its value, is for get_gae_with_default_last_value(done=False)"
            )
    return _as_tensor(pack([transition[key] for transition in transitions]))


def _as_tensor(node: Node) -> Tensor:
    """Return the items of a node as one tensor; all but tensors become float32."""
    if isinstance(node, Column) and node.kind is not Kind.OBJECT and not node.steps:
        values = node.values()
        return torch.from_numpy(values if node.kind is Kind.TENSOR else values.astype(np.float32))
    items = node_items(node)
    return torch.stack([e if isinstance(e, Tensor) else torch.as_tensor(e, dtype=torch.float32) for e in items])


def _flags(table: Table) -> dict[str, Any]:
    """Return the values of the end flags that the transitions have."""
    return {flag: node_values(table.columns[flag]) for flag in _END_FLAGS if flag in table.columns}


def get_nstep_return_data(
    data: Items,
    nstep: int,
    cum_reward: bool = False,
    correct_terminate_gamma: bool = True,
    gamma: float = 0.99,
) -> Any:
    """Return transitions of n steps each, without changing the given ones; with one step, return `data` itself.

    `reward` becomes the n successive rewards ([n] for rewards [1], zeros after the last step) or, with `cum_reward`,
    their discounted sum; `next_obs` is the observation n steps later; `done`, `terminated` and `truncated` are those
    of the last of these steps, as far as it has them. `value_gamma` is the discount of the value of `next_obs`,
    gamma^m where only m < n steps were left; it is absent without `correct_terminate_gamma`. The window of a step ends
    at the n-th row from it, at the end of its episode, or at the last row of its fragment, whichever comes first.

    Raises:
        ValueError: the transitions have not the same keys.

    Example:
        >>> steps = [dict(obs=i, next_obs=i + 1, reward=torch.ones(1), done=False) for i in range(3)]
        >>> samples = get_nstep_return_data(steps, 2, gamma=0.5)
        >>> [(s["next_obs"], s["value_gamma"], s["reward"].tolist()) for s in samples]
        [(2, 0.25, [1.0, 1.0]), (3, 0.25, [1.0, 1.0]), (3, 0.5, [1.0, 0.0])]
    """
    if nstep == 1 or not data:
        return data
    table = _table(data)
    reward = stacked(table, "reward")
    dtype = reward.dtype
    rewards = (reward.float() if dtype is torch.bfloat16 else reward).numpy(force=True)
    length, rows = len(rewards), np.arange(len(rewards))
    items = rewards if rewards.ndim > 1 else rewards[:, None]  # [T, ..., k]
    # The last row of the window of each step.
    index = np.minimum(rows + nstep - 1, ends_of_rows(length, lengths_of(table), _flags(table).values()))
    windows = np.zeros((*items.shape[:-1], nstep, items.shape[-1]), rewards.dtype)
    for step in range(min(nstep, length)):
        windows[: length - step, ..., step, :] = items[step:]
    is_beyond = rows[:, None] + np.arange(nstep) > index[:, None]  # [T, n]
    windows[np.broadcast_to(is_beyond.reshape(length, *([1] * (items.ndim - 2)), nstep), windows.shape[:-1])] = 0
    powers = np.array([float(gamma) ** i for i in range(nstep + 1)])
    if cum_reward:
        discounts = powers[:nstep].astype(rewards.dtype if rewards.dtype.kind == "f" else np.float32)
        windows = (np.swapaxes(windows, -1, -2) @ discounts).reshape(rewards.shape)
    else:
        windows = windows.reshape(*items.shape[:-1], nstep * items.shape[-1])
    # Except at the end of an episode, the next observation of a step is the observation of the next step, the same row.
    of_last_step = {key: table.columns[key] for key in (*_END_FLAGS, "next_obs") if key in table.columns}
    changed = Table(of_last_step, size=length).take(index).columns
    if correct_terminate_gamma:
        changed["value_gamma"] = Column(Kind.FLOAT, powers[index - rows + 1])
    rewards_of_windows = torch.from_numpy(windows)
    changed["reward"] = column_of(rewards_of_windows.to(dtype) if dtype is torch.bfloat16 else rewards_of_windows)
    return like(data, table.with_columns(**changed))


def get_train_sample(
    data: Items,
    unroll_len: int,
    last_fn_type: str = "last",
    null_transition: Transition | None = None,
) -> Any:
    """Cut a trajectory into fragments of `unroll_len` steps, each a dict of lists; with 1, return `data` itself.

    The steps that are left over are dropped ('drop'), or preceded by copies of the steps before them ('last'; if there
    are none, null steps follow), or followed by null steps ('null_padding'). A null step is `null_transition`, or has
    zero observation, action and reward, `done` and `null` True, and `value_gamma` 0; a sample has the keys of its first
    step, so `null` and `value_gamma` only if the steps have them.

    Raises:
        AssertionError: `last_fn_type` is unknown.
        ValueError: `unroll_len` is below 1.
    """
    if unroll_len < 1:
        raise ValueError(f"unroll_len = {unroll_len!r} is not allowed; it must be 1 or more")
    if last_fn_type not in ("drop", "last", "null_padding"):
        raise AssertionError(f"last_fn_type = {last_fn_type!r} is not allowed; use 'drop', 'last' or 'null_padding'")
    if unroll_len == 1 or not len(data):
        return data
    table = _table(data)
    rows, is_null, counts = _windows(lengths_of(table), unroll_len, last_fn_type)

    def step_of(node: Node, step: int) -> Node:
        return map_node(lambda column: column.take(slice(step, None, unroll_len)), node)

    def cut(node: Node, key: str = "") -> Node:
        """Turn the values of M * unroll_len steps into lists of steps."""
        if isinstance(node, Column) and node.kind is not Kind.OBJECT and not node.steps:
            return Column(node.kind, node.data.reshape(*rows.shape, *node.data.shape[1:]), None, steps=True)
        if isinstance(node, dict) and key != "prev_state":
            return {name: cut(part) for name, part in node.items()}
        return [step_of(node, step) for step in range(unroll_len)]

    steps = _gathered(table.columns, rows.reshape(-1), is_null.reshape(-1), null_transition)
    samples = {key: cut(node, key) for key, node in steps.items()}
    return like(data, Table(samples, size=len(rows), lengths=None if table.lengths is None else counts))


def _windows(lengths: IntArray, unroll_len: int, last_fn_type: str) -> tuple[IntArray, BoolArray, IntArray]:
    """Cut fragments of these `lengths` [P] into windows of `unroll_len` steps; see `get_train_sample`.

    Returns:
        The rows of the steps of M windows, [M, unroll_len]; a mask of the null steps, [M, unroll_len]; and the number
        of windows of each fragment, [P].
    """
    full, remainder = np.divmod(lengths, unroll_len)
    counts = full if last_fn_type == "drop" else full + (remainder > 0)
    fragment = np.repeat(np.arange(len(lengths)), counts)  # [M]
    start = (np.arange(len(fragment)) - (counts.cumsum() - counts)[fragment]) * unroll_len  # within the fragment
    if last_fn_type == "last":
        start = np.minimum(start, np.maximum(lengths - unroll_len, 0)[fragment])
    stop = lengths.cumsum()[fragment][:, None]
    rows = stop - lengths[fragment][:, None] + start[:, None] + np.arange(unroll_len)
    return np.minimum(rows, stop - 1), rows >= stop, counts


def append_null_steps(data: Items, number: int | IntArray) -> Any:
    """Return the transitions followed by `number` null steps, see `get_train_sample`; `null` is True for these.

    `data` stays unchanged. For several fragments, `number` may be [P].
    """
    table = _table(data)
    table = table.with_columns(null=Column(Kind.BOOL, np.zeros(len(table), np.bool_)))
    if not np.any(number):
        return like(data, table)
    before = lengths_of(table)
    lengths = before + number
    fragment = np.repeat(np.arange(len(lengths)), lengths)
    place = np.arange(len(fragment)) - (lengths.cumsum() - lengths)[fragment]  # within the fragment
    last = before[fragment] - 1
    rows = (before.cumsum() - before)[fragment] + np.minimum(place, last)
    longer = _gathered(table.columns, rows, place > last)
    return like(data, Table(longer, size=len(rows), lengths=None if table.lengths is None else lengths))


def _gathered(
    columns: Mapping[str, Node], rows: IntArray, is_null: BoolArray, null: Transition | None = None
) -> dict[str, Node]:
    """Return copies of these rows of all columns, with the values of a null step where `is_null`.

    Objects are copied if their row is used repeatedly.
    """
    is_again = np.ones(len(rows), np.bool_)
    is_again[np.unique(rows, return_index=True)[1]] = False

    def gather(key: str, column: Column, null_column: Column | None = None) -> Column:
        if null_column is not None and not column.matches(null_column):
            column, null_column = column.as_objects(), null_column.as_objects()
        values = column.take(rows).values()
        if column.kind is Kind.OBJECT:
            values = [copy.deepcopy(value) if again else value for value, again in zip(values, is_again, strict=True)]
            for row in np.flatnonzero(is_null).tolist():
                values[row] = (
                    _null_object(key, values[row]) if null_column is None else copy.deepcopy(null_column.data[0])
                )
        elif null_column is not None:
            values[is_null] = null_column.data[0]
        elif key in _NULL_VALUES:
            values[is_null] = _NULL_VALUES[key]
        return Column(column.kind, values, None, column.steps)

    if null is None or not is_null.any():
        return {key: map_node(partial(gather, key), node) for key, node in columns.items()}
    gathered = {}
    for key, node in columns.items():
        null_node = pack([null[key]])
        if not is_same_structure(node, null_node):
            node, null_node = Column(Kind.OBJECT, node_items(node)), Column(Kind.OBJECT, [null[key]])
        gathered[key] = map_node(partial(gather, key), node, null_node)
    return gathered


def _null_object(key: str, item: Any) -> Any:
    return _zeros_like(item) if key in _ZEROED else _NULL_VALUES.get(key, item)


def _zeros_like(item: Any) -> Any:
    if isinstance(item, Mapping):
        return {key: _zeros_like(value) for key, value in item.items()}
    if isinstance(item, list | tuple):
        return [_zeros_like(value) for value in item]
    return torch.zeros_like(torch.as_tensor(item))
