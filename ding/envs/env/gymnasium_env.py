"""Any gymnasium environment behind the conventions of this package: by id, from an instance, or from a function."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

from ding.envs.env.gymnasium_spaces import channels_first
from ding.envs.env.lazy_env import LazyEnv, record_video
from ding.utils.config_helper import (
    NO_DEFAULT,
    ConfigError,
    Setting,
    Settings,
    anything,
    boolean,
    check_values,
    instance_of,
    integer,
)
from ding.utils.import_helper import optional_module
from ding.utils.log_helper import shown
from ding.utils.references import config_form, is_reference, plain, resolve_reference, resolved
from ding.utils.registry_factory import ENV_REGISTRY


def _normalization(value: Any) -> str | None:
    """Apply the rule for a section with `use_norm`, or None for no section."""
    is_section = isinstance(value, Mapping) and isinstance(value.get("use_norm", False), bool)
    return None if value is None or is_section else "a dict with use_norm, True or False"


SETTINGS = Settings(
    {
        "env_id": Setting(NO_DEFAULT, instance_of(str, optional=True), "Id of the env in gymnasium."),
        "env": Setting(NO_DEFAULT, anything, "Or an env, what makes one, its name `module:name`, or (it, kwargs)."),
        "kwargs": Setting(NO_DEFAULT, instance_of(dict), "Arguments of `gymnasium.make`, or of what makes `env`."),
        "wrappers": Setting(NO_DEFAULT, instance_of(list, tuple), "Wrappers, names, or (it, kwargs), from inside."),
        "max_episode_steps": Setting(NO_DEFAULT, integer(1, optional=True), "Steps that truncate an episode."),
        "channels_first": Setting(NO_DEFAULT, boolean, "Show images [H, W, C], also within dicts, as [C, H, W]."),
        "act_scale": Setting(NO_DEFAULT, boolean, "Map actions in [-1, 1] onto the bounds of the action space."),
        "act_bins": Setting(NO_DEFAULT, integer(2, optional=True), "Values to choose each real-valued action from."),
        "norm_obs": Setting(
            NO_DEFAULT,
            _normalization,
            "Normalize observations: `use_norm=True`; of a data set `offline_stats=dict(use_offline_stats=True)`, too.",
        ),
        "norm_reward": Setting(
            NO_DEFAULT,
            _normalization,
            "Divide rewards by the deviation of the return: `use_norm=True`; `reward_discount` as the policy's.",
        ),
    }
)
NORMALIZATION = ("norm_obs", "norm_reward")  # what rollouts do, and not the env itself
Wrapper = tuple[Callable[..., Any], dict[str, Any]]


@ENV_REGISTRY.register("gymnasium")
class GymnasiumEnv(LazyEnv):
    """A gymnasium environment: observations in the kind of numbers of their space, at most float32; reward [1] float32.

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
        self._source = GymnasiumSource.from_config(cfg)
        self._is_instance = self._source.is_instance
        self.rollout_normalization = cfg  # with `norm_obs` and `norm_reward`
        super().__init__(bool(cfg.get("act_scale", False)), cfg.get("act_bins"))

    def __repr__(self) -> str:
        return f"GymnasiumEnv({self._source.name})"

    def _add_return(self, info: dict[str, Any]) -> None:
        info["eval_episode_return"] = self._episode_return

    def _make(self, video_folder: str | None) -> Any:
        return self._source.make(video_folder, self)


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
            env = factory_of((env, kwargs))
        wrappers = tuple(_read_callable(entry, "wrappers") for entry in cfg.get("wrappers", ()))
        if cfg.get("channels_first"):
            wrappers += ((channels_first, {}),)
        return cls(env_id, env, kwargs, wrappers, cfg.get("max_episode_steps"))

    @property
    def name(self) -> str:
        """The id, as configured or as the env states it, else the class or function."""
        if self.env_id is not None:
            return self.env_id
        spec = getattr(self.env, "spec", None)
        return str(getattr(spec, "id", None) or name_of(self.env))

    @property
    def is_instance(self) -> bool:
        """Whether each `make` wraps the same env."""
        return self.env is not None and not _is_factory(self.env)

    def make(self, video_folder: str | None = None, owner: Any = None) -> Any:
        """Return a wrapped env; with `video_folder` it records each episode there, see `record_video`.

        Raises:
            TypeError: `env` is, or returns, something other than a gymnasium env.
            ValueError: a video is requested, but the env was not made for `rgb_array` rendering.
        """
        import gymnasium

        limit = self.max_episode_steps
        if self.env_id is not None:
            kwargs = {"disable_env_checker": True, **self.kwargs}
            if limit is not None:
                kwargs = {"max_episode_steps": limit, **kwargs}
            if video_folder is not None:
                kwargs["render_mode"] = "rgb_array"
            env = make_by_id(self.env_id, **kwargs)
        else:
            env = self.env if self.is_instance else self.env()
            if not isinstance(env, gymnasium.Env):
                raise TypeError(f"env = {shown(self.env)} gave {shown(env)}, which is not a gymnasium.Env")
            if limit is not None:
                env = gymnasium.wrappers.TimeLimit(env, limit)
        for wrapper, kwargs in self.wrappers:
            env = wrapper(env, **kwargs)
        return env if video_folder is None else record_video(env, video_folder, owner)


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
        return {"env": env} if is_reference(env) else {"env_id": env}
    if isinstance(env, (list, tuple)) and len(env) == 2:
        factory_of(env)
        return {"env": config_form(env)}
    spec = env if isinstance(env, gymnasium.envs.registration.EnvSpec) else getattr(env, "spec", None)
    if isinstance(spec, gymnasium.envs.registration.EnvSpec) and not isinstance(env, type):
        return _section_of_spec(spec)
    if _is_factory(env):
        return {"env": env}
    raise TypeError(
        f"env = {shown(env)} cannot be made again for each of the envs: give an id of gymnasium, or a class or "
        "function without arguments that makes one"
    )


