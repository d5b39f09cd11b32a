"""A `BaseEnv` made of any environment of gymnasium or gym, and a list of wrappers."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from easydict import EasyDict

from ding.envs.env.base_env import BaseEnv, BaseEnvTimestep
from ding.envs.env.default_wrapper import get_default_wrappers
from ding.envs.env.env_source import IdSource, InstanceSource
from ding.envs.env.gymnasium_source import video_prefix
from ding.envs.env.gymnasium_spaces import fit_observation, one_float
from ding.envs.env.lazy_env import LazyEnv
from ding.envs.env_wrappers.base_wrapper import as_four_values, with_end
from ding.envs.env_wrappers.wrapper_factory import apply_env_wrappers
from ding.utils.config_helper import ConfigError, Setting, Settings, boolean, check_values, instance_of

_FLOAT32 = np.dtype(np.float32)


class DingEnvWrapper(LazyEnv):
    """An environment as the rest of the package expects it: float32 observations, reward [1] float32, one `info`.

    Args:
        env: an environment of gymnasium or gym, or an object like one; it is wrapped at once. Without it, the one named
            by `cfg.env_id` is made at the first reset, by gymnasium or, where that has none, by gym. If a space is read
            earlier, an environment is made and closed for that.
        cfg: `env_id`; `env_wrapper`, a name for `get_default_wrappers` or a list for `apply_env_wrappers`;
            `act_scale`: real-valued actions come in [-1, 1] and are mapped onto the bounds of the action space;
            `rew_clip`: rewards below -10 become -10. Other keys are left alone.
        seed_api: whether the environment can be seeded.
        caller: 'collector' or 'evaluator', for the wrappers that differ between them.
        is_gymnasium: make `cfg.env_id` by gymnasium only.

    `info` has at each step the bools `terminated` and `truncated`, and at the last `eval_episode_return`, a float32
    array [1]. To use the wrapper in another process, make it there, in `env_fn`.

    Raises:
        AssertionError: `caller` is neither 'collector' nor 'evaluator'.
        ConfigError: a value in `cfg` is not allowed, or there is neither `env` nor `cfg.env_id`.

    Example:
        >>> import gymnasium
        >>> env = DingEnvWrapper(gymnasium.make("CartPole-v1"), {"env_wrapper": [{"type": "frame_stack"}]})
        >>> env.seed(0)
        >>> env.reset().shape
        (4, 4)
        >>> timestep = env.step(env.random_action())
        >>> timestep.reward, timestep.done
        (array([1.], dtype=float32), False)
        >>> env.close()
    """

    settings: ClassVar[Settings] = Settings(
        {
            "act_scale": Setting(False, boolean, "Map actions in [-1, 1] onto the bounds of the action space."),
            "rew_clip": Setting(False, boolean, "Whether rewards below -10 become -10."),
            "env_wrapper": Setting(
                "default", instance_of(str, list, tuple), "Name of a set of wrappers, or a list of their configs."
            ),
            "env_id": Setting(None, instance_of(str, optional=True), "Id of the env, unless an env is given."),
        }
    )
    config_keys: ClassVar[tuple[str, ...]] = tuple(settings)

    def __init__(
        self,
        env: Any = None,
        cfg: Mapping[str, Any] | None = None,
        seed_api: bool = True,
        caller: str = "collector",
        is_gymnasium: bool = False,
    ) -> None:
        self._cfg = EasyDict({**self.settings.config(), **(cfg or {})})
        check_values(self._cfg, "env (DingEnvWrapper)", self.settings.rules())
        if env is None and self._cfg.env_id is None:
            raise ConfigError("env (DingEnvWrapper): give an environment, or its id as cfg.env_id")
        self._source = IdSource(self._cfg.env_id, is_gymnasium) if env is None else InstanceSource(env)
        self._seed_api = seed_api
        self._caller = caller
        self._is_gymnasium = is_gymnasium
        self._wrappers = self._read_wrappers()
        super().__init__(self._cfg.act_scale)
        self._rew_clip = self._cfg.rew_clip
        if env is not None:
            self._open()
            self.action_space.seed(0)

    def step(self, action: Any) -> BaseEnvTimestep:
        """Act once; integers come as any kind of integer or as an array with one element, the rest as arrays.

        Raises:
            TypeError: the action is of another kind than the action space.
            ValueError: the action is outside of the action space, or the reward is not one number.
            RuntimeError: there was no reset.
        """
        if not self._is_begun:
            raise RuntimeError(f"{self!r}: step() before reset()")
        obs, reward, done, info = self._env.step(self._adapt_action(action))
        if type(reward) is not float:
            reward = one_float(reward)
        self._episode_return += reward
        done = bool(done)
        if "terminated" not in info or (info["terminated"] or info.get("truncated")) is not done:
            info = with_end(done, info)
        if done and "eval_episode_return" not in info:
            info = {**info, "eval_episode_return": np.array([self._episode_return], _FLOAT32)}
        if self._rew_clip:
            reward = max(-10.0, reward)
        if type(obs) is not np.ndarray or obs.dtype is not _FLOAT32:
            obs = self._as_observation(obs)
        # A named tuple made without a Python call: this runs once for each step of each env.
        own_reward = np.empty(1, _FLOAT32)
        own_reward[0] = reward
        return tuple.__new__(BaseEnvTimestep, (obs, own_reward, done, info))

    def render(self, mode: str = "rgb_array") -> Any:
        """Return the rendered image.

        Raises:
            RuntimeError: the environment is not open, or was not made for `mode`.
        """
        if self._env is None:
            raise RuntimeError(f"{self!r} cannot render before reset()")
        return self._env.render(mode)

    def clone(self, caller: str = "collector") -> DingEnvWrapper:
        """Return another wrapper with an environment of its own.

        A new environment is made by the id or the environment's `spec`; later changes of an instance are not in the
        clone. An instance without a spec, or with wrappers that its spec does not hold, is copied.

        Raises:
            AssertionError: `caller` is neither 'collector' nor 'evaluator'.
            RuntimeError: the instance can neither be made again nor copied.
        """
        source = self._source.clone()
        env = source.make(None, "") if isinstance(source, InstanceSource) else None
        return type(self)(env, copy.deepcopy(self._cfg), self._seed_api, caller, self._is_gymnasium)

    @staticmethod
    def create_collector_env_cfg(cfg: dict[str, Any]) -> list[dict[str, Any]]:
        """Take `collector_env_num` out of `cfg`; return that many copies of the rest, with `is_train` True.

        Raises:
            KeyError: `cfg` has no `collector_env_num`.
        """
        return [EasyDict({**own, "is_train": True}) for own in BaseEnv.create_collector_env_cfg(cfg)]

    @staticmethod
    def create_evaluator_env_cfg(cfg: dict[str, Any]) -> list[dict[str, Any]]:
        """Take `evaluator_env_num` out of `cfg`; return that many copies of the rest, with `is_train` False.

        Raises:
            KeyError: `cfg` has no `evaluator_env_num`.
        """
        return [EasyDict({**own, "is_train": False}) for own in BaseEnv.create_evaluator_env_cfg(cfg)]

    def close(self) -> None:
        """Close the environment; a later reset makes a new one, by id or spec, and continues the sequence of seeds."""
        super().close()
        if isinstance(self._source, InstanceSource):
            self._source.forget()

    def __repr__(self) -> str:
        return f"DI-engine Env({self._env_id}), generated by DingEnvWrapper"

    @property
    def _env_id(self) -> str | None:
        return self._cfg.env_id or self._source.env_id

    def _read_wrappers(self) -> list[Any]:
        name = self._cfg.env_wrapper
        # The caller is checked even without wrappers.
        default = get_default_wrappers(name if isinstance(name, str) else "default", self._env_id, self._caller)
        return default if isinstance(name, str) else list(name)

    def _make(self, video_folder: str | None) -> Any:
        env = self._source.make(video_folder, video_prefix(self))
        try:
            return as_four_values(apply_env_wrappers(env, self._wrappers))
        except Exception:
            self._discard(env)
            raise

    def _discard(self, env: Any) -> None:
        if not self._source.is_instance:
            env.close()

    def _put_away(self) -> None:
        if self._source.is_instance:
            self._env = None  # its source hands it out again, in what records it
        else:
            self.close()

    def _begin(self, seed: int | None, options: dict[str, Any] | None) -> Any:
        if seed is not None and self._seed_api:
            self._env.seed(seed)
        return self._env.reset() if options is None else self._env.reset(options=options)

    def _as_observation(self, obs: Any) -> Any:
        return fit_observation(obs, self.observation_space)
