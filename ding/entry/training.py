"""`train`, one call that trains a policy on an env, and the training that it returns."""

from __future__ import annotations

import contextlib
import copy
import math
import os
import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
from easydict import EasyDict
from torch import nn

from ding.config.config import compile_pair, resolve_class
from ding.config.read import put
from ding.config.topics import CLIPPING, KnownKeys
from ding.entry.checks import UNLIMITED, cuda_of, model_parameters
from ding.entry.curves import draw, read_curves
from ding.entry.experiment import Experiment, with_command_mode
from ding.entry.progress import say
from ding.entry.recipes import Recipe, find_recipe, recipe_named
from ding.entry.run_folder import Path, RunFolder
from ding.entry.serial_entry import rounds_for
from ding.entry.trained import (
    TrainedPolicy,
    evaluate_pair,
    export_policy,
    pair_of,
    save_videos,
    spaces_of,
)
from ding.envs.common.gym_compat import entries_of, space_kind
from ding.envs.env.gymnasium_env import GymnasiumEnv, GymnasiumSource, env_section_of
from ding.envs.env.gymnasium_spaces import (
    fitted_observation,
    has_channels_last,
    is_bounded,
)
from ding.envs.env_manager.envpool_env_manager import PoolEnvManager
from ding.model.common.model_factory import without_layers
from ding.policy.base_policy import Policy
from ding.policy.q_actor_critic import QActorCriticPolicy
from ding.utils.config_helper import ConfigError, Setting, settings_of, value_at
from ding.utils.data.nested import leaves
from ding.utils.default_helper import deep_merge_dicts, one_time_warning
from ding.utils.log_helper import shown
from ding.utils.references import with_arguments
from ding.worker.collector.interaction_serial_evaluator import EvalRecord

# Defaults if neither policy nor caller says otherwise: for on-policy training, steps of each env before several epochs
# on them, and before one update; number of envs.
_EPOCHS_STEPS, _UPDATE_STEPS, _ENVS = 128, 8, 8
_EPSILON = {"type": "exp", "start": 0.95, "end": 0.1, "decay": 10000}  # as DQN's
_EPISODES, _EVALUATOR_ENVS = 10, 5  # numbers of episodes and envs of an evaluation
_BINS = 11  # number of values of each real-valued action, for policies that choose among values
_VECTORISED = 16  # from this number of envs on, envs that have a vectorised form of their own are stepped in it
_STEPS_PER_ENV = ("n_steps", "num_steps", "rollout_length")
_CLIP_TYPE = "policy.learn.grad_clip_type"  # None for no clipping, whatever the threshold