def _section_of_spec(spec: Any) -> dict[str, Any]:
    import gymnasium

    if spec.id not in gymnasium.registry or any(wrapper.kwargs is None for wrapper in spec.additional_wrappers):
        return {"env": partial(gymnasium.make, spec)}  # which says what it lacks
    kwargs = {key: value for key, value in spec.kwargs.items() if key != "render_mode"}
    limit = spec.max_episode_steps
    limits = {} if limit in (None, gymnasium.spec(spec.id).max_episode_steps) else {"max_episode_steps": limit}
    wrappers = [(wrapper.entry_point, dict(wrapper.kwargs)) for wrapper in spec.additional_wrappers]
    more = {"kwargs": kwargs, "wrappers": wrappers}
    return {"env_id": spec.id, **{key: config_form(value) for key, value in more.items() if value}, **limits}


# By namespace, the module that makes its ids known, by `register_envs` or when it is imported.
_REGISTRATIONS = {"MinAtar": "minatar.gym", "ALE": "ale_py"}


def register_namespace(env_id: str) -> None:
    """Make the ids of a namespace of `_REGISTRATIONS` known to gymnasium.

    Raises:
        ImportError: the package is not installed.
    """
    import gymnasium

    module = _REGISTRATIONS.get(env_id.partition("/")[0])
    if module is None or env_id in gymnasium.registry:
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        imported = optional_module(module, f"the env {env_id!r}", module.partition(".")[0].replace("_", "-"))
    getattr(imported, "register_envs", lambda: None)()


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
    if newer is None or (old is not None and (old.entry_point, old.kwargs) != (newer.entry_point, newer.kwargs)):
        return env_id, None
    return newer.id, None if old is None else old.max_episode_steps


def make_by_id(env_id: str, **kwargs: Any) -> Any:
    """Return the environment `env_id`, or its successor with its step limit, as `resolve_id` says."""
    import gymnasium

    current_id, limit = resolve_id(env_id)
    if limit is not None:
        kwargs = {"max_episode_steps": limit, **kwargs}
    return gymnasium.make(current_id, **kwargs)


def name_of(env: Any) -> str:
    """Return the name of a class or function, or of the one a partial calls, or of the class of another object."""
    while isinstance(env, partial):
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
    return partial(make, **kwargs) if kwargs else make


def _read_callable(entry: Any, key: str) -> Wrapper:
    """Return a class or function and its keyword arguments, given as itself, as `module:name`, or in a pair."""
    make, kwargs = entry if isinstance(entry, (list, tuple)) and len(entry) == 2 else (entry, {})
    if isinstance(make, str):
        make = resolve_reference(make, f"env.{key}")
    if callable(make) and isinstance(kwargs, dict):
        return make, dict(kwargs)
    raise ConfigError(
        f"env: {key} has {shown(entry)}; it must be a callable, its name module:name, or a pair (callable or name, "
        "dict of kwargs)"
    )
