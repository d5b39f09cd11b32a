"""One experiment: its configs, which are read, compiled, checked and completed once, and all that is done with them."""

from __future__ import annotations

import contextlib
import copy
import math
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any

import torch
from easydict import EasyDict

from ding.config.config import (
    GENERATED_ENV_TYPE,
    USUAL,
    Compilation,
    compile_pair,
    compile_triple,
    place_parallel,
    save_compiled,
)
from ding.config.read import read_config, read_config_with_system
from ding.entry.checks import (
    UNLIMITED,
    check_hindsight,
    check_limits,
    check_model_fits_env,
    check_policy_fits_env,
    check_saved,
    check_schedule,
    complete_model,
)
from ding.entry.progress import ProgressLine
from ding.entry.run_state import RunStates, Start, choose_start
from ding.entry.serial_run import (
    Rounds,
    SerialRun,
    env_name,
    evaluation_seed,
    normalize_as_trained,
    rank_seed,
    set_offline_stats,
    train_in_rounds,
)
from ding.envs.env.base_env import get_vec_env_setting
from ding.envs.env.goals import GoalFunctions
from ding.envs.env_manager.base_env_manager import create_env_manager
from ding.policy.base_policy import create_policy
from ding.torch_utils.checkpoint_helper import guard_training
from ding.torch_utils.thread_count import fitting_threads
from ding.utils.config_helper import ConfigError, number
from ding.utils.default_helper import closing, set_pkg_seed
from ding.utils.file_helper import read_file
from ding.utils.metric_sinks import RunInfo, check_logger, create_metric_writer
from ding.utils.pytorch_ddp_dist_helper import get_rank, get_world_size
from ding.utils.references import refuse_while_importing, with_arguments
from ding.worker.collector.base_serial_collector import create_serial_collector
from ding.worker.collector.base_serial_evaluator import create_serial_evaluator
from ding.worker.collector.interaction_serial_evaluator import EvalRecord, InteractionSerialEvaluator
from ding.worker.coordinator.base_serial_commander import BaseSerialCommander
from ding.worker.coordinator.parallel_run_state import config_of
from ding.worker.learner.base_learner import BaseLearner
from ding.worker.learner.checkpoint import EXTRA, OFFLINE_STATS, normalization_of
from ding.worker.replay_buffer.base_buffer import create_buffer
from ding.worker.replay_buffer.hindsight_buffer import HindsightReplayBuffer


