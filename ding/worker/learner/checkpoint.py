"""The folder and the content of checkpoints."""

from __future__ import annotations

import contextlib
import os
import re
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from ding.torch_utils.checkpoint_helper import refuse_nan
from ding.utils.default_helper import one_time_warning

# Types that `torch.load(weights_only=True)` restores unchanged.
_PLAIN = (type(None), bool, int, float, complex, str, bytes, torch.Tensor, torch.nn.Parameter, torch.Size)
_PLAIN_TORCH = (torch.dtype, torch.device)

_ITERATION = re.compile(r"iteration_(\d+)\.pth\.tar")

# The key of `LearnerView.ckpt_extra` in a checkpoint; policies do not see it.
EXTRA = "learner"
# The key, in `ckpt_extra`, of the normalization statistics of the training's envs.
NORMALIZATION = "normalization"
# The key, in `ckpt_extra`, of the mean and deviation of a data set's observations, used to normalize envs.
OFFLINE_STATS = "offline_stats"


def checkpoint_folder(engine: Any) -> str:
    """Return a learner's folder of checkpoints: `ckpt`, or `ckpt_<instance_name>` if it is not called `learner`."""
    folder = "ckpt" if engine.instance_name == "learner" else f"ckpt_{engine.instance_name}"
    return os.path.join(".", engine.exp_name, folder)


def delete_old_checkpoints(folder: str, keep: int, newest: str) -> None:
    """Delete files `iteration_<n>.pth.tar`, smallest n first, until `keep` are left; never delete `newest`."""
    found = [(int(match[1]), match[0]) for match in map(_ITERATION.fullmatch, os.listdir(folder)) if match]
    if all(name != newest for _, name in found):
        return
    others = sorted(item for item in found if item[1] != newest)
    for _, name in others[: max(len(found) - keep, 0)]:
        with contextlib.suppress(FileNotFoundError):
            os.remove(os.path.join(folder, name))


def checkpoint_state(engine: Any) -> dict[str, Any]:
    """Return the policy's state with `last_iter`, `last_step` (the collector's env steps) and the learner's extras.

    Raises:
        FloatingPointError: the policy's state contains a NaN.
    """
    own = engine.policy.state_dict()
    refuse_nan(own, f"at train_iter {engine.train_iter}")
    state = {**own, "last_iter": engine.train_iter, "last_step": engine.collector_envstep}
    extra = {EXTRA: engine.ckpt_extra} if engine.ckpt_extra else {}
    return plain_state({**state, **extra})  # type: ignore[no-any-return]


def normalization_of(state: Mapping[str, Any]) -> Any:
    """Return the normalization statistics of the training's envs from a checkpoint; None if there are none."""
    return state.get(EXTRA, {}).get(NORMALIZATION)


def plain_state(state: Any, where: str = "state") -> Any:
    """Return `state` with numpy scalars as Python numbers, numpy arrays as tensors, and mappings as dicts.

    `state` is not modified. Plain parts are not copied; tensors share memory. Objects that torch can read only by
    unpickling are kept, with one warning that names them.
    """
    kind = type(state)
    if kind in _PLAIN or isinstance(state, _PLAIN_TORCH):
        return state
    if isinstance(state, np.generic):
        return plain_state(state.item(), where)
    if isinstance(state, np.ndarray) and state.dtype.kind in "biufc":
        return torch.from_numpy(np.ascontiguousarray(state).copy())
    if isinstance(state, Mapping):
        items = {plain_state(key, where): plain_state(value, f"{where}[{key!r}]") for key, value in state.items()}
        if kind is not OrderedDict:
            return items
        # A module's state_dict has format versions in an attribute, so return the object itself if nothing changed.
        is_same = all(new is old for new, old in zip(items.values(), state.values(), strict=True))
        return state if is_same else OrderedDict(items)
    if kind in (list, tuple):
        return kind(plain_state(value, f"{where}[{index}]") for index, value in enumerate(state))
    one_time_warning(
        f"checkpoint: {where} is a {kind.__module__}.{kind.__qualname__}; "
        "a file that holds it is read only with trust_pickle=True"
    )
    return state
