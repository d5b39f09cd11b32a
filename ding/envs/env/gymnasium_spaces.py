"""Conversion between this package's conventions (arrays, float32, actions in [-1, 1]) and the spaces of gym(nasium)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
import torch

from ding.envs.common.common_function import affine_transform
from ding.envs.common.gym_compat import (
    entries_of,
    first_choice,
    gymnasium_space,
    is_gymnasium_env,
    map_space,
    members_of,
    space_kind,
)
from ding.envs.env.base_env import EnvOutputError
from ding.utils.config_helper import ConfigError
from ding.utils.data.nested import is_container, is_mapping, is_treetensor, leaves, map_leaves, parts_of, rebuilt
from ding.utils.log_helper import in_one_line

_FLOAT64 = np.dtype(np.float64)
_INT64 = np.dtype(np.int64)
ActionAdapter = Callable[[Any], Any]


def as_observation(obs: Any) -> Any:
    """Return `obs` with arrays for numbers and float32 for float64; dicts and tuples keep their form."""
    if isinstance(obs, (np.ndarray, bool, int, float, np.generic)):
        array = np.asarray(obs)
        return to_float32(array) if array.dtype == _FLOAT64 else array
    if is_mapping(obs) or type(obs) is tuple:  # named tuples such as GraphInstance stay what they are
        return rebuilt(obs, [as_observation(part) for _, part in parts_of(obs)])
    return obs


def checked_observation(obs: Any, space: Any, env: Any, path: str = "", is_strict: bool = True) -> Any:
    """Return `obs` in the form of its `space`: arrays of its kind of numbers, float32 for float64, tuples for lists.

    Tensors and what is for other spaces, such as texts, pass; so do bounds that are exceeded.

    Args:
        env: what the error names.
        is_strict: whether another structure or shape is an error; wrappers of gym often leave the space as it was.

    Raises:
        EnvOutputError: the structure, a shape or a kind of numbers is another than that of `space`.
    """
    kind, fitted = space_kind(space), None
    if kind in ("Dict", "Tuple"):
        parts, members = dict(parts_of(obs)), members_of(space)
        is_complete = members.keys() <= parts.keys() if kind == "Dict" else members.keys() == parts.keys()
        if is_complete and is_mapping(obs) is (kind == "Dict"):
            found = {
                key: checked_observation(part, members.get(key), env, f"{path}[{key!r}]", is_strict)
                for key, part in parts.items()
            }
            return found if kind == "Dict" else tuple(found.values())
        fitted = None if is_strict else as_observation(obs)
    elif kind in ("Box", "Discrete", "MultiDiscrete", "MultiBinary") and not isinstance(obs, torch.Tensor):
        fitted = _array_in(space, obs, is_strict)
    else:
        return as_observation(obs)
    if fitted is None:
        form = f"of the shape {obs.shape} and dtype {obs.dtype}" if isinstance(obs, np.ndarray) else in_one_line(obs)
        raise EnvOutputError(f"{env}: the observation{path} is {form}; the env shows {in_one_line(space)}")
    return fitted


def _array_in(space: Any, obs: Any, is_strict: bool) -> np.ndarray | None:
    """Return `obs` as an array of the kind of numbers of `space`, and of its shape if `is_strict`, else None."""
    try:
        array = np.asarray(obs)
    except ValueError:  # a ragged list
        return None
    if array.dtype.kind not in "biuf":
        return None
    if np.dtype(space.dtype).kind == "f":
        array = array if array.dtype.kind == "f" and array.dtype != _FLOAT64 else to_float32(array)
    elif array.dtype.kind == "f" or isinstance(obs, (list, tuple)):
        with np.errstate(invalid="ignore"):
            converted = array.astype(space.dtype)
        if np.array_equal(converted, array):
            array = converted
        elif is_strict:
            return None
        else:
            array = to_float32(array)
    if array.shape == space.shape or (space.shape == () and array.shape == (1,)):
        return array
    if array.size == np.prod(space.shape) and (array.ndim == 0 or not is_strict):
        array = array.reshape(space.shape)
    elif is_strict:
        return None
    return array


def to_float32(array: np.ndarray) -> np.ndarray:
    """Return an array as float32; numbers beyond its range become infinite without a warning."""
    with np.errstate(over="ignore"):
        return array.astype(np.float32, copy=False)


def as_arrays(action: Any) -> Any:
    """Return `action` with an array of one element for each integer; dicts and tuples keep their form."""
    return map_leaves(lambda part: np.array([part]) if isinstance(part, (int, np.integer)) else part, action)


def one_float(reward: Any) -> float:
    """Return `reward`, a number or an array of one number, as a float.

    Raises:
        EnvOutputError: it is something else.
    """
    array = np.asarray(reward)
    if array.size != 1 or array.dtype.kind not in "iubf":
        raise EnvOutputError(f"the environment returned the reward {in_one_line(reward)}; it must be one number")
    return float(array.item())


def reward_space_of(env: Any) -> Any:
    """Return the `reward_space` of `env`, or a Box [1] within its `reward_range`; unbounded where it has neither."""
    from gymnasium.spaces import Box

    own = _attribute(env, "reward_space")
    if own is not None:
        return gymnasium_space(own)
    low, high = _attribute(env, "reward_range") or (-np.inf, np.inf)
    return Box(np.float32(low), np.float32(high), (1,), np.float32)


def _attribute(env: Any, name: str) -> Any:
    if is_gymnasium_env(env):  # whose wrappers do not hand attributes on
        return env.get_wrapper_attr(name) if env.has_wrapper_attr(name) else None
    return getattr(env, name, None)


def float32_space(space: Any) -> Any:
    """Return `space` with each float64 Box in it replaced by a float32 one; bounds beyond its range are infinite."""

    def in_float32(part: Any) -> Any:
        if space_kind(part) != "Box" or part.dtype != _FLOAT64:
            return part
        return type(part)(to_float32(part.low), to_float32(part.high), dtype=np.float32)

    return map_space(in_float32, space)


def policy_space(space: Any, act_scale: bool = False, act_bins: int | None = None) -> Any:
    """Return the space of what `action_adapter` takes."""
    from gymnasium import spaces

    if act_bins is not None:
        return spaces.MultiDiscrete([act_bins] * bin_values(space, act_bins).shape[1])

    def of_policy(part: Any) -> Any:
        if act_scale and _is_real_box(part):
            return spaces.Box(-1.0, 1.0, part.shape, np.float32)
        if not np.any(first_choice(part)):
            return part
        is_one = space_kind(part) == "Discrete"
        return spaces.Discrete(int(part.n)) if is_one else spaces.MultiDiscrete(part.nvec, dtype=part.dtype)

    return map_space(of_policy, space)


def bin_values(space: Any, bins: int) -> np.ndarray:
    """Return the values that `bins` choices stand for, [bins, D]: evenly spaced in each dimension, bounds included.

    Raises:
        ConfigError: the space is no real-valued Box with finite bounds.
    """
    _require_bounds(f"act_bins = {bins}", space)
    values: np.ndarray = np.linspace(space.low, space.high, bins).astype(space.dtype)
    return values.reshape(bins, -1)


def action_adapter(space: Any, act_scale: bool, act_bins: int | None = None) -> ActionAdapter:
    """Return a function that turns what policies return into a member of `space`, in the form its environment expects.

    Choices among actions come as numbers from 0, whatever the `start` of a Discrete or MultiDiscrete.

    Args:
        act_scale: actions for real-valued Boxes come in [-1, 1] and are mapped onto the bounds.
        act_bins: actions are the numbers of values, one for each dimension of a Box; see `bin_values`.

    Raises:
        ConfigError: `act_scale` or `act_bins` is set and a Box has no finite bounds. The function itself raises
            ValueError or TypeError for an action that does not fit.
    """
    if act_bins is not None:
        values = bin_values(space, act_bins)
        choices, dimensions = _multi_adapter(policy_space(space, False, act_bins)), np.arange(values.shape[1])
        return lambda action: values[choices(action), dimensions].reshape(space.shape)
    match space_kind(space):
        case "Discrete":
            return _discrete_adapter(space)
        case "Box":
            scale = action_scaler(space, act_scale)
            return lambda action: _array_of(action, space) if scale is None else scale(_array_of(action, space))
        case "MultiDiscrete" | "MultiBinary":
            return _multi_adapter(space)
        case "Dict" | "Tuple":
            members = members_of(space).items()
            return _nested_adapter(space, {key: action_adapter(member, act_scale) for key, member in members})
    return lambda action: action


def _is_real_box(space: Any) -> bool:
    return space_kind(space) == "Box" and np.issubdtype(space.dtype, np.floating)


def is_bounded(space: Any) -> bool:
    """Return whether `space` is a Box with finite bounds; the largest numbers of its dtype stand for none."""
    if space_kind(space) != "Box" or not space.is_bounded():
        return False
    with np.errstate(over="ignore"):
        return not _is_real_box(space) or bool(np.all(space.high - space.low < np.finfo(space.dtype).max))


def _require_bounds(setting: str, space: Any) -> None:
    if not (_is_real_box(space) and is_bounded(space)):
        raise ConfigError(
            f"{setting} needs a real-valued action space with finite bounds; this one is {space}: leave it out, or "
            "wrap the env, so that its action_space has bounds"
        )


def _discrete_adapter(space: Any) -> ActionAdapter:
    first, count = int(space.start), int(space.n)

    def adapt(action: Any) -> Any:
        array = np.asarray(action)
        if array.size != 1 or array.dtype.kind not in "iub":
            raise TypeError(f"action {action!r} does not fit the action space {space}; give one integer")
        value = int(array.item())
        if 0 <= value < count:
            return space.dtype.type(value + first)  # members of another type are none of some spaces
        raise ValueError(f"action {action!r} is outside of the action space {policy_space(space)}: [0, {count - 1}]")

    return adapt


def _array_of(action: Any, space: Any) -> np.ndarray:
    """Return `action` as an array of the dtype and shape of `space`, reshaped if only the number of elements fits."""
    array = np.asarray(action)
    is_number = array.dtype.kind in "iub" or (array.dtype.kind == "f" and np.issubdtype(space.dtype, np.floating))
    if not is_number:
        raise TypeError(f"action {action!r} (dtype {array.dtype}) does not fit the action space {space}")
    if array.shape != space.shape:
        if array.size != int(np.prod(space.shape)):
            raise ValueError(f"action {action!r} has shape {array.shape}; the action space is {space}")
        array = array.reshape(space.shape)
    return array.astype(space.dtype, copy=False)


def action_scaler(space: Any, act_scale: bool) -> ActionAdapter | None:
    """Return a function that maps actions [*B, *shape] in [-1, 1] onto the bounds of a real-valued Box, else None.

    Raises:
        ConfigError: a real-valued Box has no finite bounds.
    """
    if not (act_scale and _is_real_box(space)):
        return None
    _require_bounds("act_scale = True", space)
    return partial(affine_transform, min_val=space.low, max_val=space.high)


def _multi_adapter(space: Any) -> ActionAdapter:
    own, first = policy_space(space), first_choice(space)

    def adapt(action: Any) -> np.ndarray:
        array = _array_of(action, own)
        if not own.contains(array):
            raise ValueError(f"action {action!r} is outside of the action space {own}")
        return array if own is space else array + first

    return adapt


def _nested_adapter(space: Any, adapters: Mapping[Any, ActionAdapter]) -> ActionAdapter:
    is_dict = space_kind(space) == "Dict"

    def adapt(action: Any) -> Any:
        if is_treetensor(type(action)):
            action = action.json()
        parts = dict(parts_of(action) if is_container(action) else enumerate(np.atleast_1d(action)))
        if parts.keys() != adapters.keys() or is_mapping(action) is not is_dict:
            raise ValueError(f"action {action!r} must have one member for each of the action space {space}")
        adapted = {key: adapter(parts[key]) for key, adapter in adapters.items()}
        return adapted if is_dict else tuple(adapted.values())

    return adapt


def channels_first(env: Any) -> Any:
    """Wrap an env with images [H, W, C] so that it shows them as [C, H, W], as encoders take them.

    Of a dict of observations, this applies to the entries whose last axis has 1, 3 or 4 channels.

    Example:
        >>> import gymnasium
        >>> env = gymnasium.make("CartPole-v1", render_mode="rgb_array")
        >>> pixels = gymnasium.wrappers.AddRenderObservation(env)  # doctest: +SKIP
        >>> channels_first(pixels).observation_space.shape  # doctest: +SKIP
        (3, 400, 600)
    """
    from gymnasium.wrappers import TransformObservation

    space = env.observation_space
    if entries_of(space) is None:
        turned = _with_channels_first(space)
    else:
        turned = map_space(lambda part: _with_channels_first(part) if has_channels_last(part) else part, space)
    return TransformObservation(env, lambda obs: turn_images(obs, space), turned)


def flat_actions(env: Any) -> Any:
    """Wrap an env with real-valued actions [A, B, ...] so that it takes vectors, as policies choose them."""
    from gymnasium.wrappers import TransformAction

    shaped = env.action_space
    space = type(shaped)(shaped.low.ravel(), shaped.high.ravel(), dtype=shaped.dtype)
    return TransformAction(env, lambda action: np.reshape(action, shaped.shape), space)


def turn_images(obs: Any, space: Any, is_entry: bool = False) -> Any:
    """Return an observation of `space`, or a batch of them, as `channels_first` shows it.

    Args:
        obs: arrays or tensors [..., H, W, C], or dicts of them.
        is_entry: whether it is an entry of a dict.
    """
    members = entries_of(space)
    if members is not None:
        return {key: turn_images(part, members[key], True) if key in members else part for key, part in obs.items()}
    if is_entry and not has_channels_last(space):
        return obs
    if isinstance(obs, torch.Tensor):
        return obs.movedim(obs.ndim - 1, obs.ndim - 3)  # ONNX takes no negative axes
    return np.ascontiguousarray(np.moveaxis(obs, -1, -3))


def has_channels_last(space: Any) -> bool:
    """Return whether a space looks like images [H, W, C] with 1, 3 or 4 channels."""
    shape: tuple[int, ...] = space.shape if space_kind(space) == "Box" else ()
    return len(shape) == 3 and shape[2] in (1, 3, 4) and shape[0] not in (1, 2, 3, 4)


def _with_channels_first(space: Any) -> Any:
    low, high = (np.moveaxis(bound, -1, 0) for bound in (space.low, space.high))
    return type(space)(low, high, dtype=space.dtype)


def fitted_observation(obs: Any, space: Any, is_batch: bool = False) -> Any:
    """Return an observation as `checked_observation` does, without further entries.

    Args:
        is_batch: whether all arrays have an axis in front, [B, *shape].

    Raises:
        ValueError: an entry is missing, or has another shape or kind of numbers than the space.
    """
    from gymnasium.vector.utils import batch_space

    members = entries_of(space)
    if members is not None and is_mapping(obs):
        obs = {key: part for key, part in obs.items() if key in members}
    if is_batch:
        space = batch_space(space, len(np.atleast_1d(next(leaves(obs), 0))))
    return checked_observation(obs, space, "predict()")
