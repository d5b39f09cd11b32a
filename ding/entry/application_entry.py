"""Evaluation of a trained policy, and collection of demonstrations."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

import numpy as np
import torch
from easydict import EasyDict

from ding.config.config import compile_config
from ding.config.save import StartFolder
from ding.entry.checks import check_evaluation_episodes, complete_model
from ding.entry.pipeline import read_pair
from ding.entry.serial_run import (
    build_collector_env,
    build_evaluator_env,
    build_policy,
    check_fits_env,
    normalize_as_trained,
    set_offline_stats,
)
from ding.policy.base_policy import Policy
from ding.rl_utils.adder import get_nstep_return_data
from ding.utils.config_helper import ConfigError
from ding.utils.data.dataset import NaiveRLDataset, check_save_type, naive_save, offline_data_save_type
from ding.utils.file_helper import read_file
from ding.worker.collector.episode_serial_collector import EpisodeSerialCollector
from ding.worker.collector.interaction_serial_evaluator import EvalRecord, InteractionSerialEvaluator
from ding.worker.collector.sample_serial_collector import SampleSerialCollector
from ding.worker.learner.checkpoint import EXTRA, OFFLINE_STATS, normalization_of

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
    weights = model, state_dict, load_path
    record = evaluate(input_cfg, seed, env_setting, *weights, replay_path, strict_config=strict_config)
    return float(np.mean(record.returns))


def evaluate(
    input_cfg: str | Sequence[dict[str, Any]],
    seed: int = 0,
    env_setting: Sequence[Any] | None = None,
    model: torch.nn.Module | None = None,
    state_dict: dict[str, Any] | None = None,
    load_path: Path | None = None,
    replay_path: Path | None = None,
    n_episode: int | None = None,
    strict_config: bool = False,
) -> EvalRecord:
    """Evaluate a trained policy like `eval`, but return the return and the length of each episode.

    Args:
        n_episode: the number of episodes; None for `env.n_evaluator_episode`. At most that many envs are used.
    """
    with ExitStack() as stack:
        pair = _with_episodes(input_cfg, n_episode)
        cfg = _compile(stack, pair, seed, env_setting, model, "eval_config.py", strict_config)
        check_evaluation_episodes(cfg)
        state_dict = _read_state(cfg, state_dict, load_path or _path_of_config(cfg))
        env = build_evaluator_env(stack, cfg, env_setting)
        replay_path = replay_path or cfg.env.get("replay_path")
        if replay_path:
            env.enable_save_replay(os.fspath(replay_path))
        policy: Policy = build_policy(cfg, model, ["eval"])
        statistics = load_state(policy.eval_mode, state_dict, model)
        evaluator = InteractionSerialEvaluator(cfg.policy.eval.evaluator, env, policy.eval_mode, exp_name=cfg.exp_name)
        stack.callback(evaluator.close)
        check_fits_env(policy, env, model)
        normalize_as_trained(env, statistics)
        evaluator.eval()
        assert evaluator.last_eval is not None
        return evaluator.last_eval


def _with_episodes(input_cfg: Any, n_episode: int | None) -> Any:
    if n_episode is None:
        return input_cfg
    main, create = read_pair(input_cfg, ())
    env = main.setdefault("env", {})
    env["n_evaluator_episode"] = n_episode
    env["evaluator_env_num"] = min(n_episode, env.get("evaluator_env_num", 1))
    return main, create


def _path_of_config(cfg: EasyDict) -> Any:
    return cfg.policy.get("learn", {}).get("learner", {}).get("load_path") or cfg.policy.get("load_path")


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
    state = state_dict, state_dict_path
    with ExitStack() as stack:
        cfg, collector = _build_collector(stack, SampleSerialCollector, input_cfg, seed, env_setting, model, *state)
        path = expert_data_path or cfg.policy.collect.get("save_path")
        if not path:
            raise ConfigError("there is no output path: pass expert_data_path, or set policy.collect.save_path")
        if os.path.isdir(path):
            raise ConfigError(f"the output path {os.fspath(path)!r} is a folder; give the name of a file")
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
    state = state_dict, state_dict_path
    with ExitStack() as stack:
        cfg, collector = _build_collector(stack, EpisodeSerialCollector, input_cfg, seed, env_setting, model, *state)
        episodes = collector.collect(n_episode=collect_count, policy_kwargs=_greedy(cfg))
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


def _compile(
    stack: ExitStack,
    input_cfg: Any,
    seed: int,
    env_setting: Sequence[Any] | None,
    model: Any,
    save_path: str,
    strict_config: bool = False,
) -> EasyDict:
    """Return the compiled config; if the block of `stack` fails, the folder created for it is deleted."""
    main, create = read_pair(input_cfg, env_setting)
    complete_model(main, create, env_setting, model)
    folder = stack.enter_context(StartFolder(main.get("exp_name", "default_experiment")))
    env_fn = None if env_setting is None else env_setting[0]
    how: dict[str, Any] = {"save_path": save_path, "renew_dir": False, "strict_config": strict_config}
    cfg = compile_config(main, seed=seed, env=env_fn, auto=True, create_cfg=create, **how)
    folder.taken = cfg.exp_name
    return cfg


def _build_collector(
    stack: ExitStack,
    kind: Any,
    input_cfg: Any,
    seed: int,
    env_setting: Sequence[Any] | None,
    model: Any,
    state_dict: dict[str, Any] | None,
    state_dict_path: Path | None,
) -> tuple[EasyDict, Any]:
    cfg = _compile(stack, input_cfg, seed, env_setting, model, "collect_demo_data_config.py")
    state_dict = _read_state(cfg, state_dict, state_dict_path)
    env = build_collector_env(stack, cfg, env_setting, seed)
    policy: Policy = build_policy(cfg, model, ["collect"])
    statistics = load_state(policy.collect_mode, state_dict, model)
    defaults = kind.default_config()
    own = {key: value for key, value in cfg.policy.collect.collector.items() if key in defaults}
    collector = kind(EasyDict({**defaults, **own}), env, policy.collect_mode, exp_name=cfg.exp_name)
    stack.callback(collector.close)
    check_fits_env(policy, env, model)
    if statistics:
        normalize_as_trained(env, statistics)
        collector.reset_env()
    return cfg, collector


def _read_state(cfg: EasyDict, state_dict: dict[str, Any] | None, path: Any) -> dict[str, Any] | None:
    """Return the state, or the checkpoint at `path`, and write its data set statistics to the env config."""
    if state_dict is None and path:
        state_dict = read_checkpoint(path)
    set_offline_stats(cfg.env, (state_dict or {}).get(EXTRA, {}).get(OFFLINE_STATS))
    return state_dict


def read_checkpoint(path: Any) -> dict[str, Any]:
    """Return the content of a checkpoint.

    Raises:
        ValueError: the file holds no dict.
    """
    state = read_file(path)
    if not isinstance(state, dict):
        raise ValueError(f"{os.fspath(path)} holds a {type(state).__name__}, not the dict of a checkpoint")
    return state


def load_state(mode: Any, state_dict: dict[str, Any] | None, model: Any) -> Any:
    """Load the state into a policy mode; a trained `model` needs none.

    Returns:
        The normalization statistics of the training's envs; None if there are none.

    Raises:
        ConfigError: state and model are both missing.
        RuntimeError: the state is of another network.
    """
    if state_dict is not None:
        try:
            mode.load_state_dict(state_dict)
        except RuntimeError as e:
            text = (
                "pass the `model` that was trained, as in Training.load(folder, model=...)"
                if model is None
                else "they are not of the `model` that was passed"
            )
            raise RuntimeError(f"The weights do not fit the network; {text}, or give another checkpoint.\n{e}") from e
        return normalization_of(state_dict)
    if model is None:
        raise ConfigError("the policy has no weights: pass a state dict, the path of a checkpoint, or a model")
    return None


def _greedy(cfg: EasyDict) -> dict[str, Any]:
    return {"eps": 0.0} if "eps" in cfg.policy.other else {}
