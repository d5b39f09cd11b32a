"""The completion of a config by what its model needs from the env: shapes, and the kind of actions."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, MutableMapping, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any

import numpy as np
from easydict import EasyDict

from ding.config.config import compile_config
from ding.config.main_settings import value_at
from ding.config.resolve import resolve_class
from ding.entry.checks import members_of
from ding.entry.workers import closing
from ding.envs.common.gym_compat import spaces_like
from ding.envs.env.base_env import get_vec_env_setting
from ding.envs.env_manager.base_env_manager import create_env_manager
from ding.utils.config_helper import ConfigError, settings_of
from ding.utils.import_helper import import_module
from ding.utils.registry_factory import MODEL_REGISTRY
from ding.utils.showing import shown

_SHAPES = {"obs_shape": "observation_space", "action_shape": "action_space"}
_BRANCHES, _BINS = "num_branches", "action_bins_per_branch"  # of models that have them instead of an action shape
_KIND = "action_space"  # the key of policies for several kinds of actions
_SCALE = "scale_ob"  # the argument of models that divide images


def complete_model(
    main: MutableMapping[str, Any],
    create: Mapping[str, Any],
    env_setting: Sequence[Any] | None = None,
    model: Any = None,
) -> None:
    """Set, in place, `obs_shape` and `action_shape` of the model if the main config leaves them out.

    `policy.action_space` is set with them if the policy has that setting, and `scale_ob` to 255 for images of bytes if
    the model has that argument. A model with branches is given `num_branches` and `action_bins_per_branch`. An env is
    made, for its spaces, only if something is left out.

    Args:
        create: the create config, whose section `policy` may also have these settings.
        env_setting: see `serial_pipeline`.
        model: the caller's network; with one, nothing counts as left out.

    Raises:
        ConfigError: the shape does not follow from the space of the env.
    """
    missing = [] if model is not None else [key for key in _SHAPES if not _given(main, create, f"model.{key}")]
    if not missing:
        return
    with ExitStack() as stack:
        cfg = _compiled(main, create, env_setting)
        policy_cls = resolve_class("policy", create["policy"])
        parameters = _parameters(policy_cls, cfg)
        required = {name for name, parameter in parameters.items() if parameter.default is parameter.empty}
        missing = [key for key in missing if key in required]
        lacks_branches = _BRANCHES in parameters and not _given(main, create, f"model.{_BRANCHES}")
        if not missing and not lacks_branches:
            return
        env = _env(stack, cfg, env_setting)
        shapes = {key: model_shape(key, getattr(env, _SHAPES[key])) for key in missing}
        policy = main.setdefault("policy", EasyDict())
        section = policy.setdefault("model", EasyDict())
        section.update(shapes)
        is_scaled = _SCALE in parameters and not _given(main, create, f"model.{_SCALE}")
        if is_scaled and "obs_shape" in missing and _shows_bytes(env.observation_space):
            section[_SCALE] = 255.0
        if lacks_branches:
            section[_BRANCHES], bins = branches_of(env.action_space)
            section.setdefault(_BINS, bins)
        has_kinds = _KIND in policy_cls.default_config()
        if has_kinds and "action_shape" in missing and not _given(main, create, _KIND):
            kind, rule = section.get(_KIND) or _kind_of(env.action_space), settings_of(policy_cls)[_KIND].rule
            if rule is None or rule(kind) is None:  # else the policy is compared with the env later
                policy[_KIND] = kind


def model_shape(key: str, space: Any) -> Any:
    """Return the `obs_shape` or `action_shape` of a model for a space.

    It is a number for vectors and for a choice among actions, a list for images and for several choices, and a dict for
    dicts; of a dict with an `action_mask`, only `observation` counts.

    Raises:
        ConfigError: the space has no such shape, or its images have their channels last.
    """
    spaces = spaces_like(space)
    members = members_of(space) if key == "obs_shape" else None
    if members:
        if members.keys() == {"observation", "action_mask"}:
            return model_shape(key, members["observation"])
        return {name: model_shape(key, member) for name, member in members.items()}
    if key == "action_shape" and isinstance(space, spaces.Discrete):
        return int(space.n)
    if key == "action_shape" and isinstance(space, spaces.MultiDiscrete):
        return [int(count) for count in space.nvec.reshape(-1)]
    if isinstance(space, spaces.Box) and space.shape:
        if key == "obs_shape" and _has_channels_last(space.shape):
            raise ConfigError(
                f"policy.model.obs_shape is missing, and the env shows images with their channels last, {space.shape}; "
                "encoders take (channels, height, width): wrap the env, as by env.wrappers = "
                "['ding.envs.env.gymnasium_spaces:channels_first']"
            )
        return int(space.shape[0]) if len(space.shape) == 1 else [int(size) for size in space.shape]
    usable = "a Discrete, a MultiDiscrete or a Box"
    if key == "obs_shape":
        usable = "a Box or a Dict of them, as by env.wrappers = ['gymnasium.wrappers:FlattenObservation']"
    raise ConfigError(
        f"policy.model.{key} is missing, and the env's {_SHAPES[key]} {shown(space)} does not tell it: set it, or wrap "
        f"the env so that the space is {usable}"
    )


def branches_of(space: Any) -> tuple[int, int]:
    """Return the number of choices of an action, and of the values of each.

    Raises:
        ConfigError: the space is no choice among equally many values.
    """
    spaces = spaces_like(space)
    counts = [int(space.n)] if isinstance(space, spaces.Discrete) else []
    if isinstance(space, spaces.MultiDiscrete):
        counts = [int(count) for count in space.nvec.reshape(-1)]
    if len(set(counts)) == 1:
        return len(counts), counts[0]
    raise ConfigError(
        f"policy.model.{_BRANCHES} is missing, and the env's action_space {shown(space)} does not tell it: branches "
        "need a MultiDiscrete of equal counts, which env.act_bins makes of a bounded Box"
    )


def _has_channels_last(shape: tuple[int, ...]) -> bool:
    return len(shape) == 3 and shape[2] in (1, 3, 4) and shape[0] not in (1, 2, 3, 4)


def _shows_bytes(space: Any) -> bool:
    """Return whether a space has images, also within dicts, and all of them are of bytes."""
    dtypes = [part.dtype for part in _parts(space) if isinstance(part, spaces_like(part).Box) and len(part.shape) == 3]
    return bool(dtypes) and all(dtype == np.uint8 for dtype in dtypes)


def _parts(space: Any) -> list[Any]:
    members = members_of(space)
    return [space] if members is None else [part for member in members.values() for part in _parts(member)]


def _kind_of(space: Any) -> str:
    return "continuous" if isinstance(space, spaces_like(space).Box) else "discrete"


def _given(main: Mapping[str, Any], create: Mapping[str, Any], path: str) -> bool:
    return value_at(main, f"policy.{path}") is not None or value_at(create, f"policy.{path}") is not None


def _compiled(main: Any, create: Any, env_setting: Sequence[Any] | None) -> EasyDict:
    env = None if env_setting is None else env_setting[0]
    types = {name: create[name] for name in ("env", "env_manager", "policy") if name in create}
    return compile_config(main, env=env, auto=True, create_cfg=types, save_cfg=False)


def model_parameters(main: Mapping[str, Any], create: Mapping[str, Any]) -> list[str]:
    """Return the names of the arguments of the model that is built from two configs."""
    return list(_parameters(resolve_class("policy", create["policy"]), _compiled(main, create, None)))


def _parameters(policy_cls: Any, cfg: EasyDict) -> Mapping[str, inspect.Parameter]:
    section = cfg.policy.model
    if "type" in section:
        kind, names = section.type, section.get("import_names", [])
    else:
        kind, names = policy_cls(cfg.policy, enable_field=[]).default_model()
    import_module(names)
    return inspect.signature(MODEL_REGISTRY.get(kind)).parameters


def _env(stack: ExitStack, cfg: EasyDict, env_setting: Sequence[Any] | None) -> Any:
    """Return an env manager, which is not launched, for its spaces."""
    found: Sequence[Any] = get_vec_env_setting(cfg.env, collect=False) if env_setting is None else env_setting
    env_fn, _, env_cfgs = found
    return closing(stack, create_env_manager(cfg.env.manager, [partial(env_fn, cfg=own) for own in env_cfgs]))
