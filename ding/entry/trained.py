"""The use of a trained policy: acting, evaluating, and recording videos."""

from __future__ import annotations

import copy
import glob
import os
import shutil
import tempfile
import warnings
from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any

from ding.config.config import compile_config
from ding.entry.application_entry import evaluate, load_state
from ding.entry.pipeline import with_command_mode
from ding.entry.run_folder import Path, RunFolder
from ding.entry.workers import build_evaluator_env, build_policy, normalize_as_trained, set_offline_stats
from ding.envs.env.gymnasium_env import env_section_of
from ding.utils.file_helper import read_file
from ding.worker.collector.actor import SoloActor
from ding.worker.collector.batch import Batch
from ding.worker.collector.interaction_serial_evaluator import EvalRecord
from ding.worker.learner.checkpoint import EXTRA, OFFLINE_STATS


class TrainedPolicy:
    """A trained policy that acts as in evaluations: greedily, and with the hidden state of a recurrent policy.

    `load_policy` creates it. If you call `make_env`, use it as a context manager or call `close`.
    """

    def __init__(self, cfg: Any, policy: Any, statistics: Any) -> None:
        self.cfg, self.policy = cfg, policy
        self._actor, self._statistics = SoloActor(policy.eval_mode, float_obs=True, keep_integers=True), statistics
        self._stack = ExitStack()
        self._actor.reset()

    def predict(self, obs: Any) -> Any:
        """Return the action for one observation.

        Args:
            obs: an observation of the training's env, wrappers included: an array or a dict of arrays.

        Returns:
            The action for the env: an array, or a dict or tuple of arrays.
        """
        _, actions = self._actor.act(Batch.copied([0], [obs]), {})
        return actions[0]

    def predict_batch(self, obs: Any) -> list[Any]:
        """Return the actions for observations of several envs, [B, *obs_shape], or dicts of them; see `predict`."""
        first = obs
        while isinstance(first, Mapping):
            first = next(iter(first.values()))
        rows = [_row(obs, index) for index in range(len(first))]
        _, actions = self._actor.act(Batch.copied(list(range(len(rows))), rows), {})
        return list(actions)

    def reset(self) -> None:
        """Start new episodes: reset the hidden states of a recurrent policy."""
        self._actor.reset()

    def make_env(self, seed: int = 0) -> Any:
        """Return a launched manager of one evaluation env, normalized as in the training; `close` closes it."""
        cfg = copy.deepcopy(self.cfg)
        cfg.seed = seed
        cfg.env.evaluator_env_num = 1
        env = build_evaluator_env(self._stack, cfg, None)
        env.launch()
        normalize_as_trained(env, self._statistics)
        return env

    def close(self) -> None:
        """Close the envs of `make_env`. Further calls do nothing."""
        self._stack.close()

    def __enter__(self) -> TrainedPolicy:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()


def load_policy(exp: Path, checkpoint: str | None = None, seed: int = 0, env: Any = None) -> TrainedPolicy:
    """Load the policy of a run.

    Args:
        exp: the folder of the run.
        checkpoint: the checkpoint, see `RunFolder.checkpoint`; by default the best.
        seed: the seed of the package.
        env: an env instead of the run's, if the folder could not name that; see `train`.

    Raises:
        FileNotFoundError: the folder contains no run, or the checkpoint does not exist.

    Example:
        >>> policy = load_policy("cartpole_dqn_seed0")  # doctest: +SKIP
        >>> policy.predict(np.zeros(4, np.float32))  # doctest: +SKIP
        array([1])
    """
    folder = RunFolder(exp)
    return load_trained(pair_of(folder, env), folder.checkpoint(checkpoint), seed)


def pair_of(folder: RunFolder, env: Any) -> tuple[Any, Any]:
    """Return the two configs of a run, with another env if one is given; see `load_policy`."""
    main, create = folder.configs()
    if env is not None:
        for key in ("env_id", "env", "kwargs"):
            main.env.pop(key, None)
        main.env.update(env_section_of(env))
    return main, create


def load_trained(pair: tuple[Any, Any], path: str, seed: int = 0) -> TrainedPolicy:
    """Load the policy of two configs, which may be changed, from a checkpoint; see `load_policy`."""
    state = read_file(path)
    main, create = pair
    cfg = compile_config(main, seed=seed, auto=True, create_cfg=with_command_mode(create), save_cfg=False)
    set_offline_stats(cfg.env, state.get(EXTRA, {}).get(OFFLINE_STATS))
    policy = build_policy(cfg, None, ["eval"])
    return TrainedPolicy(cfg, policy, load_state(policy.eval_mode, state, None, None))


