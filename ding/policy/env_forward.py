"""Conversion of per-env observations into one model input, and of the model output into per-env results."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ding.torch_utils.data_helper import WIDE_INTEGERS
from ding.utils.data.collate_fn import default_collate, default_decollate
from ding.utils.data.env_batch import EnvBatch


def stack_observations(data: Mapping[int, Any]) -> Any:
    """The observations of all envs as one batch [E, *obs_shape] (or a dict of such).

    Entries [1] of a dict observation become [E], as in a batch of train samples.
    """
    stacked = getattr(data, "stacked", None)
    if stacked is not None:
        return _as_tensors(stacked)
    observations = list(data.values())
    return default_collate(observations, cat_1dim=isinstance(observations[0], Mapping))


def _as_tensors(item: Any, is_member: bool = False) -> Any:
    if isinstance(item, np.ndarray):
        item = torch.from_numpy(item if item.flags.writeable else item.copy())
    elif isinstance(item, Mapping):
        return {key: _as_tensors(value, True) for key, value in item.items()}
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


def split_output(env_ids: Iterable[int], output: Mapping[str, Any]) -> EnvBatch:
    """Split a batched `output` into one dict per env; the result keeps the batch as `stacked`.

    Scalars per env have shape (1,). The dicts are created on access.
    """
    return EnvBatch(env_ids, partial(default_decollate, output), output)
