"""`serial_pipeline_onpolicy`, on-policy training in one process."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch

from ding.entry.pipeline import CollectRounds, run_pipeline
from ding.entry.progress import UNLIMITED
from ding.policy.base_policy import Policy


def serial_pipeline_onpolicy(
    input_cfg: str | Sequence[dict[str, Any]],
    seed: int = 0,
    env_setting: Sequence[Any] | None = None,
    model: torch.nn.Module | None = None,
    max_train_iter: int = UNLIMITED,
    max_env_step: int = UNLIMITED,
    resume: bool = False,
    strict_config: bool = False,
) -> Policy:
    """Train an on-policy policy in this process and return it, like `serial_pipeline` but without a buffer.

    Each round passes the collected data to the policy once. The policy may take several optimizer steps; `train_iter`
    increases by their number. An evaluation precedes the first round that starts at least `eval_freq` iterations after
    the last one. Files, signals, ranks and errors are the same as in `serial_pipeline`.

    Args:
        input_cfg: the path of a config file, or the pair `(main_config, create_config)`, which is not modified.
        seed: the seed of the package, the policy and the envs, from which the seeds of evaluation envs and other ranks
            are derived. Two runs with the same seed are equal on a CPU.
        env_setting: `[env_fn, collector env configs, evaluator env configs]` instead of a registered env type.
        model: the network; None for the policy's default.
        max_train_iter: the number of iterations after which no new round starts.
        max_env_step: the number of env steps after which no new round starts.
        resume, strict_config: see `serial_pipeline`.

    Raises:
        ConfigError: the config is inconsistent, or the model does not fit the env.
        FloatingPointError: an observation, a reward or a loss is NaN.
    """
    limits = max_train_iter, max_env_step
    return run_serial_onpolicy(input_cfg, seed, env_setting, model, *limits, resume, strict_config).policy


class OnPolicyRounds(CollectRounds):
    """Rounds that train once on the collected data."""

    options = {"has_buffer": False}


# `serial_pipeline_onpolicy`, but it returns the run: its config, outcome and closed workers.
run_serial_onpolicy = partial(run_pipeline, OnPolicyRounds)
