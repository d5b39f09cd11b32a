"""Conversion between this package's conventions (arrays, float32, actions in [-1, 1]) and the spaces of gym(nasium)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch

from ding.envs.common.common_function import affine_transform
from ding.envs.common.gym_compat import (
    entries_of,
    first_choice,
    is_gymnasium_env,
    map_space,
    members_of,
    space_kind,
    spaces_like,
)
from ding.envs.env.base_env import EnvOutputError
from ding.utils.config_helper import ConfigError
from ding.utils.data.nested import is_mapping, is_treetensor, map_leaves, parts_of, rebuilt
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


def checked_observation(obs: Any, space: Any, env: Any, path: str = "") -> Any:
    """Return `obs` in the form of its `space`: arrays for numbers and lists, float32 for float64, tuples for lists.

    Tensors and what is for other spaces, such as texts, pass; so do bounds that are exceeded.

    Args:
        env: what the error names.

    Raises:
        EnvOutputError: the structure, a shape or a dtype is another than that of `space`.
    """
    kind = space_kind(space)
    if kind == "Dict":
        if not is_mapping(obs) or not space.spaces.keys() <= obs.keys():
            raise _misfit(obs, f"a dict with the keys {list(space.spaces)}", env, path)
        return {
            key: checked_observation(value, space[key], env, f"{path}[{key!r}]")
            if key in space.spaces
            else as_observation(value)
            for key, value in obs.items()
        }
    if kind == "Tuple":
        if not isinstance(obs, (tuple, list)) or len(obs) != len(space.spaces):
            raise _misfit(obs, f"a tuple of {len(space.spaces)} members", env, path)
        members = enumerate(zip(obs, space.spaces, strict=True))
        return tuple(checked_observation(part, member, env, f"{path}[{i}]") for i, (part, member) in members)
    if kind not in ("Box", "Discrete", "MultiDiscrete", "MultiBinary") or isinstance(obs, torch.Tensor):
        return as_observation(obs)
    array = _array_in(space, obs)
    if array is None:
        raise _misfit(obs, _wanted(space), env, path)
    return array


def _wanted(space: Any) -> str:
    return f"an array of the shape {space.shape} and dtype {space.dtype}"


def _array_in(space: Any, obs: Any) -> np.ndarray | None:
    """Return `obs` as an array of the shape and kind of numbers of `space`; None if it is none."""
    array = _numbers(obs)
    if array is None:
        return None
    is_real = np.dtype(space.dtype).kind == "f"
    if isinstance(obs, (list, tuple)) or (array.dtype.kind == "f" and not is_real):
        with np.errstate(invalid="ignore"):
            converted = to_float32(array) if is_real else array.astype(space.dtype)
        if (array.dtype.kind != "f" or not is_real) and not np.array_equal(converted, array):
            return None
        array = converted
    elif array.dtype == _FLOAT64:
        array = to_float32(array)
    if array.shape == space.shape or (space_kind(space) == "Discrete" and array.shape == (1,)):
        return array
    return array.reshape(space.shape) if array.ndim == 0 and np.prod(space.shape) == 1 else None


def _numbers(obs: Any) -> np.ndarray | None:
    """Return `obs` as an array of numbers; None if it is none."""
    try:
        array = np.asarray(obs)
    except ValueError:  # a ragged list
        return None
    return array if array.dtype.kind in "biuf" else None


def _misfit(obs: Any, wanted: str, env: Any, path: str) -> EnvOutputError:
    found = f"of the shape {obs.shape} and dtype {obs.dtype}" if isinstance(obs, np.ndarray) else in_one_line(obs)
    return EnvOutputError(f"{env!r} returned an observation{path} {found}; its space wants {wanted}")


def to_float32(array: np.ndarray) -> np.ndarray:
    """Return an array as float32; numbers beyond its range become infinite without a warning."""
    with np.errstate(over="ignore"):
        return array.astype(np.float32, copy=False)


def fit_observation(obs: Any, space: Any, env: Any) -> Any:
    """Return `obs` as arrays; those for a Box have its shape, and are float32 where it or the array is real-valued.

    Unlike `checked_observation` it lets other shapes pass: wrappers of gym often leave the space as it was.

    Raises:
        EnvOutputError: what is for a Box is no array of numbers.
    """
    kind = space_kind(space)
    if kind == "Dict" and is_mapping(obs):
        spaces = space.spaces
        return {key: fit_observation(part, spaces[key], env) if key in spaces else part for key, part in obs.items()}
    if kind == "Tuple" and isinstance(obs, tuple) and len(obs) == len(space.spaces):
        return tuple(fit_observation(part, member, env) for part, member in zip(obs, space.spaces, strict=True))
    if kind != "Box":
        return as_observation(obs)
    array = _numbers(obs)
    if array is None:
        raise _misfit(obs, _wanted(space), env, "")
    if np.issubdtype(space.dtype, np.floating) or array.dtype == _FLOAT64:
        array = to_float32(array)
    return array.reshape(space.shape) if array.size == int(np.prod(space.shape)) else array


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
    own = _attribute(env, "reward_space")
    if own is not None:
        return own
    low, high = _attribute(env, "reward_range") or (-np.inf, np.inf)
    spaces = spaces_like(_attribute(env, "action_space"))
    return spaces.Box(np.float32(low), np.float32(high), (1,), np.float32)


def _attribute(env: Any, name: str) -> Any:
    if is_gymnasium_env(env):  # whose wrappers do not hand attributes on
        return env.get_wrapper_attr(name) if env.has_wrapper_attr(name) else None
    return getattr(env, name, None)


def float32_space(space: Any) -> Any:
    """Return `space` with each float64 Box in it replaced by a float32 one."""
    return map_space(_in_float32, space)


def _in_float32(space: Any) -> Any:
    if space_kind(space) != "Box" or space.dtype != _FLOAT64:
        return space
    # What float32 cannot hold is unbounded in it.
    return spaces_like(space).Box(to_float32(space.low), to_float32(space.high), dtype=np.float32)


def policy_space(space: Any, act_scale: bool = False, act_bins: int | None = None) -> Any:
    """Return the space of what `action_adapter` takes."""
    if act_bins is not None:
        values = bin_values(space, act_bins)
        return spaces_like(space).MultiDiscrete([act_bins] * values.shape[1])
    return map_space(lambda part: _of_policy(part, act_scale), space)


def _of_policy(space: Any, act_scale: bool) -> Any:
    spaces = spaces_like(space)
    if act_scale and _is_real_box(space):
        return spaces.Box(-1.0, 1.0, space.shape, np.float32)
    if not np.any(first_choice(space)):
        return space
    if space_kind(space) == "Discrete":
        return spaces.Discrete(int(space.n))
    return spaces.MultiDiscrete(space.nvec, dtype=space.dtype)


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
        return _bin_adapter(space, act_bins)
    match space_kind(space):
        case "Discrete":
            return _discrete_adapter(space)
        case "Box":
            return _box_adapter(space, act_scale)
        case "MultiDiscrete" | "MultiBinary":
            return _multi_adapter(space)
        case "Dict":
            return _dict_adapter(space, {key: action_adapter(value, act_scale) for key, value in space.items()})
        case "Tuple":
            return _tuple_adapter(space, [action_adapter(value, act_scale) for value in space])
    return lambda action: action


def _is_real_box(space: Any) -> bool:
    return space_kind(space) == "Box" and space.dtype is not None and np.issubdtype(space.dtype, np.floating)


def is_bounded(space: Any) -> bool:
    """Return whether `space` is a Box with finite bounds; the largest numbers of its dtype stand for none."""
    if space_kind(space) != "Box" or not space.is_bounded():
        return False
    if space.dtype.kind != "f":
        return True
    with np.errstate(over="ignore"):
        width = space.high - space.low
    largest = np.finfo(space.dtype).max
    return bool(np.all(np.isfinite(width) & (space.low > -largest) & (space.high < largest)))


def _require_bounds(setting: str, space: Any) -> None:
    if not (_is_real_box(space) and is_bounded(space)):
        raise ConfigError(
            f"{setting} needs a real-valued action space with finite bounds; this one is {space}: leave it out, or "
            "wrap the env, so that its action_space has bounds"
        )


def _discrete_adapter(space: Any) -> ActionAdapter:
    first, count = int(space.start), int(space.n)
    own = None if space.dtype == _INT64 else space.dtype.type  # members of another type are none of the space

    def adapt(action: Any) -> Any:
        # What policies return is an int64 array of one element; its element is of the type that the space samples.
        if type(action) is np.ndarray and action.dtype is _INT64 and action.shape == (1,):
            value = action[0]
        else:
            value = action if type(action) is int else _whole_number(action, space)
        if 0 <= value < count:
            chosen = value + first if first else value
            return chosen if own is None else own(chosen)
        raise ValueError(f"action {action!r} is outside of the action space {policy_space(space)}: [0, {count - 1}]")

    return adapt


def _whole_number(action: Any, space: Any) -> int:
    array = action if isinstance(action, np.ndarray) else np.asarray(action)
    if array.size == 1 and array.dtype.kind in "iub":
        return int(array.item())
    raise TypeError(f"action {action!r} does not fit the action space {space}; give one integer (int or integer array)")


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


def _box_adapter(space: Any, act_scale: bool) -> ActionAdapter:
    scale = action_scaler(space, act_scale)
    if scale is None:
        return lambda action: _array_of(action, space)
    return lambda action: scale(_array_of(action, space))


def _bin_adapter(space: Any, bins: int) -> ActionAdapter:
    values = bin_values(space, bins)
    choices, dimensions = _multi_adapter(policy_space(space, False, bins)), np.arange(values.shape[1])

    def adapt(action: Any) -> np.ndarray:
        chosen: np.ndarray = values[choices(action), dimensions].reshape(space.shape)
        return chosen

    return adapt


def _multi_adapter(space: Any) -> ActionAdapter:
    own, first = policy_space(space), first_choice(space)

    def adapt(action: Any) -> np.ndarray:
        array = _array_of(action, own)
        if not own.contains(array):
            raise ValueError(f"action {action!r} is outside of the action space {own}")
        return array if own is space else array + first

    return adapt


def _dict_adapter(space: Any, adapters: dict[str, ActionAdapter]) -> ActionAdapter:
    def adapt(action: Any) -> dict[str, Any]:
        if is_treetensor(type(action)):
            action = action.json()
        if not is_mapping(action) or action.keys() != adapters.keys():
            raise ValueError(f"action {action!r} must be a dict with the keys of the action space {space}")
        return {key: adapter(action[key]) for key, adapter in adapters.items()}

    return adapt


def _tuple_adapter(space: Any, adapters: list[ActionAdapter]) -> ActionAdapter:
    def adapt(action: Any) -> tuple[Any, ...]:
        try:
            pairs = list(zip(adapters, action, strict=True))
        except (TypeError, ValueError) as e:
            raise ValueError(f"action {action!r} must have one member for each of the action space {space}") from e
        return tuple(adapter(member) for adapter, member in pairs)

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
    # A dict space sorts its entries; those of an observation follow it.
    turned = map_space(_turned_space, space) if entries_of(space) is not None else _with_channels_first(space)
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


def _turned_space(space: Any) -> Any:
    return _with_channels_first(space) if has_channels_last(space) else space


def _with_channels_first(space: Any) -> Any:
    low, high = (np.moveaxis(bound, -1, 0) for bound in (space.low, space.high))
    return type(space)(low, high, dtype=space.dtype)


def fitted_observation(obs: Any, space: Any, is_batch: bool = False, path: str = "the observation") -> Any:
    """Return an observation as arrays of the dtypes of `space`, float32 for float64, without further entries.

    Args:
        is_batch: whether all arrays have an axis in front, [B, *shape].

    Raises:
        ValueError: an entry is missing, or has another shape or kind of numbers than the space.
    """
    members = members_of(space) if space_kind(space) in ("Dict", "Tuple") else None
    if members is not None:
        parts = dict(parts_of(obs))
        if missing := [key for key in members if key not in parts]:
            raise ValueError(f"{path} lacks {missing}; the env shows {space}")
        fitted = [
            fitted_observation(parts[key], member, is_batch, f"{path}[{key!r}]") for key, member in members.items()
        ]
        return dict(zip(members, fitted, strict=True)) if space_kind(space) == "Dict" else tuple(fitted)
    shape, dtype = getattr(space, "shape", None), np.dtype(getattr(space, "dtype", None) or np.float32)
    if shape is None:
        return as_observation(obs)
    array = np.asarray(obs)
    is_fit = array.ndim - is_batch == len(shape) and array.shape[int(is_batch) :] == tuple(shape)
    if not is_fit or array.dtype.kind not in ("iubf" if dtype.kind == "f" else "iub"):
        raise ValueError(
            f"{path} has shape {array.shape} and dtype {array.dtype}; the env shows {dtype} of shape {tuple(shape)}, "
            "or a batch with one axis in front"
        )
    return as_observation(array if array.dtype.kind == dtype.kind else array.astype(dtype))
