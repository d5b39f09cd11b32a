"""`serial_pipeline_dqfd` and `serial_pipeline_sqil`: training on the samples of an expert, too."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any

import numpy as np
import torch
from easydict import EasyDict

from ding.entry.checks import UNLIMITED
from ding.entry.experiment import Experiment, load_state, read_checkpoint, run_pipeline
from ding.entry.serial_entry import ReplayRounds
from ding.entry.serial_run import rank_seed
from ding.policy.base_policy import Policy, create_policy
from ding.utils.config_helper import ConfigError, value_at
from ding.utils.data.samples import Column, Kind, map_node, replaced, table_of, with_columns
from ding.utils.default_helper import closing, derive_seed
from ding.utils.object_state import SavedAttributes
from ding.utils.pytorch_ddp_dist_helper import get_rank
from ding.worker.collector.sample_serial_collector import SampleSerialCollector


class ExpertRounds(ReplayRounds):
    """Rounds that also draw samples of an expert, which collects by the policy of another config for a second buffer.

    The expert acts, without epsilon-greedy exploration; the policy in training makes the samples, so that they have the
    same keys as its own. The expert's weights are read from the checkpoint `policy.collect.model_path` of its config
    or, if that is missing, of the config in training; a trained `model` needs no checkpoint.

    Args:
        expert_cfg: the path of the expert's config file, or its pair of configs, which is not modified.
        env_setting: `[env_fn, collector env configs, ...]` instead of the env of its config.
        strict_config: whether keys that nothing reads raise an error instead of logging a warning.

    Attributes:
        whole_episodes: whether the expert's samples are made at the end of an episode, where n-step samples are
            complete.
        buffer: the expert's buffer.
    """

    can_relabel = False
    whole_episodes = False
    buffer: Any

    def __init__(
        self,
        expert_cfg: Any,
        env_setting: Sequence[Any] | None,
        model: torch.nn.Module | None,
        strict_config: bool = False,
    ) -> None:
        super().__init__(dynamic_seed=None)
        self._expert_cfg, self._env_setting, self._model = expert_cfg, env_setting, model
        self._strict_config = strict_config

    def label(self, samples: Any) -> Any:
        """Return the expert's samples, marked as such."""
        raise NotImplementedError

    def expert_share(self, batch_size: int) -> int:
        """Return the number of the expert's samples in the next batch."""
        raise NotImplementedError

    def build_expert(self, stack: ExitStack, **buffer: Any) -> None:
        """Build the expert's workers, which `stack` closes, and add them to the state of the run.

        Args:
            buffer: changes to the settings of the buffer in training.

        Raises:
            ConfigError: the expert has no weights, or does not fit the env.
            FileNotFoundError: the checkpoint does not exist.
        """
        run, seed = self.run, self.run.cfg.seed
        expert = Experiment.from_config(
            self._expert_cfg, seed, self._env_setting, self._model, strict_config=self._strict_config
        )
        cfg, env = expert.cfg, expert.build_env(stack, derive_seed(rank_seed(seed, get_rank()), 4))
        policy: Any = create_policy(cfg.policy, model=self._model, enable_field=["collect", "command"])
        path = cfg.policy.collect.get("model_path") or run.cfg.policy.collect.get("model_path")
        load_state(policy.collect_mode, read_checkpoint(path) if path else None, self._model)
        settings = policy.command_mode.get_setting_collect({"envstep": 0, "learner_step": 0, "learner_train_iter": 0})
        self._settings = {**settings, "eps": 0.0} if "eps" in settings else settings
        self._collector = SampleSerialCollector(
            SampleSerialCollector.default_config(),
            env,
            self._mode(policy),
            run.writer,
            exp_name=run.cfg.exp_name,
            instance_name="expert_collector",
        )
        closing(stack, self._collector)
        expert.check_fits_env(policy, env)
        self.buffer = run.add_buffer(stack, "expert_buffer", **buffer)
        run.further_parts |= {"expert": policy, "expert_env": env, "expert_collector": self._collector}

    def _mode(self, policy: Any) -> Any:
        """Return a collect mode in which the expert acts and the policy in training makes the samples."""
        student, expert = self.run.policy.collect_mode, policy.collect_mode
        cfg: EasyDict = copy.deepcopy(self.run.cfg.policy)
        cfg.traj_len_inf = cfg.collect.traj_len_inf = self.whole_episodes

        def get_attribute(name: str) -> Any:
            return cfg if name == "cfg" else student.get_attribute(name)

        return student._replace(forward=expert.forward, reset=expert.reset, get_attribute=get_attribute)

    def collect_from_expert(self, n_sample: int | None = None) -> None:
        """Push `n_sample` samples to the buffer, by default as many as the policy in training collects per round."""
        samples = self._collector.collect(n_sample, self.run.learner.train_iter, policy_kwargs=self._settings)
        self.buffer.push(self.label(samples), cur_collector_envstep=self.run.envstep)

    def shares(self, batch_size: int) -> Sequence[tuple[Any, int]]:
        expert_size = self.expert_share(batch_size)
        shares = (self.run.buffer, batch_size - expert_size), (self.buffer, expert_size)
        return [(buffer, size) for buffer, size in shares if size > 0]


