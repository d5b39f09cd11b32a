"""Learners and their hooks."""

from typing import TYPE_CHECKING

from ding.utils.import_helper import lazy_names
from ding.worker.learner.base_learner import BaseLearner, create_learner
from ding.worker.learner.comm import BaseCommLearner, create_comm_learner
from ding.worker.learner.learner_hook import (
    LearnerHook,
    add_learner_hook,
    build_learner_hook_by_cfg,
    merge_hooks,
    register_learner_hook,
)

if TYPE_CHECKING:
    from ding.worker.learner.comm.flask_fs_learner import FlaskFileSystemLearner

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

# The classes of parallel training are imported on first access.
__getattr__ = lazy_names(
    __name__,
    {
        "FlaskFileSystemLearner": "ding.worker.learner.comm",
    },
)
