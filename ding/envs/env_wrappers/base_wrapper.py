"""Base of the env wrappers, and the adapters that give every kind of env one interface."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ding.envs.common.gym_compat import is_gymnasium_env, layers, space_kind, takes_seed
from ding.envs.env.base_env import BaseEnv, EnvOutputError
from ding.utils.log_helper import shown


class EnvWrapper:
    """Base of the env wrappers: `reset()` returns the observation, `step(action)` (obs, reward, done, info).

    It wraps a `BaseEnv`, an env of gymnasium or gym, another wrapper, or any object like these. `self.env` has the
    same interface as the wrapper itself; if the innermost env distinguishes a time limit from a true end, `info` has
    the bools `terminated` and `truncated`. Attributes that a wrapper lacks are those of the env it wraps.

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
        self.env = as_four_values(env)

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
            raise AttributeError(f"{type(self).__name__!r} has no attribute {name!r}; private ones are not handed on")
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
        try:
            obs, reward, terminated, truncated, info = self.env.step(action)
        except (TypeError, ValueError) as e:
            wrong = EnvOutputError.of_step(e, self.env)
            if wrong is None:
                raise
            raise wrong from e
        return four_values(obs, reward, terminated, truncated, info)

    def render(self, mode: str | None = None) -> Any:
        """Return the rendered image; the mode is chosen when the env is made.

        Raises:
            RuntimeError: the env was not made for `mode`.
        """
        if mode is not None and mode != self.env.render_mode:
            raise RuntimeError(
                f"{shown(self.env, str)} renders {self.env.render_mode!r}, not {mode!r}; make it with "
                f"render_mode={mode!r}"
            )
        return self.env.render()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name == "env":
            return super().__getattr__(name)  # which refuses
        return self.env.get_wrapper_attr(name)


class GymAdapter(EnvWrapper):
    """A gym env of any version, or an object like one, whose results are converted to one form.

    A seed goes through `reset(seed=...)` where each layer takes it, else through `seed(...)`. `info` has the bools
    `terminated` and `truncated` at each step: as the env reports them, by five values or by `TimeLimit.truncated`.
    """

    def __init__(self, env: Any) -> None:
        if not callable(getattr(env, "reset", None)) or not callable(getattr(env, "step", None)):
            raise TypeError(f"{shown(env)} is not an environment: it lacks reset() or step()")
        self.env = env
        self._seed: int | None = None
        self._takes_seed = takes_seed(env)

    def seed(self, seed: int | None = None, *args: Any) -> None:
        """Seed the next reset.

        Raises:
            AttributeError: no layer of the env can be seeded.
        """
        if self._takes_seed:
            self._seed = seed
            return
        for layer in layers(self.env):
            if hasattr(layer, "seed"):
                layer.seed(seed)
                return
        raise AttributeError(
            f"{shown(self.env, str)} cannot be seeded: it has neither seed() nor reset(seed=...); pass seed_api=False"
        )

    def reset(self, **kwargs: Any) -> Any:
        """Begin an episode and return its first observation."""
        if self._seed is not None:
            kwargs.setdefault("seed", self._seed)
        result = self.env.reset(**kwargs)
        self._seed = None
        return result[0] if self._is_obs_and_info(result) else result

    def step(self, action: Any) -> Any:
        """Act once, and return (obs, reward, done, info)."""
        result = self.env.step(action)
        if len(result) == 5:
            return four_values(*result)
        obs, reward, done, info = result
        return obs, reward, bool(done), with_end(bool(done), info)

    def _is_obs_and_info(self, result: Any) -> bool:
        if type(result) is not tuple or len(result) != 2 or not isinstance(result[1], dict):
            return False
        members = getattr(getattr(self, "observation_space", None), "spaces", None)
        return not isinstance(members, (tuple, list))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name == "env":
            return super().__getattr__(name)  # which refuses
        # A wrapper written without a base class may hand on nothing.
        layer = next((layer for layer in layers(self.env) if hasattr(layer, name)), self.env)
        return getattr(layer, name)


def as_four_values(env: Any) -> Any:
    """Return `env`, or an adapter of it, whose `reset()` returns the observation and `step` (obs, reward, done, info).

    Raises:
        TypeError: `env` has no `reset` or no `step`.
    """
    if isinstance(env, (EnvWrapper, BaseEnv)):
        return env
    if getattr(type(env), "is_bilingual", False):
        return env.env
    return GymToGymnasiumWrapper(env) if is_gymnasium_env(env) else GymAdapter(env)


def four_values(obs: Any, reward: Any, terminated: Any, truncated: Any, info: Mapping[str, Any]) -> Any:
    """Return (obs, reward, done, info) for the five values of gymnasium's `step`; `info` is a copy with end flags."""
    terminated, truncated = bool(terminated), bool(truncated)
    info = {**info, "terminated": terminated, "truncated": truncated}
    if truncated and not terminated:
        info["TimeLimit.truncated"] = True
    return obs, reward, terminated or truncated, info


def with_end(done: bool, info: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy of `info` whose `terminated` and `truncated` fit `done`.

    Flags that do not fit belong to another end than this one, such as that of a life. Then the last step counts as a
    true end unless `TimeLimit.truncated` says otherwise.
    """
    terminated, truncated = bool(info.get("terminated", False)), bool(info.get("truncated", False))
    if (terminated or truncated) is not done:
        truncated = done and bool(info.get("TimeLimit.truncated", False))
        terminated = done and not truncated
    return {**info, "terminated": terminated, "truncated": truncated}


def ended(info: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy of the `info` of a step that a wrapper made the last one, flagged as a true end."""
    return {**info, "terminated": True, "truncated": False} if "terminated" in info else dict(info)


def sole_box(wrapper: EnvWrapper) -> Any:
    """Return the Box that is the observation space of the wrapped env, or the only member of its tuple space.

    Raises:
        TypeError: the env has another kind of observation space.
    """
    space = wrapper.env.observation_space
    sole = space.spaces[0] if space_kind(space) == "Tuple" and len(space.spaces) == 1 else space
    if space_kind(sole) != "Box":
        raise TypeError(f"{type(wrapper).__name__} needs observations that are arrays, of a Box; this space is {space}")
    return sole
