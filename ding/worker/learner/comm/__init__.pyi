# Written by docs/generate.py: the exports of the table in __init__.py, for type checkers and editors.

from ding.worker.learner.comm.base_comm_learner import BaseCommLearner as BaseCommLearner
from ding.worker.learner.comm.base_comm_learner import create_comm_learner as create_comm_learner
from ding.worker.learner.comm.flask_fs_learner import FlaskFileSystemLearner as FlaskFileSystemLearner
from ding.worker.learner.comm.flask_fs_learner import NaiveLearner as NaiveLearner
