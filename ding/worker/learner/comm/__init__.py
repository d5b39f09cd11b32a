"""Learners that are driven by a coordinator."""

from typing import TYPE_CHECKING

from ding.utils.import_helper import lazy_names
from ding.worker.learner.comm.base_comm_learner import BaseCommLearner, create_comm_learner

if TYPE_CHECKING:
    from ding.worker.learner.comm.flask_fs_learner import FlaskFileSystemLearner, NaiveLearner

__all__ = ["BaseCommLearner", "FlaskFileSystemLearner", "NaiveLearner", "create_comm_learner"]

# The classes that use HTTP are imported on first access.
__getattr__ = lazy_names(
    __name__,
    {
        "FlaskFileSystemLearner": "ding.worker.learner.comm.flask_fs_learner",
        "NaiveLearner": "ding.worker.learner.comm.flask_fs_learner",
    },
)
