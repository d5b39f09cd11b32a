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


def check_observations(x: Tensor, obs_shape: tuple[int, ...]) -> None:
    """Refuse observations that are not [*B, *obs_shape], or images that are not [B, C, H, W].

    Raises:
        ValueError: with both shapes in its message.
    """
    rank = len(obs_shape)
    if tuple(x.shape[-rank:]) != obs_shape or (rank == 3 and x.ndim != 4):
        raise ValueError(
            f"the model was made for obs_shape {obs_shape}, that is batches (B, {', '.join(map(str, obs_shape))}), "
            f"but got observations of shape {tuple(x.shape)}; check policy.model.obs_shape against the env"
        )


def observation_of(x: Mapping[str, Any]) -> Tensor:
    """The entry `observation` of a dict observation.

    Raises:
        KeyError: there is none.
    """
    if "observation" not in x:
        raise KeyError(f"a dict observation needs the key 'observation'; it has {', '.join(map(str, x)) or 'none'}")
    observation: Tensor = x["observation"]
    return observation
