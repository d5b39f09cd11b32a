"""The loop of the serial pipelines, which reads the configs, builds the workers, and trains in rounds."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any

import torch

from ding.config.config import compile_config
from ding.config.read import copied, read_config, read_config_with_system, with_arguments
from ding.config.save import StartFolder
from ding.entry.checks import (
    UNLIMITED,
    check_collector_fits_buffer,
    check_equal_parameters,
    check_evaluation_episodes,
    check_hindsight,
    check_limits,
    check_pipeline,
    check_ranks,
    check_schedule,
    complete_model,
    warn_of_overruled_settings,
    warn_of_unsaved,
    warn_of_unused_priority,
)
from ding.entry.run_state import RunStates, choose_start
from ding.entry.serial_run import SerialRun, build_run
from ding.torch_utils.checkpoint_helper import guard_training
from ding.utils.config_helper import ConfigError, number, worded
from ding.utils.default_helper import closing
from ding.utils.pytorch_ddp_dist_helper import get_world_size
from ding.utils.references import refuse_while_importing
from ding.worker.learner.base_learner import BatchSource


class Rounds(BatchSource):
    """The part that differs from one pipeline to another: the workers, and the source of the batches of its rounds.

    Attributes:
        run: the run, after its workers are built.
        options: keyword arguments of `build_run`.
        needs_command_mode: whether the policy must have a command mode.
        batch: the only batch of a round; a subclass with several batches overrides `next_batch`.
        can_relabel: whether the replay buffer may be `her`.
    """

    run: SerialRun
    options: Mapping[str, Any] = {}
    needs_command_mode = True
    batch: Any = None
    can_relabel = False

    def check(self, cfg: Any) -> None:
        """Check the compiled config before anything is built."""

    def prepare(self, stack: ExitStack) -> None:
        """Build what this pipeline needs besides the workers of its run; `stack` closes it."""

    def begin(self) -> None:
        """Prepare the first round of a run; not called if the run resumes."""

    @property
    def is_cut(self) -> bool:
        """Whether batches of the round are left, which a resumed run would not train on."""
        return False

    def begin_round(self) -> bool:
        """Evaluate if it is due, and get the data of a round; return False if the run is over."""
        raise NotImplementedError

    def next_batch(self) -> Any:
        batch, self.batch = self.batch, None
        return batch


class CollectRounds(Rounds):
    """Rounds that collect data in envs, and train on it as one batch.

    Attributes:
        collecting: keyword arguments of the collector's `collect`.
    """

    collecting: Mapping[str, Any] = {}
    _is_first = False

    def check(self, cfg: Any) -> None:
        has_buffer = self.options.get("has_buffer", True)
        check_pipeline(cfg, has_buffer)
        if has_buffer:
            check_collector_fits_buffer(cfg)
            warn_of_unused_priority(cfg)

    def begin(self) -> None:
        run = self.run
        self._is_first = True
        run.resume()
        run.sync_normalization()
        if not run.cfg.policy.learn.get("resume_training", False):
            self.pretrain()
        run.collect_randomly()

    def pretrain(self) -> None:
        """Train before the first round."""

    def begin_round(self) -> bool:
        run = self.run
        if run.is_over and not self._is_first:
            return False
        self._is_first = False
        run.states.checkpoint(run)
        collect_kwargs = run.commander.step()
        run.sync_normalization()
        if run.evaluate_if_due():
            return False
        data = run.collector.collect(train_iter=run.learner.train_iter, policy_kwargs=collect_kwargs, **self.collecting)
        self.envstep = run.envstep
        self.take(data)
        return True

    def take(self, data: Any) -> None:
        """Take over the data that were collected in a round."""
        self.batch = data


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
    refuse_while_importing()
    rounds = make_rounds()
    check_limits(number(0), max_train_iter=max_train_iter, max_env_step=max_env_step)
    main, create = read_pair(input_cfg, env_setting)
    if rounds.needs_command_mode:
        with_command_mode(create)
    complete_model(main, create, env_setting, model)
    env_fn = None if env_setting is None else env_setting[0]
    compiling: dict[str, Any] = {"seed": seed, "env": env_fn, "auto": True, "create_cfg": create}
    compiling["strict_config"] = strict_config
    start = choose_start(main, create, partial(compile_config, **compiling, save_cfg=False), resume)
    with StartFolder(main.get("exp_name", "default_experiment")) as folder, ExitStack() as stack:
        closing(stack, start.lock)
        cfg = compile_config(main, **compiling, renew_dir=start.renew)
        folder.taken = cfg.exp_name
        check_evaluation_episodes(cfg)
        check_ranks(cfg)
        warn_of_overruled_settings(main, cfg)
        warn_of_unsaved(main)
        check_hindsight(cfg, rounds.can_relabel)
        rounds.check(cfg)
        has_length = min(max_train_iter, max_env_step) < UNLIMITED
        limits = worded("max_train_iter or max_env_step (iterations or env_steps)", "--train-iter or --env-steps")
        check_schedule(cfg, has_length, limits)
        objects = {"env_setting": env_setting, "model": model, "on_evaluation": on_evaluation}
        arguments = {
            "limits": {"max_train_iter": max_train_iter, "max_env_step": max_env_step},
            "evaluates_end": evaluates_end,
            "objects": [name for name, value in objects.items() if value is not None],
        }
        states = closing(stack, RunStates(start, cfg, arguments))
        run = rounds.run = build_run(
            stack, cfg, env_setting, model, states, max_train_iter, max_env_step, **rounds.options
        )
        run.on_evaluation = on_evaluation
        rounds.prepare(stack)
        folder.keep()
        with guard_training(run.learner.save_checkpoint, states.interruption), states.guard(run):
            _train(run, rounds, evaluates_end)
    return run


_READERS: dict[int, Callable[[str], Any]] = {2: read_config, 3: read_config_with_system}
_NAMES = ("main_config", "create_config", "system_config")


def read_configs(input_cfg: Any, number: int) -> tuple[Any, ...]:
    """Return deep copies of two or three configs.

    Raises:
        TypeError: `input_cfg` is neither a path nor as many configs.
    """
    configs = input_cfg
    if isinstance(input_cfg, (str, os.PathLike)):
        configs = _READERS[number](os.fspath(input_cfg))
    if not isinstance(configs, Sequence) or len(configs) != number:
        kind = f"{'pair' if number == 2 else 'triple'} ({', '.join(_NAMES[:number])})"
        raise TypeError(f"input_cfg must be a file path or the {kind}, got {input_cfg!r}")
    return tuple(map(copied, (with_arguments(configs[0]), *configs[1:])))


def read_pair(input_cfg: Any, env_setting: Sequence[Any] | None = None) -> tuple[Any, Any]:
    """Return deep copies of the two configs.

    Raises:
        ConfigError: neither `create_config` nor `env_setting` names an env.
        TypeError: `input_cfg` is neither a path nor a pair.
    """
    main, create = read_configs(input_cfg, 2)
    if env_setting is None and not create.get("env"):
        raise ConfigError("create_config lacks the entry 'env', as in env=dict(type='gymnasium'); or pass env_setting")
    return main, create


def with_command_mode(create: Any) -> Any:
    """Set the policy type in `create` to a policy with a command mode, in place, and return `create`.

    Raises:
        ConfigError: `create` has no policy type.
    """
    policy = create.get("policy") or {}
    if "type" not in policy:
        raise ConfigError(f"create_config.policy must name its type, as in policy=dict(type='dqn'); it is {policy!r}")
    if not policy["type"].endswith("_command"):
        policy["type"] += "_command"
    return create


def _train(run: SerialRun, rounds: Rounds, evaluates_end: bool) -> None:
    learner, states = run.learner, run.states
    learner.call_hook("before_run")
    if states.is_resumed:
        states.load(run)
        run.progress.env_steps_before = run.envstep
    else:
        rounds.begin()
    start, is_unchecked = learner.train_iter, get_world_size() > 1
    while not run.is_decided and rounds.begin_round() and learner.train_from(rounds, run.max_train_iter):
        if is_unchecked and learner.train_iter > start:
            check_equal_parameters(run.policy)
            is_unchecked = False
        run.progress.advance(run.envstep, learner.train_iter)
    if rounds.is_cut:
        states.note_cut("max_train_iter" if learner.train_iter >= run.max_train_iter else "learner.stop()")
    states.save(run, "end")
    run.sync_normalization()
    # A resumed run may end before an evaluation is due. This evaluation is no part of the saved state, so a run that
    # goes on with a larger budget has the evaluations of one that had it from the start.
    if run.eval_info is None or (evaluates_end and run.evaluated_iter != learner.train_iter):
        run.evaluate()
    learner.call_hook("after_run")
    run.save_result()
