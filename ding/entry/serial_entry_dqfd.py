"""`serial_pipeline_dqfd`, deep Q-learning from demonstrations."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any

import torch

from ding.config.main_settings import value_at
from ding.entry.expert import Expert, ExpertRounds, mark
from ding.entry.pipeline import run_pipeline
from ding.entry.progress import UNLIMITED
from ding.entry.workers import rank_seed
from ding.policy.base_policy import Policy
from ding.utils.config_helper import ConfigError
from ding.utils.pytorch_ddp_dist_helper import get_rank


def serial_pipeline_dqfd(
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
    """Train a policy with the help of demonstrations (DQfD, https://arxiv.org/abs/1704.03732), and return it.

    First the expert collects `policy.learn.expert_replay_buffer_size` samples (by default the capacity of the buffer),
    and the policy trains on `policy.learn.per_train_iter_k` batches of them. Then each sample of a batch comes from the
    expert with probability `policy.collect.pho`, else from the policy itself. Samples of the expert have
    `is_expert` = 1, the others 0. Everything else is as in `serial_pipeline`.

    Args:
        input_cfg: the path of a config file, or the pair `(main_config, create_config)`, which is not modified.
        expert_cfg: the same for the expert. Its weights are read from the checkpoint `policy.collect.model_path` of its
            own config or, if that is missing, of `input_cfg`.
        seed: the seed of the package, the policy and the envs.
        env_setting: `[env_fn, collector env configs, evaluator env configs]` instead of a registered env type.
        model: the network; None for the policy's default.
        expert_model: the expert's trained network, which needs no checkpoint.
        max_train_iter: the exact number of iterations, including those before the first round, after which training
            stops.
        max_env_step: the number of env steps after which no new round starts, without the steps of the expert.
        resume, strict_config: see `serial_pipeline`.

    Raises:
        ConfigError: a config is inconsistent, the expert has no weights, or the policy has no `learn.per_train_iter_k`
            or `collect.pho`.
    """
    own_seed = rank_seed(seed, get_rank())
    label = partial(mark, key="is_expert", value=1)
    expert = Expert(expert_cfg, env_setting, expert_model, label, True, own_seed, strict_config)

    limits = max_train_iter, max_env_step
    rounds = partial(_DQFDRounds, expert)
    return run_pipeline(rounds, input_cfg, seed, env_setting, model, *limits, resume, strict_config).policy


class _DQFDRounds(ExpertRounds):
    _is_pretraining = False

    def prepare(self, stack: ExitStack) -> None:
        run, policy = self.run, self.run.cfg.policy
        for key in ("learn.per_train_iter_k", "collect.pho"):
            if value_at(policy, key) is None:
                raise ConfigError(
                    f"policy.{key} is missing: serial_pipeline_dqfd needs it, as the policy 'dqfd' has it"
                )
        size = policy.learn.get("expert_replay_buffer_size", policy.other.replay_buffer.replay_buffer_size)
        self.expert.build(stack, run, size)
        run.label = partial(mark, key="is_expert", value=0)
        if not run.states.is_resumed:
            self.expert.collect(run, size)

    def pretrain(self) -> None:
        self._is_pretraining = True
        self.begin_batches(self.run.cfg.policy.learn.per_train_iter_k)
        self.run.learner.train_from(self, self.run.max_train_iter)
        self._is_pretraining = False

    def expert_share(self, batch_size: int) -> int:
        if self._is_pretraining:
            return batch_size
        return int(self.expert.rng.binomial(batch_size, self.run.cfg.policy.collect.pho))
