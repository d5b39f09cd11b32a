"""The comm learner for runs within one process."""

from __future__ import annotations

from ding.utils.registry_factory import COMM_LEARNER_REGISTRY
from ding.worker.learner.comm.comm_learner import CommLearner


@COMM_LEARNER_REGISTRY.register("local")
class LocalLearner(CommLearner):
    """Serves learner tasks to a coordinator in the same process; samples and weights stay in memory.

    Args:
        cfg: `port` (0 for any free number); `path_data` and `path_policy`, which name stores in memory. See also
            `CommLearner`.

    Example:
        >>> from easydict import EasyDict
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

    transport = "local"
