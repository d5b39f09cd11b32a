"""How a task goes on whose learner was lost: what is kept for that while it trains, and what is made of it."""

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
from ding.worker.learner.builtin_hooks import LoadCkptHook
from ding.worker.learner.checkpoint import EXTRA, checkpoint_folder, checkpoint_state
from ding.worker.transport.stores import PolicyStore

# At most this share of the time goes into writing.
_MAX_SHARE = 0.01
_SUFFIX = ".pth.tar"
# What a learner has saved as it died of an error must not bring the error back.
_NOT_RESUMED = (".", "ckpt_exception")


class ResumeSaver:
    """Saves a checkpoint of a learner every `interval_s` seconds, between two batches, in one file that is replaced.

    It has the exact number of iterations, and in `ckpt_extra` of which task it is and how many batches were trained for
    them. A learner that takes long to save does so more rarely, for 1 % of its time. Used by the thread that trains.

    Args:
        learner: its `ckpt_extra` is kept up to date.
        name: of the policy; the file is `resume_<name>.pth.tar` among the checkpoints.
        interval_s: 0 for never.
    """

    def __init__(self, learner: BaseLearner, name: str, interval_s: float) -> None:
        self._learner = learner
        self._path = os.path.join(checkpoint_folder(learner), f"resume_{name}{_SUFFIX}")
        self._interval_s = interval_s if interval_s and learner.rank == 0 else math.inf
        self._due_s = monotonic() + self._interval_s
        self._first: int | None = None  # the iteration at which the task began

    def between_batches(self) -> None:
        """To be called once before each batch."""
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
        except FloatingPointError:  # there is nothing left to protect
            raise
        except Exception:  # it is there for safety, and should not end what it protects
            self._learner.logger.exception("could not save %s; the training goes on", self._path)
        end_s = monotonic()
        self._due_s = end_s + max(self._interval_s, (end_s - begin_s) / _MAX_SHARE)

    def tidy(self) -> None:
        """At the end: remove the file if another checkpoint of the learner has made it superfluous, and what learners
        that were killed have left of it."""
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
    """The checkpoints in a folder that a task may go on from."""
    if not os.path.isdir(folder):
        return []
    with os.scandir(folder) as entries:
        files = [e for e in entries if e.name.endswith(_SUFFIX) and not e.name.startswith(_NOT_RESUMED) and e.is_file()]
        return [file.path for file in sorted(files, key=lambda file: file.stat().st_mtime_ns, reverse=True)]


class _Checkpoint(NamedTuple):
    state: dict[str, Any]
    iteration: int
    envstep: int
    batches_per_iteration: float


def resume(learner: BaseLearner, weights: Any, trust_pickle: bool = False) -> None:
    """Have a new learner go on with its task.

    The newest checkpoint of the task that is whole gives the policy's state and the counters. Weights that collectors
    have got from a later iteration replace its model (and what else is in both): the number of a version stays with its
    weights, and no iteration is trained twice. The optimizer's averages and the target network are then a little older
    than the model, which they are made to follow slowly; to begin these anew would be the larger step. Without a
    checkpoint a target network begins as a copy of the weights, as it does at first. Checkpoints of other tasks do not
    count, and what a task begins with (`load_ckpt_before_run`) is loaded before.

    Args:
        learner: with its policy, before `start`; the id of its task stands in `ckpt_extra`.
        weights: what the collectors have, `{'model': ..., 'iter': ...}`; None if there is nothing.
        trust_pickle: see `read_file`.
    """
    load_first_checkpoint(learner)
    first = learner.train_iter
    fresh = copy.deepcopy(learner.policy.state_dict())
    if weights is not None and not _fits(weights, fresh):
        learner.logger.warning("the weights that the collectors have are not those of this policy, and do not count")
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
    learner.info(f"the task goes on at iteration {learner.train_iter}, env step {learner.collector_envstep}")


def stored_weights(store: PolicyStore, name: str, logger: logging.Logger) -> dict[str, Any] | None:
    """The weights that collectors find under `name`, if there are any that can be read."""
    try:
        version = store.read(name)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, UnpicklingError) as e:
        logger.warning("the task goes on without the weights that the collectors have: %s", e)
        return None
    return None if version is None else version.state


def load_first_checkpoint(learner: BaseLearner, is_loading: bool = True) -> None:
    """Call the hooks that load a checkpoint before the run, and remove them: they would load it over a later state.

    Args:
        is_loading: False only removes the hooks.
    """
    hooks = learner._hooks["before_run"]
    for hook in [hook for hook in hooks if isinstance(hook, LoadCkptHook)]:
        if is_loading:
            hook(learner)
        hooks.remove(hook)


def _fits(weights: Any, fresh: Mapping[str, Any]) -> bool:
    """Whether these are weights of the policy whose state is `fresh`."""
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
        except Exception as e:  # a damaged file may fail in any way; the next one may be whole
            learner.logger.warning("the checkpoint %s cannot be used and is passed over: %r", path, e)
            learner.policy.load_state_dict(fresh)  # of which a part may have been overwritten
        else:
            learner.info(f"loaded the checkpoint {path}" + (" with newer weights" if is_newer else ""))
            return found
    return None


def _read(path: str, task_id: Any, trust_pickle: bool) -> _Checkpoint | None:
    """The checkpoint in a file; None if it is that of another task.

    Raises:
        ValueError: it is none; as may be raised by `read_file`.
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
    """The state with all that is in `weights` too taken from there."""
    return state | {key: value for key, value in (weights or {}).items() if key in state}


def _begun_with(weights: Mapping[str, Any], fresh: dict[str, Any]) -> dict[str, Any]:
    """The state of a policy that begins with these weights."""
    target = fresh.get("target_model")
    if isinstance(target, Mapping) and _shapes(target) == _shapes(weights["model"]):
        fresh = {**fresh, "target_model": weights["model"]}
    return _replaced(fresh, weights)
