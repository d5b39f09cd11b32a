"""Conversion of observations into the input of a model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ding.torch_utils.data_helper import WIDE_INTEGERS
from ding.utils.data.collate_fn import default_collate


def stack_observations(data: Mapping[int, Any]) -> Any:
    """The observations of all envs as one batch [E, *obs_shape] (or a dict of such).

    Entries [1] of a dict observation become [E], as in a batch of train samples.
    """
    observations = list(data.values())
    return default_collate(observations, cat_1dim=isinstance(observations[0], Mapping))


def as_tensors(item: Any, is_member: bool = False) -> Any:
    """A stacked batch as tensors; entries [E, 1] of a dict become [E], as in `stack_observations`."""
    if isinstance(item, np.ndarray):
        item = torch.from_numpy(item if item.flags.writeable else item.copy())
    elif isinstance(item, Mapping):
        return {key: as_tensors(value, True) for key, value in item.items()}
    return item.squeeze(1) if is_member and isinstance(item, Tensor) and item.shape[1:] == (1,) else item


def model_input(obs: Any, dtype: torch.dtype = torch.float32, integers: bool = False) -> Any:
    """Convert every tensor of `obs` to the model's `dtype`; until here observations keep theirs (uint8, float64).

    Integers that are no bytes stay, unless `integers` is set: a model may look them up in an embedding; the models of
    this package convert them. See `Policy._model_input`, which knows the model.
    """
    if isinstance(obs, Tensor):
        is_ready = obs.dtype is dtype or (obs.dtype in WIDE_INTEGERS and not integers)
        return obs if is_ready else obs.to(dtype)
    if isinstance(obs, Mapping):
        return {key: model_input(value, dtype, integers) for key, value in obs.items()}
    if isinstance(obs, list | tuple):
        return [model_input(value, dtype, integers) for value in obs]
    return obs
