"""Buffers of records with middleware."""

from ding.utils.import_helper import exports

__all__, __getattr__ = exports(
    __name__,
    {
        "buffer": "Buffer BufferedData apply_middleware",
        "deque_buffer": "DequeBuffer",
        "deque_buffer_wrapper": "DequeBufferWrapper",
    },
)