def train(
    policy: str,
    env: Any,
    *,
    env_steps: int | None = None,
    iterations: int | None = None,
    stop_value: float | None = None,
    seed: int = 0,
    num_envs: int | None = None,
    env_manager: str | None = None,
    model: Any = None,
    device: Any = None,
    eval_episodes: int | None = None,
    recipe: bool | str = True,
    parallel: bool | int = False,
    resume: bool = False,
    normalize: bool | str = False,
    folder: Path | None = None,
    config: Mapping[str, Any] | None = None,
    on_evaluation: Callable[[int, float], bool | None] | None = None,
    **settings: Any,
) -> Training:
    """Train a policy on an env and return the training, with its policy, folder and learning curve.

    It makes the two configs of `serial_pipeline` and calls the pipeline that the policy needs. Shapes come from the
    env, and settings that the caller does not give come from a recipe, if there is one for the policy and the env;
    `ding list recipes` lists them. `Training.config` holds the configs, from which you can continue.

    Args:
        policy: the registered name of the policy, such as `dqn`, `ppo` or `sac`; `ding list policy` lists them.
        env: the id of a gymnasium env; a class or function without arguments that makes a `gymnasium.Env`, or its name
            `module:name`; a pair of such a class, function or name and a dict of its arguments; a spec of gymnasium, or
            an env that has one, from which envs are made. The run's folder refers to a class or function by name, so it
            must be at the top level of a module or script.
        env_steps, iterations: the number of env steps or iterations after which no new round of collecting and training
            begins: a run has up to one collection more, which is `n_sample` steps.
        stop_value: the mean return of an evaluation at which training ends.
        seed: the seed of everything random in the run.
        num_envs: the number of envs that collect in parallel; by default the recipe's, else as many as the policy's
            `n_sample` allows, at most 8.
        env_manager: the env manager that steps the envs, such as `subprocess`. By default they are stepped in this
            process, in the env's own vectorised form if it has one and there are at least 16 envs.
        model: a network of your own: a class or function that makes an `nn.Module`, or its name `module:name`; a pair
            of it and a dict of its arguments; or a module. A class or function gets `obs_shape`, `action_shape` and
            `action_space` if it has such arguments. The folder cannot name a module, so that `Training.load` needs it
            again. A dict has values of `policy.model` for the policy's own network.
        device: where to compute: `cpu`, `cuda`, one GPU as `cuda:1`, or `auto` for a GPU if there is one; by default
            the CPU.
        eval_episodes: the number of episodes of an evaluation; by default the recipe's, else 10.
        recipe: False for the policy's defaults; or the name of a recipe, which may be for other envs.
        parallel: whether to run learner and collectors in their own processes; an int is the number of collectors,
            which all work at the same time.
        resume: whether to continue the training in `folder`, if there is one.
        normalize: whether to normalize observations and rewards by running statistics, as `VecNormalize` of
            Stable-Baselines3; `"obs"` or `"reward"` for one of them. Integers, such as bytes of images, are kept.
            Evaluations, `predict` and exported networks use the statistics; returns of evaluations stay as they are.
        folder: the folder of the run; by default `<policy>_<env>_seed<seed>`, with a time stamp if it exists.
        config: values of the main config by dotted key, such as
            `{"policy.learn.learner.hook.log_show_after_iter": 50}`; sections may be dicts.
        on_evaluation: called with the env steps and the mean return of each evaluation; if it returns True, the
            training ends. It is not available with `parallel`.
        settings: values by their key or its last part, or by their name in Stable-Baselines3, CleanRL, Tianshou or
            TorchRL, such as `learning_rate=3e-4`, `batch_size=64`, `gamma=0.98`.

    Raises:
        ConfigError: nothing ends the training, a setting is unknown or ambiguous, a value is not allowed, or there is
            no such recipe or device.
        KeyError: the policy is not registered.
        TypeError: `env` or `model` has none of the forms above.

    Example:
        >>> training = train("dqn", "CartPole-v1", env_steps=30_000, stop_value=475)  # doctest: +SKIP
        >>> training.evaluate(20).returns  # doctest: +SKIP
        >>> obs, _ = env.reset(); env.step(training.predict(obs))  # doctest: +SKIP
    """
    if env_steps is None and iterations is None and stop_value is None:
        raise ConfigError(
            "nothing ends the training: give env_steps, iterations or stop_value, as options --env-steps, --train-iter "
            "or --stop-value"
        )
    section = env_section_of(env)
    chosen = _recipe(policy, section, recipe)
    draft = Draft.of_policy(policy, section, num_envs) if chosen is None else Draft.of_recipe(chosen, section, num_envs)
    main, create = pair = draft.main, draft.create
    if parallel:
        main.policy.collect.get("collector", {}).pop("fixed_rollout", None)  # serial collectors alone have it
    if folder is None:
        name = re.sub(r"[^\w.-]+", "_", GymnasiumSource.from_config(main.env).name)
        folder = f"{policy}_{name}_seed{seed}"
    main.exp_name = os.fspath(folder)
    draft.set_env(env_manager, eval_episodes, stop_value, normalize)
    if device is not None:
        main.policy.cuda = cuda_of(device)
    draft.change(model, {} if config is None else config, settings)
    main.env = with_arguments(main).env
    network = model if isinstance(model, nn.Module) else None
    if parallel and network is not None:
        raise ConfigError(
            "model is a module, which other processes cannot make; give its class, or a function that makes it, with "
            "its arguments if any as a pair (class, dict of arguments)"
        )
    draft.complete(bool(parallel))
    limits = {
        "max_train_iter": UNLIMITED if iterations is None else iterations,
        "max_env_step": UNLIMITED if env_steps is None else env_steps,
    }
    if parallel and on_evaluation is not None:
        raise ConfigError("on_evaluation has no effect on parallel training; leave one of them out")
    experiment = None if parallel else _experiment(pair, network, seed)
    if chosen is not None:
        say(f"Recipe: {chosen.name} ({chosen.summary.rstrip('.')}); recipe=False or --recipe none leaves it out.")
    if experiment is None:
        main.exp_name = _run_parallel(pair, parallel, seed=seed, resume=resume, **limits)
    else:
        rounds = rounds_for(main, create)()
        run = experiment.run_serial(rounds, resume=resume, on_evaluation=on_evaluation, evaluates_end=True, **limits)
        main.exp_name, main.policy = run.cfg.exp_name, experiment.main.policy
    return Training(pair, seed, None if chosen is None else chosen.name, network)


