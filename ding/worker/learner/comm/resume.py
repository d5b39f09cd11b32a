"""Resuming the task of a lost learner: saving and loading its checkpoints."""

from __future__ import annotations

import copy
import glob
import math
import os
from collections.abc import Mapping
from contextlib import suppress
from time import monotonic
from typing import Any

from ding.utils.file_helper import read_file, save_file
from ding.worker.learner.base_learner import BaseLearner
from ding.worker.learner.checkpoint import EXTRA, checkpoint_folder, checkpoint_state
from ding.worker.learner.learner_hook import LoadCkptHook

# Limit of the share of time that is spent on saving.
_MAX_SHARE = 0.01
_SUFFIX = ".pth.tar"


class ResumeSaver:
    """A saver that replaces a checkpoint every `interval_s` seconds, between two batches.

    The checkpoint has the exact number of iterations; its `ckpt_extra` has the id of the task and the number of batches
    trained on. If saving is slow, checkpoints are saved less often, so that it takes 1 % of the time at most. Only the
    training thread may use a saver.

    Args:
        learner: the learner, whose `ckpt_extra` is updated.
        name: name of the policy; the file is `resume_<name>.pth.tar` in the folder of checkpoints.
        interval_s: seconds between two checkpoints; 0 for none.
    """

    def __init__(self, learner: BaseLearner, name: str, interval_s: float) -> None:
        self._learner = learner
        self._path = os.path.join(checkpoint_folder(learner), f"resume_{name}{_SUFFIX}")
        self._interval_s = interval_s if interval_s and learner.rank == 0 else math.inf
        self._due_s = monotonic() + self._interval_s
        self._first: int | None = None  # the iteration at which the task began

    def between_batches(self) -> None:
        """Save a checkpoint if it is due; call this before each batch."""
        extra, train_iter = self._learner.ckpt_extra, self._learner.train_iter
        if self._first is None:
            self._first = train_iter - extra["iterations"]
        else:
            extra["batches"] += 1
            extra["iterations"] = train_iter - self._first
        if monotonic() >= self._due_s:
            self._save()

    def _save(self) -> None:
        begin_s = monotonic()
        try:
            save_file(self._path, checkpoint_state(self._learner))
        except FloatingPointError:  # the weights are NaN: the training cannot continue
            raise
        except Exception:  # a checkpoint for emergencies must not end the training
            self._learner.logger.exception("could not save %s; the training continues", self._path)
        end_s = monotonic()
        self._due_s = end_s + max(self._interval_s, (end_s - begin_s) / _MAX_SHARE)

    def tidy(self) -> None:
        """Remove the file if there is a newer checkpoint, when the task ends."""
        if self._learner.rank == 0 and newest_first(os.path.dirname(self._path))[:1] != [self._path]:
            with suppress(FileNotFoundError):
                os.remove(self._path)


def newest_first(folder: str) -> list[str]:
    """Return the checkpoints in a folder from which a task may resume, newest first."""
    paths = [path for path in glob.glob(f"{glob.escape(folder)}/*{_SUFFIX}") if os.path.isfile(path)]
    # A checkpoint saved after an error would repeat the error.
    paths = [path for path in paths if not os.path.basename(path).startswith("ckpt_exception")]
    return sorted(paths, key=lambda path: os.stat(path).st_mtime_ns, reverse=True)


def load_first_checkpoint(learner: BaseLearner, is_loading: bool = True) -> None:
    """Call and remove the hooks that load a checkpoint before the run: later they would overwrite a newer state.

    Args:
        is_loading: False removes the hooks without calling them.
    """
    hooks = learner._hooks["before_run"]
    for hook in [hook for hook in hooks if isinstance(hook, LoadCkptHook)]:
        if is_loading:
            hook(learner)
        hooks.remove(hook)


def resume(learner: BaseLearner, weights: Mapping[str, Any] | None, trust_pickle: bool = False) -> None:
    """Load the state of the task's last learner into a new one.

    The policy's state and the counters come from the newest readable checkpoint of the task. If the collectors have
    weights of a later iteration, these replace the model, and other entries that are in both, so that an iteration
    number always belongs to the same weights, and no iteration is trained twice. The state of the optimizer and the
    target network are then slightly older than the model; resetting them would be a larger change. Without a
    checkpoint, the target network is a copy of the weights. Checkpoints of other tasks are ignored. The initial
    checkpoint of the task (`load_ckpt_before_run`) is loaded first.

    Args:
        learner: a learner with its policy, before `start`; its `ckpt_extra` has the id of the task.
        weights: the weights of the collectors, `{'model': ..., 'iter': ...}`, or None.
        trust_pickle: see `read_file`.
    """
    load_first_checkpoint(learner)
    first = learner.train_iter
    fresh = copy.deepcopy(learner.policy.state_dict())
    iteration, batches_per_iteration = first, 1.0
    for path in newest_first(checkpoint_folder(learner)):
        try:
            state = read_file(path, trust_pickle=trust_pickle)
            extra = state.pop(EXTRA, {})
            if extra.get("task_id", learner.ckpt_extra["task_id"]) != learner.ckpt_extra["task_id"]:
                continue
            iteration, envstep = int(state.pop("last_iter")), int(state.pop("last_step", 0))
            if weights is not None and weights["iter"] >= iteration:
                state = _replaced(state, weights)
            learner.policy.load_state_dict(state)
        except Exception as e:  # a damaged file may raise any error; the next one may be readable
            learner.logger.warning("the checkpoint %s cannot be used and is skipped: %r", path, e)
            learner.policy.load_state_dict(fresh)  # a part of it may have been overwritten
            iteration = first
            continue
        learner.info(f"loaded the checkpoint {path}")
        learner.collector_envstep = envstep
        if extra.get("iterations"):
            batches_per_iteration = extra["batches"] / extra["iterations"]
        break
    else:
        if weights is not None:
            if fresh.get("target_model", {}).keys() == weights["model"].keys():
                fresh["target_model"] = weights["model"]
            learner.policy.load_state_dict(_replaced(fresh, weights))
    learner.last_iter.update(max(first, iteration, -1 if weights is None else weights["iter"]))
    iterations = learner.train_iter - first
    learner.trained_before = round(iterations * batches_per_iteration)
    learner.ckpt_extra.update(iterations=iterations, batches=learner.trained_before)
    learner.info(f"the task resumes at iteration {learner.train_iter}, env step {learner.collector_envstep}")


def _replaced(state: dict[str, Any], weights: Mapping[str, Any]) -> dict[str, Any]:
    """Return the state, in which entries of `weights` replace its own."""
    return state | {key: value for key, value in weights.items() if key in state}
