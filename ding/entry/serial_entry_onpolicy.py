"""`serial_pipeline_onpolicy`: evaluate, collect, train on what was collected, until solved or out of budget."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ding.entry.pipeline import run_pipeline
from ding.entry.progress import UNLIMITED
from ding.entry.workers import SerialRun
from ding.policy.base_policy import Policy


def serial_pipeline_onpolicy(
    input_cfg: str | Sequence[dict[str, Any]],
    seed: int = 0,
    env_setting: Sequence[Any] | None = None,
    model: torch.nn.Module | None = None,
    max_train_iter: int = UNLIMITED,
    max_env_step: int = UNLIMITED,
    resume: bool = False,
) -> Policy:
    """Train an on-policy policy in this process and return it; `serial_pipeline` without a buffer.

    Each round hands all that was collected to the policy once, which may take any number of optimizer steps on it, and
    `train_iter` grows by their number: an evaluation comes with the first round `eval_freq` iterations after the last
    one. Files, signals, ranks and errors are those of `serial_pipeline`.

    Args:
        input_cfg: path of a config file, or the pair `(main_config, create_config)`; neither is changed.
        seed: of the package, the policy and the envs; evaluation envs, and ranks other than 0, get another one derived
            from it. Two runs with one seed are equal on a CPU.
        env_setting: `[env_fn, collector env configs, evaluator env configs]` instead of a registered env type.
        model: the network, instead of the policy's default one.
        max_train_iter: no new round begins after this many iterations.
        max_env_step: no new round begins after this many env steps.
        resume: go on from the newest state, see `serial_pipeline`.

    Raises:
        ConfigError: the config contradicts itself, or the model does not fit the env.
        FloatingPointError: an env returned NaN, or a loss became NaN.
    """
    return run_serial_onpolicy(input_cfg, seed, env_setting, model, max_train_iter, max_env_step, resume).policy


def run_serial_onpolicy(
    input_cfg: Any,
    seed: int = 0,
    env_setting: Sequence[Any] | None = None,
    model: torch.nn.Module | None = None,
    max_train_iter: int = UNLIMITED,
    max_env_step: int = UNLIMITED,
    resume: bool = False,
) -> SerialRun:
    """`serial_pipeline_onpolicy`, returning the whole run: its config, outcome and (closed) workers."""
    limits = max_train_iter, max_env_step
    return run_pipeline(_update, input_cfg, seed, env_setting, model, *limits, has_buffer=False, resume=resume)


def _update(run: SerialRun, data: list[Any], max_train_iter: int) -> None:
    run.learner.train(data, run.collector.envstep)
