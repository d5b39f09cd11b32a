"""Base of the env wrappers, and what turns an env of one interface into one of another."""

from __future__ import annotations

from typing import Any

from ding.envs.common.gym_compat import is_gymnasium_env
from ding.envs.env.base_env import BaseEnv
from ding.utils.log_helper import shown
from ding.utils.object_state import SavedAttributes


class EnvWrapper(SavedAttributes):
    """Base of the env wrappers: `reset()` returns the observation, `step(action)` (obs, reward, done, info).

    It wraps a `BaseEnv`, an env of gymnasium or gym, another wrapper, or any object like these. `self.env` has the
    same interface as the wrapper itself; if the innermost env distinguishes a time limit from a true end, `info` has
    the bools `terminated` and `truncated`. Attributes that a wrapper lacks are those of the env it wraps. A resumed run
    replays the running episode; what a wrapper keeps longer than that, it names in `_saved`.

    Example:
        >>> import gymnasium
        >>> class DoubleReward(EnvWrapper):
        ...     def step(self, action):
        ...         obs, reward, done, info = self.env.step(action)
        ...         return obs, 2 * reward, done, info
        >>> env = DoubleReward(gymnasium.make("CartPole-v1"))
        >>> env.reset().shape, env.step(0)[1:3], env.action_space
        ((4,), (2.0, False), Discrete(2))
    """

    env: Any

    def __init__(self, env: Any) -> None:
        has_interface = isinstance(env, (EnvWrapper, BaseEnv))
        self.env = env if has_interface else GymToGymnasiumWrapper(as_gymnasium(env))

    @property
    def unwrapped(self) -> Any:
        """The innermost env."""
        return getattr(self.env, "unwrapped", self.env)

    def reset(self, **kwargs: Any) -> Any:
        """Begin an episode and return its first observation; `kwargs` go to the env's `reset`."""
        return self.env.reset(**kwargs)

    def step(self, action: Any) -> Any:
        """Act once, and return (obs, reward, done, info)."""
        return self.env.step(action)

    def render(self, *args: Any, **kwargs: Any) -> Any:
        """Return the rendered image."""
        return self.env.render(*args, **kwargs)

    def close(self) -> None:
        """Close the env."""
        self.env.close()

    def __getattr__(self, name: str) -> Any:
        # `copy` and `pickle` look up attributes before the object has any.
        if name.startswith("_") or name == "env":
            raise AttributeError(f"{type(self).__name__!r} has no attribute {name!r}; private ones are not forwarded")
        return getattr(self.env, name)

    def __repr__(self) -> str:
        return f"<{type(self).__name__}{shown(self.env, str)}>"


class ObservationWrapper(EnvWrapper):
    """Base of the wrappers that change nothing but observations; they define `observation`."""

    def reset(self, **kwargs: Any) -> Any:
        """Begin an episode and return its first observation."""
        return self.observation(self.env.reset(**kwargs))

    def step(self, action: Any) -> Any:
        """Act once, and return (obs, reward, done, info)."""
        obs, reward, done, info = self.env.step(action)
        return self.observation(obs), reward, done, info

    def observation(self, observation: Any) -> Any:
        """Return the observation that replaces `observation` of the env."""
        raise NotImplementedError(f"{type(self).__name__} must define observation()")


class GymToGymnasiumWrapper(EnvWrapper):
    """A gymnasium env with the interface of gym: `reset()` returns the observation, `step` four values.

    `seed(seed)` seeds the next reset; later ones continue from there. `info` has the bools `terminated` and `truncated`
    at each step, and `TimeLimit.truncated` at the last step if only the time limit has ended the episode.

    Raises:
        AssertionError: `env` is not a gymnasium env.
    """

    def __init__(self, env: Any) -> None:
        if not is_gymnasium_env(env):
            raise AssertionError(f"GymToGymnasiumWrapper wraps gymnasium envs; {shown(env)} is not a gymnasium.Env")
        self.env = env
        self._seed: int | None = None

    def seed(self, seed: int | None = None, *args: Any) -> None:
        """Seed the next reset; other arguments have no effect."""
        self._seed = seed

    def reset(self, *, seed: int | None = None, **kwargs: Any) -> Any:
        """Begin an episode and return its first observation."""
        obs, _ = self.env.reset(seed=self._seed if seed is None else seed, **kwargs)
        self._seed = None
        return obs

    def step(self, action: Any) -> Any:
        """Act once, and return (obs, reward, done, info)."""
        obs, reward, terminated, truncated, info = self.env.step(action)
        terminated, truncated = bool(terminated), bool(truncated)
        info = {**info, "terminated": terminated, "truncated": truncated}
        if truncated and not terminated:
            info["TimeLimit.truncated"] = True
        return obs, reward, terminated or truncated, info

    def render(self, mode: str | None = None) -> Any:
        """Return the rendered image; the mode is chosen when the env is made, so that `mode` has no effect."""
        return self.env.render()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name == "env":
            return super().__getattr__(name)  # which refuses
        return self.env.get_wrapper_attr(name)


def as_gymnasium(env: Any) -> Any:
    """Return `env` if it is a gymnasium env, the one that it adapts, or an adapter of it, see `GymAdapter`."""
    if is_gymnasium_env(env):
        return env
    if isinstance(env, GymToGymnasiumWrapper):
        return env.env
    from ding.envs.env_wrappers.gym_adapter import GymAdapter

    return GymAdapter(env)
