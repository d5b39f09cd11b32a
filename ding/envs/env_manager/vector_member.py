"""The gymnasium side of `GymVectorEnvManager`: envs of this package as members of a `gymnasium.vector.AsyncVectorEnv`.

It imports gymnasium, so the manager imports it only when one is made.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, ClassVar

import gymnasium
import numpy as np
from gymnasium.vector import AsyncVectorEnv
from gymnasium.vector.utils import iterate

from ding.envs.env.gymnasium_spaces import as_observation
from ding.envs.env_manager.env_child import ChildPlan, EnvHost, Failure, encode, enter_child
from ding.utils.child_helper import without_secrets

try:
    from gymnasium.vector import AutoresetMode
except ImportError as e:  # gymnasium 1.0 steps an env that has ended once more, and cannot reset single envs
    raise ImportError(
        f"the env manager gym_vector needs gymnasium>=1.1, this is {gymnasium.__version__}: "
        "pip install -U 'gymnasium>=1.1'"
    ) from e

ANSWER = "answer"  # key of what a member returns besides its observation, in its info


class AnyAction(gymnasium.Space[Any]):
    """Holds everything: a batch of actions is a list with one for each env, None for an env that does not step."""

    def sample(self, mask: Any = None, probability: Any = None) -> Any:
        """None, the action of an env that does not step."""

    def contains(self, x: Any) -> bool:
        """True."""
        return True

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AnyAction)

    __hash__ = None  # type: ignore[assignment]


class Member(gymnasium.Env[Any, Any]):
    """An env of this package as a gymnasium env, which makes it in its own process on request.

    It never raises: it answers each request by `(True, result)` or `(False, Failure)`, as bytes. The other values that
    `reset` and `step` return are not used, except for the observation.
    """

    metadata: ClassVar[dict[str, Any]] = {"render_modes": []}  # type: ignore[misc]

    def __init__(self, plan: ChildPlan, observation_space: Any) -> None:
        self.observation_space = observation_space
        self.action_space = AnyAction()
        self._env_id = plan.env_id
        self._host = EnvHost(plan)
        self._obs: Any = None
        if os.getpid() != plan.parent_pid:  # else it only states the spaces
            enter_child(plan)

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode; `options["orders"][env_id]` is `(reset parameters, EnvSeed or None)`."""
        assert options is not None
        answer = self._answer("reset", options["orders"][self._env_id])
        return self._shown(), {ANSWER: answer}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Act once; None does nothing."""
        if action is None:
            return self._shown(), 0.0, False, False, {}
        answer = self._answer("step", (action, False, None))
        return self._shown(), 0.0, False, False, {ANSWER: answer}

    def request(self, orders: Mapping[int, tuple[str, tuple[Any, ...]]]) -> bytes | None:
        """Do what `orders` has for this env, `(method, arguments)`; None if it has nothing."""
        order = orders.get(self._env_id)
        return None if order is None else self._answer(*order)

    def close(self) -> None:
        """Close the env, if it is open."""
        env, self._host.env = self._host.env, None
        if env is not None:
            env.close()

    def _shown(self) -> Any:
        """The last observation; of an env that never returned one, any member of its space."""
        return self.observation_space.sample() if self._obs is None else self._obs

    def _answer(self, method: str, args: tuple[Any, ...]) -> bytes:
        try:
            value = self._host.perform(method, *args)
            if method == "reset":
                (_, self._obs), value = value, None
            elif method == "step":
                (_, self._obs), value = value
            return encode((True, value))
        except BaseException as e:
            return encode((False, Failure.of(e, self._host.failed)))


def open_vector(
    plans: Sequence[ChildPlan], observation_space: Any, context: str, shared_memory: bool, copy: bool
) -> AsyncVectorEnv[Any, Any]:
    """Start a process for each plan; their envs are made on request.

    Raises:
        ValueError: observations of this space cannot be in shared memory.
    """
    members: list[Any] = [partial(Member, plan, observation_space) for plan in plans]
    with warnings.catch_warnings(), without_secrets():
        # `fork` is a choice of the config; what could harm the child is undone in `enter_child`.
        warnings.filterwarnings("ignore", message=".*multi-threaded.*fork", category=DeprecationWarning)
        return AsyncVectorEnv(
            members, shared_memory, copy, context, observation_mode="same", autoreset_mode=AutoresetMode.DISABLED
        )


def rows_of(vector: AsyncVectorEnv[Any, Any], observations: Any) -> list[Any]:
    """The observation of each env in a batch."""
    if type(observations) is np.ndarray:
        return [observations[i, ...] for i in range(len(observations))]
    return [as_observation(row) for row in iterate(vector.observation_space, observations)]
