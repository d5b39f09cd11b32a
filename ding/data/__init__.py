"""Buffers and data sets of training data."""

from ding.utils.data.dataset import create_dataset
from ding.utils.import_helper import exports

_NAMES, __getattr__ = exports(
    __name__,
    {
        "buffer": "Buffer BufferedData DequeBuffer DequeBufferWrapper apply_middleware",
        "buffer_interface": "IBuffer",
        "shm_buffer": "ShmBuffer ShmBufferContainer",
    },
)
__all__ = [*_NAMES, "create_dataset"]
