"""`serial_pipeline`: evaluate, collect, push, train in one process, until solved or out of budget."""

from __future__ import annotations

import copy
import os
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

import torch

from ding.config.compile import compile_config
from ding.config.read import read_config
from ding.entry.checks import check_evaluation_episodes
from ding.entry.progress import UNLIMITED
from ding.entry.workers import SerialRun, build_run
from ding.policy.base_policy import Policy
from ding.torch_utils.checkpoint_helper import guard_training
from ding.utils.config_helper import ConfigError


def serial_pipeline(
    input_cfg: str | Sequence[dict[str, Any]],
    seed: int = 0,
    env_setting: Sequence[Any] | None = None,
    model: torch.nn.Module | None = None,
    max_train_iter: int = UNLIMITED,
    max_env_step: int = UNLIMITED,
    dynamic_seed: bool = True,
) -> Policy:
    """Train an off-policy policy in this process and return it.

    The experiment folder gets, beside configs, logs and checkpoints, `eval.jsonl` (one line per evaluation) and
    `result.pkl` (the outcome). Envs, workers and files are closed however the run ends. SIGINT and SIGTERM save
    `ckpt_interrupt` and exit with status 130; an exception saves `ckpt_exception` and passes on.

    Args:
        input_cfg: path of a config file, or the pair `(main_config, create_config)`; neither is changed.
        seed: of the package, the policy and the envs; evaluation envs get another one derived from it. Two runs with
            one seed are equal on a CPU.
        env_setting: `[env_fn, collector env configs, evaluator env configs]` instead of a registered env type.
        model: the network, instead of the policy's default one.
        max_train_iter: training stops exactly here.
        max_env_step: no new round of collecting begins after this many env steps.
        dynamic_seed: whether each collector env gets a new seed at each episode.

    Raises:
        ConfigError: the config contradicts itself, or the model does not fit the env.
        FloatingPointError: an env returned NaN, or a loss became NaN.
    """
    return run_serial(input_cfg, seed, env_setting, model, max_train_iter, max_env_step, dynamic_seed).policy


def run_serial(
    input_cfg: Any,
    seed: int = 0,
    env_setting: Sequence[Any] | None = None,
    model: torch.nn.Module | None = None,
    max_train_iter: int = UNLIMITED,
    max_env_step: int = UNLIMITED,
    dynamic_seed: bool = True,
) -> SerialRun:
    """`serial_pipeline`, returning the whole run: its config, outcome and (closed) workers."""
    main, create = _read_pair(input_cfg)
    if env_setting is None and not create.get("env"):
        raise ConfigError("create_config lacks the entry 'env', as in env=dict(type='gymnasium'); or pass env_setting")
    env_fn = None if env_setting is None else env_setting[0]
    resume = (main.get("policy", {}).get("learn") or {}).get("resume_training", False)
    cfg = compile_config(main, seed=seed, env=env_fn, auto=True, create_cfg=create, save_cfg=True, renew_dir=not resume)
    check_evaluation_episodes(cfg)
    with ExitStack() as stack:
        run = build_run(stack, cfg, env_setting, model, max_env_step, dynamic_seed)
        with guard_training(run.learner.save_checkpoint):
            _train(run, max_train_iter, max_env_step)
    return run


def _read_pair(input_cfg: Any) -> tuple[Any, Any]:
    """Deep copies of the two configs, the create config with the policy type that has a command mode."""
    if isinstance(input_cfg, (str, os.PathLike)):
        pair: Any = read_config(os.fspath(input_cfg))
    else:
        pair = input_cfg
    if not isinstance(pair, Sequence) or len(pair) != 2:
        raise TypeError(f"input_cfg must be a file path or the pair (main_config, create_config), got {input_cfg!r}")
    main, create = copy.deepcopy(tuple(pair))
    policy = create.get("policy") or {}
    if "type" not in policy:
        raise ConfigError(f"create_config.policy must name its type, as in policy=dict(type='dqn'); it is {policy!r}")
    if not policy["type"].endswith("_command"):
        policy["type"] += "_command"
    return main, create


def _train(run: SerialRun, max_train_iter: int, max_env_step: int) -> None:
    learner, collector = run.learner, run.collector
    learner.call_hook("before_run")
    if run.cfg.policy.learn.get("resume_training", False):
        collector.envstep = learner.collector_envstep
    run.collect_randomly()
    while True:
        collect_kwargs = run.commander.step()
        if run.evaluator.should_eval(learner.train_iter) and run.evaluate():
            break
        data = collector.collect(train_iter=learner.train_iter, policy_kwargs=collect_kwargs)
        run.buffer.push(data, cur_collector_envstep=collector.envstep)
        _update(run, max_train_iter)
        run.progress.advance(collector.envstep, learner.train_iter)
        if collector.envstep >= max_env_step or learner.train_iter >= max_train_iter:
            break
    if run.eval_info is None:  # a resumed run may end before an evaluation was due
        run.evaluate()
    learner.call_hook("after_run")
    run.save_result()


def _update(run: SerialRun, max_train_iter: int) -> None:
    """Train on up to `update_per_collect` batches; fewer when the buffer has no batch yet, or at `max_train_iter`."""
    learner, buffer = run.learner, run.buffer
    batch_size = learner.policy.get_attribute("batch_size")
    has_priority = learner.policy.get_attribute("priority")
    for _ in range(run.cfg.policy.learn.update_per_collect):
        if learner.train_iter >= max_train_iter:
            return
        batch = buffer.sample(batch_size, learner.train_iter)
        if batch is None:
            run.warn_starved(batch_size)
            return
        learner.train(batch, run.collector.envstep)
        if has_priority:
            buffer.update(learner.priority_info)
