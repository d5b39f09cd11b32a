"""From the transitions of a trajectory (piece) to train samples: advantages, n-step returns, unrolls.

Transitions are tensorised dicts of one trajectory piece in order; only the last one may be the end of an episode.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from ding.rl_utils.gae import gae, gae_data
from ding.utils.default_helper import lists_to_dicts

Transition = dict[str, Any]

# The flags that say how a trajectory ended: an n-step sample takes them from its last step.
_END_FLAGS = ("done", "terminated", "truncated")


def get_gae(
    data: list[Transition], last_value: Tensor, gamma: float, gae_lambda: float, cuda: bool = False
) -> list[Transition]:
    """Write `adv` [1] into each transition and return `data`.

    `last_value` [1] is the value after the last transition: zero where the episode is over. With `cuda` the
    computation runs on the GPU and the advantages come back to the CPU.
    """
    value = torch.stack([transition["value"] for transition in data])
    next_value = torch.stack([transition["value"] for transition in data[1:]] + [last_value])
    reward = torch.stack([transition["reward"] for transition in data])
    if cuda:
        value, next_value, reward = value.cuda(), next_value.cuda(), reward.cuda()
    advantages = gae(gae_data(value, next_value, reward, None, None), gamma, gae_lambda).cpu()
    for transition, advantage in zip(data, advantages.unbind(0), strict=True):
        transition["adv"] = advantage
    return data


def get_gae_with_default_last_value(
    data: list[Transition], done: bool, gamma: float, gae_lambda: float, cuda: bool = False
) -> list[Transition]:
    """`get_gae` with the last value zero when `done`; else the last transition is given up and lends its value."""
    if done:
        return get_gae(data, torch.zeros_like(data[-1]["value"]), gamma, gae_lambda, cuda)
    if len(data) < 2:
        return []
    return get_gae(data[:-1], data[-1]["value"], gamma, gae_lambda, cuda)


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
    of the last step in reach. `value_gamma` is the discount of the value of `next_obs`, gamma^m where only m < n steps
    were left; it is absent without `correct_terminate_gamma`.

    Example:
        >>> steps = [dict(obs=i, next_obs=i + 1, reward=torch.ones(1), done=False) for i in range(3)]
        >>> samples = get_nstep_return_data(steps, 2, gamma=0.5)
        >>> [(s["next_obs"], s["value_gamma"], s["reward"].tolist()) for s in samples]
        [(2, 0.25, [1.0, 1.0]), (3, 0.25, [1.0, 1.0]), (3, 0.5, [1.0, 0.0])]
    """
    if nstep == 1 or not data:
        return data
    length, last = len(data), data[-1]
    flags = [flag for flag in _END_FLAGS if flag in data[0]]
    rewards = _windows([transition["reward"] for transition in data], nstep, gamma if cum_reward else None)
    samples = []
    for i, transition in enumerate(data):
        sample = dict(transition)
        steps = min(nstep, length - i)
        end = data[i + steps - 1]
        for flag in flags:
            sample[flag] = end[flag]
        if "next_obs" in data[0]:
            sample["next_obs"] = data[i + nstep]["obs"] if i + nstep < length else last["next_obs"]
        sample["reward"] = rewards[i]
        if correct_terminate_gamma:
            sample["value_gamma"] = gamma**steps
        samples.append(sample)
    return samples


def _windows(rewards: list[Tensor], nstep: int, gamma: float | None) -> tuple[Tensor, ...]:
    """For each step the `nstep` rewards from it on, side by side on the last axis, or their discounted sum."""
    padding = [torch.zeros_like(rewards[0])] * (nstep - 1)
    windows = torch.stack(rewards + padding).unfold(0, nstep, 1)  # [T, *reward_shape, n]
    if gamma is not None:
        discounts = torch.tensor([gamma**i for i in range(nstep)], dtype=windows.dtype, device=windows.device)
        return (windows * discounts).sum(-1).unbind(0)
    if windows.dim() > 2:  # reward [..., k] -> [..., n * k]
        windows = windows.transpose(-1, -2).flatten(-2)
    return windows.contiguous().unbind(0)


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
    """
    if last_fn_type not in ("drop", "last", "null_padding"):
        raise AssertionError(f"last_fn_type = {last_fn_type!r} is not allowed; use 'drop', 'last' or 'null_padding'")
    if unroll_len == 1:
        return data
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


def _null_transition(template: Transition) -> Transition:
    null = dict(template)
    for key in ("obs", "next_obs", "action", "reward"):
        if key in null:
            null[key] = _zeros_like(null[key])
    null["done"] = True
    null["null"] = True
    null["value_gamma"] = 0.0
    if "terminated" in null:
        null["terminated"] = True
    return null


def _zeros_like(item: Any) -> Any:
    if isinstance(item, Mapping):
        return {key: _zeros_like(value) for key, value in item.items()}
    if isinstance(item, list | tuple):
        return [_zeros_like(value) for value in item]
    return torch.zeros_like(torch.as_tensor(item))
