"""An env for wrappers of either interface. Importing this module imports gymnasium."""

from __future__ import annotations

from typing import Any

import gymnasium

from ding.envs.common.gym_compat import is_gymnasium_env, layers
from ding.envs.env_wrappers.base_wrapper import as_four_values


class BilingualEnv(gymnasium.Env):
    """A gymnasium env whose `step` returns five values to a direct wrapper of gymnasium, else four.

    It is unknown which of the two a function that wraps an env expects; `settle` inspects its result.

    Attributes:
        env: the env for wrappers that expect four values.
    """

    is_bilingual = True  # for `as_four_values`, which does not import gymnasium

    def __init__(self, env: Any) -> None:
        self.env = as_four_values(env)
        self._five = env if is_gymnasium_env(env) else None
        self._returns_five = False
        self.metadata = getattr(env, "metadata", None) or {}
        self.render_mode = getattr(env, "render_mode", None)
        self.spec = getattr(env, "spec", None)

    def settle(self, wrapped: Any) -> Any:
        """Choose the interface that fits `wrapped`, an env around this one, and return `wrapped`.

        If `wrapped` is this env itself, the inner env is returned. Until this call, `step` returns four values.
        """
        direct = next((layer for layer in layers(wrapped) if getattr(layer, "env", None) is self), None)
        self._returns_five = isinstance(direct, gymnasium.Env)
        return self.env if wrapped is self else wrapped

    @property
    def observation_space(self) -> Any:  # type: ignore[override]
        return self.env.observation_space

    @property
    def action_space(self) -> Any:  # type: ignore[override]
        return self.env.action_space

    @property
    def unwrapped(self) -> Any:
        return self.env.unwrapped

    @property
    def np_random(self) -> Any:
        return self.env.np_random

    @np_random.setter
    def np_random(self, value: Any) -> None:
        self.unwrapped.np_random = value

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        if self._returns_five and self._five is not None:
            return self._five.reset(seed=seed, options=options)
        if seed is not None:
            self.env.seed(seed)
        obs = self.env.reset() if options is None else self.env.reset(options=options)
        return (obs, {}) if self._returns_five else obs

    def step(self, action: Any) -> Any:
        if not self._returns_five:
            return self.env.step(action)
        if self._five is not None:
            return self._five.step(action)
        obs, reward, done, info = self.env.step(action)
        return obs, reward, info.get("terminated", done), info.get("truncated", False), info

    def render(self, *args: Any, **kwargs: Any) -> Any:
        return self.env.render(*args, **kwargs)

    def close(self) -> None:
        self.env.close()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name == "env":
            raise AttributeError(f"{type(self).__name__!r} has no attribute {name!r}")
        return getattr(self.env, name)
