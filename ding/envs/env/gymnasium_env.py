"""Any gymnasium environment behind the conventions of this package: by id, from an instance, or from a function."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import math
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np

from ding.envs.common.gym_compat import space_kind
from ding.envs.env.base_env import BaseEnvTimestep, EnvOutputError
from ding.envs.env.gymnasium_spaces import channels_first, one_float
from ding.envs.env.lazy_env import LazyEnv, record_video, video_prefix
from ding.utils.config_helper import (
    NO_DEFAULT,
    ConfigError,
    Rule,
    Setting,
    Settings,
    anything,
    boolean,
    check_values,
    instance_of,
    integer,
    number,
)
from ding.utils.data.nested import FLOAT32_MAX
from ding.utils.import_helper import import_module
from ding.utils.log_helper import in_one_line, shown
from ding.utils.references import held_form, is_reference, plain, resolve_reference, resolved
from ding.utils.registry_factory import ENV_REGISTRY

_FLOAT32 = np.dtype(np.float32)


def _normalization_of(key: str, rule: Rule) -> Rule:
    """Return the rule of a section with `use_norm` and, by another rule, `key`; None stands for no section."""

    def check(value: Any) -> str | None:
        if value is None:
            return None
        is_right = isinstance(value, Mapping) and isinstance(value.get("use_norm", False), bool)
        is_right = is_right and (key not in value or rule(value[key]) is None)
        return None if is_right else f"a dict of use_norm (True or False) and, optionally, {key}"

    return check


SETTINGS = Settings(
    {
        "env_id": Setting(NO_DEFAULT, instance_of(str, optional=True), "Id of the env in gymnasium."),
        "env": Setting(
            NO_DEFAULT,
            anything,
            "Instead of `env_id`: an env; a class or function that makes one, or its name `module:name`; or a pair of "
            "it and its arguments.",
        ),
        "kwargs": Setting(
            NO_DEFAULT, instance_of(dict), "Further arguments of `gymnasium.make`, or of the class or function `env`."
        ),
        "wrappers": Setting(
            NO_DEFAULT,
            instance_of(list, tuple),
            "Wrappers, also as 'module:name', or pairs of one and its arguments, innermost first.",
        ),
        "max_episode_steps": Setting(
            NO_DEFAULT, integer(1, optional=True), "Limit of steps after which an episode is truncated."
        ),
        "channels_first": Setting(
            NO_DEFAULT, boolean, "Show images [H, W, C], also within dicts, as [C, H, W], as encoders take them."
        ),
        "act_scale": Setting(NO_DEFAULT, boolean, "Map actions in [-1, 1] onto the bounds of the action space."),
        "act_bins": Setting(
            NO_DEFAULT,
            integer(2, optional=True),
            "Number of values, evenly spaced within the bounds, that each real-valued action is chosen from: the "
            "action space is a MultiDiscrete.",
        ),
        "norm_obs": Setting(
            NO_DEFAULT,
            _normalization_of("offline_stats", instance_of(Mapping)),
            "Normalize observations, with `use_norm=True`: by running statistics, or by those of a data set with "
            "`offline_stats=dict(use_offline_stats=True)`.",
        ),
        "norm_reward": Setting(
            NO_DEFAULT,
            _normalization_of("reward_discount", number(0, 1)),
            "Divide rewards by the deviation of the discounted return, with `use_norm=True`; `reward_discount` is by "
            "default that of the policy.",
        ),
    }
)
NORMALIZATION = ("norm_obs", "norm_reward")  # what rollouts do, and not the env itself
Wrapper = tuple[Callable[..., Any], dict[str, Any]]
# Names of the envs that were made: gymnasium warns of an old version, or of bounds that lose precision, for each env
# of a run, but once is enough.
_made: set[str] = set()


@ENV_REGISTRY.register("gymnasium")
class GymnasiumEnv(LazyEnv):
    """A gymnasium environment: float64 observations become float32, other dtypes are kept; reward [1] float32.

    The config names it by `env_id` or gives `env`, an instance or a function; `kwargs` are arguments of
    `gymnasium.make` or that function. `wrappers` lists wrappers or (wrapper, kwargs), innermost first;
    `max_episode_steps` sets the step limit; with `act_scale` real-valued actions come in [-1, 1] and are mapped onto
    the bounds of the action space, with `act_bins` they come as choices among values.

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
        self.rollout_normalization = cfg  # with `norm_obs` and `norm_reward`
        super().__init__(bool(cfg.get("act_scale", False)), cfg.get("act_bins"))

    def step(self, action: Any) -> BaseEnvTimestep:
        """Act once; integers come as int or as an integer array with one element, the rest as arrays.

        Raises:
            TypeError: the action is of another kind than the action space.
            ValueError: the action is outside of the action space.
            EnvOutputError: what the environment returns is not of the form that gymnasium requires.
            RuntimeError: there was no reset.
        """
        if self._env is None:
            raise RuntimeError(f"{self!r}: step() before reset()")
        try:
            obs, reward, terminated, truncated, info = self._env.step(self._adapt_action(action))
        except (TypeError, ValueError) as e:
            wrong = EnvOutputError.of_step(e, self)
            if wrong is None:
                raise
            raise wrong from e
        if type(reward) is not float:
            reward = one_float(reward)
        self._episode_return += reward
        terminated, truncated = bool(terminated), bool(truncated)
        try:
            info = {**info, "terminated": terminated, "truncated": truncated}
        except TypeError:
            raise EnvOutputError(
                f"{self!r}: the info of step() is {shown(info)}; return a dict, which may be empty"
            ) from None
        done = terminated or truncated
        if done:
            info["eval_episode_return"] = self._episode_return
        if type(obs) is not np.ndarray or obs.dtype is not self._obs_dtype or obs.shape != self._obs_shape:
            obs = self._as_observation(obs)
        # A named tuple made without a Python call: this runs once for each step of each env.
        own_reward = np.empty(1, _FLOAT32)
        own_reward[0] = reward if abs(reward) <= FLOAT32_MAX else reward * math.inf  # numpy would warn of an overflow
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
        return begin_episode(self._env, self, seed=seed, options=options)[0]

    def _attach(self, env: Any) -> None:
        super()._attach(env)
        space = self.observation_space
        # Of observations that need no conversion: none but those of a Box.
        is_box = space_kind(space) == "Box"
        self._obs_dtype: Any = space.dtype if is_box else None
        self._obs_shape: tuple[int, ...] = space.shape if is_box else ()

    def _as_observation(self, obs: Any) -> Any:
        if type(obs) is np.ndarray and obs.dtype is self._obs_dtype and obs.shape == self._obs_shape:
            return obs
        return super()._as_observation(obs)

    def _make(self, video_folder: str | None) -> Any:
        return self._source.make(video_folder, video_prefix(self))

    def _discard(self, env: Any) -> None:
        if not self._source.is_instance:
            env.close()


