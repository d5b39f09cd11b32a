"""The comm collector for runs within one process."""

from __future__ import annotations

from ding.utils.registry_factory import COMM_COLLECTOR_REGISTRY
from ding.worker.collector.comm.comm_collector import CommCollector


@COMM_COLLECTOR_REGISTRY.register("local")
class LocalCollector(CommCollector):
    """Serves collector tasks to a coordinator in the same process; samples and weights stay in memory.

    Args:
        cfg: `port` (0 for any free number); `path_data` and `path_policy`, which name stores in memory. See also
            `CommCollector`.

    Example:
        >>> from easydict import EasyDict
        >>> from ding.worker.transport.local_transport import LocalHub
        >>> worker = LocalCollector(EasyDict(path_data="data", path_policy="policy"))
        >>> worker.start()
        >>> link = LocalHub().link("collector0", "", worker.port)
        >>> link.connect(timeout_s=1)
        >>> link.run({"name": "resource"}, timeout_s=1)
        {'gpu': 1, 'cpu': 20, 'batched': True}
        >>> worker.close()
    """

    transport = "local"