class Experiment:
    """An experiment, which `from_config` or `parallel` makes.

    Attributes:
        main, create: copies of the user's configs, with what follows from the env: shapes and kind of actions.
        cfg: the compiled main config.
        known: the keys that the classes of the experiment read.
    """

    def __init__(
        self, main: Any, create: Any, compiled: Compilation, env_setting: Any = None, model: Any = None
    ) -> None:
        self.main, self.create, self.cfg, self.known = main, create, compiled.cfg, compiled.known
        self._compiled, self._env_setting, self._model = compiled, env_setting, model
        self._is_started = False

    @classmethod
    def from_config(
        cls,
        input_cfg: Any,
        seed: int = 0,
        env_setting: Sequence[Any] | None = None,
        model: torch.nn.Module | None = None,
        strict_config: bool = False,
        needs_command_mode: bool = True,
        completes: bool = True,
    ) -> Experiment:
        """Read and compile a pair of configs; see `serial_pipeline` for the arguments and errors.

        Args:
            needs_command_mode: whether the policy must have a command mode.
            completes: whether to read what the model lacks off the env.
        """
        main, create = read_pair(input_cfg, env_setting)
        if needs_command_mode:
            with_command_mode(create)
        classes = USUAL if env_setting is None else {**USUAL, "env": env_setting[0]}
        compiled = compile_pair(main, create, classes, seed, True, strict_config)
        experiment = cls(main, create, compiled, env_setting, model)
        if completes and model is None:
            experiment.complete_model()
        return experiment

    @classmethod
    def parallel(cls, input_cfg: Any, seed: int = 0, strict_config: bool = False, completes: bool = True) -> Experiment:
        """Read and compile a triple of configs; see `parallel_pipeline` for the arguments and errors."""
        main, create, system = read_configs(input_cfg, 3)
        compiled = compile_triple(main, with_command_mode(create), system, seed, strict_config)
        experiment = cls(main, create, compiled)
        if completes:
            experiment.complete_model()
        return experiment

    def complete_model(self) -> None:
        """Set what the user's configs leave out of the model to what the env tells; see `complete_model`."""
        with ExitStack() as stack:
            complete_model(self.cfg, self.main, self.create, partial(self._build_env_for_spaces, stack))

    def _build_env_for_spaces(self, stack: ExitStack) -> Any:
        section = copy.deepcopy(self.cfg.env)
        section.pop("norm_obs", None)  # its statistics are read with the data set; it changes no shape
        setting: Any = self._env_setting or get_vec_env_setting(section, collect=False)
        return self._manager(stack, setting[0], setting[2])

    def _manager(self, stack: ExitStack, env_fn: Any, env_cfgs: Sequence[Any]) -> Any:
        return closing(
            stack, create_env_manager(self.cfg.env.manager, [partial(env_fn, cfg=env_cfg) for env_cfg in env_cfgs])
        )

    # ---- training

    def run_serial(
        self,
        rounds: Rounds,
        max_train_iter: int = UNLIMITED,
        max_env_step: int = UNLIMITED,
        resume: bool = False,
        on_evaluation: Callable[[int, float], bool | None] | None = None,
        evaluates_end: bool = False,
    ) -> SerialRun:
        """Train in rounds until the task is solved or the budget is used up; see `run_pipeline`."""
        refuse_while_importing()
        cfg = self.cfg
        objects = {"env_setting": self._env_setting, "model": self._model, "on_evaluation": on_evaluation}
        limits = {"max_train_iter": max_train_iter, "max_env_step": max_env_step}
        check_limits(number(0), max_train_iter=max_train_iter, max_env_step=max_env_step)
        self._check(rounds, min(max_train_iter, max_env_step) < UNLIMITED)
        start = choose_start(cfg, resume)
        arguments = {
            "limits": limits,
            "evaluates_end": evaluates_end,
            "objects": [name for name, value in objects.items() if value is not None],
        }
        with ExitStack() as stack:
            closing(stack, start.lock)
            stack.enter_context(self._saved(renew=start.renew))
            rounds.check(cfg)
            states = closing(stack, RunStates(start, cfg, arguments))
            run = rounds.run = self.build_run(stack, rounds, states, max_train_iter, max_env_step)
            run.on_evaluation = on_evaluation
            rounds.prepare(stack)
            self._is_started = True
            with guard_training(run.learner.save_checkpoint, states.interruption):
                train_in_rounds(run, rounds, evaluates_end)
        return run

    def build_run(
        self,
        stack: ExitStack,
        rounds: Rounds,
        states: RunStates | None = None,
        max_train_iter: int = UNLIMITED,
        max_env_step: int = UNLIMITED,
    ) -> SerialRun:
        """Build the workers that `rounds` need, which `stack` closes.

        Args:
            states: the saver of the state of the run; None for no states.

        Raises:
            ConfigError: the policy's action type or the model's shapes do not fit the env. The shapes are not checked
                if the user has given a model.
        """
        cfg, rank, collects, has_buffer = self.cfg, get_rank(), rounds.collects, rounds.has_buffer
        has_goals = has_buffer and collects and cfg.policy.other.replay_buffer.get("type") == "her"
        goals = self._goal_functions(stack) if has_goals else None
        collector_env = self.build_env(stack, rank_seed(cfg.seed, rank), rounds.dynamic_seed) if collects else None
        evaluator_env = self.build_env(stack)
        env = collector_env if collects else evaluator_env
        policy = self.build_policy(["learn", "collect", "eval", "command"] if collects else ["learn", "eval"])
        stack.enter_context(fitting_threads(getattr(policy, "_model", None)))
        settings, writer = check_logger(cfg.get("logger", {})), None  # on every rank, so that all of them end
        if rank == 0:
            folder = os.path.join(".", cfg.exp_name, "log", "serial")
            info = RunInfo(cfg.exp_name, cfg, "env_step" if collects else "train_iter")
            writer = closing(stack, create_metric_writer(folder, info, settings))

        name, sections = cfg.exp_name, cfg.policy
        learner = BaseLearner(sections.learn.learner, policy.learn_mode, tb_logger=writer, exp_name=name)
        closing(stack, learner)
        learner.max_train_iter = math.inf if max_train_iter >= UNLIMITED else max_train_iter
        learner.max_env_step = math.inf if max_env_step >= UNLIMITED else max_env_step
        collector = buffer = commander = None
        if collects:
            collector = create_serial_collector(
                sections.collect.collector, env=env, policy=policy.collect_mode, tb_logger=writer, exp_name=name
            )
            closing(stack, collector)
        evaluator = create_serial_evaluator(
            sections.eval.evaluator, env=evaluator_env, policy=policy.eval_mode, tb_logger=writer, exp_name=name
        )
        closing(stack, evaluator)
        self.check_fits_env(policy, env)
        if has_buffer:
            buffer = closing(stack, create_buffer(sections.other.replay_buffer, tb_logger=writer, exp_name=name))
            if isinstance(buffer, HindsightReplayBuffer):
                buffer.goals = goals
        if collects:
            commander = BaseSerialCommander(
                sections.other.commander, learner, collector, evaluator, buffer, policy.command_mode
            )
        progress = closing(stack, ProgressLine(max_env_step, rank == 0, max_train_iter))
        kind = str(cfg.policy.get("type", "a policy")).removesuffix("_command")
        progress.begin(kind, env_name(cfg.env, env), cfg.seed, cfg.exp_name)
        return SerialRun(
            cfg=cfg,
            policy=policy,
            learner=learner,
            collector=collector,
            evaluator=evaluator,
            buffer=buffer,
            commander=commander,
            collector_env=collector_env,
            evaluator_env=evaluator_env,
            progress=progress,
            writer=writer,
            states=states,
            max_train_iter=max_train_iter,
            max_env_step=max_env_step,
        )

    def build_env(self, stack: ExitStack, collecting_seed: int | None = None, dynamic_seed: bool | None = None) -> Any:
        """Return the manager of the collector or the evaluator envs, not launched; `stack` closes it.

        Args:
            collecting_seed: the seed of the collector envs; None for the evaluator envs.
        """
        collects = collecting_seed is not None
        setting: Any = self._env_setting or get_vec_env_setting(self.cfg.env, collects, not collects)
        manager = self._manager(stack, setting[0], setting[1 if collects else 2])
        if collecting_seed is None:
            manager.seed(evaluation_seed(self.cfg.seed), dynamic_seed=False)
        else:
            manager.seed(collecting_seed, dynamic_seed=dynamic_seed)
        return manager

    def build_policy(self, fields: list[str]) -> Any:
        """Seed the package for this rank, and build the policy with these modes."""
        set_pkg_seed(rank_seed(self.cfg.seed, get_rank()), use_cuda=self.cfg.policy.cuda)
        return create_policy(self.cfg.policy, model=self._model, enable_field=fields)

    def check_fits_env(self, policy: Any, env: Any) -> None:
        """Check that the policy and the configured model fit a launched env manager.

        Raises:
            ConfigError: they do not fit the env.
        """
        check_policy_fits_env(policy, env)
        if self._model is None:
            built = type(getattr(policy, "_model", None)).__module__
            check_model_fits_env(policy.cfg.get("model") or {}, env, is_foreign=not built.startswith("ding.model."))

    def _goal_functions(self, stack: ExitStack) -> GoalFunctions:
        """Return the rewards for any goal, for the buffer `her`."""
        setting: Any = self._env_setting or get_vec_env_setting(copy.deepcopy(self.cfg.env), eval_=False)
        env = closing(stack, setting[0](cfg=copy.deepcopy(setting[1][0])))
        env.seed(self.cfg.seed)
        return GoalFunctions(env)

    def _check(self, rounds: Rounds, has_length: bool) -> None:
        policy, world_size = self.cfg.policy, get_world_size()
        self._check_episodes()
        if world_size > 1 and not policy.get("multi_gpu", False):
            raise ConfigError(
                f"policy.multi_gpu = False is not allowed on {world_size} ranks, whose models would drift apart; set "
                "policy.multi_gpu = True, or train outside DDPContext"
            )
        check_saved(self.main)
        check_hindsight(self.cfg, rounds.can_relabel)
        limits = "max_train_iter or max_env_step (iterations or env_steps in train, --train-iter or --env-steps)"
        check_schedule(policy.learn.get("lr_scheduler"), has_length, limits)

    def _check_episodes(self) -> None:
        episodes, envs = self.cfg.env.get("n_evaluator_episode"), self.cfg.env.get("evaluator_env_num")
        if episodes is not None and envs is not None and episodes < envs:
            raise ConfigError(
                f"env.n_evaluator_episode = {episodes} is less than env.evaluator_env_num = {envs}; each evaluator env "
                "plays at least one episode: raise the first or lower the second"
            )

    @contextlib.contextmanager
    def _saved(self, save_path: str = "total_config.py", renew: bool = False) -> Iterator[None]:
        """Create the folder `exp_name` and write the configs to it; if a run does not start, a new one is deleted.

        Args:
            save_path: name of the file of the compiled config.
            renew: whether to append a time stamp to `exp_name` if the folder exists.
        """
        is_new = renew or not os.path.exists(self.cfg.exp_name)
        save_compiled(self.cfg, self._compiled.create, save_path, renew)
        try:
            yield
        except BaseException:
            if is_new and not self._is_started and get_rank() == 0:
                shutil.rmtree(self.cfg.exp_name, ignore_errors=True)
            raise

    def choose_start(self, resume: bool) -> Start:
        """Return how a parallel run starts, see `choose_start`; `resume` in the section `coordinator` resumes, too."""
        resume = self._compiled.system["coordinator"].pop("resume", False) or resume
        return choose_start(self.cfg, resume, "parallel", lambda: config_of(self.place(save_path=None)))

    def place(
        self,
        hosts: Sequence[Any] = (None, None, None),
        ports: Sequence[Any] = (None, None, None),
        platform: str = "local",
        save_path: str | None = "total_config.py",
        renew: bool = True,
    ) -> EasyDict:
        """Return the config of a parallel run, with `main`, `system` and `seed`; see `place_parallel`."""
        return place_parallel(self._compiled, hosts, ports, platform, save_path, renew)

    # ---- use of what was trained

    def evaluate(
        self, state_dict: dict[str, Any] | None = None, load_path: Any = None, replay_path: Any = None
    ) -> EvalRecord:
        """Evaluate a trained policy; see `eval` for the arguments and errors."""
        cfg = self.cfg
        self._check_episodes()
        with ExitStack() as stack:
            stack.enter_context(self._saved("eval_config.py"))
            in_config = cfg.policy.get("learn", {}).get("learner", {}).get("load_path") or cfg.policy.get("load_path")
            state_dict = self.state(state_dict, load_path or in_config)
            env = self.build_env(stack)
            replay_path = replay_path or cfg.env.get("replay_path")
            if replay_path:
                env.enable_save_replay(os.fspath(replay_path))
            policy, statistics = self.policy("eval", state_dict)
            section = cfg.policy.eval.evaluator
            evaluator = closing(
                stack, InteractionSerialEvaluator(section, env, policy.eval_mode, exp_name=cfg.exp_name)
            )
            self.check_fits_env(policy, env)
            normalize_as_trained(env, statistics)
            evaluator.eval()
            record: EvalRecord = evaluator.last_eval
            return record

    def collector(
        self, stack: ExitStack, kind: Any, state_dict: dict[str, Any] | None = None, load_path: Any = None
    ) -> Any:
        """Return a collector of the class `kind` with a trained policy; `stack` closes it."""
        cfg = self.cfg
        stack.enter_context(self._saved("collect_demo_data_config.py"))
        state_dict = self.state(state_dict, load_path)
        env = self.build_env(stack, cfg.seed)
        policy, statistics = self.policy("collect", state_dict)
        defaults = kind.default_config()
        collector_settings = {key: value for key, value in cfg.policy.collect.collector.items() if key in defaults}
        section = EasyDict({**defaults, **collector_settings})
        collector = closing(stack, kind(section, env, policy.collect_mode, exp_name=cfg.exp_name))
        self.check_fits_env(policy, env)
        if statistics:
            normalize_as_trained(env, statistics)
            collector.reset_env()
        return collector

    def state(self, state_dict: dict[str, Any] | None, path: Any) -> dict[str, Any] | None:
        """Return the state, or the checkpoint at `path`, and write its data set statistics to the env config."""
        if state_dict is None and path:
            state_dict = read_checkpoint(path)
        set_offline_stats(self.cfg.env, (state_dict or {}).get(EXTRA, {}).get(OFFLINE_STATS))
        return state_dict

    def policy(self, mode: str, state_dict: dict[str, Any] | None) -> tuple[Any, Any]:
        """Return the policy with one mode, and the normalization statistics of its training's envs, if any."""
        policy = self.build_policy([mode])
        return policy, load_state(getattr(policy, f"{mode}_mode"), state_dict, self._model)


