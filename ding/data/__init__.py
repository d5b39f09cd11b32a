"""Buffers and data sets of training data."""

from ding.utils.data.dataset import create_dataset
from ding.utils.import_helper import exports
from ding.utils.shm_buffer import ShmBuffer, ShmBufferContainer

_NAMES, __getattr__ = exports(
    __name__,
    {
        "buffer": "Buffer BufferedData DequeBuffer DequeBufferWrapper apply_middleware",
        "buffer_interface": "IBuffer",
    },
)
__all__ = [*_NAMES, "ShmBuffer", "ShmBufferContainer", "create_dataset"]
