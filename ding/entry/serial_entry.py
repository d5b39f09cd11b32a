"""`serial_pipeline` and `serial_pipeline_onpolicy`, and the choice of the pipeline that a policy needs."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any

import torch

from ding.config.config import resolve_class
from ding.config.read import read_config, read_config_directly
from ding.entry.checks import UNLIMITED
from ding.entry.experiment import run_pipeline
from ding.entry.serial_run import CollectRounds
from ding.policy.base_policy import Policy
from ding.utils.config_helper import ConfigError
from ding.utils.data.samples import concatenate_items, listed
from ding.utils.pytorch_ddp_dist_helper import get_world_size, on_all_ranks, smallest_over_ranks
from ding.worker.learner.base_learner import BaseLearner
from ding.worker.replay_buffer.hindsight_buffer import HindsightReplayBuffer


def serial_pipeline(
    input_cfg: str | Sequence[dict[str, Any]],
    seed: int = 0,
    env_setting: Sequence[Any] | None = None,
    model: torch.nn.Module | None = None,
    max_train_iter: int = UNLIMITED,
    max_env_step: int = UNLIMITED,
    dynamic_seed: bool = True,
    resume: bool = False,
    strict_config: bool = False,
) -> Policy:
    """Train an off-policy policy in this process and return it.

    The run evaluates, collects, pushes and trains until the task is solved or the budget is used up. The experiment
    folder contains configs, logs, checkpoints, `eval.jsonl` (a line per evaluation), metrics and `result.pkl` (the
    outcome). Envs, workers and files are closed however the run ends. SIGINT and SIGTERM save `ckpt_interrupt` and exit
    with status 130; an exception saves `ckpt_exception` and is re-raised.

    The run saves its complete state to the folder `run_state` every five minutes, on a signal, and at its end. The
    section `run_state` of the main config configures that with `every_iter` and `every_s` (0 for never), and
    `keep`; False means no states. With `resume`, a run continues from the newest state with the same results,
    bit for bit on a CPU; a signal therefore takes effect at the end of a round. After an exception the last state is
    kept.

    Inside a `DDPContext` all ranks call this function together, with `policy.multi_gpu`. Each rank collects and trains
    with the amounts in the config (`to_ddp_config` divides them); env steps are counted over all ranks. Only rank 0
    evaluates and writes files.

    Args:
        input_cfg: the path of a config file, or the pair `(main_config, create_config)`, which is not modified.
        seed: the seed of the package, the policy and the envs, from which the seeds of evaluation envs and other ranks
            are derived. Two runs with the same seed are equal on a CPU.
        env_setting: `[env_fn, collector env configs, evaluator env configs]` instead of a registered env type.
        model: the network; None for the policy's default.
        max_train_iter: the exact number of iterations after which training stops.
        max_env_step: the number of env steps after which no new round starts.
        dynamic_seed: whether each collector env gets a new seed for each episode.
        resume: whether to resume from the newest state in `exp_name`. The config must equal that of the state, except
            for budgets. If there is no state, the run starts afresh and the folder of an earlier run is renamed.
        strict_config: whether keys that nothing reads raise an error instead of logging a warning.

    Raises:
        ConfigError: the config is inconsistent or differs from that of the state, or the model does not fit the env.
        StateError: no state in the folder is readable, or another process uses the folder.
        RuntimeError: the replay buffer accepts none of the collected data.
        FloatingPointError: an observation, a reward or a loss is NaN.
    """
    rounds = partial(ReplayRounds, dynamic_seed)
    run = run_pipeline(rounds, input_cfg, seed, env_setting, model, max_train_iter, max_env_step, resume, strict_config)
    return run.policy


class ReplayRounds(CollectRounds):
    """Rounds that push the collected data to the replay buffer, and draw `update_per_collect` batches.

    With the buffer `her` a round is all episodes that have ended, and draws `update_per_collect` batches for each
    `n_sample` samples.
    """

    can_relabel = True
    _left = 0  # number of batches left in this round
    _shares: Sequence[tuple[Any, int]] = ()  # the shares of the newest batch

    def __init__(self, dynamic_seed: bool | None = True) -> None:
        self.dynamic_seed = dynamic_seed

    @property
    def is_cut(self) -> bool:
        return self._left > 0

    def prepare(self, stack: ExitStack) -> None:
        is_of_samples = self.run.cfg.policy.collect.collector.type == "sample"
        if isinstance(self.run.buffer, HindsightReplayBuffer) and is_of_samples:
            self.collecting = {"drop_extra": False}

    def take(self, data: Any) -> None:
        self.push(data)
        number = self.run.cfg.policy.learn.update_per_collect
        if self.collecting:
            samples = len(data) if get_world_size() == 1 else smallest_over_ranks(len(data))
            number = round(number * samples / self.run.policy.collect_mode.get_attribute("n_sample"))
        self.begin_batches(number)

    def begin_batches(self, number: int) -> None:
        """Let `next_batch` return `number` batches; fewer if the buffer of a rank has too few samples."""
        get_attribute = self.run.learner.policy.get_attribute
        self._batch_size, self._has_priority = get_attribute("batch_size"), get_attribute("priority")
        self._left = number

    def shares(self, batch_size: int) -> Sequence[tuple[Any, int]]:
        """Return the buffers of the next batch, and how many samples to draw from each, at least 1."""
        return [(self.run.buffer, batch_size)]

    def next_batch(self) -> Any:
        if self._left <= 0:
            return None
        self._left -= 1
        self._shares, parts, has_all = self.shares(self._batch_size), [], True
        for buffer, size in self._shares:
            part = buffer.sample(size, self.run.learner.train_iter)
            parts.append(part)
            has_all = has_all and part is not None
        if not on_all_ranks(has_all):
            if not self.run.is_starved:
                self.run.progress.say(f"Collecting until the replay buffer can give a batch of {self._batch_size}.")
            self.run.is_starved, self._left = True, 0
            return None
        return parts[0] if len(parts) == 1 else listed(concatenate_items(parts))

    def after_train(self, learner: BaseLearner) -> None:
        if self._has_priority:
            info, start = learner.priority_info, 0
            for buffer, size in self._shares:
                end = start + size
                part = info if len(self._shares) == 1 else {key: values[start:end] for key, values in info.items()}
                buffer.update(part)
                start = end


# `serial_pipeline` without `dynamic_seed`, but it returns the run: its config, outcome and closed workers.
run_serial = partial(run_pipeline, ReplayRounds)


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
    run = run_serial_onpolicy(input_cfg, seed, env_setting, model, max_train_iter, max_env_step, resume, strict_config)
    return run.policy


class OnPolicyRounds(CollectRounds):
    """Rounds that train once on the collected data."""

    has_buffer = False


# `serial_pipeline_onpolicy`, but it returns the run: its config, outcome and closed workers.
run_serial_onpolicy = partial(run_pipeline, OnPolicyRounds)


# Policies that learn from a data set alone, or from demonstrations of an expert, with the modes of their pipelines.
_FROM_DATA = {
    **dict.fromkeys(("cql", "discrete_cql", "td3_bc", "iql"), "serial_offline"),
    "bc": "serial_bc",
    "dqfd": "serial_dqfd",
}


def pipeline_named(mode: str) -> Callable[..., Any]:
    """Return the pipeline of a mode, such as `serial_pipeline_onpolicy` of `serial_onpolicy`."""
    name = "parallel_pipeline" if mode == "parallel" else mode.replace("serial", "serial_pipeline")
    pipeline: Callable[..., Any] = getattr(importlib.import_module("ding.entry"), name)
    return pipeline


def pipeline_of(path: str) -> str:
    """Return the name of the pipeline that a config file needs; `parallel` if it has a `system_config`.

    Raises:
        KeyError: the policy is not registered.
    """
    if "system_config" in read_config_directly(path):
        return "parallel"
    main, create = read_config(os.path.abspath(path))
    return kind_of_pipeline(main, create)


def kind_of_pipeline(main: Mapping[str, Any], create: Mapping[str, Any]) -> str:
    """Return the mode of the pipeline that the policy of two configs needs, such as `serial` or `serial_offline`.

    Raises:
        KeyError: the policy is not registered.
    """
    kind = str(create.get("policy", {}).get("type", "")).removesuffix("_command")
    if kind in _FROM_DATA:
        return _FROM_DATA[kind]
    defaults = resolve_class("policy", create.get("policy", {})).default_config()
    on_policy = main.get("policy", {}).get("on_policy", defaults.get("on_policy", False))
    return "serial_onpolicy" if on_policy else "serial"


def entry_of(policy: str) -> str:
    """Return the name of the function that trains a policy of this package, or 'a loop of your own'."""
    create = {"policy": {"type": policy}}
    other = resolve_class("policy", create["policy"]).default_config().get("other", {})
    if other.get("replay_buffer", {}).get("multi_buffer"):
        return "a loop of your own"
    return pipeline_named(kind_of_pipeline({}, create)).__name__


def rounds_for(main: Mapping[str, Any], create: Mapping[str, Any]) -> type[CollectRounds]:
    """Return the rounds in which the policy of two configs trains.

    Raises:
        ConfigError: the policy learns from a data set or from an expert.
        KeyError: the policy is not registered.
    """
    kind = kind_of_pipeline(main, create)
    if kind in _FROM_DATA.values():
        name, pipeline = create["policy"]["type"], pipeline_named(kind).__name__
        raise ConfigError(f"policy = {name!r} learns from a data set or an expert: use {pipeline}")
    return ReplayRounds if kind == "serial" else OnPolicyRounds
