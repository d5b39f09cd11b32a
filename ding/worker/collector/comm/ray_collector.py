"""The comm collector for runs on Ray."""

from ding.utils.registry_factory import COMM_COLLECTOR_REGISTRY
from ding.worker.collector.comm.comm_collector import CommCollector


@COMM_COLLECTOR_REGISTRY.register("ray")
class RayCollector(CommCollector):
    """Serves collector tasks in an actor of Ray, see `WorkerActor`.

    Samples go to the shards of the replay buffer, weights come through the object store.

    Args:
        cfg: `path_data` and `path_policy`. See also `CommCollector`.
    """

    transport = "ray"
