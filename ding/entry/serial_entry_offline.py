"""`serial_pipeline_offline` and `serial_pipeline_bc`: training on a data set."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, DistributedSampler

from ding.entry.checks import UNLIMITED
from ding.entry.experiment import read_pair, run_pipeline
from ding.entry.serial_run import Rounds, set_offline_stats
from ding.envs.common.gym_compat import duck_kind
from ding.policy.base_policy import Policy
from ding.utils.config_helper import ConfigError
from ding.utils.data.dataset import create_dataset
from ding.utils.object_state import SavedAttributes
from ding.utils.pytorch_ddp_dist_helper import get_rank, get_world_size
from ding.worker.learner.base_learner import BaseLearner
from ding.worker.learner.checkpoint import OFFLINE_STATS


def serial_pipeline_offline(
    input_cfg: str | Sequence[dict[str, Any]],
    seed: int = 0,
    env_setting: Sequence[Any] | None = None,
    model: torch.nn.Module | None = None,
    max_train_iter: int = UNLIMITED,
    resume: bool = False,
    strict_config: bool = False,
) -> tuple[Policy, bool]:
    """Train a policy on a data set for `policy.learn.train_epoch` epochs, and return it, and whether it stopped early.

    `policy.collect.data_type` and `data_path` choose the data set, see `ding.utils.data.create_dataset`. An evaluation
    follows the first epoch that ends at least `eval_freq` iterations after the last one; if there was none, it follows
    the training. Training stops early at the stop value, when the patience is exhausted, or at `max_train_iter`. Files,
    signals, ranks and errors are the same as in `serial_pipeline`; several ranks share `policy.learn.batch_size` and
    the data set.

    With `env.norm_obs.use_norm` and `env.norm_obs.offline_stats.use_offline_stats`, the mean and the deviation of the
    observations are written to `env.norm_obs.offline_stats` for the env, and to checkpoints for `eval`. A policy with
    `set_statistic` gets the `statistics` of the data set.

    Args:
        input_cfg: the path of a config file, or the pair `(main_config, create_config)`, which is not modified.
        seed: the seed of the package, the policy, the order of the data and the envs.
        env_setting: `[env_fn, collector env configs, evaluator env configs]` instead of a registered env type; the
            collector env configs are not used.
        model: the network; None for the policy's default.
        max_train_iter: the exact number of iterations after which training stops.
        resume, strict_config: see `serial_pipeline`.

    Raises:
        ConfigError: the config is inconsistent, or the model does not fit the env.
        FloatingPointError: a loss is NaN.
    """
    run = run_serial_offline(
        input_cfg, seed, env_setting, model, max_train_iter, resume=resume, strict_config=strict_config
    )
    return run.policy, run.is_decided or run.learner.train_iter >= max_train_iter


class EpochRounds(Rounds, SavedAttributes):
    """Rounds of one batch of a data set, which is read `policy.learn.train_epoch` times, each time in another order.

    Args:
        evaluates_within_epochs: whether to evaluate as soon as it is due, not only at the end of an epoch.
    """

    collects = has_buffer = False
    # The number of batches of this epoch that were trained on, and the state of the generator at its beginning.
    _saved = ("_epoch", "_trained", "_order")
    _batches: Iterator[Any]

    def __init__(self, evaluates_within_epochs: bool = False) -> None:
        self._within_epochs = evaluates_within_epochs
        self.needs_command_mode = not evaluates_within_epochs
        self._epoch = self._trained = 0

    def check(self, cfg: Any) -> None:
        if "train_epoch" not in cfg.policy.learn:
            raise ConfigError("policy.learn.train_epoch is missing; set it to the number of epochs")
        self._dataset, self._epochs = create_dataset(cfg), cfg.policy.learn.train_epoch
        self._generator = torch.Generator().manual_seed(cfg.seed)
        self._loader = _loader(self._dataset, cfg.policy.learn.batch_size, self._generator)
        self._stats = {key: getattr(self._dataset, key) for key in ("mean", "std") if hasattr(self._dataset, key)}
        self._is_normalized = set_offline_stats(cfg.env, self._stats)

    def prepare(self, stack: ExitStack) -> None:
        run = self.run
        if self._is_normalized:
            run.learner.ckpt_extra[OFFLINE_STATS] = self._stats
        if hasattr(run.policy, "set_statistic"):
            run.policy.set_statistic(self._dataset.statistics)
        for sample in itertools.islice(self._dataset, 100):
            for problem in _problems(run.policy, run.evaluator_env, sample) if isinstance(sample, Mapping) else ():
                raise ConfigError(f"the data set has {problem}; choose a data set, policy and env that fit each other")
        run.further_parts["batches"] = self
        self._begin_epoch()

    def begin_round(self) -> bool:
        run, within = self.run, self._within_epochs
        if self._trained == len(self._loader) and not within and run.evaluate_if_due():
            return False
        run.states.checkpoint(run)
        self.batch = next(self._batches, None)
        if self.batch is None:  # the epoch is over
            run.policy.end_epoch()
            self._epoch, self._trained = self._epoch + 1, 0
            self._begin_epoch()
            self.batch = next(self._batches, None)
        return not (self.batch is None or (within and run.evaluate_if_due()) or run.is_over)

    def _begin_epoch(self) -> None:
        if isinstance(self._loader.sampler, DistributedSampler):
            self._loader.sampler.set_epoch(self._epoch)
        self._order = self._generator.get_state()
        self._batches = iter(self._loader if self._epoch < self._epochs else ())

    def after_train(self, learner: BaseLearner) -> None:
        self._trained += 1

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> list[str]:
        """Continue with the first batch that has not been trained on, after reading the batches before it again."""
        problems = super().load_state_dict(state_dict)
        self._generator.set_state(self._order)
        self._begin_epoch()
        for _ in itertools.islice(self._batches, self._trained):
            pass
        return problems


# `serial_pipeline_offline`, but it returns the run: its config, outcome and closed workers.
run_serial_offline = partial(run_pipeline, EpochRounds)


def _problems(policy: Any, env: Any, sample: Mapping[str, Any]) -> Iterator[str]:
    """Yield what a sample lacks of what the policy learns from, and what does not fit the spaces of the env."""
    name = type(policy).__name__
    missing = sorted(getattr(policy, "sample_keys", set()) - sample.keys())
    if missing:
        yield f"no {', '.join(missing)}, only {', '.join(map(str, sample))}, but {name} learns from that"
    boxes: dict[str, Any] = dict.fromkeys(("obs", "next_obs"), getattr(env, "observation_space", None))
    boxes["action"] = getattr(env, "action_space", None)
    for key, box in boxes.items():
        if key in sample and duck_kind(box) == "Box" and box.shape and not isinstance(sample[key], Mapping):
            shape = np.shape(sample[key]) or (1,)
            if box.shape[-len(shape) :] != shape:
                yield f"{key} of the shape {list(shape)}, but the env of the shape {list(box.shape)}"
    action = sample.get("action")
    if getattr(policy, "has_discrete_actions", None) and isinstance(action, float | np.ndarray | torch.Tensor):
        numbers, space = np.asarray(action), boxes["action"]
        if not (numbers == numbers.round()).all():
            yield f"the action {numbers.tolist()}, but {name} chooses among actions by their numbers"
        if duck_kind(space) == "Discrete" and not ((numbers >= 0) & (numbers < int(space.n))).all():
            yield f"the action {numbers.tolist()}, but the actions of the env are 0 to {int(space.n) - 1}"


def _loader(dataset: Any, batch_size: int, order: torch.Generator) -> DataLoader[Any]:
    """Return a loader of batches, which are lists of samples, as policies collate them."""
    if len(dataset) == 0:
        raise ConfigError("the data set of policy.collect.data_path is empty")
    ranks = get_world_size()
    if batch_size < ranks:
        raise ConfigError(
            f"policy.learn.batch_size = {batch_size} cannot be shared by {ranks} ranks, which each get a part of it; "
            "raise it, and leave out to_ddp_config here"
        )
    seed = order.initial_seed()
    sampler: Any = DistributedSampler(dataset, ranks, get_rank(), seed=seed) if ranks > 1 else None
    return DataLoader(
        dataset, batch_size // ranks, shuffle=sampler is None, sampler=sampler, collate_fn=_as_is, generator=order
    )


def _as_is(samples: Any) -> Any:
    return samples


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
    rounds = partial(EpochRounds, evaluates_within_epochs=True)
    run = run_pipeline(
        rounds, (main, create), seed, env_setting, model, int(max_iter), resume=resume, strict_config=strict_config
    )
    return run.policy, run.is_decided or run.learner.train_iter >= max_iter
