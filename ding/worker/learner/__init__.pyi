# Written by docs/generate.py: the exports of the table in __init__.py, for type checkers and editors.

from ding.worker.learner.base_learner import BaseLearner as BaseLearner
from ding.worker.learner.base_learner import create_learner as create_learner
from ding.worker.learner.comm.base_comm_learner import BaseCommLearner as BaseCommLearner
from ding.worker.learner.comm.base_comm_learner import create_comm_learner as create_comm_learner
from ding.worker.learner.comm.flask_fs_learner import FlaskFileSystemLearner as FlaskFileSystemLearner
from ding.worker.learner.learner_hook import LearnerHook as LearnerHook
from ding.worker.learner.learner_hook import add_learner_hook as add_learner_hook
from ding.worker.learner.learner_hook import build_learner_hook_by_cfg as build_learner_hook_by_cfg
from ding.worker.learner.learner_hook import merge_hooks as merge_hooks
from ding.worker.learner.learner_hook import register_learner_hook as register_learner_hook
