"""Where checkpoints lie, and what stands in them."""

from __future__ import annotations

import contextlib
import os
import re
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from ding.torch_utils.training_guard import refuse_nan
from ding.utils.default_helper import one_time_warning

# What `torch.load(weights_only=True)` restores as it was written.
_PLAIN = (type(None), bool, int, float, complex, str, bytes, torch.Tensor, torch.nn.Parameter, torch.Size)
_PLAIN_TORCH = (torch.dtype, torch.device)

_ITERATION = re.compile(r"iteration_(\d+)\.pth\.tar")

# Key of what a learner adds to its checkpoints, see `LearnerView.ckpt_extra`. It is not for policies.
EXTRA = "learner"
# Key, in there, of the statistics with which the envs of a training normalize.
NORMALIZATION = "normalization"
# Key, in there, of mean and deviation of the observations of a data set, with which the envs of a training normalize.
OFFLINE_STATS = "offline_stats"


def checkpoint_folder(engine: Any) -> str:
    """The folder of a learner's checkpoints: `ckpt`, or `ckpt_<instance_name>` where it is not called `learner`."""
    folder = "ckpt" if engine.instance_name == "learner" else f"ckpt_{engine.instance_name}"
    return os.path.join(".", engine.exp_name, folder)


def delete_old_checkpoints(folder: str, keep: int, newest: str) -> None:
    """Delete files `iteration_<n>.pth.tar` until `keep` are left, those with the smallest n first; never `newest`."""
    found = [(int(match[1]), match[0]) for match in map(_ITERATION.fullmatch, os.listdir(folder)) if match]
    if all(name != newest for _, name in found):
        return
    others = sorted(item for item in found if item[1] != newest)
    for _, name in others[: max(len(found) - keep, 0)]:
        with contextlib.suppress(FileNotFoundError):
            os.remove(os.path.join(folder, name))


def checkpoint_state(engine: Any) -> dict[str, Any]:
    """The policy's state, with `last_iter` and `last_step` (the collector's env steps), and what the learner adds.

    Raises:
        FloatingPointError: a tensor of the policy's state holds a NaN.
    """
    own = engine.policy.state_dict()
    refuse_nan(own, f"at train_iter {engine.train_iter}")
    state = {**own, "last_iter": engine.train_iter, "last_step": engine.collector_envstep}
    extra = getattr(engine, "ckpt_extra", None)
    return plain_state({**state, EXTRA: extra} if extra else state)  # type: ignore[no-any-return]


def normalization_of(state: Mapping[str, Any]) -> Any:
    """The statistics with which the envs of the training normalized, of a checkpoint's content; None without any."""
    return state.get(EXTRA, {}).get(NORMALIZATION)


def plain_state(state: Any, where: str = "state") -> Any:
    """`state` with numpy scalars as Python numbers, numpy arrays as tensors, and dicts of foreign classes as dicts.

    Nothing of `state` is changed; parts that are plain already are passed on as they are, tensors share their memory.
    What torch could read only by unpickling stays, with one warning that names it.
    """
    kind = type(state)
    if kind in _PLAIN or isinstance(state, _PLAIN_TORCH):
        return state
    if isinstance(state, np.generic):
        return plain_state(state.item(), where)
    if isinstance(state, np.ndarray) and state.dtype.kind in "biufc":
        return torch.from_numpy(np.ascontiguousarray(state).copy())
    if isinstance(state, Mapping):
        return _plain_mapping(state, where)
    if kind in (list, tuple):
        return kind(plain_state(value, f"{where}[{index}]") for index, value in enumerate(state))
    one_time_warning(
        f"checkpoint: {where} is a {kind.__module__}.{kind.__qualname__}; "
        "a file that holds it is read only with trust_pickle=True"
    )
    return state


def _plain_mapping(state: Mapping[Any, Any], where: str) -> Mapping[Any, Any]:
    items = {plain_state(key, where): plain_state(value, f"{where}[{key!r}]") for key, value in state.items()}
    if type(state) is OrderedDict:
        # A module's state_dict carries format versions in an attribute: it is kept whole if nothing had to change.
        is_same = all(new is old for new, old in zip(items.values(), state.values(), strict=True))
        return state if is_same else OrderedDict(items)
    return items