class Training:
    """A training that has ended, as `train` returns it, or `Training.load` for the folder of any run.

    Args:
        pair: the two configs.
        seed: the seed of the run.
        recipe: the name of the recipe that was used.
        model: the network that was passed to `train`, if it was a module.

    Attributes:
        config: `(main_config, create_config)`, with which the pipelines train in the same way.
        folder: the folder of the run.
        recipe: the name of the recipe that was used, or None.
    """

    def __init__(
        self,
        pair: tuple[EasyDict, EasyDict],
        seed: int,
        recipe: str | None = None,
        model: nn.Module | None = None,
    ) -> None:
        self.config = pair
        self._model = model
        self.recipe = recipe
        self.folder: str = pair[0].exp_name
        self._seed = seed
        self._trained: TrainedPolicy | None = None
        self._envs = 1  # between which a recurrent policy distinguishes

    @classmethod
    def load(cls, folder: Path, env: Any = None, model: nn.Module | None = None, device: Any = None) -> Training:
        """Return the training of a folder, which a pipeline or `ding train` may have made, too.

        Args:
            env: an env instead of the run's, if the folder could not name that; see `train`.
            model: a network as the one that was trained, if the run was given a module; it gets the weights.
            device: where to compute, see `train`; by default as in the training, or on the CPU if there is no GPU.

        Raises:
            ConfigError: there is no such device.
            FileNotFoundError: the folder contains no run.

        Example:
            >>> training = Training.load("cartpole_dqn_seed0")  # doctest: +SKIP
            >>> obs, _ = env.reset(); env.step(training.predict(obs))  # doctest: +SKIP
        """
        run = RunFolder(folder)
        return cls(pair_of(run, env, device), run.seed or 0, model=model)

    def __repr__(self) -> str:
        return f"Training({self.folder!r})"

    @property
    def result(self) -> dict[str, Any]:
        """The outcome: a dict of `stop` (the stop value was reached), `env_step`, `train_iter` and `eval_value`."""
        return RunFolder(self.folder).result()

    @property
    def policy(self) -> Policy:
        """The policy with the weights of the best checkpoint, whose `eval_mode` acts greedily; see `predict`."""
        policy: Policy = self._loaded().policy
        return policy

    @property
    def curve(self) -> dict[str, np.ndarray[Any, Any]]:
        """The learning curve: arrays [N] of `env_step`, `train_iter` and `mean_return` of the N evaluations.

        Example:
            >>> pandas.DataFrame(training.curve).plot("env_step", "mean_return")  # doctest: +SKIP
        """
        found = [record for record in RunFolder(self.folder).evaluations() if record["returns"]]
        counts = {key: np.array([record[key] for record in found], np.int64) for key in ("env_step", "train_iter")}
        return {**counts, "mean_return": np.array([np.mean(record["returns"]) for record in found], np.float64)}

    def predict(self, obs: Any, deterministic: bool = True) -> Any:
        """Return the action of the best checkpoint, as `env.step` takes it.

        Args:
            obs: an observation of the env, or a batch [B, *obs_shape] of them, also in dicts. The actions [B, ...] of a
                batch are those of envs 0 to B - 1, between which a recurrent policy distinguishes. See `reset`.
            deterministic: whether to act greedily, as in evaluations; otherwise the action is sampled, or explores, as
                in collections at the end of the training.

        Raises:
            ValueError: the env shows other observations.
        """
        trained = self._loaded()
        try:
            one = fitted_observation(obs, trained.interface.spaces[0])
        except ValueError as error:
            return self._predict_batch(obs, deterministic, error)
        return trained.interface.adapt(trained.predict(trained.interface.turn(one), deterministic))

    def _predict_batch(self, obs: Any, deterministic: bool, error: ValueError) -> np.ndarray:
        """Return the actions for a batch; raise `error` if it is none."""
        interface = self._loaded().interface
        try:
            batch = interface.turn(fitted_observation(obs, interface.spaces[0], is_batch=True))
        except ValueError:
            raise error from None
        size = len(next(leaves(batch)))
        if size > self._envs:
            self._envs, self._trained = size, None
        return np.stack([interface.adapt(action) for action in self._loaded().predict_batch(batch, deterministic)])

    def _loaded(self) -> TrainedPolicy:
        if self._trained is None:
            self._trained = self._load()
        return self._trained

    def reset(self) -> None:
        """Begin new episodes, which makes a recurrent policy forget its hidden states."""
        if self._trained is not None:
            self._trained.reset()

    def evaluate(
        self, episodes: int | None = None, checkpoint: str | None = None, seed: int | None = None
    ) -> EvalRecord:
        """Play episodes greedily, and return their `returns` and `lengths`.

        Args:
            episodes: the number of episodes; by default as many as in the run's evaluations.
            checkpoint: the name, iteration or path of a checkpoint; by default the best.
            seed: the seed of the envs; by default that of the run, which begins with the episodes of its first
                evaluation.
        """
        path = RunFolder(self.folder).checkpoint(checkpoint)
        seed = self._seed if seed is None else seed
        return evaluate_pair(self._pair(), seed, load_path=path, n_episode=episodes, model=copy.deepcopy(self._model))

    def plot(self, out: Path | None = None) -> str:
        """Draw the learning curve to a file, by default `curve.png` in the folder, and return its path."""
        path = os.path.join(self.folder, "curve.png") if out is None else os.fspath(out)
        draw(read_curves([self.folder]), path)
        return path

    def record(self, out: Path | None = None, episodes: int = 1, checkpoint: str | None = None) -> list[str]:
        """Record videos of episodes, `.mp4` or `.gif`, by default `video.mp4` in the folder, and return their paths."""
        path = RunFolder(self.folder).checkpoint(checkpoint)
        target = os.path.join(self.folder, "video.mp4") if out is None else os.fspath(out)
        model = copy.deepcopy(self._model)
        return save_videos(self._pair(), target, episodes, self._seed, load_path=path, model=model)[0]

    def export(self, out: Path | None = None, checkpoint: str | None = None) -> str:
        """Write the greedy policy as a network that needs nothing of this package, and return its path.

        The network takes a batch of observations as the env shows them, [B, *obs_shape] or a dict of them, and returns
        the actions [B, ...] that `env.step` takes.

        Args:
            out: the file, `.pt` for TorchScript or `.onnx`; by default `policy.pt` in the folder.
            checkpoint: the name, iteration or path of a checkpoint; by default the best.

        Raises:
            ConfigError: the policy keeps a hidden state, draws random numbers, or has actions that are not an array.
            ImportError: the package onnx is not installed.
            ValueError: the suffix of `out` is not supported.
        """
        path = os.path.join(self.folder, "policy.pt") if out is None else os.fspath(out)
        export_policy(self._load(checkpoint), path)
        return path

    def _load(self, checkpoint: str | None = None) -> TrainedPolicy:
        main, create = self._pair()
        for mode in ("collect", "eval"):
            if "env_num" in main.policy.get(mode, {}):
                main.policy[mode].env_num = self._envs
        experiment = Experiment.from_config((main, create), self._seed, None, copy.deepcopy(self._model))
        return TrainedPolicy(experiment, RunFolder(self.folder).checkpoint(checkpoint))

    def _pair(self) -> tuple[EasyDict, EasyDict]:
        return copy.deepcopy(self.config)


