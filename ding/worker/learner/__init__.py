"""Learners and their hooks."""

from ding.utils.import_helper import exports

__all__, __getattr__ = exports(
    __name__,
    {
        "base_learner": "BaseLearner create_learner",
        "comm": "BaseCommLearner create_comm_learner",
        "learner_hook": ("LearnerHook add_learner_hook build_learner_hook_by_cfg merge_hooks register_learner_hook"),
    },
    lazy={"comm.flask_fs_learner": "FlaskFileSystemLearner"},  # of parallel training
)
