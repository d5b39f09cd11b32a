"""Replay buffers. Importing this package registers all of them, including `deque`."""

from ding.data.buffer.deque_buffer_wrapper import DequeBufferWrapper
from ding.worker.replay_buffer.advanced_buffer import AdvancedReplayBuffer
from ding.worker.replay_buffer.base_buffer import IBuffer, create_buffer, get_buffer_cls
from ding.worker.replay_buffer.elastic_buffer import ElasticReplayBuffer
from ding.worker.replay_buffer.episode_buffer import EpisodeReplayBuffer
from ding.worker.replay_buffer.naive_buffer import NaiveReplayBuffer
from ding.worker.replay_buffer.sequence_buffer import SequenceReplayBuffer

__all__ = [
    "AdvancedReplayBuffer",
    "DequeBufferWrapper",
    "ElasticReplayBuffer",
    "EpisodeReplayBuffer",
    "IBuffer",
    "NaiveReplayBuffer",
    "SequenceReplayBuffer",
    "create_buffer",
    "get_buffer_cls",
]