def evaluate_run(
    exp: Path,
    n_episode: int | None = None,
    checkpoint: str | None = None,
    seed: int | None = None,
    env: Any = None,
    model: nn.Module | None = None,
    device: Any = None,
) -> EvalRecord:
    """Evaluate the policy of a run; see `Training.load`.

    Args:
        n_episode: the number of episodes; by default as in the run's evaluations.
        seed: the seed of the envs; by default that of the run, which begins with the episodes of its first evaluation.
        env, model, device: see `Training.load`.
    """
    return Training.load(exp, env, model, device).evaluate(n_episode, checkpoint, seed)


# From the arguments to the configs.


def _recipe(policy: str, section: Mapping[str, Any], choice: bool | str) -> Recipe | None:
    """Return the recipe that the caller chooses, or None.

    Raises:
        ConfigError: there is no recipe of this name, or it is for another policy.
    """
    if not isinstance(choice, str):
        return find_recipe(policy, section.get("env_id")) if choice else None
    recipe = recipe_named(choice)
    if recipe.policy != policy:
        raise ConfigError(
            f"the recipe {choice!r} is not allowed with the policy {policy!r}: it is for {recipe.policy!r}"
        )
    return recipe


class Draft:
    """The two configs of a training in the making.

    Attributes:
        settings, defaults: those of the policy.
    """

    def __init__(self, main: EasyDict, create: EasyDict) -> None:
        self.main, self.create = main, create
        self._policy_cls = resolve_class("policy", create.policy, "policy")
        self.settings, self.defaults = settings_of(self._policy_cls), self._policy_cls.default_config()

    @classmethod
    def of_recipe(cls, recipe: Recipe, section: dict[str, Any], num_envs: int | None) -> Draft:
        """Return the configs of a recipe for the env of `section`."""
        main, create = recipe.configs
        draft = cls(main, create)
        env, collect = draft.main.env, draft.main.policy.collect
        for key in ("env_id", "kwargs", "evaluator_env_num"):
            env.pop(key, None)
        env.update(section)
        if num_envs is not None:
            if draft.defaults.on_policy:  # as many steps of each env
                collect.n_sample = collect.n_sample // env.collector_env_num * num_envs
            env.collector_env_num = num_envs
        return draft

    @classmethod
    def of_policy(cls, policy: str, section: dict[str, Any], num_envs: int | None) -> Draft:
        """Return configs for the env of `section`, with the defaults of the policy."""
        types = {"env": {"type": "gymnasium"}, "env_manager": {"type": "base"}, "policy": {"type": policy}}
        draft = cls(EasyDict(env=section, policy={"collect": {}}), EasyDict(types))
        main, defaults = draft.main, draft.defaults
        n_sample = defaults.get("collect", {}).get("n_sample")
        if num_envs is None:
            num_envs = _ENVS if defaults.on_policy else min(_ENVS, n_sample or 1)
        main.env.update(collector_env_num=num_envs, n_evaluator_episode=_EPISODES)
        if "collect.n_episode" in draft.settings:  # it learns from whole episodes
            draft.create.collector = EasyDict(type="episode", get_train_sample=True)
            main.policy.collect.n_episode = num_envs
        elif not n_sample:
            steps = _EPOCHS_STEPS if "epoch_per_collect" in defaults.learn else _UPDATE_STEPS
            main.policy.collect.n_sample = num_envs * (steps if defaults.on_policy else 1)
        return draft

    def set_env(
        self, env_manager: str | None, episodes: int | None, stop_value: float | None, normalize: bool | str
    ) -> None:
        """Set what the caller of `train` has chosen about the stepping of envs and the evaluation of the policy."""
        env, manager = self.main.env, self.create.env_manager
        is_plain = manager.type == "base" and "wrappers" not in env
        if env_manager is not None:
            manager.type = env_manager
        elif is_plain and env.collector_env_num >= _VECTORISED and "env_id" in env:
            import gymnasium

            if gymnasium.spec(env.env_id).vector_entry_point is not None:
                manager.type = "vector_env"
        if episodes is not None:
            env.n_evaluator_episode = episodes
        if stop_value is not None:
            env.stop_value = stop_value
        parts = {True: ("norm_obs", "norm_reward"), False: (), "obs": ("norm_obs",), "reward": ("norm_reward",)}
        if not isinstance(normalize, bool | str) or normalize not in parts:
            raise ConfigError(f"normalize = {normalize!r} is not allowed; it must be True, False, 'obs' or 'reward'")
        for key in parts[normalize]:
            env[key] = EasyDict(use_norm=True)

    def change(self, model: Any, config: Mapping[str, Any], settings: Mapping[str, Any]) -> None:
        """Set what the caller of `train` has chosen: the model, values by dotted key, and values by name."""
        main = self.main
        layers = main.policy.get("model", {}).keys() - without_layers(main.policy.get("model", {})).keys()
        before = {key: main.policy.model[key] for key in layers}
        if model is not None:
            main.policy.model = EasyDict(_model_section(model))
            if isinstance(model, nn.Module) or "type" in main.policy.model:  # the caller's network keeps its weights
                for path, value in (("learn.init_gains", None), ("learn.ppo_param_init", False)):
                    if path in self.settings:
                        put(main, f"policy.{path}", value)
        _merge(main, config)
        self.change_by_name(settings)
        section = main.policy.get("model") or {}
        if "net_arch" in section:  # it takes the place of the layers of the recipe
            for key in layers:
                if section.get(key) == before[key]:
                    del section[key]
        if isinstance(model, nn.Module):
            if section:
                raise ConfigError(
                    f"policy.model.{next(iter(section))} has no effect, since model is a module; leave it out"
                )
            one_time_warning(
                "model is a module, which the folder of the run cannot make again, so `ding eval` will not work and "
                "Training.load(folder, model=...) needs it; a class, or a function that makes it, is saved by its name"
            )

    def change_by_name(self, settings: Mapping[str, Any]) -> None:
        """Set values of the main config by the names of their keys, or by names in other libraries; see `train`.

        Raises:
            ConfigError: see `train`.
        """
        if not settings:
            return
        main, known = self.main, KnownKeys()  # the keys that the classes of a run read
        compiled = compile_pair(main, with_command_mode(copy.deepcopy(self.create)))
        for section, cls in compiled.known.classes.items():
            if not (section.startswith("policy.other.replay_buffer") and self.defaults.on_policy):
                known.add_class(section, cls)
        known.add("policy.model.", dict.fromkeys(model_parameters(self._policy_cls, compiled.cfg), Setting()))
        for name, value in settings.items():
            counts_each_env = name.lower() in _STEPS_PER_ENV
            if counts_each_env and self.defaults.on_policy:
                put(main, "policy.collect.n_sample", value * main.env.collector_env_num)
                continue
            for path in known.paths_meant_by("n_step" if counts_each_env else name):
                put(main, path, value)
                is_threshold = path in CLIPPING and value is not None and _CLIP_TYPE in known
                if is_threshold and (value_at(main, _CLIP_TYPE) or self.defaults.learn.get("grad_clip_type")) is None:
                    put(main, _CLIP_TYPE, "clip_norm")

    def complete(self, parallel: bool) -> None:
        """Set the values that follow from others and are not given."""
        main, env, policy = self.main, self.main.env, self.main.policy
        env.setdefault("evaluator_env_num", min(env.n_evaluator_episode, _EVALUATOR_ENVS))
        if self.create.env_manager.type == "env_pool":  # gymnasium may not know its env
            with PoolEnvManager(env_fn=[partial(GymnasiumEnv, cfg=env)]) as manager:
                action_space = manager.simulator_action_space
        else:
            observation_space, action_space = spaces_of(env)
            shown_spaces = (entries_of(observation_space) or {"": observation_space}).values()
            is_unknown = value_at(main, "policy.model.obs_shape") is None and "channels_first" not in env
            if is_unknown and any(map(has_channels_last, shown_spaces)):
                env.channels_first = True
        # The env maps the actions of the policy, in [-1, 1] or numbers of values, onto the bounds of its space.
        if is_bounded(action_space) and "model.action_bins_per_branch" in self.settings:
            model = policy.setdefault("model", EasyDict())
            env.act_bins = model.setdefault("action_bins_per_branch", env.get("act_bins", _BINS))
            env.pop("act_scale", None)
        elif is_bounded(action_space):
            env.setdefault("act_scale", True)
        elif space_kind(action_space) == "Box" and issubclass(self._policy_cls, QActorCriticPolicy):
            one_time_warning(
                f"the action space {action_space} is not bounded, so {self.create.policy.type} acts within [-1, 1]; if "
                "that is not what the env means, wrap it, so that its action_space has bounds"
            )
        if not parallel and self.defaults.on_policy and "collect.gae_lambda" in self.settings:
            policy.collect.setdefault("collector", EasyDict()).setdefault("fixed_rollout", True)
        command_cls = resolve_class("policy", with_command_mode(copy.deepcopy(self.create)).policy)
        other = {**command_cls.default_config().get("other", {}), **policy.get("other", {})}
        may_explore = command_cls.has_discrete_actions in (True, None)  # else for hybrid actions only, as DDPG
        if may_explore and "other.eps.type" in settings_of(command_cls) and "eps" not in other:
            put(main, "policy.other.eps", EasyDict(_EPSILON))
        for mode, kind in (("collect", "collector"), ("eval", "evaluator")):
            if f"{mode}.env_num" in self.settings:  # the policy keeps a state for each
                policy.setdefault(mode, EasyDict()).setdefault("env_num", env[f"{kind}_env_num"])


