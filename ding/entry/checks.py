"""Checks of limits and configs before a run starts, and what the env tells of its model: shapes, kinds of actions."""

from __future__ import annotations

import contextlib
import inspect
import re
import zlib
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any

import numpy as np
import torch
from easydict import EasyDict

from ding.config.config import compile_config, resolve_class
from ding.config.main_settings import value_at
from ding.config.save import named_modules, unsaved_values
from ding.data.buffer.deque_buffer_wrapper import DequeBufferWrapper
from ding.envs.common.gym_compat import duck_kind, entries_of, space_kind
from ding.envs.env.base_env import get_vec_env_setting
from ding.envs.env.gymnasium_spaces import has_channels_last
from ding.envs.env_manager.base_env_manager import create_env_manager
from ding.model.common.model_factory import constructor_of, parameters_of
from ding.policy.settings import positive
from ding.torch_utils.optimizer_helper import follows_progress
from ding.utils.action_mask import ACTION_MASK
from ding.utils.config_helper import ConfigError, Rule, Setting, settings_of, worded
from ding.utils.default_helper import closing, one_time_warning
from ding.utils.log_helper import shown
from ding.utils.pytorch_ddp_dist_helper import get_world_size, smallest_over_ranks
from ding.utils.references import hidden_file, is_of_notebook, why_unnamed
from ding.utils.registry_factory import BUFFER_REGISTRY
from ding.worker.replay_buffer.advanced_buffer import AdvancedReplayBuffer
from ding.worker.replay_buffer.hindsight_buffer import HindsightReplayBuffer
from ding.worker.replay_buffer.naive_buffer import NaiveReplayBuffer

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


def check_schedule(main: Mapping[str, Any], has_length: bool, limits: str) -> None:
    """Check that the length of a run is known if the learning rates follow its progress.

    Args:
        limits: the arguments that limit the run, for the message.

    Raises:
        ConfigError: it is not known.
    """
    schedule = value_at(main, "policy.learn.lr_scheduler")
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
    limit = worded("max_train_iter (iterations)", "--train-iter")
    check_schedule(main, "train_iterations" in learner, f"{limit}, as learners do not count env steps")


def cuda_of(device: Any) -> bool | str:
    """Return the value of `policy.cuda` for a device: 'cpu', 'cuda', 'cuda:1' and so on, or 'auto'.

    Raises:
        ConfigError: it is no such name, or there is no such device.
    """
    name, count = str(device), torch.cuda.device_count() if torch.cuda.is_available() else 0
    if name in ("cpu", "auto"):
        return name == "auto" and count > 0
    if re.fullmatch(r"cuda(:\d+)?", name) is None:
        raise ConfigError(f"device = {name!r} is not allowed; it must be 'cpu', 'cuda', 'cuda:1' and so on, or 'auto'")
    if count == 0:
        raise ConfigError(
            f"device = {name!r} is not available: torch {torch.__version__} finds no GPU; choose 'cpu', or install a "
            "build of torch with CUDA and a driver that fits it"
        )
    if int(name.partition(":")[2] or 0) >= count:
        raise ConfigError(f"device = {name!r} is not available: there are cuda:0 to cuda:{count - 1}")
    return True if name == "cuda" else name


def check_evaluation_episodes(cfg: Mapping[str, Any]) -> None:
    """Check that there are at least as many evaluation episodes as evaluator envs.

    Raises:
        ConfigError: `env.n_evaluator_episode` < `env.evaluator_env_num`.
    """
    episodes, envs = cfg["env"].get("n_evaluator_episode"), cfg["env"].get("evaluator_env_num")
    if episodes is not None and envs is not None and episodes < envs:
        raise ConfigError(
            f"env.n_evaluator_episode = {episodes} is less than env.evaluator_env_num = {envs}; each evaluator env "
            "plays at least one episode, so raise the first or lower the second"
        )


