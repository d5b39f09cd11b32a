"""Replay buffers. Importing this package registers all of them, including `deque`."""

from ding.data.buffer.deque_buffer_wrapper import DequeBufferWrapper
from ding.worker.replay_buffer.advanced_buffer import AdvancedReplayBuffer
from ding.worker.replay_buffer.base_buffer import IBuffer, create_buffer, get_buffer_cls
from ding.worker.replay_buffer.naive_buffer import (
    ElasticReplayBuffer,
    EpisodeReplayBuffer,
    NaiveReplayBuffer,
    SequenceReplayBuffer,
)

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
