"""A trained policy by itself: what it does in an observation, and how it looks when it plays."""

from __future__ import annotations

import copy
import glob
import os
import shutil
import tempfile
import warnings
from contextlib import ExitStack
from typing import Any

from ding.config.config import compile_config
from ding.entry.application_entry import evaluate, load_state
from ding.entry.pipeline import with_command_mode
from ding.entry.run_folder import Path, RunFolder
from ding.entry.workers import build_evaluator_env, build_policy, normalize_as_trained, set_offline_stats
from ding.utils.file_helper import read_file
from ding.worker.collector.actor import SoloActor
from ding.worker.collector.batch import Batch
from ding.worker.collector.episode_evaluator import EvalRecord
from ding.worker.learner.checkpoint import EXTRA, OFFLINE_STATS


class TrainedPolicy:
    """A policy of a training, as it acts in evaluations: greedily, and with a memory of the episode where it has one.

    Made by `load_policy`. Use it as a context manager, or call `close`, where `make_env` was called.
    """

    def __init__(self, cfg: Any, policy: Any, statistics: Any) -> None:
        self.cfg = cfg
        self._actor, self._statistics = SoloActor(policy.eval_mode, float_obs=True), statistics
        self._stack = ExitStack()
        self._actor.reset()

    def predict(self, obs: Any) -> Any:
        """The action in one observation.

        Args:
            obs: as the env of the training returns it, wrappers included: an array, or a dict of arrays.

        Returns:
            the action as the env takes it: an array, a dict or a tuple of arrays.
        """
        _, actions = self._actor.act(Batch.copied([0], [obs]), {})
        return actions[0]

    def reset(self) -> None:
        """Begin a new episode: a recurrent policy forgets the last one."""
        self._actor.reset([0])

    def make_env(self, seed: int = 0) -> Any:
        """A manager of one evaluation env, launched, that normalizes as the training did; closed with the policy."""
        cfg = copy.deepcopy(self.cfg)
        cfg.seed = seed
        cfg.env.evaluator_env_num = 1
        env = build_evaluator_env(self._stack, cfg, None)
        env.launch()
        normalize_as_trained(env, self._statistics)
        return env

    def close(self) -> None:
        """Close the envs of `make_env`. Idempotent."""
        self._stack.close()

    def __enter__(self) -> TrainedPolicy:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()


def load_policy(exp: Path, checkpoint: str | None = None, seed: int = 0) -> TrainedPolicy:
    """The policy of a training, to act with.

    Args:
        exp: the folder of the training.
        checkpoint: which one, see `RunFolder.checkpoint`; by default the best.
        seed: of what a policy draws at random.

    Raises:
        FileNotFoundError: there is no training in the folder, or no such checkpoint.

    Example:
        >>> policy = load_policy("cartpole_dqn_seed0")  # doctest: +SKIP
        >>> policy.predict(np.zeros(4, np.float32))  # doctest: +SKIP
        array([1])
    """
    folder = RunFolder(exp)
    state = read_file(folder.checkpoint(checkpoint))
    main, create = folder.configs()
    cfg = compile_config(main, seed=seed, auto=True, create_cfg=with_command_mode(create), save_cfg=False)
    set_offline_stats(cfg.env, state.get(EXTRA, {}).get(OFFLINE_STATS))
    policy = build_policy(cfg, None, ["eval"])
    return TrainedPolicy(cfg, policy, load_state(policy.eval_mode, state, None, None))


def evaluate_run(
    exp: Path, n_episode: int | None = None, checkpoint: str | None = None, seed: int | None = None
) -> EvalRecord:
    """Evaluate a training's policy; see `load_policy`.

    Args:
        n_episode: the number of episodes; by default that of the training's evaluations.
        seed: of the envs; by default that of the training, which gives the episodes that its evaluations played.
    """
    folder = RunFolder(exp)
    path = folder.checkpoint(checkpoint)
    seed = (folder.seed or 0) if seed is None else seed
    return evaluate(folder.configs(), seed, load_path=path, n_episode=n_episode)


def record(
    exp: Path, out: Path | None = None, n_episode: int = 1, checkpoint: str | None = None, seed: int | None = None
) -> tuple[list[str], EvalRecord]:
    """Record episodes of a training's policy as videos; see `evaluate_run`.

    Args:
        out: the file, `.mp4` or `.gif`, by default `video.mp4` in the folder of the training; with several episodes
            they are numbered.

    Returns:
        the files, and what the episodes reached.

    Raises:
        ValueError: `out` has another suffix.
        ImportError: a package that draws or encodes is not installed.
    """
    target = os.path.join(os.fspath(exp), "video.mp4") if out is None else os.fspath(out)
    stem, suffix = os.path.splitext(target)
    if suffix not in (".mp4", ".gif"):
        raise ValueError(f"{target!r} has the suffix {suffix!r}; it must be .mp4 or .gif")
    folder = RunFolder(exp)
    seed = (folder.seed or 0) if seed is None else seed
    main, create = folder.configs()
    main.env.evaluator_env_num = 1  # one after the other, so that the videos are in order
    main.env.n_evaluator_episode = n_episode
    path = folder.checkpoint(checkpoint)
    with tempfile.TemporaryDirectory() as videos:
        result = evaluate((main, create), seed, load_path=path, replay_path=videos)
        recorded = sorted(glob.glob(os.path.join(videos, "*.mp4")), key=os.path.getmtime)[:n_episode]
        files = [target if n_episode == 1 else f"{stem}_{i}{suffix}" for i in range(len(recorded))]
        os.makedirs(os.path.dirname(os.path.abspath(target)), exist_ok=True)
        for source, file in zip(recorded, files, strict=True):
            if suffix == ".gif":
                _to_gif(source, file)
            else:
                shutil.move(source, file)
    return files, result


def _to_gif(source: str, file: str) -> None:
    from moviepy import VideoFileClip

    with warnings.catch_warnings(), VideoFileClip(source) as clip:
        warnings.simplefilter("ignore", ResourceWarning)  # it leaves pipes of its encoder to the garbage collector
        clip.write_gif(file, logger=None)
