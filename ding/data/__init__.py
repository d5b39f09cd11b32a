"""Buffers and data sets of training data."""

from ding.data.buffer.buffer import Buffer, BufferedData, apply_middleware
from ding.data.buffer.deque_buffer import DequeBuffer
from ding.data.buffer.deque_buffer_wrapper import DequeBufferWrapper
from ding.data.buffer_interface import IBuffer
from ding.utils.data.dataset import create_dataset
from ding.utils.shm_buffer import ShmBuffer, ShmBufferContainer

__all__ = [
    "Buffer",
    "BufferedData",
    "DequeBuffer",
    "DequeBufferWrapper",
    "IBuffer",
    "ShmBuffer",
    "ShmBufferContainer",
    "apply_middleware",
    "create_dataset",
]
