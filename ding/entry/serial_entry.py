"""`serial_pipeline`: evaluate, collect, push, train in one process, until solved or out of budget."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ding.entry.pipeline import run_pipeline
from ding.entry.progress import UNLIMITED
from ding.entry.workers import SerialRun
from ding.policy.base_policy import Policy
from ding.utils.pytorch_ddp_dist_helper import on_all_ranks


def serial_pipeline(
    input_cfg: str | Sequence[dict[str, Any]],
    seed: int = 0,
    env_setting: Sequence[Any] | None = None,
    model: torch.nn.Module | None = None,
    max_train_iter: int = UNLIMITED,
    max_env_step: int = UNLIMITED,
    dynamic_seed: bool = True,
    resume: bool = False,
) -> Policy:
    """Train an off-policy policy in this process and return it.

    The experiment folder gets, beside configs, logs and checkpoints, `eval.jsonl` (one line per evaluation) and
    `result.pkl` (the outcome). Envs, workers and files are closed however the run ends. SIGINT and SIGTERM save
    `ckpt_interrupt` and exit with status 130; an exception saves `ckpt_exception` and passes on.

    Every five minutes, when a signal ends it and when it comes to its end, a run saves its whole state to `run_state`
    there, as the section `run_state` of the main config says: `every_iter` and `every_s` (0 for never), `keep` states,
    `trust_pickle`; False for no states. With `resume` a run goes on from the newest one as if it had never ended, bit
    for bit on a CPU; a signal takes effect at the end of a round for that. An exception breaks off in the middle of a
    round: the state before it stays; where there is none, one is saved that is not exact.

    Inside a `DDPContext` all ranks call this together, with `policy.multi_gpu`. Each collects and trains with the
    amounts of the config (`to_ddp_config` divides them); env steps count over all ranks. Rank 0 evaluates, and it alone
    writes files.

    Args:
        input_cfg: path of a config file, or the pair `(main_config, create_config)`; neither is changed.
        seed: of the package, the policy and the envs; evaluation envs, and ranks other than 0, get another one derived
            from it. Two runs with one seed are equal on a CPU.
        env_setting: `[env_fn, collector env configs, evaluator env configs]` instead of a registered env type.
        model: the network, instead of the policy's default one.
        max_train_iter: training stops exactly here.
        max_env_step: no new round of collecting begins after this many env steps.
        dynamic_seed: whether each collector env gets a new seed at each episode.
        resume: go on from the newest state under `exp_name`. The config must be that of the state, but for budgets.
            Where there is no state the run begins anew, and what an earlier run has left there is set aside.

    Raises:
        ConfigError: the config contradicts itself or the state to go on from, or the model does not fit the env.
        StateError: there are states to go on from, and none can be read; or another process runs in their folder.
        RuntimeError: the replay buffer takes nothing of what is collected.
        FloatingPointError: an env returned NaN, or a loss became NaN.
    """
    return run_serial(input_cfg, seed, env_setting, model, max_train_iter, max_env_step, dynamic_seed, resume).policy


def run_serial(
    input_cfg: Any,
    seed: int = 0,
    env_setting: Sequence[Any] | None = None,
    model: torch.nn.Module | None = None,
    max_train_iter: int = UNLIMITED,
    max_env_step: int = UNLIMITED,
    dynamic_seed: bool = True,
    resume: bool = False,
) -> SerialRun:
    """`serial_pipeline`, returning the whole run: its config, outcome and (closed) workers."""
    limits = max_train_iter, max_env_step
    return run_pipeline(_push_and_train, input_cfg, seed, env_setting, model, *limits, dynamic_seed, resume=resume)


def _push_and_train(run: SerialRun, data: list[Any], max_train_iter: int) -> None:
    run.push(data)
    _update(run, max_train_iter)


def _update(run: SerialRun, max_train_iter: int) -> None:
    """Train on up to `update_per_collect` batches; fewer when a rank's buffer has none yet, or at `max_train_iter`."""
    learner, buffer = run.learner, run.buffer
    batch_size = learner.policy.get_attribute("batch_size")
    has_priority = learner.policy.get_attribute("priority")
    for _ in range(run.cfg.policy.learn.update_per_collect):
        if learner.train_iter >= max_train_iter:
            return
        batch = buffer.sample(batch_size, learner.train_iter)
        if not on_all_ranks(batch is not None):
            run.warn_starved(batch_size)
            return
        learner.train(batch, run.collector.envstep)
        if has_priority:
            buffer.update(learner.priority_info)
