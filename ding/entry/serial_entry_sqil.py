"""`serial_pipeline_sqil`: soft Q imitation learning."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ding.entry.expert import Expert, train_with_expert, with_reward
from ding.entry.pipeline import run_pipeline
from ding.entry.progress import UNLIMITED
from ding.entry.workers import SerialRun
from ding.policy.base_policy import Policy
from ding.utils.config_helper import ConfigError


def serial_pipeline_sqil(
    input_cfg: str | Sequence[dict[str, Any]],
    expert_cfg: str | Sequence[dict[str, Any]],
    seed: int = 0,
    env_setting: Sequence[Any] | None = None,
    model: torch.nn.Module | None = None,
    expert_model: torch.nn.Module | None = None,
    max_train_iter: int = UNLIMITED,
    max_env_step: int = UNLIMITED,
    resume: bool = False,
) -> Policy:
    """Imitate an expert with an off-policy policy (SQIL, https://arxiv.org/abs/1905.11108), and return it.

    The reward of the expert's steps is 1 and that of the policy's own 0; the env's is for evaluations only. In each
    round both collect, and half of each batch comes from each. Else as `serial_pipeline`.

    Args:
        input_cfg: path of a config file, or the pair `(main_config, create_config)`; neither is changed.
        expert_cfg: the same of the expert. The checkpoint `policy.collect.model_path` of its config or, if that has
            none, of the other one is what it has learned.
        seed: of the package, the policy and the envs.
        env_setting: `[env_fn, collector env configs, evaluator env configs]` instead of a registered env type.
        model: the network, instead of the policy's default one.
        expert_model: the expert's network; it needs no checkpoint.
        max_train_iter: training stops exactly here.
        max_env_step: no new round of collecting begins after this many env steps; those of the expert do not count.
        resume: go on from the newest state, see `serial_pipeline`.

    Raises:
        ConfigError: a config contradicts itself, nothing says what the expert has learned, or `policy.nstep` is more
            than 1: samples of several steps have rewards of the env in them.
    """
    expert = Expert(expert_cfg, env_setting, expert_model, lambda samples: with_reward(samples, 1))

    def prepare(stack: Any, run: SerialRun) -> None:
        if run.cfg.policy.get("nstep", 1) != 1:
            raise ConfigError(f"policy.nstep = {run.cfg.policy.nstep} is not allowed; it must be 1 for SQIL")
        expert.build(stack, run)
        run.label = lambda samples: with_reward(samples, 0)

    def update(run: SerialRun, data: list[Any], max_iter: int) -> None:
        run.push(data)
        expert.collect(run)
        train_with_expert(run, expert, lambda batch_size: batch_size // 2, max_iter)

    limits = max_train_iter, max_env_step
    how: dict[str, Any] = {"prepare": prepare, "resume": resume}
    return run_pipeline(update, input_cfg, seed, env_setting, model, *limits, **how).policy
