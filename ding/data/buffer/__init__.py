"""Buffers of records with middleware."""

from ding.data.buffer.buffer import Buffer, BufferedData, apply_middleware
from ding.data.buffer.deque_buffer import DequeBuffer
from ding.data.buffer.deque_buffer_wrapper import DequeBufferWrapper

__all__ = ["Buffer", "BufferedData", "DequeBuffer", "DequeBufferWrapper", "apply_middleware"]
