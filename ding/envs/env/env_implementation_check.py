"""Checks of an environment's implementation: each raises an error that states the mistake and how to correct it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ding.envs.common.gym_compat import bounds_of, has_members, members_of, sample_legal, space_kind
from ding.envs.env.base_env import BaseEnv
from ding.envs.env.gymnasium_spaces import as_arrays
from ding.utils.action_mask import action_mask_of
from ding.utils.data.nested import all_finite, is_container, parts_of
from ding.utils.log_helper import in_one_line

_logger = logging.getLogger("ding")
_EPISODES = 3
_MAX_STEPS = 30_000  # the longest episodes of Atari have 27,000


def check_space_dtype(env: Any) -> None:
    """Check the dtypes of the three spaces: float32 for real numbers, int64 for integers, or uint8 for images.

    Raises:
        AssertionError: a space has another dtype.
    """
    env.reset()
    for name in ("observation_space", "action_space", "reward_space"):
        _check_dtype(name, getattr(env, name))


def check_array_space(ndarray: Any, space: Any, name: str) -> bool:
    """Check that `ndarray`, which errors call `name`, is in `space` by dtype, shape and bounds; return True.

    Arrays are checked against Box, Discrete (one integer, [] or [1]), MultiDiscrete and MultiBinary spaces; sequences
    against a tuple or list of spaces and dicts against a dict of them, member by member.

    Raises:
        AssertionError: it is not in `space`.
        TypeError: data of this type cannot be checked.
    """
    if isinstance(ndarray, np.ndarray):
        _check_one_array(ndarray, space, name)
    elif is_container(ndarray):
        members, parts = members_of(space), dict(parts_of(ndarray))
        _require(parts.keys() == members.keys(), f"{name} has the members {[*parts]}, its space {[*members]}")
        for key, value in parts.items():
            check_array_space(value, members[key], f"{name}[{key!r}]")
    else:
        raise TypeError(
            f"{name} is {in_one_line(ndarray)}, of type {type(ndarray).__name__}; return arrays, or dicts or "
            "lists of them"
        )
    return True


def check_reset(env: Any) -> None:
    """Check that the observation of `reset` is in the observation space.

    Raises:
        AssertionError, TypeError: it is not.
    """
    check_array_space(env.reset(), env.observation_space, "the observation of reset()")


def check_step(env: Any) -> None:
    """Check that observations and rewards are in their spaces, over three episodes of one random action or legal ones.

    Raises:
        AssertionError: they are not; the last `info` of an episode lacks `eval_episode_return`; an episode has no end.
        TypeError: the observation is neither an array nor a dict or list of arrays.
    """
    action = env.random_action()
    for _ in range(_EPISODES):
        for timestep in _steps(env, env.reset(), lambda: action):
            check_array_space(timestep.obs, env.observation_space, "the observation of step()")
            check_array_space(timestep.reward, env.reward_space, "the reward of step()")


def check_different_memory(array1: Any, array2: Any, step_times: int) -> None:
    """Check that two observations, the later one of step `step_times`, have the same form and share no memory.

    Raises:
        AssertionError: they differ in type, length or keys, or share memory.
        TypeError: data of this type cannot be checked.
    """
    kinds = type(array1).__name__, type(array2).__name__
    _require(type(array1) is type(array2), f"observations at step {step_times} are of the types {kinds}; use one")
    if isinstance(array1, np.ndarray):
        problem = f"the observations before and after step {step_times} share memory; return a copy"
        _require(not np.shares_memory(array1, array2), problem)
    elif is_container(array1):
        parts, others = dict(parts_of(array1)), dict(parts_of(array2))
        _require(parts.keys() == others.keys(), f"observations at step {step_times} have other members than before")
        for key, part in parts.items():
            check_different_memory(part, others[key], step_times)
    else:
        raise TypeError(
            f"an observation at step {step_times} is of type {kinds[0]}; return arrays, or dicts or lists of them"
        )


def check_obs_deepcopy(env: BaseEnv) -> None:
    """Check that each observation of an episode of one random action has memory of its own.

    Raises:
        AssertionError: two in a row share memory or differ in form; the episode does not end.
        TypeError: the observation is neither an array nor a dict or list of arrays.
    """
    before = env.reset()
    action = env.random_action()
    for count, timestep in enumerate(_steps(env, before, lambda: action), 1):
        check_different_memory(before, timestep.obs, count)
        before = timestep.obs


def check_all(env: BaseEnv) -> None:
    """Run all checks, and log each.

    Raises:
        AssertionError, TypeError: as the checks do.
    """
    for check in (check_space_dtype, check_reset, check_step, check_obs_deepcopy):
        check(env)
        _logger.info("%r has passed %s", env, check.__name__)


def demonstrate_correct_procedure(env_fn: Callable[[dict[str, Any]], BaseEnv]) -> None:
    """Make an environment, seed it and play three episodes, in the order in which the workers do.

    Args:
        env_fn: takes a config, here an empty one, and returns the environment.

    Raises:
        AssertionError: the constructor does more than it should; the last `info` of an episode lacks
            `eval_episode_return`; an episode does not end.
    """
    env = env_fn({})
    _require(getattr(env, "_env", None) is None, f"{env!r} has its _env before reset(); make it in the first reset()")
    env.seed(4)
    for _ in range(_EPISODES):
        for _ in _steps(env, env.reset(), env.random_action):
            pass
    env.close()


def action_for(env: Any, obs: Any, act: Callable[[], Any]) -> Any:
    """Return a legal action if `obs` has an action mask, else the result of `act`."""
    return as_arrays(sample_legal(env.action_space, obs)) if action_mask_of(obs) is not None else act()


def _steps(env: BaseEnv, obs: Any, act: Callable[[], Any]) -> Any:
    """Yield the timesteps of an episode that has begun with `obs`; with an action mask, all actions are legal."""
    declared = getattr(getattr(getattr(env, "_env", None), "spec", None), "max_episode_steps", None)
    limit = max(_MAX_STEPS, declared or 0)
    for _ in range(limit):
        timestep = env.step(action_for(env, obs, act))
        wanted = "return a BaseEnvTimestep(obs, reward, done, info)"
        _require(hasattr(timestep, "done"), f"step() returned {timestep!r}; {wanted}")
        done, info = timestep.done, timestep.info
        _require(isinstance(done, bool), f"done is {done!r}; return a bool")
        _require(isinstance(info, Mapping), f"info is {info!r}; return a dict, which may be empty")
        wanted = "put the sum of the episode's rewards there"
        _require(not done or "eval_episode_return" in info, f"the last info lacks 'eval_episode_return'; {wanted}")
        yield timestep
        if done:
            return
        obs = timestep.obs
    raise AssertionError(f"an episode of {env!r} has not ended after {limit} steps; set a step limit")


def _check_dtype(path: str, space: Any) -> None:
    if has_members(space):
        for key, member in members_of(space).items():
            _check_dtype(f"{path}[{key!r}]", member)
        return
    dtype = getattr(space, "dtype", None)
    if dtype is not None and space_kind(space) != "MultiBinary":  # which has no choice
        wanted = {"f": np.float32, "i": np.int64, "u": np.uint8}.get(np.dtype(dtype).kind, dtype)
        _require(dtype == wanted, f"the dtype of {path} is {dtype}; it must be {np.dtype(wanted)}")


def _check_one_array(array: np.ndarray, space: Any, name: str) -> None:
    bounds = bounds_of(space)
    if bounds is None:
        raise TypeError(f"{name} is one array; there is no check against the space {space!r}")
    shapes = ((), (1,)) if space_kind(space) == "Discrete" else (space.shape,)
    _require(array.dtype == space.dtype, f"{name} has the dtype {array.dtype}, its space {space.dtype}")
    _require(array.shape in shapes, f"{name} has the shape {array.shape}, its space {space.shape}")
    found = in_one_line(array)
    if array.dtype.kind == "f":
        _require(all_finite(array), f"{name} has NaN or inf, which is refused in training: {found}")
    _require(bool(np.all(array >= bounds[0])), f"{name} falls below its space {space}: {found}")
    _require(bool(np.all(array <= bounds[1])), f"{name} exceeds its space {space}: {found}")


def _require(condition: bool, problem: str) -> None:
    if not condition:
        raise AssertionError(problem)