def _model_section(model: Any) -> dict[str, Any]:
    if isinstance(model, Mapping):
        return dict(model)
    if isinstance(model, nn.Module):
        return {}
    if isinstance(model, partial) and not model.args:
        model = model.func, model.keywords
    kind, arguments = model if isinstance(model, (list, tuple)) and len(model) == 2 else (model, {})
    if not (isinstance(kind, str) or callable(kind)) or not isinstance(arguments, Mapping):
        raise TypeError(
            f"model = {shown(model)} is not allowed; it must be a class or function that makes an nn.Module, its name "
            "module:name, a pair of it and a dict of its arguments, an nn.Module, or a dict of values of policy.model"
        )
    return {**arguments, "type": kind}


def _merge(main: EasyDict, config: Any, section: str = "") -> None:
    """Set values by dotted key; a section in the place of a value changes only those keys that it has.

    Raises:
        ConfigError: `config` is no dict, or one of its keys no text.
    """
    if not (isinstance(config, Mapping) and all(isinstance(key, str) for key in config)):
        raise ConfigError(
            f"config = {config!r} is not allowed; it must be a dict of values by dotted key, such as "
            "{'policy.learn.batch_size': 64}"
        )
    for end, value in config.items():
        key = f"{section}{end}"
        if isinstance(value, Mapping) and isinstance(value_at(main, key), Mapping):
            _merge(main, value, f"{key}.")
        else:
            put(main, key, value)


