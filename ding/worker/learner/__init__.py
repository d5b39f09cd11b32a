"""Learners and their hooks."""

from ding.worker.learner.base_learner import BaseLearner, create_learner
from ding.worker.learner.comm import BaseCommLearner, FlaskFileSystemLearner, create_comm_learner
from ding.worker.learner.learner_hook import (
    LearnerHook,
    add_learner_hook,
    build_learner_hook_by_cfg,
    merge_hooks,
    register_learner_hook,
)

__all__ = [
    "BaseCommLearner",
    "BaseLearner",
    "FlaskFileSystemLearner",
    "LearnerHook",
    "add_learner_hook",
    "build_learner_hook_by_cfg",
    "create_comm_learner",
    "create_learner",
    "merge_hooks",
    "register_learner_hook",
]
