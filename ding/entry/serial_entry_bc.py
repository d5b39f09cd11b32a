"""`serial_pipeline_bc`, behavioural cloning."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial
from typing import Any

import torch

from ding.entry.pipeline import read_pair, run_pipeline
from ding.entry.serial_entry_offline import EpochRounds
from ding.policy.base_policy import Policy


def serial_pipeline_bc(
    input_cfg: str | Sequence[dict[str, Any]],
    seed: int,
    data_path: str | os.PathLike[str],
    model: torch.nn.Module | None = None,
    max_iter: int = int(1e6),
    env_setting: Sequence[Any] | None = None,
    resume: bool = False,
    strict_config: bool = False,
) -> tuple[Policy, bool]:
    """Train a policy on demonstrations by supervised learning, and return it, and whether it stopped early.

    This works like `serial_pipeline_offline`, but also evaluates within epochs.

    Args:
        input_cfg: the path of a config file, or the pair `(main_config, create_config)`, which is not modified.
        seed: the seed of the package, the policy, the order of the data and the envs.
        data_path: the file of the demonstrations, of the type `policy.collect.data_type` ('naive' by default).
        model: the network; None for the policy's default.
        max_iter: the exact number of iterations after which training stops.
        env_setting: `[env_fn, collector env configs, evaluator env configs]` instead of a registered env type; the
            collector env configs are not used.
        resume, strict_config: see `serial_pipeline`.

    Raises:
        ConfigError: the config is inconsistent, or the model does not fit the env.
        FloatingPointError: a loss is NaN.
    """
    main, create = read_pair(input_cfg, env_setting)
    main.setdefault("policy", {}).setdefault("collect", {})["data_path"] = os.fspath(data_path)
    how: dict[str, Any] = {"resume": resume, "strict_config": strict_config}
    rounds = partial(EpochRounds, evaluates_within_epochs=True)
    run = run_pipeline(rounds, (main, create), seed, env_setting, model, int(max_iter), **how)
    return run.policy, run.is_decided or run.learner.train_iter >= max_iter
