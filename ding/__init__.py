"""The worker layer of DI-engine, rebuilt on today's stack."""

__TITLE__ = "ding-worker"
__version__ = "0.1.0"
__VERSION__ = __version__
__DESCRIPTION__ = "Collectors, evaluators, learners and replay buffers for reinforcement learning"

# Kept because scripts set them before importing the rest: the segment tree is plain numpy and torch.distributed is the
# only backend, so neither changes anything here.
enable_numba = False
enable_linklink = False
enable_hpc_rl = False
