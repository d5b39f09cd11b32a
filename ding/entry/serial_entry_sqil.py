"""`serial_pipeline_sqil`, soft Q imitation learning."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any

import torch

from ding.entry.expert import Expert, ExpertRounds, with_reward
from ding.entry.pipeline import run_pipeline
from ding.entry.progress import UNLIMITED
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
    strict_config: bool = False,
) -> Policy:
    """Train an off-policy policy to imitate an expert (SQIL, https://arxiv.org/abs/1905.11108), and return it.

    The expert's steps have the reward 1, the policy's steps 0; the reward of the env only counts in evaluations. Both
    collect in each round, and each batch consists of equal parts. Everything else is as in `serial_pipeline`.

    Args:
        input_cfg: the path of a config file, or the pair `(main_config, create_config)`, which is not modified.
        expert_cfg: the same for the expert. Its weights are read from the checkpoint `policy.collect.model_path` of its
            own config or, if that is missing, of `input_cfg`.
        seed: the seed of the package, the policy and the envs.
        env_setting: `[env_fn, collector env configs, evaluator env configs]` instead of a registered env type.
        model: the network; None for the policy's default.
        expert_model: the expert's trained network, which needs no checkpoint.
        max_train_iter: the exact number of iterations after which training stops.
        max_env_step: the number of env steps after which no new round starts, without the steps of the expert.
        resume, strict_config: see `serial_pipeline`.

    Raises:
        ConfigError: a config is inconsistent, the expert has no weights, or `policy.nstep` is above 1, as samples of
            several steps contain rewards of the env.
    """
    limits = max_train_iter, max_env_step
    expert = Expert(expert_cfg, env_setting, expert_model, partial(with_reward, value=1), strict_config=strict_config)
    rounds = partial(_SQILRounds, expert)
    return run_pipeline(rounds, input_cfg, seed, env_setting, model, *limits, resume, strict_config).policy


class _SQILRounds(ExpertRounds):
    def prepare(self, stack: ExitStack) -> None:
        if self.run.cfg.policy.get("nstep", 1) != 1:
            raise ConfigError(f"policy.nstep = {self.run.cfg.policy.nstep} is not allowed; it must be 1 for SQIL")
        self.expert.build(stack, self.run)
        self.run.label = partial(with_reward, value=0)

    def take(self, data: Any) -> None:
        super().take(data)
        self.expert.collect(self.run)

    def expert_share(self, batch_size: int) -> int:
        return batch_size // 2
