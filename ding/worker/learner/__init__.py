"""Learners and their hooks."""

from ding.worker.learner.base_learner import BaseLearner, create_learner
from ding.worker.learner.learner_hook import (
    LearnerHook,
    add_learner_hook,
    build_learner_hook_by_cfg,
    merge_hooks,
    register_learner_hook,
)

__all__ = [
    "BaseLearner",
    "LearnerHook",
    "add_learner_hook",
    "build_learner_hook_by_cfg",
    "create_learner",
    "merge_hooks",
    "register_learner_hook",
]
