"""When a parallel training is to end, besides what its config says."""

from __future__ import annotations

from typing import Any

from ding.entry.progress import UNLIMITED


def check_limits(**limits: float) -> None:
    """Refuse limits that are not positive.

    Raises:
        ValueError: one is not.
    """
    for name, limit in limits.items():
        if not limit > 0:
            raise ValueError(f"{name} = {limit!r} is not allowed; it must be more than 0")


def set_limits(main: Any, system: Any, max_train_iter: int, max_env_step: int) -> None:
    """Write the limits into the two configs, in place; the config's own count, too."""
    learner = main.setdefault("policy", {}).setdefault("learn", {}).setdefault("learner", {})
    if max_train_iter < UNLIMITED:
        learner["train_iterations"] = int(min(max_train_iter, learner.get("train_iterations", max_train_iter)))
    if max_env_step < UNLIMITED:
        coordinator = system.setdefault("coordinator", {})
        coordinator["max_env_step"] = min(max_env_step, coordinator.get("max_env_step", max_env_step))