def begin_episode(env: Any, named: Any, **how: Any) -> tuple[Any, Any]:
    """Reset a gymnasium env, which errors call `named`, and return the observation and info.

    Raises:
        EnvOutputError: the env returns something else.
    """
    begun = env.reset(**how)
    if not (isinstance(begun, tuple | list) and len(begun) == 2 and isinstance(begun[1], Mapping)):
        raise EnvOutputError(
            f"{named!r}: reset() returned {in_one_line(begun)}, of type {type(begun).__name__}; "
            "return (observation, info)"
        )
    return begun[0], begun[1]


class _Muted:
    """Counter of blocks without warnings of gymnasium. (`warnings.catch_warnings` would let each one show again.)"""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._count = self._level = 0

    def add(self, number: int) -> None:
        """Note that a block begins (1) or ends (-1)."""
        from gymnasium import logger

        with self._lock:
            if self._count == 0:
                self._level = logger.min_level
            self._count += number
            logger.min_level = max(self._level, logger.ERROR) if self._count else self._level


_muted = _Muted()


@contextlib.contextmanager
def without_warnings() -> Iterator[None]:
    """Suppress the warnings of gymnasium in this block, but not its errors."""
    _muted.add(1)
    try:
        yield
    finally:
        _muted.add(-1)


@dataclass(frozen=True)
class GymnasiumSource:
    """The definition of an env; `make` may be called any number of times.

    Attributes:
        env_id: an id that gymnasium knows, or None.
        env: an instance or a function without arguments, or None.
        kwargs: further keyword arguments for `gymnasium.make`, or of `env`, which has them already.
        wrappers: (wrapper, its keyword arguments), the innermost first.
        max_episode_steps: the number of steps after which episodes are truncated; None keeps the env's own limit.
    """

    env_id: str | None
    env: Any
    kwargs: dict[str, Any]
    wrappers: tuple[Wrapper, ...]
    max_episode_steps: int | None

    @classmethod
    def from_config(cls, cfg: Mapping[str, Any]) -> GymnasiumSource:
        """Read the keys of `SETTINGS`; an env section may hold any others.

        Raises:
            ConfigError: a value is not allowed, or not exactly one of `env_id` and `env` is given.
        """
        cfg = plain(resolved(cfg, "env")) if cfg is not None else {}
        check_values(cfg, "env (type gymnasium)", SETTINGS.rules())
        env_id, env = cfg.get("env_id"), cfg.get("env")
        if (env_id is None) == (env is None):
            raise ConfigError(
                f"env (type gymnasium): give one of env_id and env; env_id = {env_id!r}, env = {shown(env)}"
            )
        kwargs = dict(cfg.get("kwargs", {}))
        if isinstance(env, str) or (isinstance(env, (list, tuple)) and len(env) == 2):
            env = factory_of(env)
        if env is not None and kwargs:
            if not _is_factory(env):
                raise ConfigError(
                    f"env (type gymnasium): kwargs = {kwargs!r} are not for an env that is made, {shown(env)}; give "
                    "its class, or a function that makes it"
                )
            env = factory_of((env, kwargs))
        wrappers = tuple(_read_wrapper(entry) for entry in cfg.get("wrappers", ()))
        if cfg.get("channels_first"):
            wrappers += ((channels_first, {}),)
        return cls(env_id, env, kwargs, wrappers, cfg.get("max_episode_steps"))

    @property
    def name(self) -> str:
        """The id, as configured or as the env states it, else the class or function."""
        if self.env_id is not None:
            return self.env_id
        spec = getattr(self.env, "spec", None)
        return str(getattr(spec, "id", None) or _name_of(self.env))

    @property
    def is_instance(self) -> bool:
        """Whether each `make` wraps the same env."""
        return self.env is not None and not _is_factory(self.env)

    def make(self, video_folder: str | None = None, video_prefix: str = "rl-video") -> Any:
        """Return a wrapped env; with `video_folder` it records each episode there.

        Raises:
            TypeError: `env` is, or returns, something other than a gymnasium env.
            ValueError: a video is requested, but the env was not made for `rgb_array` rendering.
        """
        kind = self.env_id
        if kind is None and not self.is_instance:
            kind = getattr(self.env, "__qualname__", None)
        with without_warnings() if kind in _made else contextlib.nullcontext():
            env = self._make_raw(record=video_folder is not None)
        if kind is not None:
            _made.add(kind)
        try:
            for wrapper, kwargs in self.wrappers:
                env = wrapper(env, **kwargs)
            return env if video_folder is None else record_video(env, video_folder, video_prefix)
        except Exception:
            if not self.is_instance:
                env.close()
            raise

    def _make_raw(self, record: bool) -> Any:
        import gymnasium

        if self.env_id is not None:
            limit = {} if self.max_episode_steps is None else {"max_episode_steps": self.max_episode_steps}
            kwargs = {"disable_env_checker": True, **limit, **self.kwargs}
            return make_by_id(self.env_id, **({**kwargs, "render_mode": "rgb_array"} if record else kwargs))
        env = self.env() if _is_factory(self.env) else self.env
        if not isinstance(env, gymnasium.Env):
            raise TypeError(f"env (type gymnasium): {shown(self.env)} gave {shown(env)}, which is not a gymnasium.Env")
        if self.max_episode_steps is not None:
            return gymnasium.wrappers.TimeLimit(env, self.max_episode_steps)
        return env


