"""Learners that are driven by a coordinator."""

from ding.worker.learner.comm.base_comm_learner import BaseCommLearner, create_comm_learner
from ding.worker.learner.comm.flask_fs_learner import FlaskFileSystemLearner
from ding.worker.learner.comm.local_learner import LocalLearner
from ding.worker.learner.comm.utils import NaiveLearner

__all__ = ["BaseCommLearner", "FlaskFileSystemLearner", "LocalLearner", "NaiveLearner", "create_comm_learner"]
