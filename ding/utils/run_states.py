"""Common parts of the states of serial and parallel runs: the lock of the run's folder, config and description."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import IO, Any

import numpy as np

from ding.utils.config_helper import ConfigError
from ding.utils.lock_helper import hold_file
from ding.utils.references import reference_to
from ding.utils.showing import shown
from ding.utils.state_folder import StateError, StateFolder

FOLDER = "run_state"
# Keys whose values may differ when a run resumes: budgets, folders, the number of workers, and how it resumes.
_FREE = (
    "exp_name",
    "run_state",
    "env.stop_value",
    "policy.eval.evaluator.stop_value",
    "policy.eval.evaluator.patience",
    "policy.learn.learner.keep_checkpoints",
    "policy.learn.train_epoch",
    "policy.learn.resume_training",
    "policy.learn.learner.train_iterations",
    "policy.learn.learner.hook.load_ckpt_before_run",
    "policy.collect.collector.collector_num",
    "policy.learn.learner.learner_num",
    "policy.other.commander.collector_task_space",
    "policy.other.commander.path_policy",
)
_FREE_SECTIONS = ("run_state.", "logger.")


def hold_run(exp_name: str) -> IO[bytes] | None:
    """Lock the folder of a run, so that no other process trains there until the result is closed; see `hold_file`.

    Raises:
        StateError: another process holds the lock.
    """
    try:
        return hold_file(os.path.join(exp_name, FOLDER, "lock"))
    except BlockingIOError as e:
        raise StateError(f"another process uses {exp_name} ({e}); end it first, or choose another exp_name") from e


def describe_state(
    kind: str,
    exp_name: str,
    config: Mapping[str, str],
    reason: str,
    train_iter: int,
    env_step: int,
    last_return: float | None,
    inexact: Sequence[str],
) -> dict[str, Any]:
    """Return the description of a state that is saved now, for `StateFolder.write`.

    Args:
        kind: 'serial' or 'parallel'.
        config: see `flat_config`.
        reason: the reason why it is saved.
        inexact: the reason why the run does not resume exactly from it; empty if it does.
    """
    import torch

    return {
        "kind": kind,
        "exp_name": exp_name,
        "config": dict(config),
        "reason": reason,
        "train_iter": train_iter,
        "env_step": env_step,
        "last_return": last_return,
        "time": time.time(),
        "is_exact": not inexact,
        "inexact": list(inexact),
        "versions": {"python": platform.python_version(), "torch": str(torch.__version__), "numpy": np.__version__},
    }


def read_run_state(
    path: str,
    kind: str,
    config: Mapping[str, str],
    defaults: Callable[[set[str]], Mapping[str, str]] = lambda keys: {},
) -> dict[str, Any] | None:
    """Return the newest state in the folder `path`, or None if there is none.

    Args:
        kind: 'serial' or 'parallel', see `describe_state`.
        config: the config of the run that resumes, see `flat_config`.
        defaults: a function that returns the defaults of keys that the config of the state lacks.

    Raises:
        StateError: no state is readable, or the state is of a run of the other kind.
        ConfigError: the config of the state differs.
    """
    found = StateFolder(path).read()
    if found is None:
        return None
    state, about = found
    saved_kind = about.get("kind", "serial")
    if saved_kind != kind:
        raise StateError(
            f"the state in {path} is that of a {saved_kind} run, which no {kind} run resumes; choose another exp_name"
        )
    saved: Mapping[str, str] = about["config"]
    check_same_config({**defaults(set(config) - set(saved)), **saved}, config, path)
    return state


# ---- configs


def plain_tree(cfg: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return the leaves of a config by dotted path; an empty section is a leaf.

    Example:
        >>> plain_tree({"policy": {"learn": {"batch_size": 64}, "model": {}}, "seed": 0})
        {'policy.learn.batch_size': 64, 'policy.model': {}, 'seed': 0}
    """
    leaves: dict[str, Any] = {}
    for key, value in cfg.items():
        if isinstance(value, Mapping) and value:
            leaves.update(plain_tree(value, f"{prefix}{key}."))
        else:
            leaves[f"{prefix}{key}"] = value
    return leaves


def flat_config(cfg: Mapping[str, Any]) -> dict[str, str]:
    """Return the values of a compiled config as text by dotted key, except for keys whose values may differ."""
    leaves = plain_tree(cfg).items()
    return {key: _as_text(value) for key, value in leaves if key not in _FREE and not key.startswith(_FREE_SECTIONS)}


def _as_text(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(_as_text, value))}]"
    if isinstance(value, (set, frozenset)):  # their order differs from one process to the next
        return f"{{{', '.join(sorted(map(_as_text, value)))}}}"
    if isinstance(value, partial) and not value.args:
        return _as_text((value.func, value.keywords))
    reference = reference_to(value)
    if reference is not None:
        return repr(reference)  # as in a saved config
    if callable(value):
        return f"{getattr(value, '__module__', '')}.{getattr(value, '__qualname__', type(value).__name__)}"
    text = shown(value)
    return type(value).__qualname__ if " at 0x" in text else text


def _is_filled(key: str, saved: Mapping[str, str], own: Mapping[str, str]) -> bool:
    """Return whether `key` is a section that was empty in the state, so that its entries are compared one by one."""
    return saved.get(key) == "{}" and key not in own and any(name.startswith(f"{key}.") for name in own)


def check_same_config(saved: Mapping[str, str], own: Mapping[str, str], path: str) -> None:
    """Check that the config of a state is the config of the run.

    Raises:
        ConfigError: they differ; the message names the keys.
    """
    names = saved.keys() | own.keys()
    keys = sorted(key for key in names if saved.get(key) != own.get(key) and not _is_filled(key, saved, own))
    if keys:
        pairs = ((key, saved.get(key, "missing"), own.get(key, "missing")) for key in keys[:10])
        shown_keys = "; ".join(f"{key}: {then} then, {now} now" for key, then, now in pairs)
        more = f"; and {len(keys) - 10} more" if len(keys) > 10 else ""
        raise ConfigError(
            f"the state in {path} has another config: {shown_keys}{more}; make them equal, or choose another exp_name "
            "to start afresh. Budgets (stop_value, train_iterations, train_epoch, max_env_step, max_train_iter) may "
            "differ"
        )
