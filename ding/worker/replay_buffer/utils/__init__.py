"""Components of the replay buffers."""

from ding.worker.replay_buffer.utils.sampled_data_attr_monitor import SampledDataAttrMonitor
from ding.worker.replay_buffer.utils.thruput import PeriodicThruputMonitor, ThruputController, Verdict
from ding.worker.replay_buffer.utils.unique_id import generate_id
from ding.worker.replay_buffer.utils.used_data_remover import UsedDataRemover

__all__ = [
    "PeriodicThruputMonitor",
    "SampledDataAttrMonitor",
    "ThruputController",
    "UsedDataRemover",
    "Verdict",
    "generate_id",
]
