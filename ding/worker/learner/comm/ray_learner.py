"""The comm learner for runs on Ray."""

from ding.utils.registry_factory import COMM_LEARNER_REGISTRY
from ding.worker.learner.comm.comm_learner import CommLearner


@COMM_LEARNER_REGISTRY.register("ray")
class RayLearner(CommLearner):
    """Serves learner tasks in an actor of Ray, see `WorkerActor`; samples and weights pass through the object store.

    Args:
        cfg: `path_data` and `path_policy`. See also `CommLearner`.
    """

    transport = "ray"
