"""Envs with goals, as gymnasium-robotics defines them: the reward and the end of a step for any goal."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ding.utils.config_helper import ConfigError
from ding.utils.log_helper import in_one_line, shown

ACHIEVED, DESIRED = "achieved_goal", "desired_goal"
GOAL_KEYS = frozenset(("observation", ACHIEVED, DESIRED))

_ROWS = 7  # of a batch that shows whether a function takes batches; seldom the number of entries of a goal


class GoalFunctions:
    """The functions `compute_reward` and `compute_terminated` of an env with goals, for batches of goals.

    A function that does not take batches is called for each row. Both are called with an empty info.

    Args:
        env: a `BaseEnv`, which is reset. It, or the env without wrappers in it, has
            `compute_reward(achieved_goal, desired_goal, info)` and may have `compute_terminated`.

    Raises:
        ConfigError: observations are not dicts of `observation`, `achieved_goal` and `desired_goal`, or there is no
            `compute_reward`.
    """

    def __init__(self, env: Any) -> None:
        first = env.reset()
        if not isinstance(first, Mapping) or not first.keys() >= GOAL_KEYS or isinstance(first[ACHIEVED], Mapping):
            raise ConfigError(
                "her needs an env whose observations are dicts of observation, achieved_goal and desired_goal, the "
                f"goals being arrays; {shown(env)} shows {in_one_line(first)}"
            )
        owner: Any = env if hasattr(env, "compute_reward") else getattr(env, "unwrapped", None)
        if not hasattr(owner, "compute_reward"):
            raise ConfigError(
                f"her needs an env with compute_reward(achieved_goal, desired_goal, info), which {shown(env)} lacks; "
                "define it, as gymnasium-robotics does"
            )
        achieved, desired = (np.stack([np.asarray(first[key])] * _ROWS) for key in (ACHIEVED, DESIRED))
        self._reward = _for_batches(owner.compute_reward, achieved, desired)
        terminates = getattr(owner, "compute_terminated", None)
        self._terminated = None if terminates is None else _for_batches(terminates, achieved, desired)

    def reward(self, achieved: np.ndarray, desired: np.ndarray) -> np.ndarray:
        """Return the rewards [n] of steps after which the goals `achieved` [n, ...] are reached."""
        return self._reward(achieved, desired).astype(np.float32)

    def terminated(self, achieved: np.ndarray, desired: np.ndarray) -> np.ndarray | None:
        """Return whether these steps end their episodes, bool [n]; None if the env does not say so."""
        return None if self._terminated is None else self._terminated(achieved, desired).astype(np.bool_)


_OfGoals = Callable[[np.ndarray, np.ndarray], np.ndarray]


def _for_batches(function: Callable[..., Any], achieved: np.ndarray, desired: np.ndarray) -> _OfGoals:
    """Return a function of batches of goals, which calls `function` once if that takes batches, as of these goals."""

    def of_batch(achieved: np.ndarray, desired: np.ndarray) -> np.ndarray:
        return np.asarray(function(achieved, desired, {})).reshape(len(achieved))

    def of_rows(achieved: np.ndarray, desired: np.ndarray) -> np.ndarray:
        pairs = zip(achieved, desired, strict=True)
        rewards = [float(np.mean(function(reached, wanted, {}))) for reached, wanted in pairs]
        return np.array(rewards).reshape(len(achieved))

    try:
        of_batch(achieved, desired)
    except (TypeError, ValueError, IndexError):  # it returns one value, or takes only one goal
        return of_rows
    return of_batch
