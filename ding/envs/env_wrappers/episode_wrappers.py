"""Wrappers that decide where episodes begin and end."""

from __future__ import annotations

from typing import Any

import numpy as np

from ding.envs.env_wrappers.base_wrapper import EnvWrapper, ended
from ding.utils.registry_factory import ENV_WRAPPER_REGISTRY


@ENV_WRAPPER_REGISTRY.register("noop_reset")
class NoopResetWrapper(EnvWrapper):
    """Wrapper that does nothing (action 0) for 1 to `noop_max` steps after each reset, to vary the initial states.

    The number is drawn from a generator that `seed` seeds; without a seed, from numpy's global one. If an episode ends
    meanwhile, the env is reset again.

    Raises:
        AssertionError: the meaning of action 0 is not NOOP.
        ValueError: `noop_max` is less than 1.
    """

    def __init__(self, env: Any, noop_max: int = 30) -> None:
        super().__init__(env)
        if noop_max < 1:
            raise ValueError(f"noop_max = {noop_max!r} is not allowed; it must be at least 1")
        _check_meaning(self, 0, "NOOP")
        self.noop_max = noop_max
        self.noop_action = 0
        self._random: Any = np.random

    def seed(self, seed: int | None = None, *args: Any) -> Any:
        """Seed the number of steps and the env."""
        self._random = np.random if seed is None else np.random.RandomState(seed % 2**32)
        return self.env.seed(seed, *args)

    def reset(self, **kwargs: Any) -> Any:
        """Begin an episode, and return the observation after the steps without action."""
        obs = self.env.reset(**kwargs)
        for _ in range(self._random.randint(1, self.noop_max + 1)):
            obs, _, done, _ = self.env.step(self.noop_action)
            if done:
                obs = self.env.reset()
        return obs


@ENV_WRAPPER_REGISTRY.register("episodic_life")
class EpisodicLifeWrapper(EnvWrapper):
    """Wrapper that ends the episode with each lost life; the game is reset only when it is over.

    Otherwise the next episode begins with a step without action. Lives are those of `env.unwrapped.ale`.

    Attributes:
        lives: the number of lives that are left.
        was_real_done: whether the game is over.
    """

    def __init__(self, env: Any) -> None:
        super().__init__(env)
        self.lives = 0
        self.was_real_done = True

    def step(self, action: Any) -> tuple[Any, Any, bool, dict[str, Any]]:
        """Act once, and return (obs, reward, done, info)."""
        obs, reward, done, info = self.env.step(action)
        self.was_real_done = done
        lives = self.unwrapped.ale.lives()
        # Some games show 0 lives for a few frames before they are over.
        if 0 < lives < self.lives and not done:
            done, info = True, ended(info)
        self.lives = lives
        return obs, reward, done, info

    def reset(self, **kwargs: Any) -> Any:
        """Begin the next life, or a new game when the last one is over."""
        is_over = self.was_real_done
        if not is_over:
            obs, _, is_over, _ = self.env.step(0)
        if is_over:
            obs = self.env.reset(**kwargs)
        self.was_real_done = False
        self.lives = self.unwrapped.ale.lives()
        return obs


@ENV_WRAPPER_REGISTRY.register("fire_reset")
class FireResetWrapper(EnvWrapper):
    """Wrapper that takes action 1 (FIRE) after each reset, for games that begin with it, even if that ends the episode.

    Raises:
        AssertionError: the meaning of action 1 is not FIRE, or there are fewer than three actions.
    """

    def __init__(self, env: Any) -> None:
        super().__init__(env)
        _check_meaning(self, 1, "FIRE")
        meanings = self.unwrapped.get_action_meanings()
        if len(meanings) < 3:
            raise AssertionError(f"FireResetWrapper needs an env of three actions or more; it has {meanings}")

    def reset(self, **kwargs: Any) -> Any:
        """Begin an episode and return the observation after FIRE."""
        self.env.reset(**kwargs)
        return self.env.step(1)[0]


class TimeLimitWrapper(EnvWrapper):
    """Wrapper that ends each episode after `max_limit` steps, which `info` reports as `truncated`.

    `info` has at each step `time_count`, the number of steps since the reset, and `time_limit`, whether it has reached
    `max_limit`.

    Raises:
        ValueError: `max_limit` is less than 1.
    """

    def __init__(self, env: Any, max_limit: int) -> None:
        super().__init__(env)
        if max_limit < 1:
            raise ValueError(f"max_limit = {max_limit!r} is not allowed; it must be at least 1")
        self.max_limit = max_limit
        self.time_count = 0

    def reset(self, **kwargs: Any) -> Any:
        """Begin an episode and return its first observation."""
        self.time_count = 0
        return self.env.reset(**kwargs)

    def step(self, action: Any) -> tuple[Any, Any, bool, dict[str, Any]]:
        """Act once, and return (obs, reward, done, info)."""
        obs, reward, done, info = self.env.step(action)
        self.time_count += 1
        is_over = self.time_count >= self.max_limit
        info = {"terminated": bool(done), **info, "time_limit": is_over, "time_count": self.time_count}
        info["truncated"] = info.get("truncated", False) or is_over
        return obs, reward, done or is_over, info


def _check_meaning(env: EnvWrapper, action: int, meaning: str) -> None:
    get_meanings = getattr(env.unwrapped, "get_action_meanings", None)
    meanings = None if get_meanings is None else list(get_meanings())
    if meanings is None or meanings[action : action + 1] != [meaning]:
        raise AssertionError(f"{type(env).__name__} needs an env whose action {action} is {meaning}; it has {meanings}")
