"""From the transitions of a trajectory (piece) to train samples: advantages, n-step returns, unrolls.

Transitions are tensorised dicts of one trajectory piece in order. `done` is theirs; `terminated` and `truncated` are
told by those that know them. Transitions in columns (`Samples`) become samples in columns.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ding.rl_utils.gae import gae_columns
from ding.rl_utils.returns import bootstrap_mask, nstep_columns
from ding.utils.data.samples import Column, Kind, Node, Samples, columns_of, map_node, node_values
from ding.utils.default_helper import lists_to_dicts

Transition = dict[str, Any]

# The flags that say how a trajectory ended: an n-step sample takes them from its last step.
_END_FLAGS = ("done", "terminated", "truncated")

# What a null step has under these keys; all else is as in the last step.
_ZEROED = ("obs", "next_obs", "action", "reward")
_NULL_VALUES: dict[str, Any] = {
    **dict.fromkeys(_ZEROED, 0.0),
    "done": True,
    "terminated": True,
    "truncated": False,
    "null": True,
    "value_gamma": 0.0,
}


def get_gae(
    data: list[Transition], last_value: Tensor, gamma: float, gae_lambda: float, cuda: bool = False
) -> list[Transition]:
    """Write `adv` [1] into each transition, if there are any, and return `data`.

    `last_value` [1] is the value after the last transition: zero where the episode is over. With `cuda` the
    computation runs on the GPU and the advantages come back to the CPU.
    """
    return _add_advantages(data, cuda, gamma, gae_lambda, last_value) if len(data) > 0 else data


def get_gae_with_default_last_value(
    data: list[Transition], done: bool, gamma: float, gae_lambda: float, cuda: bool = False
) -> list[Transition]:
    """`get_gae` with the last value zero when `done`; else the last transition is given up and lends its value.

    An episode that is `done` because it was cut off (its last transition is truncated, not terminated) goes on in this
    respect. Unless `done`, the last transition needs only a `value`. Without transitions nothing is done.
    """
    if len(data) == 0:
        return data
    if not done and _last_entry(data, "reward") is None:
        return _add_advantages(list(data)[:-1], cuda, gamma, gae_lambda, _last_entry(data, "value"))
    flags = {flag: [_last_entry(data, flag)] for flag in ("terminated", "truncated")} if done else {}
    return _add_advantages(data, cuda, gamma, gae_lambda, done=[done], **flags)


def _last_entry(data: list[Transition], key: str) -> Any:
    """What the last transition has under `key`, or None."""
    if isinstance(data, Samples) and data.columns is not None:
        data = data.take(slice(len(data) - 1, None))  # a look at the one makes no others
    return data[-1].get(key)


def _add_advantages(data: list[Transition], cuda: bool, *args: Any, **kwargs: Any) -> list[Transition]:
    if isinstance(data, Samples) and data.columns is not None:
        columns = data.columns
        if _is_tensor_column(columns.get("value")) and _is_tensor_column(columns.get("reward")):
            return _with_advantages(data, columns, cuda, *args, **kwargs)
    value, reward = (_stacked(data, key) for key in ("value", "reward"))
    if cuda:
        value, reward = value.cuda(), reward.cuda()
    advantages = gae_columns(value, reward, *args, **kwargs).cpu().unbind(0)
    if len(advantages) < len(data):
        data = list(data)[:-1]
    for transition, advantage in zip(data, advantages, strict=True):
        transition["adv"] = advantage
    return data


def _with_advantages(data: Samples, columns: Mapping[str, Node], cuda: bool, *args: Any, **kwargs: Any) -> Samples:
    value, reward = (torch.from_numpy(columns[key].values()) for key in ("value", "reward"))
    if cuda:
        value, reward = value.cuda(), reward.cuda()
    advantages = gae_columns(value, reward, *args, **kwargs).numpy(force=True)
    if len(advantages) < len(data):
        data = data.take(slice(len(advantages)))
    data.set_column("adv", Column(Kind.TENSOR, advantages))
    return data


def _stacked(data: list[Transition], key: str) -> Tensor:
    """The entries of all transitions, [T, *shape]; numbers as they are, of envs whose rewards are such, become [T].

    Raises:
        KeyError: a transition has no such entry.
    """
    for i, transition in enumerate(data):
        if key not in transition:
            raise KeyError(
                f"transition {i} of {len(data)} has no {key!r}, only {', '.join(map(repr, transition)) or 'nothing'}; "
                "a last row without reward, which lends its value, is for get_gae_with_default_last_value(done=False)"
            )
    entries = (transition[key] for transition in data)
    return torch.stack([e if isinstance(e, Tensor) else torch.as_tensor(e, dtype=torch.float32) for e in entries])


def _is_tensor_column(node: Node) -> bool:
    return isinstance(node, Column) and node.kind is Kind.TENSOR and not node.steps


def get_nstep_return_data(
    data: list[Transition],
    nstep: int,
    cum_reward: bool = False,
    correct_terminate_gamma: bool = True,
    gamma: float = 0.99,
) -> list[Transition]:
    """Transitions of n steps each; the given ones stay as they are. With one step, `data` itself.

    `reward` becomes the n rewards in a row ([n] for rewards [1], zeros after the last step) or, with `cum_reward`,
    their discounted sum; `next_obs` is the observation n steps later; `done`, `terminated` and `truncated` are those
    of the last step in reach, as far as it tells them. `value_gamma` is the discount of the value of `next_obs`,
    gamma^m where only m < n steps were left; it is absent without `correct_terminate_gamma`. See `nstep_columns`.

    Example:
        >>> steps = [dict(obs=i, next_obs=i + 1, reward=torch.ones(1), done=False) for i in range(3)]
        >>> samples = get_nstep_return_data(steps, 2, gamma=0.5)
        >>> [(s["next_obs"], s["value_gamma"], s["reward"].tolist()) for s in samples]
        [(2, 0.25, [1.0, 1.0]), (3, 0.25, [1.0, 1.0]), (3, 0.5, [1.0, 0.0])]
    """
    if nstep == 1 or not data:
        return data
    if isinstance(data, Samples) and data.columns is not None and _is_tensor_column(data.columns.get("reward")):
        return _nstep_samples(data, data.columns, nstep, cum_reward, correct_terminate_gamma, gamma)
    reward_column = _stacked(data, "reward")
    flags = _flag_columns(data)
    columns = nstep_columns(reward_column, flags.pop("done", None), gamma, nstep, cum_reward, **flags)
    has_next_obs, rewards, rows = "next_obs" in data[0], columns.reward.unbind(0), columns.index.tolist()
    samples = []
    for i, (transition, reward, row) in enumerate(zip(data, rewards, rows, strict=True)):
        sample, end = dict(transition), data[row]
        for flag in _END_FLAGS:
            if flag in end:
                sample[flag] = end[flag]
            else:
                sample.pop(flag, None)
        if has_next_obs:
            goes_on = rows[row] > row
            sample["next_obs"] = data[row + 1]["obs"] if goes_on else end["next_obs"]
        sample["reward"] = reward
        if correct_terminate_gamma:
            sample["value_gamma"] = gamma ** (row - i + 1)
        samples.append(sample)
    return samples


def _nstep_samples(
    data: Samples,
    columns: Mapping[str, Node],
    nstep: int,
    cum_reward: bool,
    correct_terminate_gamma: bool,
    gamma: float,
) -> Samples:
    flags = {key: node_values(columns[key]) for key in _END_FLAGS if key in columns}
    told = {key: flag for key, flag in flags.items() if key != "done"}
    reward, index, _ = nstep_columns(columns["reward"].values(), flags.get("done"), gamma, nstep, cum_reward, **told)
    changed = {key: map_node(lambda column: column.take(index), columns[key]) for key in flags}
    if "next_obs" in columns:
        # Up to the last step of an episode, what follows a step is the observation of the next one: the same rows.
        changed["next_obs"] = map_node(lambda column: column.take(index), columns["next_obs"])
    if correct_terminate_gamma:
        powers = np.array([gamma**steps for steps in range(nstep + 1)])
        changed["value_gamma"] = Column(Kind.FLOAT, powers[index - np.arange(len(index)) + 1])
    return data.with_columns(**changed, reward=Column(Kind.TENSOR, reward))


def _flag_columns(data: list[Transition]) -> dict[str, list[Any]]:
    """The end flags that any transition tells, as columns with None where one does not."""
    told = [flag for flag in _END_FLAGS if any(flag in transition for transition in data)]
    return {flag: [transition.get(flag) for transition in data] for flag in told}


def get_train_sample(
    data: list[Transition],
    unroll_len: int,
    last_fn_type: str = "last",
    null_transition: Transition | None = None,
) -> list[Transition]:
    """Cut a trajectory into pieces of `unroll_len` steps, each a dict of lists; with 1, `data` itself.

    The steps that are left over are dropped ('drop'), or filled up at the front with copies of the steps before them
    ('last'; with null steps at the end if there are none), or filled up at the end with null steps ('null_padding'):
    zero observation, action and reward, done and `null` True, `value_gamma` 0; or `null_transition`.

    Raises:
        AssertionError: another `last_fn_type`.
        ValueError: `unroll_len` is below 1.
    """
    if unroll_len < 1:
        raise ValueError(f"unroll_len = {unroll_len!r} is not allowed; it must be 1 or more")
    if last_fn_type not in ("drop", "last", "null_padding"):
        raise AssertionError(f"last_fn_type = {last_fn_type!r} is not allowed; use 'drop', 'last' or 'null_padding'")
    if unroll_len == 1:
        return data
    if null_transition is None and isinstance(data, Samples) and _has_plain_arrays(data):
        return _unrolled(data, unroll_len, last_fn_type)
    data = _with_all_flags(data)
    whole = len(data) - len(data) % unroll_len
    pieces = [data[start : start + unroll_len] for start in range(0, whole, unroll_len)]
    residual = data[whole:]
    if residual and last_fn_type != "drop":
        missing = unroll_len - len(residual)
        if last_fn_type == "last" and pieces:
            pieces.append(copy.deepcopy(pieces[-1][-missing:]) + residual)
        else:
            null = _null_transition(residual[-1]) if null_transition is None else null_transition
            pieces.append(residual + [copy.deepcopy(null) for _ in range(missing)])
    return [lists_to_dicts(piece, recursive=True) for piece in pieces]


def _has_plain_arrays(data: Samples) -> bool:
    """Whether all columns are arrays of one value for each step."""
    columns = data.columns
    return columns is not None and all(c.kind is not Kind.OBJECT and not c.steps for c in columns_of(columns))


def _unrolled(data: Samples, unroll_len: int, last_fn_type: str) -> Samples:
    length = len(data)
    starts = list(range(0, length - unroll_len + 1, unroll_len))
    if length % unroll_len and last_fn_type == "last" and starts:
        starts.append(length - unroll_len)
    elif length % unroll_len and last_fn_type != "drop":
        starts.append(len(starts) * unroll_len)
        data = _with_null_rows(data, starts[-1] + unroll_len - length)
    rows = np.array(starts, np.int64)[:, None] + np.arange(unroll_len)  # [pieces, unroll_len]

    def cut(column: Column) -> Column:
        values = column.take(rows.reshape(-1)).values()
        return Column(column.kind, values.reshape(*rows.shape, *values.shape[1:]), None, steps=True)

    def pieces(key: str, node: Node) -> Node:
        is_state = key == "prev_state" and not isinstance(node, Column)
        return _states_by_step(node, rows) if is_state else map_node(cut, node)

    return Samples({key: pieces(key, node) for key, node in (data.columns or {}).items()})


def _states_by_step(node: Node, rows: np.ndarray) -> list[Node]:
    """A recurrent state at each step of a piece: a list of nodes, as the dicts of a sample have it."""
    gathered = map_node(lambda column: column.take(rows.T.reshape(-1)).compact(), node)
    pieces = len(rows)
    return [
        map_node(lambda column, start=step * pieces: column.take(slice(start, start + pieces)), gathered)
        for step in range(rows.shape[1])
    ]


def append_null_steps(data: list[Transition], number: int) -> list[Transition]:
    """The transitions and so many null steps after them, see `get_train_sample`; all tell whether they are `null`.

    `data` stays as it is.
    """
    if isinstance(data, Samples) and _has_plain_arrays(data):
        marked = data.with_columns(null=Column(Kind.BOOL, np.zeros(len(data), np.bool_)))
        return _with_null_rows(marked, number) if number else marked
    null = _null_transition(data[-1])
    return [{**step, "null": False} for step in data] + [copy.deepcopy(null) for _ in range(number)]


def _with_null_rows(data: Samples, number: int) -> Samples:
    length = len(data)
    rows = np.minimum(np.arange(length + number), length - 1)

    def extended(key: str, column: Column) -> Column:
        values = column.take(rows).values()
        if key in _NULL_VALUES:
            values[length:] = _NULL_VALUES[key]
        return Column(column.kind, values)

    columns = data.columns or {}
    return Samples({key: map_node(partial(extended, key), node) for key, node in columns.items()})


def _with_all_flags(data: list[Transition]) -> list[Transition]:
    """The transitions, each of which tells the flags that any of them tells: those of a piece become lists."""
    flags = _flag_columns(data)
    partly = [flag for flag in ("terminated", "truncated") if any(entry is None for entry in flags.get(flag, ()))]
    if not partly:
        return data
    done = flags.pop("done", [None] * len(data))
    goes_on, is_done = bootstrap_mask(done, **flags), ~bootstrap_mask(done)
    meaning = {"terminated": (~goes_on).tolist(), "truncated": (is_done & goes_on).tolist()}
    return [
        {**transition, **{flag: meaning[flag][i] for flag in partly if flag not in transition}}
        for i, transition in enumerate(data)
    ]


def _null_transition(template: Transition) -> Transition:
    null = {key: _zeros_like(value) if key in _ZEROED else value for key, value in template.items()}
    flags: dict[str, Any] = {flag: _NULL_VALUES[flag] for flag in ("terminated", "truncated") if flag in null}
    return {**null, **flags, "done": True, "null": True, "value_gamma": 0.0}


def _zeros_like(item: Any) -> Any:
    if isinstance(item, Mapping):
        return {key: _zeros_like(value) for key, value in item.items()}
    if isinstance(item, list | tuple):
        return [_zeros_like(value) for value in item]
    return torch.zeros_like(torch.as_tensor(item))
