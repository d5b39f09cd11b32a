"""A `BaseEnv` made of any environment of gymnasium or gym, also by its id, and a list of wrappers."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from easydict import EasyDict

from ding.envs.common.gym_compat import gym_that_knows, layers, library_of, make_gym_env
from ding.envs.env.base_env import BaseEnv
from ding.envs.env.gymnasium_env import make_by_id
from ding.envs.env.gymnasium_spaces import to_float32
from ding.envs.env.lazy_env import LazyEnv, record_video
from ding.envs.env_wrappers.base_wrapper import as_gymnasium
from ding.envs.env_wrappers.wrapper_factory import apply_env_wrappers
from ding.utils.config_helper import ConfigError, Setting, Settings, boolean, check_values, instance_of
from ding.utils.registry_factory import ENV_WRAPPER_REGISTRY


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
            "env_wrapper": Setting("default", instance_of(str, list, tuple), "Name of a set of wrappers, or a list."),
            "env_id": Setting(None, instance_of(str, optional=True), "Id of the env, unless an env is given."),
        }
    )
    config_keys: ClassVar[tuple[str, ...]] = tuple(settings)
    _is_strict = False

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
        super().__init__(self._cfg.act_scale)
        self._is_instance = env is not None
        self._instance = env  # None once it was closed
        self._spec = getattr(env, "spec", None)
        self._layers = [type(layer) for layer in layers(env)]
        self._takes_seeds = seed_api
        self._is_gymnasium = is_gymnasium
        name = self._cfg.env_wrapper
        # The caller is checked even without wrappers.
        default = get_default_wrappers(name if isinstance(name, str) else "default", self._env_id, caller)
        self._wrappers = default if isinstance(name, str) else list(name)
        if self._cfg.rew_clip:
            self._least_reward = -10.0
        if env is not None:
            self._open()
            self.action_space.seed(0)

    def clone(self, caller: str = "collector") -> DingEnvWrapper:
        """Return another wrapper with an environment of its own.

        A new environment is made by the id or the environment's `spec`; later changes of an instance are not in the
        clone. An instance without a spec, or with wrappers that its spec does not hold, is copied.

        Raises:
            AssertionError: `caller` is neither 'collector' nor 'evaluator'.
            RuntimeError: the instance is closed, and cannot be made again. A copy that fails raises its own error.
        """
        env = None
        if self._is_instance:
            try:
                env = self._remade()
            except RuntimeError:
                if self._instance is None:
                    raise
                env = copy.deepcopy(self._instance)
        return type(self)(env, copy.deepcopy(self._cfg), self._takes_seeds, caller, self._is_gymnasium)

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
        self._instance = None

    def __repr__(self) -> str:
        return f"DI-engine Env({self._env_id}), generated by DingEnvWrapper"

    @property
    def _env_id(self) -> str | None:
        return self._cfg.env_id or getattr(self._spec, "id", None)

    def _add_return(self, info: dict[str, Any]) -> None:
        info.setdefault("eval_episode_return", to_float32(np.array([self._episode_return])))

    def _make(self, video_folder: str | None) -> Any:
        env = self._raw({} if video_folder is None else {"render_mode": "rgb_array"})
        if video_folder is not None:
            env = record_video(as_gymnasium(env), video_folder, self)
        return as_gymnasium(apply_env_wrappers(env, self._wrappers))

    def _raw(self, kwargs: dict[str, Any]) -> Any:
        """Return the given environment, exchanged if it does not render images as `kwargs` want, or a new one."""
        if not self._is_instance:
            return make_env(self._cfg.env_id, self._is_gymnasium, disable_env_checker=True, **kwargs)
        instance = self._instance
        if instance is None or (
            kwargs and self._spec is not None and getattr(instance, "render_mode", None) != "rgb_array"
        ):
            self._instance = self._remade(**kwargs)
            if instance is not None:
                instance.close()
        return self._instance

    def _remade(self, **kwargs: Any) -> Any:
        """Return a new environment like the given one, whose spec must name all of its wrappers."""
        problem = RuntimeError(f"{self!r}: it cannot be made anew by a spec; give cfg.env_id instead of an instance")
        library = library_of(self._layers[0])
        if self._spec is None or library is None:
            raise problem
        try:
            env = make_gym_env(library, self._spec, **kwargs)
        except Exception as e:  # code of the env
            raise problem from e
        if [type(layer) for layer in layers(env)] != self._layers:
            env.close()
            raise problem
        return env


def make_env(env_id: str, is_gymnasium: bool = False, **kwargs: Any) -> Any:
    """Return the environment `env_id`, made by gymnasium or, where it has none, by gym; `is_gymnasium` leaves gym out.

    Raises:
        gymnasium.error.Error: no environment has the id.
    """
    import gymnasium

    try:
        return make_by_id(env_id, **kwargs)
    except (gymnasium.error.UnregisteredEnv, ImportError):
        gym = None if is_gymnasium else gym_that_knows(env_id)
        if gym is None:
            raise
    return make_gym_env(gym, env_id, **kwargs)


# Their episodes begin with a press of the fire button.
_FIRE_GAMES = ("Pong", "Qbert", "SpaceInvader", "Montezuma")


def get_default_wrappers(
    env_wrapper_name: str, env_id: str | None = None, caller: str = "collector"
) -> list[dict[str, Any]]:
    """Return configs for `create_env_wrapper`, the innermost first: those of a preset, or of one registered wrapper.

    The presets are `default` and `mujoco_default` (the episode's return), `atari_default` and `gym_hybrid_default`.
    Each list ends with the episode's return, over rewards as the other wrappers leave them.

    Args:
        env_id: names the game for `atari_default`.
        caller: 'collector' or 'evaluator'; evaluators of `atari_default` see rewards unclipped.

    Raises:
        AssertionError: `caller` is neither 'collector' nor 'evaluator'.
        NotImplementedError: the name is neither a preset nor registered.
        ValueError: `env_id` is missing for `atari_default`.
    """
    if caller not in ("collector", "evaluator"):
        raise AssertionError(f"caller = {caller!r} is not allowed; it must be 'collector' or 'evaluator'")
    if env_wrapper_name in ("default", "mujoco_default"):
        inner = []
    elif env_wrapper_name == "atari_default":
        inner = _atari(env_id, caller)
    elif env_wrapper_name == "gym_hybrid_default":
        inner = [EasyDict(type="gym_hybrid_dict_action")]
    elif env_wrapper_name in ENV_WRAPPER_REGISTRY:
        inner = [] if env_wrapper_name == "eval_episode_return" else [EasyDict(type=env_wrapper_name)]
    else:
        raise NotImplementedError(
            f"not supported env_wrapper_name: {env_wrapper_name!r}; there are default, mujoco_default, atari_default, "
            f"gym_hybrid_default and the registered {sorted(ENV_WRAPPER_REGISTRY)}"
        )
    return [*inner, EasyDict(type="eval_episode_return")]


def _atari(env_id: str | None, caller: str) -> list[dict[str, Any]]:
    if env_id is None:
        raise ValueError("atari_default needs env_id, the name of the game; set env.env_id")
    fire = [EasyDict(type="fire_reset")] if any(game in env_id for game in _FIRE_GAMES) else []
    clip = [EasyDict(type="clip_reward")] if caller == "collector" else []
    return [
        EasyDict(type="noop_reset", kwargs={"noop_max": 30}),
        EasyDict(type="max_and_skip", kwargs={"skip": 4}),
        EasyDict(type="episodic_life"),
        *fire,
        EasyDict(type="warp_frame"),
        EasyDict(type="scaled_float_frame"),
        *clip,
        EasyDict(type="frame_stack", kwargs={"n_frames": 4}),
    ]


def env(cfg: Mapping[str, Any], seed_api: bool = True, caller: str = "collector", **kwargs: Any) -> DingEnvWrapper:
    """Return the environment `cfg.env_id`, made with `kwargs`, in a `DingEnvWrapper`.

    Example:
        >>> env({"env_id": "CartPole-v1"}, max_episode_steps=7)
        DI-engine Env(CartPole-v1), generated by DingEnvWrapper
    """
    return DingEnvWrapper(make_env(cfg["env_id"], **kwargs), cfg, seed_api, caller)
