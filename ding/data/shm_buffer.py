"""Arrays in shared memory, importable from the same module path as in DI-engine."""

from ding.utils.shm_buffer import ShmBuffer, ShmBufferContainer

__all__ = ["ShmBuffer", "ShmBufferContainer"]
