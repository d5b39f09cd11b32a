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
from ding.entry.pipeline import Rounds, read_pair, run_pipeline
from ding.entry.serial_run import set_offline_stats
from ding.envs.common.gym_compat import duck_kind
from ding.policy.base_policy import Policy
from ding.utils.config_helper import ConfigError
from ding.utils.data.dataset import create_dataset
from ding.utils.default_helper import one_time_warning
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
    how: dict[str, Any] = {"resume": resume, "strict_config": strict_config}
    run = run_serial_offline(input_cfg, seed, env_setting, model, max_train_iter, **how)
    return run.policy, run.is_decided or run.learner.train_iter >= max_train_iter


def _warn_of_normalization(in_data: bool, in_env: bool, dataset: Any) -> None:
    """Warn if the policy sees other observations in the env than in the data set."""
    if in_data and not hasattr(dataset, "mean"):
        one_time_warning(
            f"policy.collect.normalize_states has no effect: a {type(dataset).__name__} normalizes nothing; choose "
            "another policy.collect.data_type"
        )
    elif in_data and not in_env:
        one_time_warning(
            "policy.collect.normalize_states = True, but the observations of the env are not normalized: set "
            "env.norm_obs = dict(use_norm=True, offline_stats=dict(use_offline_stats=True))"
        )
    elif in_env and not in_data:
        one_time_warning(
            "env.norm_obs normalizes the observations of the env, but those of the data set are not normalized: set "
            "policy.collect.normalize_states = True"
        )


class EpochRounds(Rounds):
    """Rounds of one batch of a data set, which is read `policy.learn.train_epoch` times, each time in another order.

    Args:
        evaluates_within_epochs: whether to evaluate as soon as it is due, not only at the end of an epoch.
    """

    options = {"collects": False, "has_buffer": False}

    def __init__(self, evaluates_within_epochs: bool = False) -> None:
        self._within_epochs = evaluates_within_epochs
        self.needs_command_mode = not evaluates_within_epochs

    def check(self, cfg: Any) -> None:
        if "train_epoch" not in cfg.policy.learn:
            raise ConfigError("policy.learn.train_epoch is missing; set it to the number of epochs")
        self._dataset = create_dataset(cfg)
        self._loader = _loader(self._dataset, cfg.policy.learn.batch_size, cfg.seed)
        self._stats = {key: getattr(self._dataset, key) for key in ("mean", "std") if hasattr(self._dataset, key)}
        self._is_normalized = set_offline_stats(cfg.env, self._stats)
        _warn_of_normalization(bool(cfg.policy.collect.get("normalize_states")), self._is_normalized, self._dataset)

    def prepare(self, stack: ExitStack) -> None:
        run = self.run
        if self._is_normalized:
            run.learner.ckpt_extra[OFFLINE_STATS] = self._stats
        if hasattr(run.policy, "set_statistic"):
            run.policy.set_statistic(self._dataset.statistics)
        _check_sample(run.policy, run.evaluator_env, self._dataset)
        _check_actions(run.policy, getattr(run.evaluator_env, "action_space", None), self._dataset)
        self._batches = EpochBatches(self._loader, run.cfg.policy.learn.train_epoch, run.policy)
        self._next = iter(self._batches)
        run.further_parts["batches"] = self._batches

    def begin_round(self) -> bool:
        run, within = self.run, self._within_epochs
        if self._batches.is_epoch_over and not within and run.evaluate_if_due():
            return False
        run.states.checkpoint(run)
        self.batch = next(self._next, None)
        return not (self.batch is None or (within and run.evaluate_if_due()) or run.is_over)

    def after_train(self, learner: BaseLearner) -> None:
        self._batches.trained += 1


# `serial_pipeline_offline`, but it returns the run: its config, outcome and closed workers.
run_serial_offline = partial(run_pipeline, EpochRounds)


