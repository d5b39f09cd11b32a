"""Conversion of observations into the input of a model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ding.torch_utils.data_helper import WIDE_INTEGERS, to_device
from ding.utils.data.collate_fn import default_collate


def stack_observations(data: Mapping[int, Any]) -> Any:
    """Return the observations of all envs as one batch [E, *obs_shape] (or a dict of such).

    Entries [1] of a dict observation become [E], as in a batch of train samples.
    """
    observations = list(data.values())
    return default_collate(observations, cat_1dim=isinstance(observations[0], Mapping))


def acting_input(
    obs: Any, dtype: torch.dtype = torch.float32, device: str | None = None, is_entry: bool = False
) -> Any:
    """Convert a stacked batch to tensors of a model's `dtype` on its `device`; integers as in `model_input`.

    Entries [E, 1] of a dict become [E], as in `stack_observations`. Tensors are moved before they are converted, so
    that images of bytes are transferred as bytes.

    Args:
        device: None leaves tensors where they are.
        is_entry: whether `obs` is an entry of a dict.
    """
    if isinstance(obs, np.ndarray):
        obs = torch.from_numpy(obs if obs.flags.writeable else obs.copy())
    if isinstance(obs, Tensor):
        if is_entry and obs.shape[1:] == (1,):
            obs = obs.squeeze(1)
        if device is not None:
            obs = to_device(obs, device)
        is_ready = obs.dtype is dtype or obs.dtype in WIDE_INTEGERS
        return obs if is_ready else obs.to(dtype)
    if isinstance(obs, Mapping):
        return {key: acting_input(value, dtype, device, True) for key, value in obs.items()}
    return [acting_input(value, dtype, device) for value in obs] if isinstance(obs, list | tuple) else obs


def model_input(obs: Any, dtype: torch.dtype = torch.float32, integers: bool = False) -> Any:
    """Convert every tensor of `obs` to the model's `dtype`; until here observations keep theirs (uint8, float64).

    Integers other than bytes are converted only if `integers` is set, since a model may look them up in an embedding;
    the models of this package convert them. See `Policy._model_input`, which knows the model.
    """
    if isinstance(obs, Tensor):
        is_ready = obs.dtype is dtype or (obs.dtype in WIDE_INTEGERS and not integers)
        return obs if is_ready else obs.to(dtype)
    if isinstance(obs, Mapping):
        return {key: model_input(value, dtype, integers) for key, value in obs.items()}
    if isinstance(obs, list | tuple):
        return [model_input(value, dtype, integers) for value in obs]
    return obs
