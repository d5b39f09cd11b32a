"""The policy: one model behind the modes learn, collect, eval and command."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from functools import reduce
from typing import Any, ClassVar

import torch
from easydict import EasyDict
from torch import nn

from ding.model.common.model_factory import constructor_of, create_model, parameters_of
from ding.policy import modes
from ding.policy.common_utils import default_preprocess_learn
from ding.policy.settings import GLOSSARY, check_settings, gpu
from ding.policy.training_step import PolicySteps, act_by_env
from ding.rl_utils.adder import get_train_sample
from ding.torch_utils.data_helper import to_device
from ding.torch_utils.mixed_precision import AUTOCAST_TYPES, MixedPrecision, compile_option
from ding.torch_utils.network.fast_modules import set_training
from ding.torch_utils.optimizer_helper import LearningRateSchedule
from ding.utils.batch_methods import accepts_fragments, adapts_batch, does_nothing, plain_transition
from ding.utils.config_helper import (
    NO_DEFAULT,
    ConfigError,
    Configurable,
    Setting,
    Settings,
    boolean,
    integer,
    is_of_package,
    one_of,
    settings_of,
    value_at,
)
from ding.utils.data.samples import Items
from ding.utils.default_helper import deep_merge_dicts, new_generator, one_time_warning
from ding.utils.import_helper import import_module
from ding.utils.log_helper import shown
from ding.utils.module_state import load_model, load_parts, parameter_names, parts_state, with_target
from ding.utils.object_state import SavedAttributes, declared_state, load_declared_state
from ding.utils.pytorch_ddp_dist_helper import get_rank
from ding.utils.random_draws import seeded_weights
from ding.utils.references import resolved
from ding.utils.registry_factory import POLICY_REGISTRY

# Fields are initialized in this order, whatever the order of the argument: it determines the random numbers drawn.
_FIELD_ORDER = ("learn", "collect", "eval", "command")


class Policy(PolicySteps, SavedAttributes, Configurable, ABC):
    """Base class of all algorithms: learning from samples, acting, and making samples from transitions.

    Workers use modes, named tuples of bound methods. All modes share one `nn.Module`, `_model`, so in one process a
    learning step takes effect in the collect and eval modes at once.

    A subclass must define:

    - `settings`, its table of settings on top of those of its base class, or `config`, a dict of defaults, which
      `default_config` merges with those of the base classes.
    - `_init_learn()`, `_init_collect()`, `_init_eval()`: set up a mode: `_learn_model`, `_collect_model` or
      `_eval_model`, created from `_model` by `model_wrap`; for learning also `_optimizer`.
    - `_forward_learn(data)`: learn from a list of train samples and return what to log. `_backward_and_step` takes an
      optimizer step.
    - `_forward_collect(data)`, `_forward_eval(data)`: map `{env_id: obs}` to `{env_id: {'action': ...}}`;
      `_forward_envs` does so with a wrapped model. A `BatchPolicy` acts on stacked observations instead.
    - `_process_transition(obs, policy_output, timestep)`: return the transition of one step of an env.
    - `_get_train_sample(transitions)`: return the train samples of a trajectory fragment.

    It may define:

    - `default_model()`, needed if `cfg.model` has no `type` and no model is passed.
    - `_monitor_vars_learn()`: return the names of the values to log, `cur_lr` and `total_loss` by default.
    - `_reset_learn(data_id)`, `_reset_collect(data_id)`, `_reset_eval(data_id)`: reset the state of these envs.
    - `_learn_parts()`: return what to save, needed if that is more than `_learn_model`, the target network of
      `_init_target`, `_lr_scheduler` and the optimizers in `_optimizer_names`; or `_state_dict_learn()` and
      `_load_state_dict_learn(state_dict)`, as for `collect` and `eval`.
    - `_saved`: the names of further attributes that a resumed run needs, see `SavedAttributes`.
    - `_get_<name>()`: return what the modes' `get_attribute(name)` returns, by default the attribute `_<name>`.

    The serial pipelines also need a command mode; see `CommandModePolicy`.

    Attributes that workers read have defaults: `_unroll_len` is `cfg.collect.unroll_len` or 1, `_priority` is
    `cfg.priority` or False.

    Args:
        cfg: the settings. `on_policy`, `cuda`, `multi_gpu`, `bp_update_sync` and `traj_len_inf` get defaults
            if missing. If `cfg.cuda` is set and there is no GPU, the policy warns and runs on the CPU.
        model: the model to use; None creates one from `cfg.model`.
        enable_field: the modes to set up (None: all). A policy with only the field 'command' has no model.

    Raises:
        AssertionError: `enable_field` names an unknown mode.
        ConfigError: a setting has a wrong type or range.
        RuntimeError: `model` is neither a module nor None.
    """

    settings: ClassVar[Settings] = Settings(
        {
            "on_policy": Setting(False, doc="Use each collected batch once, without a replay buffer."),
            "cuda": Setting(False, gpu, "Compute on a GPU, if one is available, or on the one named, as `'cuda:1'`."),
            "multi_gpu": Setting(False, boolean, "Train replicas of one model in several processes."),
            "bp_update_sync": Setting(True, doc="Average gradients after, not during the backward pass."),
            "traj_len_inf": Setting(False, doc="Cut samples out of whole episodes."),
            "priority": Setting(rule=boolean, doc="Sample by priority."),
            "model": Setting({}, doc="Arguments of the model; `type` names another registered model."),
            "learn.resume_training": Setting(False, doc="Continue the last run of the experiment."),
            "learn.autocast": Setting(None, one_of(*AUTOCAST_TYPES), "16-bit type of forward passes and losses."),
            "learn.compile": Setting(False, compile_option, "Compile the model with this backend of `torch.compile`."),
            "collect.unroll_len": Setting(rule=integer(1)),
        },
        glossary=GLOSSARY,
    )
    total_field: ClassVar[set[str]] = {"learn", "collect", "eval"}

    _saved: ClassVar[tuple[str, ...]] = (
        *("_rng", "_progress_remaining", "_mixed_precision"),
        *("_learn_model", "_collect_model", "_eval_model", "_target_model"),  # of wrappers without their module
    )

    # Set by the subclass: the model, wrapped for each mode, and its optimizer.
    _learn_model: Any = None
    _collect_model: Any = None
    _eval_model: Any = None
    _optimizer: torch.optim.Optimizer

    # Keys of `_learn_parts` that states of DI-engine lack. Without its state, a target network is a copy of the online
    # one.
    _optional_parts: ClassVar[tuple[str, ...]] = ()

    # Attributes that learning saves, too, by name without the leading underscore. States of DI-engine lack them.
    _learn_values: ClassVar[tuple[str, ...]] = ()

    # Whether actions are discrete (True), real-valued (False), or either (None).
    has_discrete_actions: ClassVar[bool | None] = None

    # Whether samples are sequences of steps. Other policies of this package learn from single steps.
    learns_from_sequences: ClassVar[bool] = False

    learn_function: ClassVar[type] = modes.learn_function
    collect_function: ClassVar[type] = modes.collect_function
    eval_function: ClassVar[type] = modes.eval_function

    @classmethod
    def default_config(cls) -> EasyDict:
        """Return a new config: the `config` of this class merged with those of its base classes.

        Raises:
            RuntimeError: called on `Policy` itself.
        """
        if cls is Policy:
            raise RuntimeError("Policy itself has no default config; call default_config of a subclass")
        cfg = EasyDict(cls._merged_config())
        cfg.cfg_type = cls.__name__ + "Dict"
        return cfg

    @classmethod
    def _merged_config(cls) -> dict[str, Any]:
        # The config of our settings is complete; a class may instead have a `config` of its own keys only.
        policies = [base for base in reversed(cls.__mro__) if issubclass(base, Policy) and "config" in vars(base)]
        package_bases = [base for base in policies if is_of_package(base) and "settings" in vars(base)]
        completed = {
            base for base in package_bases for other in package_bases if other is not base and issubclass(other, base)
        }
        configs = [base.config for base in policies if base not in completed]
        return copy.deepcopy(reduce(deep_merge_dicts, configs, {}))

    def __init__(self, cfg: EasyDict, model: nn.Module | None = None, enable_field: list[str] | None = None) -> None:
        check_settings(cfg, type(self).__name__, settings_of(type(self)))
        defaults = self._merged_config()
        for key in ("on_policy", "cuda", "multi_gpu", "bp_update_sync", "traj_len_inf"):
            if key not in cfg:
                cfg[key] = defaults[key]
        if model is None and cfg.get("model") is None:
            cfg.model = EasyDict()
        self._cfg = cfg
        self._unroll_len = int(value_at(cfg, "collect.unroll_len", 1))
        self._priority = value_at(cfg, "priority", False)
        self._on_policy = cfg.on_policy
        requested = self.total_field if enable_field is None else set(enable_field)
        if not requested <= self.total_field:
            raise AssertionError(
                f"enable_field = {enable_field!r} is not allowed; choose among {', '.join(sorted(self.total_field))}"
            )
        extra = sorted(requested - set(_FIELD_ORDER))
        self._enable_field = [field for field in _FIELD_ORDER if field in requested] + extra
        self._cuda = False
        self._rank = 0
        self._device = "cpu"
        self._rng = new_generator()  # of learning; wrappers that sample actions have their own
        with seeded_weights():
            if requested & {"learn", "collect", "eval"}:
                self._set_up_model(self._create_model(cfg, model), "learn" in requested)
            if "learn" in requested:
                self._check_learning()
            for field in self._enable_field:
                getattr(self, "_init_" + field)()
        if "learn" in requested and (autocast := value_at(cfg, "learn.autocast")):
            self._mixed_precision = MixedPrecision(autocast, self._device)
        if requested & {"learn", "collect", "eval"} and (backend := value_at(cfg, "learn.compile", False)):
            self._model.compile(backend="inductor" if backend is True else str(backend))

    def _check_learning(self) -> None:
        """Check that the policy can take training steps."""
        methods = type(self)._get_train_sample, type(self)._forward_learn
        # Methods of users may interpret the setting as they like.
        is_ours = all(method.__module__.startswith("ding.policy.") for method in methods)
        if self._unroll_len > 1 and is_ours and not self.learns_from_sequences:
            raise ConfigError(
                f"policy.collect.unroll_len = {self._unroll_len} is not allowed for {type(self).__name__}, which "
                "learns from single steps; set it to 1, or choose a policy that learns from sequences: r2d2, impala, "
                "acer"
            )

    def _set_up_model(self, model: nn.Module, learns: bool) -> None:
        self._cuda = bool(self._cfg.cuda) and torch.cuda.is_available()
        if self._cfg.cuda and not self._cuda:
            one_time_warning(
                "policy.cuda = True, but torch finds no GPU (torch.cuda.is_available() is False): it runs on the CPU; "
                "set policy.cuda = False, or install a build of torch with CUDA and a driver that fits it"
            )
        multi_gpu = bool(self._cfg.multi_gpu) and learns
        self._rank = get_rank() if multi_gpu else 0
        if self._cuda:
            self._device = self._gpu()
            if multi_gpu:
                torch.cuda.set_device(self._device)
            model.to(self._device)
        if multi_gpu:
            self._bp_update_sync = self._cfg.bp_update_sync
            self._init_multi_gpu_setting(model, self._bp_update_sync)
        self._model = model

    def _gpu(self) -> str:
        """Return the name of the GPU that the config names, or of the one of this rank.

        Raises:
            ConfigError: there is no such GPU, or each of several ranks has one of its own.
        """
        name, count = self._cfg.cuda, torch.cuda.device_count()
        if not isinstance(name, str):
            return f"cuda:{self._rank % count}"
        if self._cfg.multi_gpu:
            raise ConfigError(
                f"policy.cuda = {name!r} is not allowed with multi_gpu, where each rank has a GPU: set True"
            )
        if int(name.removeprefix("cuda:")) >= count:
            raise ConfigError(f"policy.cuda = {name!r} does not exist: there are cuda:0 to cuda:{count - 1}")
        return name

    def _create_model(self, cfg: EasyDict, model: nn.Module | None = None) -> nn.Module:
        """Return `model`, or a new one from `cfg.model`; `default_model` provides a missing type.

        The policy's default arguments are meant for its own model; another model need not accept them.
        """
        if model is None:
            if "type" not in cfg.model:
                cfg.model.type, cfg.model.import_names = self.default_model()
            constructor = constructor_of(cfg.model)
            for key, value in self._model_arguments().items():
                if key in parameters_of(constructor):
                    own_value = cfg.model.setdefault(key, value)
                    if own_value != value and is_of_package(constructor):
                        raise ConfigError(
                            f"policy.{key} = {cfg[key]!r} contradicts policy.model.{key} = {own_value!r}; set the "
                            f"latter to {value!r}, or omit it"
                        )
            defaults = self._merged_config().get("model", {})
            return create_model(cfg.model, optional=[key for key in defaults if cfg.model.get(key) == defaults[key]])
        if not isinstance(model, nn.Module):
            raise RuntimeError(f"invalid model: {type(model)}; it must be an nn.Module or None")
        return model

    def _model_arguments(self) -> Mapping[str, Any]:
        """Return the arguments that follow from the policy's config, for models that know them."""
        return {}

    # --- modes ---

    @property
    def cfg(self) -> EasyDict:
        """The config of this policy."""
        return self._cfg

    @property
    def learn_mode(self) -> modes.learn_function:
        """The functions a learner uses."""
        is_scheduled = isinstance(self._lr_scheduler, LearningRateSchedule)
        forward, mixed = self._forward_scheduled if is_scheduled else self._forward_learn, self._mixed_precision
        return modes.learn_function(
            forward if mixed is None else mixed.wrap(forward),
            self._reset_learn,
            self.__repr__,
            self._monitor_vars_scheduled if is_scheduled else self._monitor_vars_learn,
            self._get_attribute,
            self._set_attribute,
            self._state_dict_learn,
            self._load_state_dict_learn,
        )

    @property
    def collect_mode(self) -> modes.collect_function:
        """The functions a collector uses."""
        return modes.collect_function(
            self._forward_collect,
            self._process_transition,
            self._get_train_sample,
            self._reset_collect,
            self._get_attribute,
            self._set_attribute,
            self._state_dict_collect,
            self._load_state_dict_collect,
        )

    @property
    def eval_mode(self) -> modes.eval_function:
        """The functions an evaluator uses."""
        return modes.eval_function(
            self._forward_eval,
            self._reset_eval,
            self._get_attribute,
            self._set_attribute,
            self._state_dict_eval,
            self._load_state_dict_eval,
        )

    def __repr__(self) -> str:
        # A policy with only a command mode has no model.
        return f"DI-engine DRL Policy\n{shown(getattr(self, '_model', None))}"

    # --- what a subclass implements ---

    @abstractmethod
    def _init_learn(self) -> None: ...

    @abstractmethod
    def _init_collect(self) -> None: ...

    @abstractmethod
    def _init_eval(self) -> None: ...

    @abstractmethod
    def _forward_learn(self, data: Any, *args: Any, **kwargs: Any) -> dict[str, Any] | list[dict[str, Any]]:
        """Take one or more optimizer steps on a list of train samples, and return the values to log, per step."""

    @abstractmethod
    def _forward_collect(self, data: dict[int, Any], *args: Any, **kwargs: Any) -> dict[int, Any]:
        """Act with exploration: map `{env_id: obs}` to `{env_id: output}`, where an output is a dict with `action`."""

    @abstractmethod
    def _forward_eval(self, data: dict[int, Any], *args: Any, **kwargs: Any) -> dict[int, Any]:
        """Act greedily; the arguments and the result are as in `_forward_collect`."""

    @abstractmethod
    def _process_transition(self, obs: Any, policy_output: dict[str, Any], timestep: Any) -> dict[str, Any]:
        """Return the transition of one env step."""

    @abstractmethod
    def _get_train_sample(self, transitions: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return the train samples of a trajectory fragment."""

    def _reset_learn(self, data_id: list[int] | None = None) -> None:  # noqa: B027 overriding it is optional
        """Reset the state of learning; by default do nothing."""

    @does_nothing
    def _reset_collect(self, data_id: list[int] | None = None) -> None:  # noqa: B027 overriding it is optional
        """Reset the state of the envs `data_id` (None: all); by default do nothing."""

    @does_nothing
    def _reset_eval(self, data_id: list[int] | None = None) -> None:  # noqa: B027 overriding it is optional
        """Reset the state of the envs `data_id` (None: all); by default do nothing."""

    def end_epoch(self) -> None:  # noqa: B027 overriding it is optional
        """Handle the end of an epoch of offline training; by default do nothing."""

    def default_model(self) -> tuple[str, list[str]]:
        """Return `(registered model type, modules to import for it)`.

        Raises:
            NotImplementedError: the policy has no default model.
        """
        raise NotImplementedError(f"{type(self).__name__} has no default model; set cfg.model.type or pass a model")

    def _monitor_vars_learn(self) -> list[str]:
        return ["cur_lr", "total_loss"]

    # --- the schedule of the learning rates ---

    def _get_follows_progress(self) -> bool:
        """Return whether training steps need the attribute `progress_remaining`."""
        schedule = self._lr_scheduler
        return isinstance(schedule, LearningRateSchedule) and schedule.follows_progress

    def _forward_scheduled(self, data: Any, *args: Any, **kwargs: Any) -> dict[str, Any] | list[dict[str, Any]]:
        """Learn at the rates of the schedule, which then takes a step."""
        self._lr_scheduler.begin(self._progress_remaining)
        output = self._forward_learn(data, *args, **kwargs)
        self._lr_scheduler.step()
        return output

    def _monitor_vars_scheduled(self) -> list[str]:
        names = self._monitor_vars_learn()
        return [*(name for _, name in self._optimizer_names.values() if name not in names), *names]

    # --- state ---

    def state_dict(self) -> dict[str, Any]:
        """Return the complete state of this policy in all its modes, for exact resuming.

        That is the state of the learn mode (of the collect or eval mode, if the policy does not learn), the attributes
        in `_saved`, those of wrappers, such as generators and the recurrent states of the envs, and those of modules.
        """
        state = super().state_dict()
        if (mode := self._mode_with_weights) is not None:
            state[mode] = getattr(self, f"_state_dict_{mode}")()
            state["modules"] = [declared_state(part) for part in self._modules_with_state()]
        return state

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> list[str]:
        """Restore the state that `state_dict` of a policy with the same config and modes returned.

        Raises:
            RuntimeError: a module has other parameters.
            ValueError: the state lacks something, or contains an object that this policy does not have.
        """
        if (mode := self._mode_with_weights) is not None:
            getattr(self, f"_load_state_dict_{mode}")(state_dict[mode])
            for part, state in zip(self._modules_with_state(), state_dict["modules"], strict=True):
                load_declared_state(part, state)
        return load_declared_state(self, state_dict, self._device)

    @property
    def _mode_with_weights(self) -> str | None:
        return next((mode for mode in ("learn", "collect", "eval") if mode in self._enable_field), None)

    def _modules_with_state(self) -> list[nn.Module]:
        """Return the modules whose class declares `_saved`, such as those that draw random numbers."""
        networks = (self._model,) if self._target_net is None else (self._model, self._target_net)
        return [part for network in networks for part in network.modules() if hasattr(type(part), "_saved")]

    def _learn_parts(self) -> dict[str, Any]:
        """Return what learning saves and loads, by key: modules, optimizers, tensors and other stateful objects."""
        parts = {"model": self._learn_model}
        if self._target_net is not None:
            parts["target_model"] = self._target_model
        parts |= {key: getattr(self, attribute) for attribute, (key, _) in self._optimizer_names.items()}
        return parts if self._lr_scheduler is None else {**parts, "lr_scheduler": self._lr_scheduler}

    def _state_dict_learn(self) -> dict[str, Any]:
        state = parts_state(self._learn_parts())
        if self._target_net is not None:
            state["target_update_count"] = self._target_model.update_count
        return state | {name[1:]: copy.copy(getattr(self, name)) for name in self._learn_values}

    def _load_state_dict_learn(self, state_dict: dict[str, Any]) -> None:
        if "target_model" in self._optional_parts:
            state_dict = with_target(state_dict)
        optional = (*self._optional_parts, "lr_scheduler")
        load_parts(self._learn_parts(), state_dict, optional, parameter_names(self._model))
        if self._target_net is not None:
            self._target_model.reset(target_update_count=state_dict.get("target_update_count"))
        for name in self._learn_values:
            if name[1:] in state_dict:
                setattr(self, name, to_device(copy.copy(state_dict[name[1:]]), self._device))

    def _state_dict_collect(self) -> dict[str, Any]:
        return {"model": self._collect_model.state_dict()}

    def _load_state_dict_collect(self, state_dict: dict[str, Any]) -> None:
        load_model(self._collect_model, state_dict)

    def _state_dict_eval(self) -> dict[str, Any]:
        return {"model": self._eval_model.state_dict()}

    def _load_state_dict_eval(self, state_dict: dict[str, Any]) -> None:
        load_model(self._eval_model, state_dict)


class BatchPolicy(Policy):
    """A policy that acts on stacked observations, without a dict for each env.

    `_act_collect` and `_act_eval`, which forward `_collect_model` and `_eval_model`, take the place of
    `_forward_collect` and `_forward_eval`. A class that overrides one of the latter is nevertheless called with dicts.
    Train samples are plain transitions. `_update`, which takes the optimizer steps on a batch of them, takes the place
    of `_forward_learn`.
    """

    settings: ClassVar[Settings] = Settings(
        {
            "learn.lr_scheduler": NO_DEFAULT,
            "learn.lr_scheduler.epoch_num": NO_DEFAULT,
            "learn.lr_scheduler.min_lr_lambda": NO_DEFAULT,
        },
        Policy.settings,
    )

    # Keyword arguments of the model's forward when collecting and evaluating.
    _collect_kwargs: ClassVar[Mapping[str, Any]] = {}
    _eval_kwargs: ClassVar[Mapping[str, Any]] = {}
    # What transitions hold of the output, and whether they hold the next observation.
    _output_keys: Sequence[str] = ("action",)
    _records_next_obs: ClassVar[bool] = True
    # Wrappers of the model, by which it acts when collecting and evaluating.
    _collect_wrapper: str = "base"
    _eval_wrapper: str = "base"
    # What is collated of train samples, beside `_output_keys` and importance weights, and whether rewards are [n, B].
    _learn_keys: Collection[str] = ("obs", "next_obs", "reward", "done", "terminated", "weight")
    _uses_nstep: bool = False

    @property
    def sample_keys(self) -> set[str]:
        """What train samples must have of an env step, with these names in any policy."""
        return {*self._learn_keys, "action"} & {"obs", "next_obs", "action", "reward", "done"}

    # --- learn ---

    def __init__(self, cfg: EasyDict, model: nn.Module | None = None, enable_field: list[str] | None = None) -> None:
        super().__init__(cfg, model, enable_field)
        schedule = value_at(cfg, "learn.lr_scheduler")
        if "learn" in self._enable_field and schedule is not None and self._lr_scheduler is None:
            parts = self._learn_parts().values()
            optimizers = [part for part in parts if isinstance(part, torch.optim.Optimizer)]
            self._lr_scheduler = LearningRateSchedule(optimizers, schedule)

    def _check_learning(self) -> None:
        learns, updates = getattr(self._forward_learn, "__func__", None), getattr(self._update, "__func__", None)
        if learns is BatchPolicy._forward_learn and updates is PolicySteps._update:
            raise NotImplementedError(f"{type(self).__name__} must define _forward_learn, or _update")
        super()._check_learning()

    def _forward_learn(self, data: Any) -> dict[str, Any] | list[dict[str, Any]]:
        """Take one training step on B samples, and return the values to log and the priorities of the samples.

        Logged learning rates are those of this step.
        """
        batch = self._prepare(data)
        if not self._model.training:
            set_training(self._model, True)
        if self._target_net is not None and not self._target_net.training:
            set_training(self._target_net, True)
        learned = self._update(batch)
        if self._target_net is not None:
            self._target_model.update(self._learn_model)
        return {**self._learning_rates(), **learned.to_numbers()}

    def _prepare(self, data: Any) -> Any:
        """Collate the samples on the device of the model."""
        keys = {*self._learn_keys, *self._output_keys}
        batch = default_preprocess_learn(
            data,
            use_priority_IS_weight=self._priority_IS_weight,
            use_priority=self._priority,
            use_nstep=self._uses_nstep,
            ignore_done=self._cfg.learn.get("ignore_done", False),
            keys=keys | {"IS", "priority_IS"} if self._priority_IS_weight else keys,
        )
        return self._on_model(batch)

    # --- collect and eval ---

    def _init_collect(self) -> None:
        self._collect_model = self._wrapped(self._collect_wrapper)

    def _init_eval(self) -> None:
        self._eval_model = self._wrapped(self._eval_wrapper)

    def _act_collect(self, obs: Any, env_ids: list[int]) -> dict[str, Any]:
        """Act with exploration.

        Args:
            obs: the observations of E envs: an array or tensor [E, *obs_shape], or a (nested) dict of them.
            env_ids: the ids of these envs.

        Returns:
            `action` and whatever transitions need, in tensors [E, ...] on the CPU, or nested dicts and lists of them.
        """
        return self._forward_batch(self._collect_model, obs, **self._collect_kwargs)

    def _act_eval(self, obs: Any, env_ids: list[int]) -> dict[str, Any]:
        """Act greedily; the arguments and the result are as in `_act_collect`."""
        return self._forward_batch(self._eval_model, obs, **self._eval_kwargs)

    @adapts_batch("_act_collect")
    def _forward_collect(self, data: dict[int, Any], *args: Any, **kwargs: Any) -> dict[int, Any]:
        """Call `_act_collect` on `{env_id: obs}`."""
        return act_by_env(self._act_collect, data, *args, **kwargs)

    @adapts_batch("_act_eval")
    def _forward_eval(self, data: dict[int, Any], *args: Any, **kwargs: Any) -> dict[int, Any]:
        """Call `_act_eval` on `{env_id: obs}`."""
        return act_by_env(self._act_eval, data, *args, **kwargs)

    @plain_transition(attribute="_output_keys")
    def _process_transition(self, obs: Any, policy_output: dict[str, Any], timestep: Any) -> dict[str, Any]:
        next_obs = {"next_obs": timestep.obs} if self._records_next_obs else {}
        output = {key: policy_output[key] for key in self._output_keys}
        return {"obs": obs, **next_obs, **output, "reward": timestep.reward, "done": timestep.done}

    @accepts_fragments
    def _get_train_sample(self, transitions: Items) -> Any:
        return get_train_sample(transitions, self._unroll_len)


class CommandModePolicy(Policy):
    """A policy with a command mode, which computes settings of the other modes from the training progress.

    A subclass must also define `_init_command()` and `_get_setting_learn`, `_get_setting_collect` and
    `_get_setting_eval(command_info)`. The pipelines look it up under the name `<type>_command`.
    `DummyCommandModePolicy` has no settings, `EpsCommandModePolicy` an epsilon schedule. Use one of them as the second
    base class:

        @POLICY_REGISTRY.register("mine_command")
        class MyCommandModePolicy(MyPolicy, DummyCommandModePolicy): ...
    """

    command_function: ClassVar[type] = modes.command_function
    total_field: ClassVar[set[str]] = {"learn", "collect", "eval", "command"}

    @property
    def command_mode(self) -> modes.command_function:
        """The functions a commander uses; their `info` has `envstep` and `learner_step`."""
        return modes.command_function(self._get_setting_learn, self._get_setting_collect, self._get_setting_eval)

    @abstractmethod
    def _init_command(self) -> None: ...

    @abstractmethod
    def _get_setting_learn(self, command_info: dict[str, Any]) -> dict[str, Any]:
        """Return keyword arguments for the learner."""

    @abstractmethod
    def _get_setting_collect(self, command_info: dict[str, Any]) -> dict[str, Any]:
        """Return keyword arguments for `collect_mode.forward`."""

    @abstractmethod
    def _get_setting_eval(self, command_info: dict[str, Any]) -> dict[str, Any]:
        """Return keyword arguments for `eval_mode.forward`."""


def create_policy(cfg: EasyDict, **kwargs: Any) -> Policy:
    """Import `cfg.import_names`, then build the registered policy `cfg.type`; `kwargs` go to its constructor."""
    import_module(cfg.get("import_names", []))
    policy: Policy = POLICY_REGISTRY.build(cfg.type, cfg=resolved(cfg, "policy"), **kwargs)
    return policy


def get_policy_cls(cfg: EasyDict) -> type[Policy]:
    """Import `cfg.import_names`, then look up the class registered as `cfg.type`."""
    import_module(cfg.get("import_names", []))
    cls: type[Policy] = POLICY_REGISTRY.get(cfg.type)
    return cls
