"""The loop of the serial pipelines: read the configs, build the workers, collect and train."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any

import torch

from ding.config.config import compile_config
from ding.config.experiment import StartFolder
from ding.config.read import read_config
from ding.entry.checks import (
    check_collector_fits_buffer,
    check_evaluation_episodes,
    check_pipeline,
    check_ranks,
    warn_of_overruled_settings,
    warn_of_unused_priority,
)
from ding.entry.model_shapes import complete_model
from ding.entry.progress import UNLIMITED, check_limits
from ding.entry.run_state import RunStates, choose_start
from ding.entry.workers import SerialRun, build_run, closing
from ding.torch_utils.checkpoint_helper import guard_training
from ding.utils.config_helper import ConfigError, number

# Trains on the data of a round; the last argument is `max_train_iter`.
Update = Callable[[SerialRun, list[Any], int], None]
# Builds what a pipeline needs beside the workers of its run; the stack closes it.
Prepare = Callable[[ExitStack, SerialRun], None]
# Trains before the first round; the last argument is `max_train_iter`.
Pretrain = Callable[[SerialRun, int], None]


def run_pipeline(
    update: Update,
    input_cfg: Any,
    seed: int = 0,
    env_setting: Sequence[Any] | None = None,
    model: torch.nn.Module | None = None,
    max_train_iter: int = UNLIMITED,
    max_env_step: int = UNLIMITED,
    dynamic_seed: bool | None = None,
    has_buffer: bool = True,
    prepare: Prepare | None = None,
    pretrain: Pretrain | None = None,
    resume: bool = False,
    strict_config: bool = False,
) -> SerialRun:
    """Evaluate when due, collect and `update`, until solved or out of budget; returns the run with closed workers.

    If the start fails, the run's folder is deleted.

    Args:
        dynamic_seed: whether each episode has a new seed; None for the default of the collector envs.
        has_buffer: whether to build a replay buffer.
        prepare, pretrain: called before the first round, if not None.
        resume, strict_config: see `serial_pipeline`.
    """
    check_limits(number(0), max_train_iter=max_train_iter, max_env_step=max_env_step)
    main, create = read_pair(input_cfg, env_setting)
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
        check_pipeline(cfg, has_buffer)
        warn_of_overruled_settings(main, cfg)
        if has_buffer:
            check_collector_fits_buffer(cfg)
            warn_of_unused_priority(cfg)
        states = closing(stack, RunStates(start, cfg))
        run = build_run(stack, cfg, env_setting, model, max_env_step, dynamic_seed, has_buffer, states, max_train_iter)
        if prepare is not None:
            prepare(stack, run)
        folder.keep()
        with guard_training(run.learner.save_checkpoint, states.interruption), states.guard(run):
            _train(run, update, pretrain, max_train_iter, max_env_step)
    return run


def read_pair(input_cfg: Any, env_setting: Sequence[Any] | None = None) -> tuple[Any, Any]:
    """Returns deep copies of the two configs.

    Raises:
        ConfigError: neither `create_config` nor `env_setting` names an env.
        TypeError: `input_cfg` is neither a path nor a pair.
    """
    if isinstance(input_cfg, (str, os.PathLike)):
        pair: Any = read_config(os.fspath(input_cfg))
    else:
        pair = input_cfg
    if not isinstance(pair, Sequence) or len(pair) != 2:
        raise TypeError(f"input_cfg must be a file path or the pair (main_config, create_config), got {input_cfg!r}")
    main, create = copy.deepcopy(tuple(pair))
    if env_setting is None and not create.get("env"):
        raise ConfigError("create_config lacks the entry 'env', as in env=dict(type='gymnasium'); or pass env_setting")
    return main, create


def with_command_mode(create: Any) -> Any:
    """Set the policy type in `create` to a policy with a command mode, in place; returns `create`.

    Raises:
        ConfigError: `create` has no policy type.
    """
    policy = create.get("policy") or {}
    if "type" not in policy:
        raise ConfigError(f"create_config.policy must name its type, as in policy=dict(type='dqn'); it is {policy!r}")
    if not policy["type"].endswith("_command"):
        policy["type"] += "_command"
    return create


def _train(run: SerialRun, update: Update, pretrain: Pretrain | None, max_train_iter: int, max_env_step: int) -> None:
    learner, collector, states = run.learner, run.collector, run.states

    def is_over() -> bool:
        return bool(collector.envstep >= max_env_step or learner.train_iter >= max_train_iter)

    learner.call_hook("before_run")
    if states.is_resumed:
        states.load(run)
    else:
        run.resume()
        run.sync_normalization()
        if pretrain is not None and not run.cfg.policy.learn.get("resume_training", False):
            pretrain(run, max_train_iter)
        run.collect_randomly()
    while not (run.is_decided or states.is_resumed and is_over()):
        states.checkpoint(run)
        collect_kwargs = run.commander.step()
        run.sync_normalization()
        if run.evaluator.should_eval(learner.train_iter) and run.evaluate():
            break
        data = collector.collect(train_iter=learner.train_iter, policy_kwargs=collect_kwargs)
        update(run, data, max_train_iter)
        run.progress.advance(collector.envstep, learner.train_iter)
        if is_over():
            break
    states.save(run, "end")
    run.sync_normalization()
    if run.eval_info is None:  # a resumed run may end before an evaluation was due
        run.evaluate()
    learner.call_hook("after_run")
    run.save_result()
