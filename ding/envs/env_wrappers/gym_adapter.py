"""The adapter of old gym: importing this module imports gymnasium."""

from __future__ import annotations

from typing import Any

import gymnasium

from ding.envs.common.gym_compat import gymnasium_space, layers


class GymAdapter(gymnasium.Env[Any, Any]):
    """A gymnasium env over an env of gym of any version, an env wrapper of this package, or an object like one.

    A seed goes through `seed(...)` where the env has it, else through `reset(seed=...)`. Where `step` returns four
    values, `info` tells a time limit from a true end: by `terminated` and `truncated`, or by `TimeLimit.truncated`.
    The adapter has the attributes of `env`, and its spaces as those of gymnasium.
    """

    def __init__(self, env: Any) -> None:
        self.env = env
        self.metadata = getattr(env, "metadata", None) or {}
        mode = getattr(env, "render_mode", None)
        # Without one, an env of gym is told the mode by each call.
        self._takes_mode = mode is None and not isinstance(self.unwrapped, gymnasium.Env)
        self.render_mode = "rgb_array" if self._takes_mode else mode
        self.spec = getattr(env, "spec", None)

    @property
    def observation_space(self) -> Any:  # type: ignore[override]
        return gymnasium_space(self.__getattr__("observation_space"))

    @property
    def action_space(self) -> Any:  # type: ignore[override]
        return gymnasium_space(self.__getattr__("action_space"))

    @property
    def unwrapped(self) -> Any:
        return getattr(self.env, "unwrapped", self.env)

    @property  # type: ignore[misc]
    def np_random(self) -> Any:
        return self.__getattr__("np_random")

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        kwargs: dict[str, Any] = {} if options is None else {"options": options}
        if seed is not None:
            seeded = next((layer for layer in layers(self.env) if hasattr(layer, "seed")), None)
            if seeded is None:
                kwargs["seed"] = seed
            else:
                seeded.seed(seed)
        result: Any = self.env.reset(**kwargs)
        is_pair = type(result) is tuple and len(result) == 2 and isinstance(result[1], dict)
        if is_pair and not isinstance(self.observation_space, gymnasium.spaces.Tuple):
            return result[0], result[1]
        return result, {}

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        result = self.env.step(action)
        if len(result) == 5:
            return result  # type: ignore[no-any-return]
        obs, reward, done, info = result
        done, terminated, truncated = bool(done), bool(info.get("terminated")), bool(info.get("truncated"))
        if (terminated or truncated) is not done:
            # There are no flags, or they are about another end than this one, such as that of a life.
            truncated = done and bool(info.get("TimeLimit.truncated"))
            terminated = done and not truncated
        return obs, reward, terminated, truncated, info

    def render(self) -> Any:
        return self.env.render(self.render_mode) if self._takes_mode else self.env.render()

    def close(self) -> None:
        self.env.close()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name == "env":  # `copy` and `pickle` look up attributes before there are any
            raise AttributeError(f"{type(self).__name__!r} has no attribute {name!r}")
        # A wrapper written without a base class may forward nothing.
        return getattr(next((layer for layer in layers(self.env) if hasattr(layer, name)), self.env), name)
