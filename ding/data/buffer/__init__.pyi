# Written by docs/generate.py: the exports of the table in __init__.py, for type checkers and editors.

from ding.data.buffer.buffer import Buffer as Buffer
from ding.data.buffer.buffer import BufferedData as BufferedData
from ding.data.buffer.buffer import apply_middleware as apply_middleware
from ding.data.buffer.deque_buffer import DequeBuffer as DequeBuffer
from ding.data.buffer.deque_buffer_wrapper import DequeBufferWrapper as DequeBufferWrapper