def refuse_unsaved(main: Mapping[str, Any]) -> None:
    """Check that the folder of a run can name env and network; in a notebook, where no class has a file, only warn.

    Raises:
        ConfigError: one of them, or an argument of it, is a lambda, a local class, or another object without a saved
            form, or belongs to a script that an installed module hides.
    """
    parts = {"env": main["env"], "policy": {"model": main["policy"].get("model")}}
    for key, value in unsaved_values(parts).items():
        if not is_of_notebook(value):
            raise ConfigError(
                f"{key} = {shown(value)} is not allowed: {why_unnamed(value)}, so the folder of the run could not name "
                "it, and the policy could not be evaluated or loaded later; give a class or function at the top level "
                "of a module or script, or numbers, texts, arrays, paths, enums, dataclasses and containers of these"
            )
    for hidden in _hidden(main):
        raise ConfigError(hidden)
    warn_of_unsaved(main)


def warn_of_unsaved(main: Mapping[str, Any]) -> None:
    """Warn about values that the folder of a run cannot hold, and that a user of the run has to pass again later."""
    for hidden in _hidden(main):
        one_time_warning(hidden)
    values = unsaved_values(main)
    if values:
        first = next(iter(values))
        one_time_warning(
            f"{', '.join(values)}: the folder of the run cannot name such an object ({first} = "
            f"{shown(values[first])}), so `ding eval` and `load_policy` will need it again; classes and functions at "
            "the top level of a module are saved by name"
        )


def _hidden(main: Mapping[str, Any]) -> Iterator[str]:
    """Yield messages about files with classes that a run folder would look for in an installed module."""
    for module in named_modules(main):
        path = hidden_file(module)
        if path is not None:
            yield (
                f"{path} has the name of an installed module, {module!r}, which would be imported instead of it when "
                "the policy is evaluated or loaded later: rename the file"
            )


def check_ranks(cfg: Mapping[str, Any]) -> None:
    """Check that several ranks keep their models equal.

    Raises:
        ConfigError: there are several ranks, and `policy.multi_gpu` is False.
    """
    world_size = get_world_size()
    if world_size > 1 and not cfg["policy"].get("multi_gpu", False):
        raise ConfigError(
            f"policy.multi_gpu = False is not allowed on {world_size} ranks, whose models would drift apart; set "
            "policy.multi_gpu = True, or train outside DDPContext"
        )


def check_equal_parameters(policy: Any) -> None:
    """Check, on all ranks together, that a policy's network has the same parameters on each.

    Raises:
        RuntimeError: it has not.
    """
    model = getattr(policy, "_model", None)
    if model is None:
        return
    checksum = 0
    for parameter in model.parameters():
        checksum = zlib.crc32(parameter.detach().flatten().view(torch.uint8).cpu().numpy(), checksum)
    if smallest_over_ranks(checksum) != -smallest_over_ranks(-checksum):
        raise RuntimeError(
            f"the ranks have trained different networks: an update of {type(policy).__name__} does not average the "
            "gradients; take its steps by self._backward_and_step, or call self.sync_gradients(self._model) between "
            "backward and the step of the optimizer"
        )


def check_pipeline(cfg: Mapping[str, Any], has_buffer: bool) -> None:
    """Check that the policy fits the pipeline: off-policy to `serial_pipeline`, else `serial_pipeline_onpolicy`.

    `serial_pipeline_onpolicy` also accepts a policy without `on_policy` if it has no `learn.update_per_collect`.

    Args:
        has_buffer: whether the pipeline has a replay buffer, like `serial_pipeline`.

    Raises:
        ConfigError: they do not fit, `policy.learn.update_per_collect` is missing, or there is no buffer, or several.
    """
    policy = cfg["policy"]
    if has_buffer and policy["other"]["replay_buffer"] is None:
        raise ConfigError(
            "policy.other.replay_buffer = None is not allowed: the pipeline has a replay buffer; leave it out for the "
            "defaults"
        )
    kind, on_policy, learn = policy["type"].removesuffix("_command"), policy.get("on_policy", False), policy["learn"]
    if has_buffer and policy["other"]["replay_buffer"].get("multi_buffer", False):
        raise ConfigError(
            f"the policy {kind!r} learns from several replay buffers, and serial_pipeline has one: train it in a loop "
            "of your own, with create_buffer for each section of policy.other.replay_buffer"
        )
    if has_buffer and on_policy:
        raise ConfigError(
            f"policy.on_policy = True: the policy {kind!r} learns only from what it has just collected, and "
            "serial_pipeline would give it old samples; call serial_pipeline_onpolicy, or set policy.on_policy = False "
            "if it can learn from old samples"
        )
    if has_buffer and "update_per_collect" not in learn:
        raise ConfigError(
            f"policy.learn.update_per_collect is missing; set it to the number of batches that {kind!r} trains on "
            "after each collection, or call serial_pipeline_onpolicy if the policy is on-policy"
        )
    if not has_buffer and not on_policy and "update_per_collect" in learn:
        raise ConfigError(
            f"policy.on_policy = False: the policy {kind!r} learns from a replay buffer, and serial_pipeline_onpolicy "
            "has none; call serial_pipeline, or set policy.on_policy = True if it learns only from what it has just "
            "collected"
        )


