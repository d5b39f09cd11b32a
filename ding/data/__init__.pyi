# Written by docs/generate.py: the exports of the table in __init__.py, for type checkers and editors.

from ding.data.buffer.buffer import Buffer as Buffer
from ding.data.buffer.buffer import BufferedData as BufferedData
from ding.data.buffer.buffer import apply_middleware as apply_middleware
from ding.data.buffer.deque_buffer import DequeBuffer as DequeBuffer
from ding.data.buffer.deque_buffer_wrapper import DequeBufferWrapper as DequeBufferWrapper
from ding.data.buffer_interface import IBuffer as IBuffer
from ding.utils.data.dataset import create_dataset as create_dataset
from ding.utils.shm_buffer import ShmBuffer as ShmBuffer
from ding.utils.shm_buffer import ShmBufferContainer as ShmBufferContainer
