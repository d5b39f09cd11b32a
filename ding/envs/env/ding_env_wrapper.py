"""A `BaseEnv` made of any environment of gymnasium or gym, also by its id, and a list of wrappers."""

from __future__ import annotations

import copy
import functools
import math
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from easydict import EasyDict

from ding.envs.common.gym_compat import gym_that_knows, is_gymnasium_env, layers, library_of, make_gym_env
from ding.envs.env.base_env import BaseEnv, BaseEnvTimestep
from ding.envs.env.gymnasium_env import make_by_id, resolve_id
from ding.envs.env.gymnasium_spaces import fit_observation, one_float, to_float32
from ding.envs.env.lazy_env import LazyEnv, record_video, video_prefix
from ding.envs.env_wrappers.base_wrapper import as_four_values, with_end
from ding.envs.env_wrappers.wrapper_factory import apply_env_wrappers
from ding.utils.config_helper import ConfigError, Setting, Settings, boolean, check_values, instance_of
from ding.utils.data.nested import FLOAT32_MAX
from ding.utils.log_helper import shown
from ding.utils.registry_factory import ENV_WRAPPER_REGISTRY

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
            info = {**info, "eval_episode_return": to_float32(np.array([self._episode_return]))}
        if self._rew_clip:
            reward = max(-10.0, reward)
        if type(obs) is not np.ndarray or obs.dtype is not _FLOAT32:
            obs = self._as_observation(obs)
        # A named tuple made without a Python call: this runs once for each step of each env.
        own_reward = np.empty(1, _FLOAT32)
        own_reward[0] = reward if abs(reward) <= FLOAT32_MAX else reward * math.inf  # numpy would warn of an overflow
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
        return fit_observation(obs, self.observation_space, self)


class IdSource:
    """Source of the environment `env_id`: gymnasium's, or that of gym where gymnasium has none.

    Args:
        is_gymnasium: leave gym out.
    """

    is_instance = False

    def __init__(self, env_id: str, is_gymnasium: bool = False) -> None:
        self.env_id = env_id
        self._is_gymnasium = is_gymnasium

    def make(self, video_folder: str | None, video_prefix: str) -> Any:
        """Return a new environment; with `video_folder` it records each episode there.

        Raises:
            gymnasium.error.Error: no environment has the id.
        """
        kwargs = {} if video_folder is None else {"render_mode": "rgb_array"}
        env = make_env(self.env_id, self._is_gymnasium, disable_env_checker=True, **kwargs)
        return env if video_folder is None else record_any(env, video_folder, video_prefix)

    def clone(self) -> IdSource:
        """Return a source for other environments."""
        return self


class InstanceSource:
    """Source that returns a given environment and, after that was closed, new ones made by its `spec`."""

    is_instance = True

    def __init__(self, env: Any) -> None:
        self._env = env
        self._spec = getattr(env, "spec", None)
        self._classes = _classes(env)
        self._is_closed = False

    @property
    def env_id(self) -> str | None:
        """The id in the environment's `spec`, None if it has none."""
        env_id = getattr(self._spec, "id", None)
        return None if env_id is None else str(env_id)

    def make(self, video_folder: str | None, video_prefix: str) -> Any:
        """Return the environment; with `video_folder`, in a wrapper that records each episode there.

        Raises:
            RuntimeError: it was closed and cannot be made again.
            ValueError: a video is requested, but the environment was not made for `rgb_array` rendering.
        """
        if self._is_closed:
            self._env, self._is_closed = self._remade(), False
        if video_folder is None:
            return self._env
        if getattr(self._env, "render_mode", None) != "rgb_array":
            self._exchange_for_images()
        return record_any(self._env, video_folder, video_prefix)

    def forget(self) -> None:
        """Note that the environment was closed."""
        self._env, self._is_closed = None, True

    def clone(self) -> InstanceSource:
        """Return a source with an environment of its own: made by the `spec`, else a copy in its present state.

        Raises:
            RuntimeError: neither is possible.
        """
        try:
            return InstanceSource(self._remade())
        except RuntimeError as e:
            if self._is_closed:
                raise
            unmade = e
        try:
            copied = copy.deepcopy(self._env)
        except Exception as e:  # an env may hold anything
            raise RuntimeError(
                f"{shown(self._env, str)} cannot be cloned: {unmade}; and a copy fails with {e!r}. Give DingEnvWrapper "
                "cfg.env_id instead of an instance, or make one DingEnvWrapper in each env_fn"
            ) from e
        if any(layer is own for layer, own in zip(layers(copied), layers(self._env), strict=False)):
            raise RuntimeError(f"{shown(self._env, str)} cannot be cloned: its copy shares a layer with it")
        return InstanceSource(copied)

    def _exchange_for_images(self) -> None:
        """Replace the first environment by a new one that renders images."""
        silent = self._env
        try:
            self._env = self._remade(render_mode="rgb_array")
        except RuntimeError as e:
            raise ValueError(f"a video needs an env made with render_mode='rgb_array'; make {silent} so") from e
        silent.close()

    def _remade(self, **kwargs: Any) -> Any:
        """Return a new environment like the first one, whose spec must name all of its wrappers."""
        names = [cls.__name__ for cls in self._classes]
        advice = "give DingEnvWrapper cfg.env_id instead of an instance"
        library = library_of(self._classes[0])
        if self._spec is None or library is None:
            raise RuntimeError(f"{names} cannot be made anew without a spec; {advice}")
        try:
            make = functools.partial(make_gym_env, library) if library.__name__ == "gym" else library.make
            env = make(self._spec, **kwargs)
        except Exception as e:  # code of the env
            raise RuntimeError(f"{self.env_id} cannot be made anew as its spec says: {e!r}; {advice}") from e
        if _classes(env) != self._classes:
            env.close()
            raise RuntimeError(f"{self.env_id} cannot be made anew: its spec does not hold all of {names}; {advice}")
        return env


def record_any(env: Any, folder: str, prefix: str) -> Any:
    """Return `env`, each episode of which is recorded; see `record_video`."""
    if is_gymnasium_env(env):
        return record_video(env, folder, prefix)
    from ding.envs.env_wrappers.gym_and_gymnasium import BilingualEnv

    view = BilingualEnv(env)
    return view.settle(record_video(view, folder, prefix))


def make_env(env_id: str, is_gymnasium: bool = False, **kwargs: Any) -> Any:
    """Return the environment `env_id`, made by gymnasium or, where it has none, by gym; `is_gymnasium` leaves gym out.

    Raises:
        gymnasium.error.Error: no environment has the id.
    """
    gym = None if is_gymnasium or _gymnasium_knows(env_id) else gym_that_knows(env_id)
    return make_by_id(env_id, **kwargs) if gym is None else make_gym_env(gym, env_id, **kwargs)


def _gymnasium_knows(env_id: str) -> bool:
    import gymnasium

    try:
        gymnasium.spec(resolve_id(env_id)[0])
    except (gymnasium.error.Error, ImportError):
        return False
    return True


def _classes(env: Any) -> list[type]:
    return [type(layer) for layer in layers(env)]


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
