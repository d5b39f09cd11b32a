"""`serial_pipeline_offline`: train on a data set, evaluate in envs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import Any

import torch
from torch.utils.data import DataLoader, DistributedSampler

from ding.config.checks import value_at
from ding.config.config import compile_config
from ding.config.experiment import StartFolder
from ding.entry.checks import check_evaluation_episodes, check_ranks, warn_of_overruled_settings
from ding.entry.pipeline import read_pair, with_command_mode
from ding.entry.progress import UNLIMITED
from ding.entry.workers import SerialRun, build_offline_run, set_offline_stats
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
) -> tuple[Policy, bool]:
    """Train a policy on a data set for `policy.learn.train_epoch` epochs; returns it, and whether it stopped early.

    The data set is that of `policy.collect.data_type` and `data_path`, see `ding.utils.data.create_dataset`. An
    evaluation comes with the first epoch that ends `eval_freq` iterations after the last one, and at the end where
    there was none. Training stops early at the stop value, or at `max_train_iter`. Files, signals, ranks and errors are
    those of `serial_pipeline`; several ranks share `policy.learn.batch_size` and the data set.

    With `env.norm_obs.use_norm` and `env.norm_obs.offline_stats.use_offline_stats` the mean and the deviation of the
    observations are written to `env.norm_obs.offline_stats`, for the env, and to checkpoints, for `eval`. A policy that
    has `set_statistic` is given the `statistics` of the data set.

    Args:
        input_cfg: path of a config file, or the pair `(main_config, create_config)`; neither is changed.
        seed: of the package, the policy, the order of the data and the envs.
        env_setting: `[env_fn, collector env configs, evaluator env configs]` instead of a registered env type; the
            second is not used.
        model: the network, instead of the policy's default one.
        max_train_iter: training stops exactly here.

    Raises:
        ConfigError: the config contradicts itself, or the model does not fit the env.
        FloatingPointError: a loss became NaN.
    """
    run = run_serial_offline(input_cfg, seed, env_setting, model, max_train_iter)
    return run.policy, run.stop or run.learner.train_iter >= max_train_iter


def run_serial_offline(
    input_cfg: Any,
    seed: int = 0,
    env_setting: Sequence[Any] | None = None,
    model: torch.nn.Module | None = None,
    max_train_iter: int = UNLIMITED,
) -> SerialRun:
    """`serial_pipeline_offline`, returning the whole run: its config, outcome and (closed) workers."""
    pair = read_pair(input_cfg, env_setting)
    with_command_mode(pair[1])
    return run_offline(pair, seed, env_setting, model, max_train_iter)


def run_offline(
    pair: tuple[Any, Any],
    seed: int,
    env_setting: Sequence[Any] | None,
    model: torch.nn.Module | None,
    max_train_iter: int,
    evaluates_within_epochs: bool = False,
) -> SerialRun:
    """Train on the data set that the configs name; the workers are closed then.

    Args:
        pair: the two configs, which are changed.
        evaluates_within_epochs: evaluate as soon as it is due; else at the end of an epoch.
    """
    main, create = pair
    env_fn = None if env_setting is None else env_setting[0]
    resume = value_at(main, "policy.learn.resume_training")
    with StartFolder(main.get("exp_name", "default_experiment")) as folder, ExitStack() as stack:
        cfg = compile_config(main, seed=seed, env=env_fn, auto=True, create_cfg=create, renew_dir=not resume)
        folder.taken = cfg.exp_name
        check_evaluation_episodes(cfg)
        check_ranks(cfg)
        warn_of_overruled_settings(main, cfg)
        if "train_epoch" not in cfg.policy.learn:
            raise ConfigError("policy.learn.train_epoch is missing; set it to how often to go through the data set")
        cfg.policy.collect.setdefault("data_type", "naive")
        dataset = create_dataset(cfg)
        loader = _loader(dataset, cfg.policy.learn.batch_size, seed)
        stats = {key: getattr(dataset, key) for key in ("mean", "std") if hasattr(dataset, key)}
        is_normalized = set_offline_stats(cfg.env, stats)
        run = build_offline_run(stack, cfg, env_setting, model)
        if is_normalized:
            run.learner.ckpt_extra[OFFLINE_STATS] = stats
        if hasattr(run.policy, "set_statistic"):
            run.policy.set_statistic(dataset.statistics)
        folder.keep()
        with guard_training(run.learner.save_checkpoint):
            _train(run, loader, max_train_iter, evaluates_within_epochs)
    return run


def _loader(dataset: Any, batch_size: int, seed: int) -> DataLoader[Any]:
    """Batches as the data set gives them (a list of samples): policies put them together."""
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
    learner, evaluator = run.learner, run.evaluator
    learner.call_hook("before_run")
    for batch, is_last in _epochs(loader, run.cfg.policy.learn.train_epoch, run.policy):
        if evaluates_within_epochs and evaluator.should_eval(learner.train_iter) and run.evaluate():
            break
        if learner.train_iter >= max_train_iter:
            break
        learner.train(batch)
        run.progress.advance(0, learner.train_iter)
        is_due = is_last and not evaluates_within_epochs
        if is_due and evaluator.should_eval(learner.train_iter) and run.evaluate():
            break
    if run.eval_info is None:
        run.evaluate()
    learner.call_hook("after_run")
    run.save_result()


def _epochs(loader: DataLoader[Any], number: int, policy: Any) -> Iterator[tuple[Any, bool]]:
    """Each batch of each epoch, and whether it is the last of it; a policy with `end_epoch` is told of each end."""
    end_epoch = getattr(policy, "end_epoch", None)
    for epoch in range(number):
        if isinstance(loader.sampler, DistributedSampler):
            loader.sampler.set_epoch(epoch)
        for index, batch in enumerate(loader):
            yield batch, index == len(loader) - 1
        if end_epoch is not None:
            end_epoch()
