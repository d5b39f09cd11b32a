"""Replay buffers. Importing this package registers all of them, including `deque`."""

from ding.data.buffer.deque_buffer_wrapper import DequeBufferWrapper
from ding.utils.import_helper import exports

_NAMES, __getattr__ = exports(
    __name__,
    {
        "advanced_buffer": "AdvancedReplayBuffer",
        "base_buffer": "IBuffer create_buffer get_buffer_cls",
        "hindsight_buffer": "HindsightReplayBuffer",
        "naive_buffer": "ElasticReplayBuffer EpisodeReplayBuffer NaiveReplayBuffer SequenceReplayBuffer",
    },
)
__all__ = [*_NAMES, "DequeBufferWrapper"]
