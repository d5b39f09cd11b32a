"""What may stand in a checkpoint file."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from ding.utils.default_helper import one_time_warning

# What `torch.load(weights_only=True)` restores as it was written.
_PLAIN = (type(None), bool, int, float, complex, str, bytes, torch.Tensor, torch.nn.Parameter, torch.Size)
_PLAIN_TORCH = (torch.dtype, torch.device)


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
