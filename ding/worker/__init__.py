"""Collectors, evaluators, learners, replay buffers, coordinators and commanders."""

from ding.utils.import_helper import exports
from ding.worker import collector, coordinator, learner, replay_buffer

_PACKAGES = {"collector": collector, "coordinator": coordinator, "learner": learner, "replay_buffer": replay_buffer}

__all__, __getattr__ = exports(
    __name__,
    {name: " ".join(package.__all__) for name, package in _PACKAGES.items()},
    lazy={"adapter": "LearnerAggregator"},
)
