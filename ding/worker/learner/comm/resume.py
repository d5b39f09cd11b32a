"""Resuming the task of a lost learner: saving and loading its checkpoints."""

from __future__ import annotations

import copy
import glob
import logging
import math
import os
from collections.abc import Mapping
from contextlib import suppress
from pickle import UnpicklingError
from time import monotonic
from typing import Any, NamedTuple

from ding.utils.file_helper import read_file, remove_file, save_file
from ding.worker.learner.base_learner import BaseLearner
from ding.worker.learner.checkpoint import EXTRA, checkpoint_folder, checkpoint_state
from ding.worker.learner.learner_hook import LoadCkptHook
from ding.worker.transport.stores import PolicyStore

# Limit of the share of time that is spent on saving.
_MAX_SHARE = 0.01
_SUFFIX = ".pth.tar"
# Hidden files are incomplete; a checkpoint saved after an error would repeat the error.
_NOT_RESUMED = (".", "ckpt_exception")


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
        """Remove the file if there is a newer checkpoint, and files of killed learners, when the task ends."""
        if self._learner.rank != 0:
            return
        folder, name = os.path.split(self._path)
        others = [path for path in newest_first(folder) if path != self._path]
        with suppress(FileNotFoundError):
            if others and os.stat(others[0]).st_mtime_ns >= os.stat(self._path).st_mtime_ns:
                os.remove(self._path)
        for path in glob.glob(os.path.join(glob.escape(folder), f".{glob.escape(name)}.*.tmp")):
            remove_file(path)


def newest_first(folder: str) -> list[str]:
    """Return the checkpoints in a folder from which a task may resume, newest first."""
    if not os.path.isdir(folder):
        return []
    times: dict[str, int] = {}
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.endswith(_SUFFIX) and not entry.name.startswith(_NOT_RESUMED) and entry.is_file():
                with suppress(FileNotFoundError):  # removed meanwhile
                    times[entry.path] = entry.stat().st_mtime_ns
    return sorted(times, key=lambda path: times[path], reverse=True)


class _Checkpoint(NamedTuple):
    state: dict[str, Any]
    iteration: int
    envstep: int
    batches_per_iteration: float


def resume(learner: BaseLearner, weights: Any, trust_pickle: bool = False) -> None:
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
    hooks = learner._hooks["before_run"]
    for hook in [hook for hook in hooks if isinstance(hook, LoadCkptHook)]:
        hook(learner)
        hooks.remove(hook)  # it would overwrite what is loaded now
    first = learner.train_iter
    fresh = copy.deepcopy(learner.policy.state_dict())
    if weights is not None and not _fits(weights, fresh):
        learner.logger.warning("the weights of the collectors are not those of this policy, and are ignored")
        weights = None
    found = _load_newest(learner, fresh, weights, trust_pickle)
    if found is None and weights is not None:
        learner.policy.load_state_dict(_begun_with(weights, fresh))
    known = [first] + ([] if found is None else [found.iteration]) + ([] if weights is None else [weights["iter"]])
    learner.last_iter.update(max(known))
    iterations = learner.train_iter - first
    learner.trained_before = round(iterations * (1.0 if found is None else found.batches_per_iteration))
    learner.ckpt_extra.update(iterations=iterations, batches=learner.trained_before)
    if found is not None:
        learner.collector_envstep = found.envstep
    learner.info(f"the task resumes at iteration {learner.train_iter}, env step {learner.collector_envstep}")


def stored_weights(store: PolicyStore, name: str, logger: logging.Logger) -> dict[str, Any] | None:
    """Return the weights of the collectors under `name`; None if there are none that can be read."""
    try:
        version = store.read(name)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, UnpicklingError) as e:
        logger.warning("the task resumes without the weights of the collectors: %s", e)
        return None
    return None if version is None else version.state


def _fits(weights: Any, fresh: Mapping[str, Any]) -> bool:
    """Return whether these weights fit the policy whose state is `fresh`."""
    if not (isinstance(weights, Mapping) and _is_count(weights.get("iter"))):
        return False
    own, other = fresh["model"], weights.get("model")
    return isinstance(other, Mapping) and _shapes(other) == _shapes(own)


def _shapes(model: Mapping[str, Any]) -> dict[str, Any]:
    return {name: getattr(value, "shape", None) for name, value in model.items()}


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and value >= 0


def _load_newest(
    learner: BaseLearner, fresh: dict[str, Any], weights: Mapping[str, Any] | None, trust_pickle: bool
) -> _Checkpoint | None:
    for path in newest_first(checkpoint_folder(learner)):
        try:
            found = _read(path, learner.ckpt_extra["task_id"], trust_pickle)
            if found is None:
                continue
            is_newer = weights is not None and weights["iter"] >= found.iteration
            learner.policy.load_state_dict(_replaced(found.state, weights) if is_newer else found.state)
        except Exception as e:  # a damaged file may raise any error; the next one may be readable
            learner.logger.warning("the checkpoint %s cannot be used and is skipped: %r", path, e)
            learner.policy.load_state_dict(fresh)  # a part of it may have been overwritten
        else:
            learner.info(f"loaded the checkpoint {path}" + (" with newer weights" if is_newer else ""))
            return found
    return None


def _read(path: str, task_id: Any, trust_pickle: bool) -> _Checkpoint | None:
    """Return the checkpoint in a file; None if it belongs to another task.

    Raises:
        ValueError: the file is not a checkpoint.
        Exception: see `read_file`.
    """
    state = read_file(path, trust_pickle=trust_pickle)
    if not (isinstance(state, dict) and "model" in state and _is_count(state.get("last_iter"))):
        raise ValueError("the file holds no checkpoint")
    extra = state.pop(EXTRA, {})
    if extra.get("task_id", task_id) != task_id:
        return None
    iterations = extra.get("iterations", 0)
    rate = extra["batches"] / iterations if iterations else 1.0
    return _Checkpoint(state, state.pop("last_iter"), int(state.pop("last_step", 0)), rate)


def _replaced(state: dict[str, Any], weights: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the state, in which entries of `weights` replace its own."""
    return state | {key: value for key, value in (weights or {}).items() if key in state}


def _begun_with(weights: Mapping[str, Any], fresh: dict[str, Any]) -> dict[str, Any]:
    """Return the state of a new policy that begins with these weights."""
    target = fresh.get("target_model")
    if isinstance(target, Mapping) and _shapes(target) == _shapes(weights["model"]):
        fresh = {**fresh, "target_model": weights["model"]}
    return _replaced(fresh, weights)
