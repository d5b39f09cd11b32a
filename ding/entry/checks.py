"""Checks of limits and configs before a run starts, and what the env tells of its model: shapes, kinds of actions."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Mapping, MutableMapping
from typing import Any

import numpy as np
import torch
from easydict import EasyDict

from ding.config.config import resolve_class
from ding.config.save import unsaved_values
from ding.envs.common.gym_compat import duck_kind, entries_of, space_kind
from ding.envs.env.gymnasium_spaces import has_channels_last
from ding.model.common.model_factory import constructor_of, parameters_of
from ding.torch_utils.optimizer_helper import follows_progress
from ding.utils.action_mask import ACTION_MASK
from ding.utils.config_helper import ConfigError, Rule, Setting, positive, settings_of, value_at
from ding.utils.default_helper import one_time_warning
from ding.utils.log_helper import shown

UNLIMITED = int(1e10)


def check_limits(rule: Rule, **limits: Any) -> None:
    """Check the limits of a run.

    Raises:
        ConfigError: a limit does not satisfy `rule`.
    """
    for name, limit in limits.items():
        allowed = rule(limit)
        if allowed is not None:
            raise ConfigError(f"{name} = {limit!r} is not allowed; it must be {allowed}, or left out for no limit")


def check_schedule(schedule: Any, has_length: bool, limits: str) -> None:
    """Check that the length of a run is known if the learning rates follow its progress.

    Args:
        schedule: `policy.learn.lr_scheduler`.
        limits: the arguments that limit the run, for the message.

    Raises:
        ConfigError: it is not known.
    """
    if not has_length and follows_progress(schedule):
        raise ConfigError(
            f"policy.learn.lr_scheduler = {shown(schedule)} follows the progress of the run, whose length is not "
            f"known: give {limits}, or choose a schedule by steps, as {{'epoch_num': 1000, 'min_lr_lambda': 0}}"
        )


def set_limits(main: Any, system: Any, max_train_iter: int, max_env_step: int) -> None:
    """Check the limits, and write them into the two configs in place; a lower limit in a config is kept.

    Raises:
        ConfigError: a limit is not positive.
    """
    check_limits(positive, max_train_iter=max_train_iter, max_env_step=max_env_step)
    learner = main.setdefault("policy", {}).setdefault("learn", {}).setdefault("learner", {})
    if max_train_iter < UNLIMITED:
        learner["train_iterations"] = int(min(max_train_iter, learner.get("train_iterations", max_train_iter)))
    if max_env_step < UNLIMITED:
        coordinator = system.setdefault("coordinator", {})
        coordinator["max_env_step"] = min(max_env_step, coordinator.get("max_env_step", max_env_step))
    limit = "max_train_iter (iterations in train, --train-iter), as learners do not count env steps"
    check_schedule(main["policy"]["learn"].get("lr_scheduler"), "train_iterations" in learner, limit)


def cuda_of(device: Any) -> bool | str:
    """Return the value of `policy.cuda` for a device: 'cpu', 'cuda', 'cuda:1' and so on, or 'auto'.

    Raises:
        ConfigError: it is no such name, or there is no such device.
    """
    name, count = str(device), torch.cuda.device_count() if torch.cuda.is_available() else 0
    if name == "auto":
        return count > 0
    found = ["cuda", *(f"cuda:{number}" for number in range(count))] if count else []
    if name not in ("cpu", *found):
        gpus = f"there are {', '.join(found)}" if found else f"torch {torch.__version__} finds no GPU (such as cuda:1)"
        raise ConfigError(f"device = {name!r} is not available; it must be 'cpu', 'auto' or a GPU, and {gpus}")
    return name == "cuda" or (name != "cpu" and name)


def check_saved(main: Mapping[str, Any], is_needed: bool = False) -> None:
    """Warn about values that the folder of a run cannot hold, and that a user of the run has to pass again later.

    Args:
        is_needed: whether the workers of the run need what is saved.

    Raises:
        ConfigError: it is needed, and a value has no saved form.
    """
    values = unsaved_values(main)
    if not values:
        return
    found = ", ".join(f"{key} = {shown(value)}" for key, value in values.items())
    text = (
        f"the folder of the run cannot name {found}, so workers, `ding eval` and "
        "`load_policy` do not have it; put classes and functions at the top level of a module to save them by name"
    )
    if is_needed:
        raise ConfigError(text)
    one_time_warning(text)


def check_pipeline(cfg: Mapping[str, Any], has_buffer: bool) -> None:
    """Check that the policy fits the pipeline: off-policy to `serial_pipeline`, else `serial_pipeline_onpolicy`.

    `serial_pipeline_onpolicy` also accepts a policy without `on_policy` if it has no `learn.update_per_collect`.

    Args:
        has_buffer: whether the pipeline has a replay buffer, like `serial_pipeline`.

    Raises:
        ConfigError: they do not fit, `policy.learn.update_per_collect` is missing, or there is no buffer, or several.
    """
    policy = cfg["policy"]
    kind, on_policy = policy["type"].removesuffix("_command"), policy.get("on_policy", False)
    has_number = "update_per_collect" in policy["learn"]
    if not has_buffer:
        if has_number and not on_policy:
            raise ConfigError(
                f"policy.on_policy = False: the policy {kind!r} learns from a replay buffer; call serial_pipeline, or "
                "set policy.on_policy = True if it learns only from what it has just collected"
            )
        return
    buffer = policy["other"]["replay_buffer"]
    if buffer is None:
        raise ConfigError("policy.other.replay_buffer = None is not allowed here; leave it out for the defaults")
    if buffer.get("multi_buffer", False):
        raise ConfigError(
            f"the policy {kind!r} learns from several replay buffers, and serial_pipeline has one: train it in a loop "
            "of your own, with create_buffer for each section of policy.other.replay_buffer"
        )
    if on_policy:
        raise ConfigError(
            f"policy.on_policy = True: the policy {kind!r} learns only from what it has just collected; call "
            "serial_pipeline_onpolicy, or set policy.on_policy = False if it can learn from old samples"
        )
    if not has_number:
        raise ConfigError(
            "policy.learn.update_per_collect is missing; set it to the number of batches to train on after each "
            "collection, or call serial_pipeline_onpolicy if the policy is on-policy"
        )


def check_hindsight(cfg: Mapping[str, Any], can_relabel: bool) -> None:
    """Check that policy and pipeline fit the replay buffer `her`, if the config has that.

    Args:
        can_relabel: whether the pipeline can use this buffer.

    Raises:
        ConfigError: they do not fit.
    """
    policy = cfg["policy"]
    if value_at(policy, "other.replay_buffer.type") != "her":
        return
    if not can_relabel:
        raise ConfigError(
            "the replay buffer 'her' needs an off-policy policy that learns in serial_pipeline, such as dqn, ddpg, td3 "
            f"or sac; {policy['type'].removesuffix('_command')!r} does not; leave out her, or choose another policy"
        )
    for key in ("nstep", "collect.unroll_len"):
        number = value_at(policy, key, 1)
        if number != 1:
            raise ConfigError(
                f"policy.{key} = {number} is not allowed with the replay buffer 'her', which replaces the goals of "
                "single steps; set it to 1"
            )
    for key in ("norm_obs", "norm_reward"):
        if value_at(cfg, f"env.{key}.use_norm"):
            raise ConfigError(
                f"env.{key} is not allowed with the replay buffer 'her', which computes rewards from goals as the env "
                "shows them; leave out her or the normalization (normalize)"
            )


def check_model_fits_env(model_cfg: Mapping[str, Any], env: Any, is_foreign: bool = False) -> None:
    """Compare `policy.model.obs_shape` and `action_shape` with the spaces of a launched env manager.

    What is unknown is skipped. An env may have more leading axes (agents, frames) than the model's shape.

    Args:
        is_foreign: whether the model is the user's own, which may use a dict observation as it likes.

    Raises:
        ConfigError: a shape differs; the message names both.
    """
    for key, space_name in _SHAPES.items():
        shape, space = model_cfg.get(key), getattr(env, space_name, None)
        is_total = isinstance(shape, int) and duck_kind(space) == "MultiDiscrete"
        is_own = is_foreign and entries_of(space) is not None and not isinstance(shape, Mapping)
        if shape is None or space is None or is_total or is_own:
            continue
        try:
            wanted = model_shape(key, space)
        except ConfigError:
            continue
        if not _fits(shape, wanted):
            raise ConfigError(
                f"policy.model.{key} = {shape!r} does not fit the env, whose {space_name} is {shown(space)}; leave it "
                f"out, set it to {wanted!r}, or choose another env"
            )


def _fits(shape: Any, wanted: Any) -> bool:
    if isinstance(wanted, Mapping):
        if isinstance(shape, Mapping):
            return all(name in wanted and _fits(part, wanted[name]) for name, part in shape.items())
        return "observation" in wanted and _fits(shape, wanted["observation"])
    sizes = list(shape) if isinstance(shape, list | tuple) else [shape]
    if not all(isinstance(size, int) for size in sizes):
        return True
    return not sizes or np.atleast_1d(wanted)[-len(sizes) :].tolist() == sizes


def check_policy_fits_env(policy: Any, env: Any) -> None:
    """Check that policy and env agree on whether actions are discrete or real-valued.

    Raises:
        ConfigError: they contradict each other.
    """
    space, wants_discrete = getattr(env, "action_space", None), getattr(policy, "has_discrete_actions", None)
    if wants_discrete is None or space is None:
        return
    kind = duck_kind(space)
    is_integer = kind == "Box" and np.issubdtype(space.dtype, np.integer)
    is_choice = is_integer or kind in ("Discrete", "MultiDiscrete", "MultiBinary")
    if not (kind == "Box" and space.shape if wants_discrete else is_choice):
        return
    kind = "discrete" if wants_discrete else "real-valued"
    rule = settings_of(type(policy)).get(_KIND, Setting()).rule
    instead = "set env.act_bins, or choose another policy" if wants_discrete else "choose another policy"
    if rule is not None and rule(_kind_of(space)) is None:
        instead = f"set policy.action_space = {_kind_of(space)!r}"
    raise ConfigError(f"{type(policy).__name__} chooses {kind} actions, not those of {shown(space)}; {instead}")


_SHAPES = {"obs_shape": "observation_space", "action_shape": "action_space"}
_BRANCHES, _BINS = "num_branches", "action_bins_per_branch"  # of models that have them instead of an action shape
_KIND = "action_space"  # the key of policies for several kinds of actions
_SCALE = "scale_ob"  # the argument of models that divide images


def complete_model(
    cfg: EasyDict, main: MutableMapping[str, Any], create: Mapping[str, Any], make_env: Callable[[], Any]
) -> None:
    """Set, in place, `obs_shape` and `action_shape` if the user's configs leave them out and the model has them.

    `policy.action_space` is set with them if the policy has that setting, and `scale_ob` to 255 for images of bytes if
    the model has that argument. A model with branches is given `num_branches` and `action_bins_per_branch`. An env is
    made, for its spaces, only if something is left out.

    Args:
        cfg: the compiled config.
        main: the user's main config, which is completed, too.
        create: the create config, whose section `policy` may also have these settings.
        make_env: returns an env manager, which need not be launched.

    Raises:
        ConfigError: the shape does not follow from the space of the env.
    """
    sections = main.get("policy"), create.get("policy")

    def is_given(path: str) -> bool:
        return any(value_at(section, path) is not None for section in sections)

    missing = [key for key in _SHAPES if not is_given(f"model.{key}")]
    if not missing:
        return
    policy_cls = resolve_class("policy", create["policy"])
    parameters = model_parameters(policy_cls, cfg)
    inferred = [key for key in missing if key in parameters]
    lacks_branches = _BRANCHES in parameters and not is_given(f"model.{_BRANCHES}")
    lacks_kind = _KIND in policy_cls.default_config() and "action_shape" in missing and not is_given(_KIND)
    if not (inferred or lacks_branches or lacks_kind):
        return
    env, found = make_env(), dict[str, Any]()
    for key in inferred:
        is_required = parameters[key].default is inspect.Parameter.empty
        with contextlib.nullcontext() if is_required else contextlib.suppress(ConfigError):
            found[key] = model_shape(key, getattr(env, _SHAPES[key]))
    is_scaled = _SCALE in parameters and not is_given(f"model.{_SCALE}")
    if is_scaled and "obs_shape" in inferred and _shows_bytes(env.observation_space):
        found[_SCALE] = 255.0
    if lacks_branches:
        found[_BRANCHES], bins = branches_of(env.action_space)
        found[_BINS] = value_at(cfg.policy, f"model.{_BINS}") or bins
    for policy in (cfg.policy, main.setdefault("policy", EasyDict())):
        section = policy["model"] = EasyDict(policy.get("model") or {}, **found)
        if lacks_kind:
            kind, rule = section.get(_KIND) or _kind_of(env.action_space), settings_of(policy_cls)[_KIND].rule
            if rule is None or rule(kind) is None:  # else the policy is compared with the env later
                policy[_KIND] = kind


def model_shape(key: str, space: Any) -> Any:
    """Return the `obs_shape` or `action_shape` of a model for a space.

    It is a number for vectors and for a choice among actions, a list for images and for several choices, and a dict for
    dicts, without their `action_mask`; beside that, an `observation` alone has the shape of what it holds.

    Raises:
        ConfigError: the space has no such shape.
    """
    members = entries_of(space) if key == "obs_shape" else None
    if members:
        if members.keys() == {"observation", ACTION_MASK}:
            return model_shape(key, members["observation"])
        inputs = {name: member for name, member in members.items() if name != ACTION_MASK} or members
        return {name: model_shape(key, member) for name, member in inputs.items()}
    kind = space_kind(space)
    if key == "action_shape" and kind == "Discrete":
        return int(space.n)
    if key == "action_shape" and kind == "MultiDiscrete":
        return [int(count) for count in space.nvec.reshape(-1)]
    if kind == "Box" and space.shape:
        if key == "obs_shape" and has_channels_last(space):
            raise ConfigError(
                f"policy.model.obs_shape is missing, and the env shows images with their channels last, {space.shape}; "
                "encoders take (channels, height, width): set env.channels_first = True (type gymnasium), or wrap the "
                "env"
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
    is_choice = space_kind(space) in ("Discrete", "MultiDiscrete")
    counts = np.ravel(model_shape("action_shape", space)).tolist() if is_choice else []
    if len(set(counts)) == 1:
        return len(counts), counts[0]
    raise ConfigError(
        f"policy.model.{_BRANCHES} is missing, and the env's action_space {shown(space)} does not tell it: branches "
        "need a MultiDiscrete of equal counts, which env.act_bins makes of a bounded Box"
    )


def _shows_bytes(space: Any) -> bool:
    """Return whether a space has images, also within dicts, and all of them are of bytes."""
    images = [part for part in _parts(space) if space_kind(part) == "Box" and len(part.shape) == 3]
    return bool(images) and all(image.dtype == np.uint8 for image in images)


def _parts(space: Any) -> list[Any]:
    members = entries_of(space)
    return [space] if members is None else [part for member in members.values() for part in _parts(member)]


def _kind_of(space: Any) -> str:
    return "continuous" if space_kind(space) == "Box" else "discrete"


def model_parameters(policy_cls: Any, cfg: EasyDict) -> Mapping[str, inspect.Parameter]:
    """Return the arguments of the model that is built from a compiled config."""
    section = cfg.policy.model or {}
    if "type" in section:
        return parameters_of(constructor_of(section))
    kind, names = policy_cls(cfg.policy, enable_field=[]).default_model()
    return parameters_of(constructor_of({"type": kind, "import_names": names}))
