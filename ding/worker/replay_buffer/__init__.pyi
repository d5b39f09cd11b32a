# Written by docs/generate.py: the exports of the table in __init__.py, for type checkers and editors.

from ding.data.buffer.deque_buffer_wrapper import DequeBufferWrapper as DequeBufferWrapper
from ding.data.buffer_interface import IBuffer as IBuffer
from ding.worker.replay_buffer.advanced_buffer import AdvancedReplayBuffer as AdvancedReplayBuffer
from ding.worker.replay_buffer.base_buffer import create_buffer as create_buffer
from ding.worker.replay_buffer.base_buffer import get_buffer_cls as get_buffer_cls
from ding.worker.replay_buffer.hindsight_buffer import HindsightReplayBuffer as HindsightReplayBuffer
from ding.worker.replay_buffer.naive_buffer import ElasticReplayBuffer as ElasticReplayBuffer
from ding.worker.replay_buffer.naive_buffer import EpisodeReplayBuffer as EpisodeReplayBuffer
from ding.worker.replay_buffer.naive_buffer import NaiveReplayBuffer as NaiveReplayBuffer
from ding.worker.replay_buffer.naive_buffer import SequenceReplayBuffer as SequenceReplayBuffer
