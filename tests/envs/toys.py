"""Small envs of either interface whose every value can be told in advance, for the tests of wrappers."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from ding.envs import BaseEnv, BaseEnvTimestep


def seeds_of(seed: int, env_index: int, episodes: Iterable[int]) -> list[int]:
    """The seeds of episodes of an env."""
    return [int(np.random.SeedSequence([seed, env_index, k]).generate_state(1)[0]) for k in episodes]


def until_done(env: Any, action: Any = 0) -> Any:
    """The last timestep of the episode, if the env is given this action over and over."""
    timestep = env.step(action)
    while not timestep.done:
        timestep = env.step(action)
    return timestep


class Lives:
    """Counts lives as an Atari emulator does."""

    def __init__(self, lives: Sequence[int]) -> None:
        self._lives, self.step = lives, 0

    def lives(self) -> int:
        return self._lives[min(self.step, len(self._lives) - 1)]


class Toy(gymnasium.Env):
    """Episodes of `length` steps; observations are `observe(episode, step)`, step k has the reward `rewards[k - 1]`.

    Args:
        truncates: episodes end by truncation.
        reuse: every observation is written into the same array.
        lives: how many lives are left after each step of the first game.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 30}

    def __init__(
        self,
        length: int = 4,
        rewards: Sequence[Any] = (1.0,),
        observe: Callable[[int, int], Any] = lambda episode, step: np.array([episode, step], np.float32),
        observation_space: Any = None,
        action_space: Any = None,
        truncates: bool = False,
        reuse: bool = False,
        meanings: Sequence[str] = ("NOOP", "FIRE", "LEFT"),
        lives: Sequence[int] = (3,),
        render_mode: str | None = None,
    ) -> None:
        self.observation_space = observation_space or spaces.Box(-10.0, 10.0, (2,), np.float32)
        self.action_space = action_space or spaces.Discrete(3)
        self.length, self.rewards, self.observe, self.truncates = length, rewards, observe, truncates
        self.reuse, self.meanings, self.render_mode = reuse, meanings, render_mode
        self.ale = Lives(lives)
        self.episode, self.count, self.closed = -1, 0, 0
        self.seeds: list[int | None] = []
        self.options: list[Any] = []
        self.actions: list[Any] = []
        self._kept: np.ndarray | None = None

    def get_action_meanings(self) -> list[str]:
        return list(self.meanings)

    def _obs(self) -> Any:
        obs = self.observe(self.episode, self.count)
        if not self.reuse:
            return obs
        if self._kept is None:
            self._kept = np.empty_like(obs)
        self._kept[...] = obs
        return self._kept

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.seeds.append(seed)
        self.options.append(options)
        self.episode, self.count = self.episode + 1, 0
        self.ale.step = 0
        return self._obs(), {}

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        self.actions.append(action)
        self.count += 1
        self.ale.step += 1
        is_over = self.count >= self.length
        reward = self.rewards[min(self.count, len(self.rewards)) - 1]
        return self._obs(), reward, is_over and not self.truncates, is_over and self.truncates, {"count": self.count}

    def render(self) -> np.ndarray:
        return np.full((4, 4, 3), self.count, np.uint8)

    def close(self) -> None:
        self.closed += 1


class FourValueToy:
    """An env of the old interface, without a base class: `reset()` returns the observation, `step` four values."""

    def __init__(self, length: int = 2, truncates: bool = False) -> None:
        self.observation_space = spaces.Box(-10.0, 10.0, (1,), np.float32)
        self.action_space = spaces.Discrete(2)
        self.reward_range = (0.0, 1.0)
        self.length, self.truncates = length, truncates
        self.count = 0
        self.seeds: list[int] = []

    def seed(self, seed: int) -> None:
        self.seeds.append(seed)

    def reset(self) -> np.ndarray:
        self.count = 0
        return np.zeros(1, np.float32)

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, dict[str, Any]]:
        self.count += 1
        done = self.count >= self.length
        info = {"TimeLimit.truncated": True} if done and self.truncates else {}
        return np.array([self.count], np.float32), 1.0, done, info

    def close(self) -> None:
        self.count = 0


class ToyBaseEnv(BaseEnv):
    """A `BaseEnv` that tells its spaces from its first reset on, and `done` only; `info` is one dict for all steps."""

    def __init__(self, cfg: dict[str, Any]) -> None:
        self._length = cfg.get("length", 2)
        self.observation_space = self.action_space = self.reward_space = None
        self.seeds: list[tuple[int, bool]] = []
        self._info: dict[str, Any] = {}

    def reset(self) -> np.ndarray:
        self.observation_space = spaces.Box(-10.0, 10.0, (1,), np.float32)
        self.action_space = spaces.Discrete(2)
        self.reward_space = spaces.Box(0.0, 1.0, (1,), np.float32)
        self._count = 0
        return np.zeros(1, np.float32)

    def step(self, action: Any) -> BaseEnvTimestep:
        self._count += 1
        obs, reward = np.array([self._count], np.float32), np.ones(1, np.float32)
        return BaseEnvTimestep(obs, reward, self._count >= self._length, self._info)

    def seed(self, seed: int, dynamic_seed: bool = True) -> None:
        self.seeds.append((seed, dynamic_seed))

    def random_action(self) -> np.ndarray:
        return np.array([1])

    def close(self) -> None:
        self._count = 0

    def __repr__(self) -> str:
        return "ToyBaseEnv"


def play(env: Any, steps: int, action: Any = 0) -> list[Any]:
    """Reset `env` and step it `steps` times; return what the steps returned."""
    env.reset()
    return [env.step(action) for _ in range(steps)]
