"""Evaluation of a trained policy, and collection of demonstrations."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

import numpy as np
import torch
from easydict import EasyDict

from ding.entry.experiment import Experiment
from ding.rl_utils.adder import get_nstep_return_data
from ding.utils.config_helper import ConfigError
from ding.utils.data.dataset import NaiveRLDataset, check_save_type, naive_save, offline_data_save_type
from ding.worker.collector.episode_serial_collector import EpisodeSerialCollector
from ding.worker.collector.sample_serial_collector import SampleSerialCollector

Path = str | os.PathLike[str]


def eval(
    input_cfg: str | Sequence[dict[str, Any]],
    seed: int = 0,
    env_setting: Sequence[Any] | None = None,
    model: torch.nn.Module | None = None,
    state_dict: dict[str, Any] | None = None,
    load_path: Path | None = None,
    replay_path: Path | None = None,
    strict_config: bool = False,
) -> float:
    """Return the mean return of a trained policy over `env.n_evaluator_episode` episodes.

    With the seed of the training, these are the episodes of its evaluations. Logs and `eval_config.py` are written to
    the folder `exp_name`, which may be the folder of the training.

    Args:
        input_cfg: the path of a config file, or the pair `(main_config, create_config)`, which is not modified.
        seed: the seed of the package and the envs.
        env_setting: `[env_fn, collector env configs, evaluator env configs]` instead of a registered env type; the
            collector env configs are not used.
        model: the network; None for the policy's default.
        state_dict: the state of the policy, a dict with `model`.
        load_path: the checkpoint to load if `state_dict` is None; by default `policy.learn.learner.load_path` of the
            config.
        replay_path: a folder for videos of the episodes; None for `env.replay_path` of the config, without which there
            are no videos.
        strict_config: whether keys that nothing reads raise an error instead of logging a warning.

    Raises:
        ConfigError: state, checkpoint and model are all missing, or the config is inconsistent.
    """
    experiment = Experiment.from_config(input_cfg, seed, env_setting, model, strict_config, needs_command_mode=False)
    return float(np.mean(experiment.evaluate(state_dict, load_path, replay_path).returns))


def collect_demo_data(
    input_cfg: str | Sequence[dict[str, Any]],
    seed: int,
    collect_count: int,
    expert_data_path: Path | None = None,
    env_setting: Sequence[Any] | None = None,
    model: torch.nn.Module | None = None,
    state_dict: dict[str, Any] | None = None,
    state_dict_path: Path | None = None,
) -> None:
    """Collect train samples with a trained policy, and save them in the format `policy.collect.data_type` ('naive').

    The policy acts in its collect mode, with epsilon 0 if it explores epsilon-greedily.

    Args:
        input_cfg: the path of a config file, or the pair `(main_config, create_config)`, which is not modified.
        seed: the seed of the package and the envs.
        collect_count: number of samples.
        expert_data_path: the output path, see `ding.utils.data.offline_data_save_type`; None for
            `policy.collect.save_path` of the config.
        env_setting: `[env_fn, collector env configs, evaluator env configs]` instead of a registered env type; the
            evaluator env configs are not used.
        model: the network; None for the policy's default.
        state_dict: the state of the policy, a dict with `model`.
        state_dict_path: the checkpoint to load if `state_dict` is None.

    Raises:
        ConfigError: state, checkpoint and model are all missing, there is no output path or it is a folder, or the
            config is inconsistent.
        KeyError: the `data_type` is unknown.
        ImportError: it is 'hdf5', but h5py is not installed.
    """
    experiment = Experiment.from_config(input_cfg, seed, env_setting, model, needs_command_mode=False)
    cfg = experiment.cfg
    with ExitStack() as stack:
        collector = experiment.collector(stack, SampleSerialCollector, state_dict, state_dict_path)
        path = expert_data_path or cfg.policy.collect.get("save_path")
        if not path:
            raise ConfigError("there is no output path: pass expert_data_path, or set policy.collect.save_path")
        if os.path.isdir(path):
            raise ConfigError(f"the output path {os.fspath(path)!r} is a folder; give the path of a file")
        check_save_type(data_type := cfg.policy.collect.get("data_type", "naive"))
        samples = list(collector.collect(n_sample=collect_count, policy_kwargs=_greedy(cfg)))
    offline_data_save_type(samples, os.fspath(path), data_type)


def collect_episodic_demo_data(
    input_cfg: str | Sequence[dict[str, Any]],
    seed: int,
    collect_count: int,
    expert_data_path: Path,
    env_setting: Sequence[Any] | None = None,
    model: torch.nn.Module | None = None,
    state_dict: dict[str, Any] | None = None,
    state_dict_path: Path | None = None,
) -> None:
    """Collect `collect_count` episodes, lists of transitions, in the format 'naive'; see `collect_demo_data`."""
    experiment = Experiment.from_config(input_cfg, seed, env_setting, model, needs_command_mode=False)
    with ExitStack() as stack:
        collector = experiment.collector(stack, EpisodeSerialCollector, state_dict, state_dict_path)
        episodes = collector.collect(n_episode=collect_count, policy_kwargs=_greedy(experiment.cfg))
        episodes = [list(episode) for episode in episodes]
    naive_save(episodes, expert_data_path)


def episode_to_transitions(
    data_path: Path, expert_data_path: Path, nstep: int, trusted: bool = False, gamma: float = 0.99
) -> None:
    """Read episodes, and save their `nstep`-step transitions as one list.

    Args:
        data_path: the file of `collect_episodic_demo_data`.
        trusted: whether to read a pickle, which can run any code.
        gamma: the discount in `value_gamma`.
    """
    episode_to_transitions_filter(data_path, expert_data_path, nstep, -np.inf, trusted, gamma)


def episode_to_transitions_filter(
    data_path: Path,
    expert_data_path: Path,
    nstep: int,
    min_episode_return: float,
    trusted: bool = False,
    gamma: float = 0.99,
) -> None:
    """Convert episodes like `episode_to_transitions`, without those whose return is below `min_episode_return`."""
    transitions: list[Any] = []
    episodes = NaiveRLDataset(os.fspath(data_path), trusted)
    for episode in (episodes[index] for index in range(len(episodes))):
        if sum(float(np.sum(np.asarray(transition["reward"]))) for transition in episode) >= min_episode_return:
            transitions += get_nstep_return_data(episode, nstep, gamma=gamma)
    naive_save(transitions, expert_data_path)


def _greedy(cfg: EasyDict) -> dict[str, Any]:
    return {"eps": 0.0} if "eps" in cfg.policy.other else {}