def _check_sample(policy: Any, env: Any, dataset: Any) -> None:
    """Check that the first sample of a data set has what the policy learns from, in the shapes of the env.

    Raises:
        ConfigError: it has not.
    """
    sample = dataset[0]
    if not isinstance(sample, Mapping):
        return
    missing = sorted(getattr(policy, "sample_keys", set()) - sample.keys())
    if missing:
        raise ConfigError(
            f"the data set has no {', '.join(missing)}, only {', '.join(map(str, sample))}, but "
            f"{type(policy).__name__} learns from that; choose another data set, or policy.collect.data_type"
        )
    spaces: dict[str, Any] = {"obs": getattr(env, "observation_space", None)}
    spaces |= {"next_obs": spaces["obs"], "action": getattr(env, "action_space", None)}
    for key, space in spaces.items():
        if key not in sample or duck_kind(space) != "Box" or not space.shape or isinstance(sample[key], Mapping):
            continue
        shape = np.shape(sample[key]) or (1,)
        if space.shape[-len(shape) :] != shape:
            raise ConfigError(
                f"the data set has {key} of the shape {list(shape)}, but the env of the shape {list(space.shape)}; "
                "choose the data set of this env, or the env of this data set"
            )


def _check_actions(policy: Any, space: Any, dataset: Any) -> None:
    """Check that the first actions of a data set are in the `space` of the env, if the policy chooses among actions.

    Raises:
        ConfigError: they are not.
    """
    if getattr(policy, "has_discrete_actions", None) is not True:
        return
    for sample in itertools.islice(dataset, 100):
        action = sample.get("action") if isinstance(sample, Mapping) else None
        if isinstance(action, float | np.ndarray | torch.Tensor):
            action = torch.as_tensor(action)
            if action.is_floating_point() and not torch.equal(action, action.round()):
                raise ConfigError(
                    f"the data set has the action {action.tolist()}, but {type(policy).__name__} chooses among actions "
                    "by their numbers; train a policy for real-valued actions on it"
                )
            if duck_kind(space) == "Discrete" and not ((action >= 0) & (action < int(space.n))).all():
                raise ConfigError(
                    f"the data set has the action {action.tolist()}, but the actions of the env are 0 to "
                    f"{int(space.n) - 1}; choose the data set of this env, or the env of this data set"
                )


def _loader(dataset: Any, batch_size: int, seed: int) -> DataLoader[Any]:
    """Return a loader of batches, which are lists of samples, as policies collate them."""
    if len(dataset) == 0:
        raise ConfigError("the data set of policy.collect.data_path is empty")
    ranks = get_world_size()
    if batch_size < ranks:
        raise ConfigError(
            f"policy.learn.batch_size = {batch_size} cannot be shared by {ranks} ranks, which each get a part of it; "
            "raise it, and leave out to_ddp_config here"
        )
    sampler: Any = DistributedSampler(dataset, ranks, get_rank(), seed=seed) if ranks > 1 else None
    order = torch.Generator().manual_seed(seed)
    return DataLoader(
        dataset, batch_size // ranks, shuffle=sampler is None, sampler=sampler, collate_fn=_as_is, generator=order
    )


def _as_is(samples: Any) -> Any:
    return samples


class EpochBatches(SavedAttributes):
    """An iterator over the batches of each epoch in order, which calls `end_epoch` of the policy.

    Args:
        number: the number of epochs.

    Attributes:
        trained: the number of batches of this epoch that have been trained on; the caller counts them.
    """

    _saved = ("_epoch", "trained", "_order")  # the position in the epoch, and the random state of its order

    def __init__(self, loader: DataLoader[Any], number: int, policy: Any) -> None:
        self._loader, self._number = loader, number
        self._policy = policy
        self._epoch = self.trained = 0
        self._iterator: Iterator[Any] | None = None
        self._order = self._order_state()

    @property
    def is_epoch_over(self) -> bool:
        """Whether all batches of this epoch have been trained on."""
        return self.trained == len(self._loader)

    def __iter__(self) -> Iterator[Any]:
        while self._epoch < self._number:
            yield from self._iterator or self._begin_epoch()
            self._policy.end_epoch()
            self._epoch, self.trained, self._iterator = self._epoch + 1, 0, None

    def _begin_epoch(self) -> Iterator[Any]:
        if isinstance(self._loader.sampler, DistributedSampler):
            self._loader.sampler.set_epoch(self._epoch)
        self._order = self._order_state()
        self._iterator = iter(self._loader)
        return self._iterator

    def _order_state(self) -> torch.Tensor:
        assert self._loader.generator is not None
        state: torch.Tensor = self._loader.generator.get_state()
        return state

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> list[str]:
        """Continue with the first batch that has not been trained on, after reading the batches before it again."""
        problems = super().load_state_dict(state_dict)
        assert self._loader.generator is not None
        self._loader.generator.set_state(self._order)
        for _ in itertools.islice(self._begin_epoch(), self.trained):
            pass
        return problems


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
