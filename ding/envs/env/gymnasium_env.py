"""Any gymnasium environment, behind the conventions of this package."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from ding.envs.env.base_env import BaseEnvTimestep
from ding.envs.env.gymnasium_source import SETTINGS, GymnasiumSource, video_prefix
from ding.envs.env.gymnasium_spaces import as_observation, one_float
from ding.envs.env.lazy_env import LazyEnv
from ding.utils.config_helper import Settings
from ding.utils.registry_factory import ENV_REGISTRY

_FLOAT32 = np.dtype(np.float32)


@ENV_REGISTRY.register("gymnasium")
class GymnasiumEnv(LazyEnv):
    """A gymnasium environment: float64 observations become float32, other dtypes are kept; reward [1] float32.

    The config names it by `env_id` (with `kwargs` for `gymnasium.make`) or gives `env`, an instance or a function
    without arguments. `wrappers` lists wrappers or (wrapper, kwargs), innermost first; `max_episode_steps` sets the
    step limit; with `act_scale` real-valued actions come in [-1, 1] and are mapped onto the bounds of the action space,
    with `act_bins` they come as choices among values.

    The environment is made at the first `reset`. If a space is read earlier, an environment is made and closed
    for that. `info` has the bools `terminated` and `truncated` at each step, and the float `eval_episode_return` at
    the last. An `env` instance belongs to the caller until the first `reset`; after it, `close` closes it.

    Example:
        >>> env = GymnasiumEnv({"env_id": "CartPole-v1"})
        >>> env.seed(0)
        >>> env.reset().shape
        (4,)
        >>> timestep = env.step(np.array([1]))
        >>> timestep.reward, timestep.done, timestep.info
        (array([1.], dtype=float32), False, {'terminated': False, 'truncated': False})
        >>> env.close()
    """

    settings: ClassVar[Settings] = SETTINGS
    config_keys: ClassVar[tuple[str, ...]] = tuple(SETTINGS)

    def __init__(self, cfg: Mapping[str, Any]) -> None:
        self._cfg = cfg
        self._source = GymnasiumSource.from_config(cfg)
        super().__init__(bool(cfg.get("act_scale", False)), cfg.get("act_bins"))

    def step(self, action: Any) -> BaseEnvTimestep:
        """Act once; integers come as int or as an integer array with one element, the rest as arrays.

        Raises:
            TypeError: the action is of another kind than the action space.
            ValueError: the action is outside of the action space, or the reward is not one number.
            RuntimeError: there was no reset.
        """
        if self._env is None:
            raise RuntimeError(f"{self!r}: step() before reset()")
        obs, reward, terminated, truncated, info = self._env.step(self._adapt_action(action))
        if type(reward) is not float:
            reward = one_float(reward)
        self._episode_return += reward
        terminated, truncated = bool(terminated), bool(truncated)
        info = {**info, "terminated": terminated, "truncated": truncated}
        done = terminated or truncated
        if done:
            info["eval_episode_return"] = self._episode_return
        if type(obs) is not np.ndarray or obs.dtype is not _FLOAT32:
            obs = as_observation(obs)
        # A named tuple made without a Python call: this runs once for each step of each env.
        own_reward = np.empty(1, _FLOAT32)
        own_reward[0] = reward
        return tuple.__new__(BaseEnvTimestep, (obs, own_reward, done, info))

    def render(self, mode: str = "rgb_array") -> Any:
        """Return the rendered image; the mode is chosen when the environment is made (`kwargs.render_mode`).

        Raises:
            RuntimeError: the environment is not open, or not made for `mode`.
        """
        if self._env is None or self._env.render_mode != mode:
            made_for = None if self._env is None else self._env.render_mode
            raise RuntimeError(
                f"{self!r} renders {made_for!r}, not {mode!r}; set env.kwargs.render_mode = {mode!r} and reset it first"
            )
        return self._env.render()

    def __repr__(self) -> str:
        return f"GymnasiumEnv({self._source.name})"

    def _begin(self, seed: int | None, options: dict[str, Any] | None) -> Any:
        return self._env.reset(seed=seed, options=options)[0]

    def _make(self, video_folder: str | None) -> Any:
        return self._source.make(video_folder, video_prefix(self))

    def _discard(self, env: Any) -> None:
        if not self._source.is_instance:
            env.close()