def mark(samples: list[Any], key: str, value: int) -> Any:
    """Set `key` of all samples to the number `value`, in place, and return `samples`."""
    return with_columns(samples, **{key: Column(Kind.INT, np.full(len(samples), value, np.int64))})


def with_reward(samples: list[Any], value: float) -> Any:
    """Set the reward of all samples to `value`, in place and with the same shape, and return `samples`.

    Raises:
        ConfigError: they have advantages or returns, which consist of other rewards.
    """
    table = table_of(samples)
    columns = table.columns if table is not None else samples[0] if samples else {}
    keys = {"adv", "return"} & columns.keys()
    if keys:
        raise ConfigError(
            f"the policy computes {' and '.join(sorted(keys))} of its samples from the env's rewards when it collects, "
            "so serial_pipeline_sqil cannot train it; take one that learns from rewards, such as dqn, sql or impala"
        )
    if table is not None:
        rewards = map_node(
            lambda column: Column(column.kind, np.full_like(column.values(), value), None, column.steps),
            table.columns["reward"],
        )
        return replaced(samples, table.with_columns(reward=rewards))
    for sample in samples:
        reward = sample["reward"]
        sample["reward"] = torch.full_like(reward, value) if isinstance(reward, torch.Tensor) else reward * 0 + value
    return samples


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
    rounds = partial(_DQFDRounds, expert_cfg, env_setting, expert_model, strict_config)
    run = run_pipeline(rounds, input_cfg, seed, env_setting, model, max_train_iter, max_env_step, resume, strict_config)
    return run.policy


class _DQFDRounds(ExpertRounds, SavedAttributes):
    whole_episodes = True
    _is_pretraining = False
    _saved = ("_rng",)

    def label(self, samples: Any) -> Any:
        return mark(samples, "is_expert", 1)

    def prepare(self, stack: ExitStack) -> None:
        run, policy = self.run, self.run.cfg.policy
        for key in ("learn.per_train_iter_k", "collect.pho"):
            if value_at(policy, key) is None:
                raise ConfigError(f"policy.{key} is missing: serial_pipeline_dqfd needs it; the policy 'dqfd' has it")
        size = policy.learn.get("expert_replay_buffer_size", policy.other.replay_buffer.replay_buffer_size)
        if policy.learn.per_train_iter_k and size < policy.learn.batch_size:
            raise ConfigError(
                f"policy.learn.expert_replay_buffer_size = {size} is not allowed; it must be at least "
                f"policy.learn.batch_size = {policy.learn.batch_size}, because the first batches are the expert's"
            )
        self._rng = np.random.default_rng(rank_seed(run.cfg.seed, get_rank()))
        self.build_expert(stack, replay_buffer_size=size)
        run.further_parts["shares"] = self
        if not run.states.is_resumed:
            self.collect_from_expert(size)

    def push(self, data: Any) -> None:
        super().push(mark(data, "is_expert", 0))

    def pretrain(self) -> None:
        self._is_pretraining = True
        self.begin_batches(self.run.cfg.policy.learn.per_train_iter_k)
        self.run.learner.train_from(self, self.run.max_train_iter)
        self._is_pretraining = False

    def expert_share(self, batch_size: int) -> int:
        if self._is_pretraining:
            return batch_size
        return int(self._rng.binomial(batch_size, self.run.cfg.policy.collect.pho))


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
    rounds = partial(_SQILRounds, expert_cfg, env_setting, expert_model, strict_config)
    run = run_pipeline(rounds, input_cfg, seed, env_setting, model, max_train_iter, max_env_step, resume, strict_config)
    return run.policy


class _SQILRounds(ExpertRounds):
    def label(self, samples: Any) -> Any:
        return with_reward(samples, 1)

    def prepare(self, stack: ExitStack) -> None:
        if self.run.cfg.policy.get("nstep", 1) != 1:
            raise ConfigError(f"policy.nstep = {self.run.cfg.policy.nstep} is not allowed; it must be 1 for SQIL")
        self.build_expert(stack)

    def push(self, data: Any) -> None:
        super().push(with_reward(data, 0))

    def take(self, data: Any) -> None:
        super().take(data)
        self.collect_from_expert()

    def expert_share(self, batch_size: int) -> int:
        return batch_size // 2