def run_pipeline(
    make_rounds: Callable[[], Rounds],
    input_cfg: Any,
    seed: int = 0,
    env_setting: Sequence[Any] | None = None,
    model: torch.nn.Module | None = None,
    max_train_iter: int = UNLIMITED,
    max_env_step: int = UNLIMITED,
    resume: bool = False,
    strict_config: bool = False,
    on_evaluation: Callable[[int, float], bool | None] | None = None,
    evaluates_end: bool = False,
) -> SerialRun:
    """Train in rounds until the task is solved or the budget is used up, and return the run, with closed workers.

    If the start fails, the run's folder is deleted. For `on_evaluation` see `SerialRun`, for the other arguments
    `serial_pipeline`.

    Args:
        evaluates_end: evaluate the last iteration, too, if that was not due.
    """
    rounds = make_rounds()
    experiment = Experiment.from_config(input_cfg, seed, env_setting, model, strict_config, rounds.needs_command_mode)
    return experiment.run_serial(rounds, max_train_iter, max_env_step, resume, on_evaluation, evaluates_end)


def read_configs(input_cfg: Any, number: int) -> tuple[Any, ...]:
    """Return deep copies of two or three configs.

    Raises:
        TypeError: `input_cfg` is neither a path nor as many configs.
    """
    configs = input_cfg
    if isinstance(input_cfg, (str, os.PathLike)):
        read: Any = read_config if number == 2 else read_config_with_system
        configs = read(os.fspath(input_cfg))
    if not isinstance(configs, Sequence) or len(configs) != number:
        names = ", ".join(("main_config", "create_config", "system_config")[:number])
        raise TypeError(f"input_cfg must be a file path or the configs ({names}), got {input_cfg!r}")
    return tuple(map(copy.deepcopy, (with_arguments(configs[0]), *configs[1:])))


