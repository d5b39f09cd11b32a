"""What the model templates share about their inputs: shapes, the encoder for a shape, the check of a batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from numbers import Integral
from typing import Any

from torch import Tensor, nn

from ding.model.common.encoder import ConvEncoder, FCEncoder
from ding.utils.default_helper import squeeze


def as_shape(shape: int | Sequence[int]) -> int | tuple[int, ...]:
    """A number for a number or a 1-D shape, else a tuple."""
    squeezed: Any = squeeze(shape)
    return int(squeezed) if isinstance(squeezed, Integral) else tuple(squeezed)


def build_encoder(
    obs_shape: int | Sequence[int],
    hidden_size_list: Sequence[int],
    activation: nn.Module | None,
    norm_type: str | None,
    dropout: float | None = None,
) -> nn.Module:
    """An `FCEncoder` for vectors, a `ConvEncoder` (without dropout) for images.

    Raises:
        RuntimeError: `obs_shape` has neither one nor three dimensions.
    """
    if isinstance(obs_shape, int):
        return FCEncoder(obs_shape, hidden_size_list, activation=activation, norm_type=norm_type, dropout=dropout)
    if len(obs_shape) == 3:
        return ConvEncoder(obs_shape, hidden_size_list, activation=activation, norm_type=norm_type)
    raise RuntimeError(
        f"obs_shape {obs_shape!r} is not supported; it must be a number for vectors or (C, H, W) for images"
    )


def observations_of(x: Tensor | Mapping[str, Any], obs_shape: tuple[int, ...], model: nn.Module) -> Tensor:
    """The observations [*B, *obs_shape] in `x` (the entry `observation` of a dict) as floating point numbers.

    Integers get the dtype of the first parameter of `model`.

    Raises:
        KeyError: a dict without `observation`.
        ValueError: observations of another shape, or images that are not [B, C, H, W].
    """
    observations = x if isinstance(x, Tensor) else _entry_observation(x)
    shape, rank = observations.shape, len(obs_shape)
    if shape[-rank:] != obs_shape or (rank == 3 and len(shape) != 4):
        raise ValueError(
            f"the model was made for obs_shape {obs_shape}, that is batches (B, {', '.join(map(str, obs_shape))}), "
            f"but got observations of shape {tuple(shape)}; check policy.model.obs_shape against the env"
        )
    if observations.is_floating_point():
        return observations
    return observations.to(next(model.parameters()).dtype)


def _entry_observation(x: Any) -> Tensor:
    if isinstance(x, Mapping):
        if "observation" not in x:
            raise KeyError(f"a dict observation needs the key 'observation'; it has {', '.join(map(str, x)) or 'none'}")
        x = x["observation"]
    observation: Tensor = x
    return observation