def evaluate_run(
    exp: Path, n_episode: int | None = None, checkpoint: str | None = None, seed: int | None = None, env: Any = None
) -> EvalRecord:
    """Evaluate the policy of a run; see `load_policy`.

    Args:
        n_episode: the number of episodes; by default as in the run's evaluations.
        seed: the seed of the envs; by default that of the run, which begins with the episodes of its first evaluation.
        env: see `load_policy`.
    """
    folder = RunFolder(exp)
    seed = (folder.seed or 0) if seed is None else seed
    return evaluate_pair(pair_of(folder, env), seed, load_path=folder.checkpoint(checkpoint), n_episode=n_episode)


def evaluate_pair(pair: tuple[Any, Any], seed: int, **how: Any) -> EvalRecord:
    """Evaluate like `evaluate`, but without keeping the logs if the folder of the run is read-only.

    The configs may be changed.
    """
    with ExitStack() as stack:
        main, _ = pair
        if os.path.isdir(main.exp_name) and not os.access(main.exp_name, os.W_OK | os.X_OK):
            main.exp_name = stack.enter_context(tempfile.TemporaryDirectory())
        return evaluate(pair, seed, **how)


def record(
    exp: Path,
    out: Path | None = None,
    n_episode: int = 1,
    checkpoint: str | None = None,
    seed: int | None = None,
    env: Any = None,
) -> tuple[list[str], EvalRecord]:
    """Record videos of the policy of a run; see `evaluate_run`.

    Args:
        out: the file, `.mp4` or `.gif`; by default `video.mp4` in the folder of the run. The files of several episodes
            are numbered.

    Returns:
        The paths of the files, and the record of the episodes.

    Raises:
        ValueError: the suffix of `out` is not supported.
        ImportError: a package for rendering or encoding is not installed.
    """
    folder = RunFolder(exp)
    target = os.path.join(folder.path, "video.mp4") if out is None else os.fspath(out)
    seed = (folder.seed or 0) if seed is None else seed
    return save_videos(pair_of(folder, env), target, n_episode, folder.checkpoint(checkpoint), seed)


def save_videos(
    pair: tuple[Any, Any], target: str, n_episode: int, checkpoint: str, seed: int
) -> tuple[list[str], EvalRecord]:
    """Record episodes of two configs, which may be changed, and save the videos; see `record`."""
    stem, suffix = os.path.splitext(target)
    if suffix not in (".mp4", ".gif"):
        raise ValueError(f"{target!r} has the suffix {suffix!r}; it must be .mp4 or .gif")
    with tempfile.TemporaryDirectory() as videos:
        recorded, result = record_episodes(pair, seed, n_episode, videos, load_path=checkpoint)
        files = [target if n_episode == 1 else f"{stem}_{i}{suffix}" for i in range(len(recorded))]
        os.makedirs(os.path.dirname(os.path.abspath(target)), exist_ok=True)
        for source, file in zip(recorded, files, strict=True):
            if suffix == ".gif":
                _to_gif(source, file)
            else:
                shutil.move(source, file)
    return files, result


def record_episodes(
    pair: tuple[Any, Any], seed: int, n_episode: int, folder: str, **how: Any
) -> tuple[list[str], EvalRecord]:
    """Evaluate in one env and record each episode; see `evaluate_pair`.

    Args:
        pair: the configs; the numbers of envs and episodes in the main config are changed.
        folder: an empty folder for the videos, `.mp4`.
        how: further arguments of `evaluate`.

    Returns:
        The paths of the files of the episodes in order, and the record of the episodes. The folder also contains a
        further episode that the env has begun.
    """
    main, create = pair
    main.env.evaluator_env_num = 1  # one env, so that the videos are in order
    main.env.n_evaluator_episode = n_episode
    result = evaluate_pair((main, create), seed, replay_path=folder, **how)
    return sorted(glob.glob(os.path.join(folder, "*.mp4")), key=os.path.getmtime)[:n_episode], result


def _row(obs: Any, index: int) -> Any:
    return {key: _row(part, index) for key, part in obs.items()} if isinstance(obs, Mapping) else obs[index]


def _to_gif(source: str, file: str) -> None:
    from moviepy import VideoFileClip

    with warnings.catch_warnings(), VideoFileClip(source) as clip:
        warnings.simplefilter("ignore", ResourceWarning)  # the encoder does not close its pipes
        clip.write_gif(file, logger=None)
