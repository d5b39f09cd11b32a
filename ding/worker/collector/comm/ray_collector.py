"""The comm collector for runs on Ray."""

from types import MappingProxyType

from ding.utils.registry_factory import COMM_COLLECTOR_REGISTRY
from ding.worker.collector.comm.comm_collector import CommCollector


@COMM_COLLECTOR_REGISTRY.register("ray")
class RayCollector(CommCollector):
    """Serves collector tasks in an actor of Ray, see `WorkerActor`.

    Samples go to the shards of the replay buffer, weights come through the object store.

    Args:
        cfg: `path_data` and `path_policy`; `data_interval_s` is 1.0 by default. See also `CommCollector`.
    """

    transport = "ray"
    # Messages have only the number of samples, and a call takes the coordinator and the collector 0.6 ms each.
    own_defaults = MappingProxyType({"data_interval_s": 1.0})