def check_collector_fits_buffer(cfg: Mapping[str, Any]) -> None:
    """Check that the replay buffer accepts the items of the collector.

    Raises:
        ConfigError: the collector returns episodes, but the buffer accepts only transitions.
    """
    collect, buffer = cfg["policy"]["collect"], cfg["policy"]["other"]["replay_buffer"]
    collector = collect["collector"]
    if collector.get("type") != "episode" or collector.get("get_train_sample", False) or "type" not in buffer:
        return
    if issubclass(BUFFER_REGISTRY.get(buffer["type"]), AdvancedReplayBuffer | HindsightReplayBuffer):
        needs_number = " and policy.collect.n_episode" if collect.get("n_episode") is None else ""
        raise ConfigError(
            "policy.collect.collector.type = 'episode' gives whole episodes (lists of transitions), which the replay "
            f"buffer {buffer['type']!r} refuses; set policy.collect.collector.get_train_sample = True{needs_number} to "
            "train on samples of them, use the collector 'sample', or, for a policy that learns from whole episodes, "
            "set policy.other.replay_buffer.type = 'episode'"
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


# Settings that compiling overrides: (where users may have set it, what overrides it).
_OVERRULED = (
    ("seed", "the argument seed"),
    ("policy.collect.unroll_len", "policy.unroll_len"),
    ("policy.eval.evaluator.stop_value", "env.stop_value"),
    ("policy.eval.evaluator.n_episode", "env.n_evaluator_episode"),
)


def warn_of_overruled_settings(user: Mapping[str, Any], compiled: Mapping[str, Any]) -> None:
    """Warn once about each setting in the `user` config that compiling has overridden."""
    for path, winner in _OVERRULED:
        own, used = value_at(user, path), value_at(compiled, path)
        if own is not None and own != used:
            one_time_warning(f"{path} = {own!r} has no effect: {winner} takes its place ({used!r}); set that one")


def warn_of_unused_priority(cfg: Mapping[str, Any]) -> None:
    """Warn once if only one of policy and replay buffer uses priorities."""
    buffer = cfg["policy"]["other"]["replay_buffer"]
    if "type" not in buffer:
        return
    has_priority, kind = bool(cfg["policy"].get("priority", False)), BUFFER_REGISTRY.get(buffer["type"])
    if has_priority and issubclass(kind, NaiveReplayBuffer) and not issubclass(kind, AdvancedReplayBuffer):
        one_time_warning(
            f"policy.priority = True has no effect: the replay buffer {buffer['type']!r} draws uniformly; set "
            "policy.other.replay_buffer.type = 'advanced'"
        )
    elif issubclass(kind, DequeBufferWrapper) and has_priority != bool(buffer.get("priority", False)):
        one_time_warning(
            f"policy.priority = {has_priority} and policy.other.replay_buffer.priority = {not has_priority}: the "
            f"replay buffer {buffer['type']!r} uses priorities only if both are True; make them equal"
        )


def check_model_fits_env(model_cfg: Mapping[str, Any], env: Any, is_foreign: bool = False) -> None:
    """Compare `policy.model.obs_shape` and `action_shape` with the spaces of a launched env manager.

    Shapes are compared with box spaces, and numbers of actions with discrete spaces; what is unknown is skipped. An env
    may have more leading axes (agents, frames) than the model's shape.

    Args:
        is_foreign: whether the model is the user's own, which may use a dict observation as it likes.

    Raises:
        ConfigError: a shape differs; the message names both.
    """
    pairs = (
        ("obs_shape", "observation_space", _obs_fits),
        ("action_shape", "action_space", _action_fits),
    )
    for key, space_name, fits in pairs:
        shape, space = model_cfg.get(key), getattr(env, space_name, None)
        if is_foreign and entries_of(space) is not None and not isinstance(shape, Mapping):
            continue
        if shape is not None and space is not None:
            _check_fits(f"policy.model.{key}", shape, space_name, space, fits)


def _check_fits(key: str, shape: Any, space_name: str, space: Any, fits: Any) -> None:
    members = entries_of(space) if fits is _obs_fits else None
    if isinstance(shape, Mapping) and members is not None:
        if "observation" not in shape and entries_of(members.get("observation")) is not None:  # beside an action_mask
            _check_fits(key, shape, f"{space_name}['observation']", members["observation"], fits)
            return
        for name, entry in shape.items():
            if name not in members:
                raise ConfigError(
                    f"{key} = {dict(shape)!r} does not fit the env: its {space_name} has no entry {name!r}"
                )
            _check_fits(f"{key}[{name!r}]", entry, f"{space_name}[{name!r}]", members[name], fits)
    elif members is not None:
        if "observation" not in members:
            raise ConfigError(
                f"{key} = {shape!r} does not fit the env, whose {space_name} is a dict of {', '.join(members)}; leave "
                "it out, or set it to a dict of their shapes"
            )
        _check_fits(key, shape, f"{space_name}['observation']", members["observation"], fits)
    elif not fits(shape, space):
        raise ConfigError(
            f"{key} = {shape!r} does not fit the env, whose {space_name} is {shown(space)}; "
            f"set {key} to what the env has, or choose another env"
        )


def check_policy_fits_env(policy: Any, env: Any) -> None:
    """Check that policy and env agree on whether actions are discrete or real-valued.

    Raises:
        ConfigError: they contradict each other.
    """
    space, wants_discrete = getattr(env, "action_space", None), getattr(policy, "has_discrete_actions", None)
    if wants_discrete is None or space is None:
        return
    kind = duck_kind(space)
    is_real = kind == "Box" and bool(space.shape)
    has_integers = kind == "Box" and np.issubdtype(getattr(space, "dtype", None) or np.float32, np.integer)
    is_choice = has_integers or kind in ("Discrete", "MultiDiscrete", "MultiBinary")
    if (wants_discrete and is_real) or (not wants_discrete and is_choice):
        kind = "discrete" if wants_discrete else "real-valued"
        instead = "choose another policy.type or another env"
        rule = settings_of(type(policy)).get(_KIND, Setting()).rule
        if rule is not None and rule(_kind_of(space)) is None and not has_integers:
            instead = f"set policy.action_space = {_kind_of(space)!r}, or {instead}"
        if has_integers:
            instead += ", or wrap the env so that the space is a MultiDiscrete of as many values"
        elif wants_discrete:
            instead += ", or set env.act_bins (type gymnasium) to split each action into so many values"
        raise ConfigError(
            f"{type(policy).__name__} chooses {kind} actions, but the env's action_space is {shown(space)}; {instead}"
        )


def _obs_fits(shape: Any, space: Any) -> bool:
    return duck_kind(space) != "Box" or not space.shape or _ends_with(space.shape, shape)


def _action_fits(shape: Any, space: Any) -> bool:
    match duck_kind(space):
        case "MultiDiscrete":
            return not _is_shape(shape) or isinstance(shape, int) or list(space.nvec.reshape(-1)) == list(shape)
        case "Discrete" | "MultiBinary":
            return not isinstance(shape, int) or shape == space.n
    return _obs_fits(shape, space)


def _is_shape(shape: Any) -> bool:
    is_list = isinstance(shape, Sequence) and not isinstance(shape, str)
    return isinstance(shape, int) or (is_list and all(isinstance(size, int) for size in shape))


def _ends_with(env_shape: Sequence[int], shape: Any) -> bool:
    if not _is_shape(shape):
        return True
    end = (shape,) if isinstance(shape, int) else tuple(shape)
    return tuple(env_shape)[-len(end) :] == end if end else True


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
    """Set, in place, `obs_shape` and `action_shape` if the main config leaves them out and the model has them.

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
        told = [key for key in missing if key in parameters]
        lacks_branches = _BRANCHES in parameters and not _given(main, create, f"model.{_BRANCHES}")
        has_kinds = _KIND in policy_cls.default_config()
        lacks_kind = has_kinds and "action_shape" in missing and not _given(main, create, _KIND)
        if not (told or lacks_branches or lacks_kind):
            return
        cfg.env.pop("norm_obs", None)  # its statistics are read with the data set; it changes no shape
        env = _env(stack, cfg, env_setting)
        policy = main.setdefault("policy", EasyDict())
        section = policy.setdefault("model", EasyDict())
        if lacks_kind:
            kind, rule = section.get(_KIND) or _kind_of(env.action_space), settings_of(policy_cls)[_KIND].rule
            if rule is None or rule(kind) is None:  # else the policy is compared with the env later
                policy[_KIND] = kind
        for key in told:
            is_required = parameters[key].default is inspect.Parameter.empty
            with contextlib.nullcontext() if is_required else contextlib.suppress(ConfigError):
                section[key] = model_shape(key, getattr(env, _SHAPES[key]))
        is_scaled = _SCALE in parameters and not _given(main, create, f"model.{_SCALE}")
        if is_scaled and "obs_shape" in told and _shows_bytes(env.observation_space):
            section[_SCALE] = 255.0
        if lacks_branches:
            section[_BRANCHES], bins = branches_of(env.action_space)
            section.setdefault(_BINS, bins)


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
    dtypes = [part.dtype for part in _parts(space) if space_kind(part) == "Box" and len(part.shape) == 3]
    return bool(dtypes) and all(dtype == np.uint8 for dtype in dtypes)


def _parts(space: Any) -> list[Any]:
    members = entries_of(space)
    return [space] if members is None else [part for member in members.values() for part in _parts(member)]


def _kind_of(space: Any) -> str:
    return "continuous" if space_kind(space) == "Box" else "discrete"


def _given(main: Mapping[str, Any], create: Mapping[str, Any], path: str) -> bool:
    return value_at(main, f"policy.{path}") is not None or value_at(create, f"policy.{path}") is not None


def _compiled(main: Any, create: Any, env_setting: Sequence[Any] | None) -> EasyDict:
    env = None if env_setting is None else env_setting[0]
    types = {name: create[name] for name in ("env", "env_manager", "policy") if name in create}
    kind = types.get("policy", {}).get("type")
    if kind is not None and not kind.endswith("_command"):  # the pipelines take the one that reads `policy.other`, too
        types["policy"] = {**types["policy"], "type": f"{kind}_command"}
    return compile_config(main, env=env, auto=True, create_cfg=types, save_cfg=False)


def model_parameters(main: Mapping[str, Any], create: Mapping[str, Any]) -> list[str]:
    """Return the names of the arguments of the model that is built from two configs."""
    return list(_parameters(resolve_class("policy", create["policy"]), _compiled(main, create, None)))


def _parameters(policy_cls: Any, cfg: EasyDict) -> Mapping[str, inspect.Parameter]:
    section = cfg.policy.model
    if "type" in section:
        return parameters_of(constructor_of(section))
    kind, names = policy_cls(cfg.policy, enable_field=[]).default_model()
    return parameters_of(constructor_of({"type": kind, "import_names": names}))


def _env(stack: ExitStack, cfg: EasyDict, env_setting: Sequence[Any] | None) -> Any:
    """Return an env manager, which is not launched, for its spaces."""
    found: Sequence[Any] = get_vec_env_setting(cfg.env, collect=False) if env_setting is None else env_setting
    env_fn, _, env_cfgs = found
    return closing(stack, create_env_manager(cfg.env.manager, [partial(env_fn, cfg=own) for own in env_cfgs]))
