"""Envs that can be told in advance, for the tests of env managers."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from ding.envs import BaseEnv, BaseEnvTimestep


def states(manager: Any) -> list[str]:
    """The names of the states of the envs of a manager."""
    return [state.name for state in manager._env_states.values()]


class CountingEnv(BaseEnv):
    """Observations are [episode, step]; an episode has `length` steps.

    `on_reset(env)` and `on_step(env)` are called first and may raise or sleep. With `reuse` every observation is
    written into the same array.
    """

    observation_space = "obs space"
    reward_space = "reward space"

    def __init__(self, cfg: dict[str, Any]) -> None:
        self.action_space = cfg.get("action_space")
        self.length = cfg.get("length", 3)
        self.reuse = cfg.get("reuse", False)
        self._on_reset: Callable[[CountingEnv], None] | None = cfg.get("on_reset")
        self._on_step: Callable[[CountingEnv], None] | None = cfg.get("on_step")
        self.params: list[dict[str, Any]] = []
        self.seeds: list[Any] = []
        self.actions: list[Any] = []
        self.episode, self.count = -1, 0
        self.close_count = 0
        self.replay_path: str | None = None
        self._obs = np.zeros(2, np.float32)

    def _observe(self) -> np.ndarray:
        if not self.reuse:
            self._obs = np.zeros(2, np.float32)
        self._obs[:] = self.episode, self.count
        return self._obs

    def reset(self, **param: Any) -> np.ndarray:
        self.params.append(param)
        if self._on_reset is not None:
            self._on_reset(self)
        self.episode, self.count = self.episode + 1, 0
        return self._observe()

    def step(self, action: Any) -> BaseEnvTimestep:
        if self._on_step is not None:
            self._on_step(self)
        self.actions.append(action)
        self.count += 1
        done = self.count >= self.length
        return BaseEnvTimestep(self._observe(), np.ones(1, np.float32), done, {"n": self.count})

    def seed(self, seed: int, *dynamic_seed: bool) -> None:
        self.seeds.append((seed, *dynamic_seed))

    def close(self) -> None:
        self.close_count += 1

    def enable_save_replay(self, replay_path: str) -> None:
        self.replay_path = replay_path

    def enable_save_figure(self, figure_path: str) -> None:
        self.figure_path = figure_path

    def reward_shaping(self, transitions: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [{**transition, "reward": -transition["reward"]} for transition in transitions]

    def render(self, mode: str) -> str:
        return f"{mode} {self.episode} {self.count}"

    def secret(self) -> None:
        """Not reachable through a manager."""

    def __repr__(self) -> str:
        return "CountingEnv"


class Failing:
    """A hook for `CountingEnv` that fails on the calls whose number (from 0, over all envs) is in `calls`."""

    def __init__(self, *calls: int, error: Callable[[], Exception] = lambda: ValueError("broken")) -> None:
        self.calls, self.error, self.count = calls, error, 0

    def __call__(self, env: CountingEnv) -> None:
        self.count += 1
        if self.count - 1 in self.calls:
            raise self.error()


class Hanging:
    """A hook for `CountingEnv` that does not return, in time, from the calls whose number is in `calls`."""

    def __init__(self, *calls: int) -> None:
        self.calls, self.count = calls, 0

    def __call__(self, env: CountingEnv) -> None:
        self.count += 1
        if self.count - 1 in self.calls:
            time.sleep(30)