def env_section_of(env: Any) -> dict[str, Any]:
    """Return the keys of an env section of type `gymnasium` that define the env.

    Args:
        env: an id of gymnasium; a class or function that makes an env, or its name `module:name`; a pair of it and its
            arguments; a spec of gymnasium, or an env that has one.

    Raises:
        ConfigError: a pair contains something else.
        TypeError: `env` does not say how it is made.
    """
    import gymnasium

    if isinstance(env, str):
        return {"env": env} if _names_a_class(env) else {"env_id": env}
    if isinstance(env, (list, tuple)) and len(env) == 2:
        factory_of(env)
        return {"env": held_form(env)}
    spec = env if isinstance(env, gymnasium.envs.registration.EnvSpec) else getattr(env, "spec", None)
    if isinstance(spec, gymnasium.envs.registration.EnvSpec) and not isinstance(env, type):
        return _section_of_spec(spec)
    if callable(env) and not hasattr(env, "step") or isinstance(env, type):
        return {"env": env}
    raise TypeError(
        f"env = {shown(env)} cannot be made again for each of the envs: give an id of gymnasium, or a class or "
        "function without arguments that makes one"
    )


def _names_a_class(env: str) -> bool:
    """Return whether a text is `module:name` of a class or function, and not `module:id`."""
    import gymnasium

    if not is_reference(env):
        return False
    module, _, name = env.partition(":")
    import_module(module, "env")
    return name not in gymnasium.registry