def _experiment(pair: tuple[EasyDict, EasyDict], network: nn.Module | None, seed: int) -> Experiment:
    main, create = pair
    rounds_for(main, create)  # refuses policies that learn from experts or data sets
    experiment = Experiment.from_config(pair, seed, model=network, strict_config=True)
    if network is not None:
        with contextlib.suppress(ConfigError):  # what policies read of a model: the kind of actions, and their shape
            experiment.complete_model()
    return experiment


def _run_parallel(pair: tuple[EasyDict, EasyDict], parallel: bool | int, **how: Any) -> str:
    """Train in parallel, and return the folder of the run; `how` are further arguments of `parallel_pipeline`."""
    from ding.entry.parallel_run import run_parallel

    main, create = copy.deepcopy(pair)
    main.env.setdefault("collector_episode_num", 1)
    collector = main.policy.collect.setdefault("collector", EasyDict())
    if parallel is not True:
        collector.collector_num = int(parallel)
    tasks = "policy.other.commander.collector_task_space"
    if value_at(main, tasks) is None:
        put(main, tasks, collector.get("collector_num", 1))
    interval, policy = "policy.other.commander.eval_interval_env_step", resolve_class("policy", create.policy)
    cfg = EasyDict(deep_merge_dicts(policy.default_config(), main.policy))
    freq, updates = value_at(cfg, "eval.evaluator.eval_freq"), cfg.learn.get("update_per_collect")
    if value_at(main, interval) is None and freq and updates and cfg.collect.get("n_sample"):
        # As often as a serial run, which counts iterations.
        put(main, interval, math.ceil(freq * cfg.collect.n_sample / updates))
    outcome = run_parallel((main, create, EasyDict(coordinator={})), strict_config=True, evaluates_end=True, **how)
    return str(outcome.cfg.main.exp_name)
