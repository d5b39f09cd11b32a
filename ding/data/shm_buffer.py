"""Arrays in shared memory, at the place where DI-engine has them."""

from ding.utils.shm_buffer import ShmBuffer, ShmBufferContainer

__all__ = ["ShmBuffer", "ShmBufferContainer"]
