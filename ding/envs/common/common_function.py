"""Scaling of actions and small encoders of features."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from ding.utils.import_helper import optional_module


def affine_transform(
    data: Any,
    action_clip: bool = True,
    alpha: Any = None,
    beta: Any = None,
    min_val: Any = None,
    max_val: Any = None,
) -> Any:
    """Return `data * alpha + beta`; with bounds, map [-1, 1] onto [min_val, max_val], both ends exactly.

    Args:
        action_clip: clip `data` to [-1, 1] first, and the result to the bounds, which it leaves by rounding.
        alpha: the factor, needed where no bounds are given.
        beta: offset, 0 by default; ignored if bounds are given.

    Raises:
        AssertionError: only one of the bounds is given, or neither bounds nor `alpha`.

    Example:
        >>> affine_transform(np.array([-2.0, 0.0, 0.5]), min_val=0.0, max_val=10.0).tolist()
        [0.0, 5.0, 7.5]
    """
    if (min_val is None) != (max_val is None):
        raise AssertionError(f"give both bounds or none; min_val={min_val!r}, max_val={max_val!r}")
    if min_val is None and alpha is None:
        raise AssertionError("give alpha, or the bounds min_val and max_val")
    if action_clip:
        data = _clip(data, -1, 1)
    if min_val is None:
        return data * alpha + (0.0 if beta is None else beta)
    share = (data + 1) / 2
    result = min_val * (1 - share) + max_val * share
    return _clip(result, min_val, max_val) if action_clip else result


def _clip(data: Any, low: Any, high: Any) -> Any:
    if isinstance(data, torch.Tensor):
        return data.clamp(torch.as_tensor(low).to(data), torch.as_tensor(high).to(data))
    return np.minimum(np.maximum(data, low), high)  # a third of the time of `np.clip`


def _one_hot(values: torch.Tensor, num: int) -> torch.Tensor:
    return F.one_hot(values.long(), num).float()


def num_first_one_hot(values: torch.Tensor, num: int) -> torch.Tensor:
    """Return the one-hot code of the integers `values` [*shape] with the classes first: [num, *shape] float32."""
    return _one_hot(values, num).movedim(-1, 0)


def sqrt_one_hot(v: torch.Tensor, max_val: int) -> torch.Tensor:
    """Return the one-hot code [B, floor(sqrt(max_val)) + 1] of floor(sqrt(v)), with `v` [B] within [0, max_val]."""
    return _one_hot(torch.floor(torch.sqrt(v.float())), math.isqrt(int(max_val)) + 1)


def div_one_hot(v: torch.Tensor, max_val: int, ratio: int) -> torch.Tensor:
    """Return the one-hot code [B, floor(max_val / ratio) + 1] of floor(v / ratio), with `v` [B] within [0, max_val]."""
    return _one_hot(torch.floor(v.float() / ratio), int(max_val / ratio) + 1)


def div_func(inputs: torch.Tensor, other: float, unsqueeze_dim: int = 1) -> torch.Tensor:
    """Return `inputs / other` with a new axis at `unsqueeze_dim`."""
    return inputs.float().unsqueeze(unsqueeze_dim) / other


def clip_one_hot(v: torch.Tensor, num: int) -> torch.Tensor:
    """Return the one-hot code [*shape, num] of `v`, whose values are clipped to [0, num - 1]."""
    return _one_hot(v.clamp(0, num - 1), num)


def reorder_one_hot(
    v: torch.Tensor, dictionary: Mapping[int, int], num: int, transform: Mapping[int, int] | None = None
) -> torch.Tensor:
    """Return the one-hot code [B, num] of `dictionary[x]` for each x of `v` [B]; `transform` is applied to x first.

    Raises:
        AssertionError: `v` is not one-dimensional.
        KeyError: a value has no entry.
    """
    if v.ndim != 1:
        raise AssertionError(f"v must be one-dimensional; its shape is {tuple(v.shape)}")
    values = [int(x) for x in v]
    if transform is not None:
        values = [transform[x] for x in values]
    return _one_hot(torch.tensor([dictionary[x] for x in values], dtype=torch.long), num)


def reorder_one_hot_array(
    v: torch.Tensor, array: Sequence[int] | np.ndarray, num: int, transform: Sequence[int] | np.ndarray | None = None
) -> torch.Tensor:
    """Return the one-hot code [*shape, num] of `array[v]`; `transform` is looked up first, where given."""
    indices = v.long().numpy()
    if transform is not None:
        indices = np.asarray(transform)[indices]
    return _one_hot(torch.as_tensor(np.asarray(array)[indices]), num)


def reorder_boolean_vector(
    v: torch.Tensor, dictionary: Mapping[int, int], num: int, transform: Mapping[int, int] | None = None
) -> torch.Tensor:
    """Return a float32 vector [num] that is 1 at `dictionary[x]` for each x of `v`; `transform` is applied to x first.

    Raises:
        KeyError: a value has no entry; its argument is `<num>_<value>_`.
    """
    vector = torch.zeros(num)
    for x in v:
        value = int(x)
        try:
            vector[dictionary[value if transform is None else transform[value]]] = 1.0
        except KeyError as e:
            raise KeyError(f"{num}_{e.args[0]}_") from e
    return vector


def batch_binary_encode(x: torch.Tensor, bit_num: int) -> torch.Tensor:
    """Return the `bit_num` lowest bits of the integers `x` [B], highest first: [B, bit_num] float32."""
    shifts = torch.arange(bit_num - 1, -1, -1)
    return ((x.long().unsqueeze(-1) >> shifts) & 1).float()


def get_postion_vector(x: Sequence[float]) -> torch.Tensor:
    """Return the sinusoidal code [2 * len(x)] float32 of `x`: sine and cosine of x[i] / 10000^(2i / len) in turn."""
    values = torch.as_tensor(x, dtype=torch.float64)
    size = 2 * len(values)
    angles = values / 10000 ** (torch.arange(0, size, 2, dtype=torch.float64) / size)
    return torch.stack([angles.sin(), angles.cos()], dim=1).flatten().float()


def save_frames_as_gif(frames: Sequence[np.ndarray], path: str) -> None:
    """Write `frames`, each [H, W, 3] uint8, as a GIF of 20 frames per second.

    Raises:
        ImportError: the package imageio is not installed.
    """
    optional_module("imageio", "writing GIFs", extra="video").mimsave(path, list(frames), fps=20)
