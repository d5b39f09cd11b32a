"""Learners that are driven by a coordinator."""

from ding.utils.import_helper import exports

__all__, __getattr__ = exports(
    __name__,
    {"base_comm_learner": "BaseCommLearner create_comm_learner"},
    lazy={"flask_fs_learner": "FlaskFileSystemLearner NaiveLearner"},  # which uses HTTP
)
