"""`serial_pipeline_offline`: offline training on a data set."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any

import torch
from torch.utils.data import DataLoader, DistributedSampler

from ding.config.config import compile_config
from ding.config.experiment import StartFolder
from ding.entry.checks import check_evaluation_episodes, check_ranks, warn_of_overruled_settings
from ding.entry.model_shapes import complete_model
from ding.entry.pipeline import read_pair, with_command_mode
from ding.entry.progress import UNLIMITED
from ding.entry.run_state import RunStates, choose_start
from ding.entry.workers import SerialRun, build_offline_run, closing, set_offline_stats
from ding.policy.base_policy import Policy
from ding.torch_utils.checkpoint_helper import guard_training
from ding.utils.config_helper import ConfigError
from ding.utils.data.dataset import create_dataset
from ding.utils.pytorch_ddp_dist_helper import get_rank, get_world_size
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
    """Train a policy on a data set for `policy.learn.train_epoch` epochs; returns it, and whether it stopped early.

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
        seed: of the package, the policy, the order of the data and the envs.
        env_setting: `[env_fn, collector env configs, evaluator env configs]` instead of a registered env type; the
            second is not used.
        model: the network; None for the policy's default.
        max_train_iter: the exact number of iterations after which training stops.
        resume, strict_config: see `serial_pipeline`.

    Raises:
        ConfigError: the config is inconsistent, or the model does not fit the env.
        FloatingPointError: a loss is NaN.
    """
    run = run_serial_offline(input_cfg, seed, env_setting, model, max_train_iter, resume, strict_config)
    return run.policy, run.is_decided or run.learner.train_iter >= max_train_iter


def run_serial_offline(
    input_cfg: Any,
    seed: int = 0,
    env_setting: Sequence[Any] | None = None,
    model: torch.nn.Module | None = None,
    max_train_iter: int = UNLIMITED,
    resume: bool = False,
    strict_config: bool = False,
) -> SerialRun:
    """`serial_pipeline_offline`, but returns the run: its config, outcome and closed workers."""
    pair = read_pair(input_cfg, env_setting)
    with_command_mode(pair[1])
    return run_offline(pair, seed, env_setting, model, max_train_iter, False, resume, strict_config)


def run_offline(
    pair: tuple[Any, Any],
    seed: int,
    env_setting: Sequence[Any] | None,
    model: torch.nn.Module | None,
    max_train_iter: int,
    evaluates_within_epochs: bool = False,
    resume: bool = False,
    strict_config: bool = False,
) -> SerialRun:
    """Train on the data set of the configs; returns the run with closed workers.

    Args:
        pair: the two configs, which are modified.
        evaluates_within_epochs: whether to evaluate as soon as it is due, not only at the end of an epoch.
        resume, strict_config: see `serial_pipeline`.
    """
    main, create = pair
    complete_model(main, create, env_setting, model)
    env_fn = None if env_setting is None else env_setting[0]
    compiling: dict[str, Any] = {"seed": seed, "env": env_fn, "auto": True, "create_cfg": create}
    compiling["strict_config"] = strict_config
    start = choose_start(main, create, partial(compile_config, **compiling, save_cfg=False), resume)
    with StartFolder(main.get("exp_name", "default_experiment")) as folder, ExitStack() as stack:
        closing(stack, start.lock)
        cfg = compile_config(main, **compiling, renew_dir=start.renew)
        folder.taken = cfg.exp_name
        check_evaluation_episodes(cfg)
        check_ranks(cfg)
        warn_of_overruled_settings(main, cfg)
        if "train_epoch" not in cfg.policy.learn:
            raise ConfigError("policy.learn.train_epoch is missing; set it to the number of epochs")
        cfg.policy.collect.setdefault("data_type", "naive")
        dataset = create_dataset(cfg)
        loader = _loader(dataset, cfg.policy.learn.batch_size, seed)
        stats = {key: getattr(dataset, key) for key in ("mean", "std") if hasattr(dataset, key)}
        is_normalized = set_offline_stats(cfg.env, stats)
        states = closing(stack, RunStates(start, cfg))
        run = build_offline_run(stack, cfg, env_setting, model, states, max_train_iter)
        if is_normalized:
            run.learner.ckpt_extra[OFFLINE_STATS] = stats
        if hasattr(run.policy, "set_statistic"):
            run.policy.set_statistic(dataset.statistics)
        folder.keep()
        with guard_training(run.learner.save_checkpoint, states.interruption), states.guard(run):
            _train(run, loader, max_train_iter, evaluates_within_epochs)
    return run


def _loader(dataset: Any, batch_size: int, seed: int) -> DataLoader[Any]:
    """Returns a loader of batches as lists of samples, which policies collate."""
    if len(dataset) == 0:
        raise ConfigError("the data set of policy.collect.data_path is empty")
    ranks = get_world_size()
    if batch_size < ranks:
        raise ConfigError(f"policy.learn.batch_size = {batch_size} cannot be shared by {ranks} ranks")
    sampler: Any = DistributedSampler(dataset, ranks, get_rank(), seed=seed) if ranks > 1 else None
    order = torch.Generator().manual_seed(seed)
    return DataLoader(
        dataset, batch_size // ranks, shuffle=sampler is None, sampler=sampler, collate_fn=_as_is, generator=order
    )


def _as_is(samples: Any) -> Any:
    return samples


def _train(run: SerialRun, loader: DataLoader[Any], max_train_iter: int, evaluates_within_epochs: bool) -> None:
    learner, evaluator, states = run.learner, run.evaluator, run.states
    batches = run.further_parts["batches"] = EpochBatches(loader, run.cfg.policy.learn.train_epoch, run.policy)
    learner.call_hook("before_run")
    states.load(run)
    for batch in () if run.is_decided else batches:
        if evaluates_within_epochs and evaluator.should_eval(learner.train_iter) and run.evaluate():
            break
        if learner.train_iter >= max_train_iter:
            break
        learner.train(batch)
        batches.trained += 1
        run.progress.advance(0, learner.train_iter)
        is_due = batches.is_epoch_over and not evaluates_within_epochs
        if is_due and evaluator.should_eval(learner.train_iter) and run.evaluate():
            break
        states.checkpoint(run)
    states.save(run, "end")
    if run.eval_info is None:
        run.evaluate()
    learner.call_hook("after_run")
    run.save_result()


class EpochBatches:
    """The batches of each epoch in order; calls `end_epoch` of the policy.

    Args:
        number: the number of epochs.

    Attributes:
        trained: the number of batches of this epoch that have been trained on; the caller counts them.
    """

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

    def state_dict(self) -> dict[str, Any]:
        """Returns the position in the epoch and the random state of its order."""
        return {"epoch": self._epoch, "trained": self.trained, "order": self._order}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue with the first batch that has not been trained on; reads the batches before it again."""
        self._epoch, self.trained = int(state["epoch"]), int(state["trained"])
        assert self._loader.generator is not None
        self._loader.generator.set_state(state["order"])
        for _ in itertools.islice(self._begin_epoch(), self.trained):
            pass
