"""The worker layer of DI-engine, rebuilt on today's stack."""

from typing import TYPE_CHECKING, Any

from ding import module_aliases

if TYPE_CHECKING:
    from ding.entry.training import train as train

__TITLE__ = "ding-worker"
__version__ = "0.1.0"
__VERSION__ = __version__
__DESCRIPTION__ = "Collectors, evaluators, learners and replay buffers for reinforcement learning"

# Kept because scripts set them before importing the rest: the segment tree is plain numpy and torch.distributed is the
# only backend, so neither changes anything here.
enable_numba = False
enable_linklink = False
enable_hpc_rl = False


def __getattr__(name: str) -> Any:
    if name != "train":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from ding.entry.training import train

    return train


def __dir__() -> list[str]:
    return sorted({*globals(), "train"})


module_aliases.install()
