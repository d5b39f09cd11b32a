"""Replay buffers; importing this registers all of them, `deque` too."""

from ding.data.buffer.deque_buffer_wrapper import DequeBufferWrapper
from ding.worker.replay_buffer.advanced_buffer import AdvancedReplayBuffer
from ding.worker.replay_buffer.base_buffer import IBuffer, create_buffer, get_buffer_cls
from ding.worker.replay_buffer.naive_buffer import NaiveReplayBuffer

__all__ = [
    "AdvancedReplayBuffer",
    "DequeBufferWrapper",
    "IBuffer",
    "NaiveReplayBuffer",
    "create_buffer",
    "get_buffer_cls",
]