def read_pair(input_cfg: Any, env_setting: Sequence[Any] | None = None) -> tuple[Any, Any]:
    """Return deep copies of the two configs.

    Raises:
        ConfigError: neither `create_config` nor `env_setting` names an env.
        TypeError: `input_cfg` is neither a path nor a pair.
    """
    main, create = read_configs(input_cfg, 2)
    if env_setting is None and (create.get("env") or {}).get("type", GENERATED_ENV_TYPE) == GENERATED_ENV_TYPE:
        raise ConfigError("create_config.env is missing: pass env_setting, or Training.load(folder, env=...)")
    return main, create


def with_command_mode(create: Any) -> Any:
    """Set the policy type in `create` to a policy with a command mode, in place, and return `create`.

    Raises:
        ConfigError: `create` has no policy type.
    """
    policy = create.get("policy") or {}
    if "type" not in policy:
        raise ConfigError(f"create_config.policy must name its type, as in policy=dict(type='dqn'); it is {policy!r}")
    if not str(policy["type"]).endswith("_command"):
        policy["type"] = f"{policy['type']}_command"
    return create


def read_checkpoint(path: Any) -> dict[str, Any]:
    """Return the content of a checkpoint.

    Raises:
        ValueError: the file holds no dict.
    """
    state = read_file(path)
    if not isinstance(state, dict):
        raise ValueError(f"{os.fspath(path)} holds a {type(state).__name__}, not the dict of a checkpoint")
    return state


def load_state(mode: Any, state_dict: dict[str, Any] | None, model: Any) -> Any:
    """Load the state into a policy mode; a trained `model` needs none.

    Returns:
        The normalization statistics of the training's envs; None if there are none.

    Raises:
        ConfigError: state and model are both missing.
        RuntimeError: the state is of another network.
    """
    if state_dict is not None:
        try:
            mode.load_state_dict(state_dict)
        except RuntimeError as e:
            text = (
                "pass the `model` that was trained, as in Training.load(folder, model=...)"
                if model is None
                else "they are not of the `model` that was passed"
            )
            raise RuntimeError(f"The weights do not fit the network; {text}, or give another checkpoint.\n{e}") from e
        return normalization_of(state_dict)
    if model is None:
        raise ConfigError("the policy has no weights: pass a state dict, the path of a checkpoint, or a model")
    return None
