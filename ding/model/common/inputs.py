"""Input handling of the model templates: shapes, and the check of a batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from numbers import Integral
from typing import Any

from torch import Tensor, nn

from ding.model.common.encoder import ObsShape
from ding.utils.default_helper import squeeze


def as_shape(shape: int | Sequence[int]) -> int | tuple[int, ...]:
    """Return a number for a number or a 1-D shape, otherwise a tuple."""
    squeezed: Any = squeeze(shape)
    return int(squeezed) if isinstance(squeezed, Integral) else tuple(squeezed)


def public_shape(shape: Any) -> Any:
    """Return a shape as models show it in their attributes: like `as_shape`, but with None and dicts unchanged."""
    return shape if shape is None or isinstance(shape, Mapping) else as_shape(shape)


def as_obs_shape(shape: ObsShape) -> ObsShape:
    """Return the shape as a tuple, (N,) for a number; for dict observations a dict of tuples."""
    if isinstance(shape, Mapping):
        return {name: as_obs_shape(entry) for name, entry in shape.items()}
    squeezed = as_shape(shape)
    return (squeezed,) if isinstance(squeezed, int) else squeezed


def observations_of(x: Any, obs_shape: ObsShape, model: nn.Module, path: str = "") -> Any:
    """Return the observations [*B, *obs_shape] in `x` in floating point.

    They are `x` itself, or its entry `observation` if `x` is a dict, also for dict observations. Integers
    are converted to the dtype of the first parameter of `model`. Observations of shape (1,) may be numbers, [B].

    Args:
        obs_shape: a tuple; for dict observations a dict of tuples, whose keys are read from `x`.
        path: the place of `obs_shape` within that of the model, for error messages.

    Raises:
        KeyError: a dict lacks `observation`, or an entry of `obs_shape`.
        TypeError: the observations are tuples.
        ValueError: the observations have another shape, or are images that are not [B, C, H, W].
    """
    if isinstance(obs_shape, Mapping):
        return _entries(x, obs_shape, model, path)
    observations = x if isinstance(x, Tensor) else _entry_observation(x)
    if obs_shape == (1,) and observations.dim() == 1:
        observations = observations.unsqueeze(-1)
    wanted: Any = obs_shape
    shape, rank = observations.shape, len(wanted)
    if shape[-rank:] != wanted or (rank == 3 and len(shape) != 4):
        raise ValueError(
            f"the model was made for obs_shape{path} {wanted}, that is batches (B, {', '.join(map(str, wanted))})"
            f", but got observations of shape {tuple(shape)}; check policy.model.obs_shape against the env"
        )
    if observations.is_floating_point():
        return observations
    return observations.to(next(model.parameters()).dtype)


def _entries(x: Any, obs_shape: Mapping[str, Any], model: nn.Module, path: str) -> dict[str, Any]:
    if not path and isinstance(x, Mapping) and "observation" in x and "observation" not in obs_shape:
        x = x["observation"]
    if not isinstance(x, Mapping) or obs_shape.keys() - x.keys():
        found = f"the entries {', '.join(map(str, x))}" if isinstance(x, Mapping) else type(x).__name__
        raise KeyError(
            f"obs_shape{path} has the entries {', '.join(obs_shape)}, but the observation has {found}; check "
            "policy.model.obs_shape against the env"
        )
    entries: dict[str, Any] = {}
    for name, shape in obs_shape.items():
        entry = x[name]
        if shape == (1,) and entry.dim() > 1 and entry.shape[-1] != 1:
            entry = entry.unsqueeze(-1)  # in a batch of dicts, entries [1] are [B]
        entries[name] = observations_of(entry, shape, model, f"{path}[{name!r}]")
    return entries


def _entry_observation(x: Any) -> Tensor:
    if isinstance(x, Mapping):
        if "observation" not in x:
            raise KeyError(f"a dict observation needs the key 'observation'; it has {', '.join(map(str, x)) or 'none'}")
        x = x["observation"]
    if not isinstance(x, Tensor):
        raise TypeError(
            f"the model takes observations as one tensor or a dict of tensors, not as a {_described(x)}; let the env "
            "return an array, or a dict with policy.model.obs_shape as a dict of shapes, or pass a model of your own"
        )
    return x


def _described(x: Any) -> str:
    return f"tuple of {len(x)} parts" if isinstance(x, list | tuple) else type(x).__name__
