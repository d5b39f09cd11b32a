"""The comm learner for runs within one process."""

from __future__ import annotations

from easydict import EasyDict

from ding.utils.registry_factory import COMM_LEARNER_REGISTRY
from ding.worker.learner.comm.comm_learner import CommLearner
from ding.worker.transport.link import Hosted
from ding.worker.transport.local_transport import LocalStation
from ding.worker.transport.stores import MemoryPolicyStore, MemorySampleStore


@COMM_LEARNER_REGISTRY.register("local")
class LocalLearner(Hosted, CommLearner):
    """Serves learner tasks to a coordinator in the same process; samples and weights stay in memory.

    Args:
        cfg: `port` (0 for a free one), `path_data` and `path_policy`, which are names here. See also `CommLearner`.

    Example:
        >>> from ding.worker.transport.local_transport import LocalHub
        >>> learner, hub = LocalLearner(EasyDict(path_data="example/data", path_policy="example/policy")), LocalHub()
        >>> learner.start()
        >>> link = hub.link("learner0", "", learner.port)
        >>> link.connect(timeout_s=10)
        >>> link.run({"name": "resource"}, timeout_s=10)
        {'gpu': 1, 'batched': True}
        >>> hub.close(), learner.close()
        (None, None)
    """

    def __init__(self, cfg: EasyDict) -> None:
        super().__init__(cfg, MemorySampleStore, MemoryPolicyStore)
        self._station = LocalStation(self.serve, self._cfg.get("port", 0), self._cfg.close_timeout_s)