def _section_of_spec(spec: Any) -> dict[str, Any]:
    import gymnasium

    if spec.id not in gymnasium.registry or any(wrapper.kwargs is None for wrapper in spec.additional_wrappers):
        return {"env": partial(gymnasium.make, spec)}  # which says what it lacks
    kwargs = {key: value for key, value in spec.kwargs.items() if key != "render_mode"}
    limit = spec.max_episode_steps
    limits = {} if limit in (None, gymnasium.spec(spec.id).max_episode_steps) else {"max_episode_steps": limit}
    wrappers = [(wrapper.entry_point, dict(wrapper.kwargs)) for wrapper in spec.additional_wrappers]
    more = {"kwargs": kwargs, "wrappers": wrappers}
    return {"env_id": spec.id, **{key: held_form(value) for key, value in more.items() if value}, **limits}


# What makes ids with a namespace known: a module, and its function if importing it is not enough.
_REGISTRATIONS = {"MinAtar": ("minatar.gym", "register_envs"), "ALE": ("ale_py", None)}


def register_namespace(env_id: str) -> None:
    """Make the ids of a namespace of `_REGISTRATIONS` known to gymnasium.

    Raises:
        ImportError: the package is not installed.
    """
    import gymnasium

    namespace, slash, _ = env_id.partition("/")
    if not slash or namespace not in _REGISTRATIONS or env_id in gymnasium.registry:
        return
    module, function = _REGISTRATIONS[namespace]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            imported = importlib.import_module(module)
    except ModuleNotFoundError as e:
        package = module.partition(".")[0].replace("_", "-")
        raise ImportError(f"the env {env_id!r} needs a package that is not installed: pip install {package}") from e
    if function is not None:
        getattr(imported, function)()


def resolve_id(env_id: str) -> tuple[str, int | None]:
    """Return `(id to make, step limit to give it or None)`.

    A `-v0` id becomes the `-v1` one if gymnasium has dropped v0, or if both differ in the step limit only: then the
    limit of v0 is kept. If they differ in more, the id stays as it is.
    """
    import gymnasium

    register_namespace(env_id)
    if not env_id.endswith("-v0"):
        return env_id, None
    newer = gymnasium.registry.get(env_id[:-1] + "1")
    old = gymnasium.registry.get(env_id)
    if newer is None:
        return env_id, None
    if old is None:
        return newer.id, None
    if (old.entry_point, old.kwargs) != (newer.entry_point, newer.kwargs):
        return env_id, None
    return newer.id, old.max_episode_steps


def make_by_id(env_id: str, **kwargs: Any) -> Any:
    """Return the environment `env_id`, or its successor with its step limit, as `resolve_id` says."""
    import gymnasium

    current_id, limit = resolve_id(env_id)
    return gymnasium.make(current_id, **{**({} if limit is None else {"max_episode_steps": limit}), **kwargs})


def _name_of(env: Any) -> str:
    """Return the name of a class or function, or of the one a partial calls, or of the class of another object."""
    while isinstance(env, partial) and not hasattr(env, "__name__"):
        env = env.func
    return str(getattr(env, "__name__", None) or type(env).__name__)


def _is_factory(env: Any) -> bool:
    return isinstance(env, type) or (callable(env) and not hasattr(env, "step"))


def factory_of(env: Any) -> Callable[[], Any]:
    """Return the function that makes an env: `env`, or what `module:name` names, or one of a pair with its arguments.

    Raises:
        ConfigError: it is none of these.
    """
    make, kwargs = _read_callable(env, "env")
    if not kwargs:
        return make
    factory = partial(make, **kwargs)
    factory.__name__ = _name_of(make)  # type: ignore[attr-defined]
    return factory


def _read_wrapper(entry: Any) -> Wrapper:
    return _read_callable(entry, "wrappers")


def _read_callable(entry: Any, key: str) -> Wrapper:
    """Return a class or function and its keyword arguments, given as itself, as `module:name`, or in a pair."""
    make, kwargs = entry if isinstance(entry, (list, tuple)) and len(entry) == 2 else (entry, {})
    if isinstance(make, str):
        make = resolve_reference(make, f"env.{key}")
    if callable(make) and isinstance(kwargs, dict):
        return make, dict(kwargs)
    raise ConfigError(
        f"env (type gymnasium): {key} has {shown(entry)}; it must be a callable, its name module:name, or a pair "
        "(callable or name, dict of kwargs)"
    )
