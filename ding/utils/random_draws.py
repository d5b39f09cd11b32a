"""Random tensors from numpy generators: the draws of exploration, sampling and noise.

Their owners hold a generator, see `new_generator`; draws are made on the CPU, so that they are the same on any device.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from ding.utils.default_helper import OF_THREAD, new_generator

# Functions that initialize weights; those of `torch.nn.init` pass a generator.
_RANDOM_FUNCTIONS = frozenset(("uniform_", "normal_", "random_", "bernoulli_", "exponential_", "rand", "randn"))


def draw_uniform(rng: np.random.Generator, shape: Sequence[int], like: Tensor) -> Tensor:
    """Return numbers of [0, 1) in this shape, on the device and in the dtype of `like`."""
    return torch.from_numpy(rng.random(tuple(shape), dtype=np.float32)).to(like)


def draw_normal(rng: np.random.Generator, shape: Sequence[int], like: Tensor) -> Tensor:
    """Return standard normal numbers in this shape, on the device and in the dtype of `like`."""
    return torch.from_numpy(rng.standard_normal(tuple(shape), dtype=np.float32)).to(like)


def draw_index(rng: np.random.Generator, weight: Tensor) -> Tensor:
    """Return indices [*B] int64, each drawn with a probability proportional to its weight in [*B, N].

    Weights are not negative, and not all of a row are 0. An index of weight 0 is never drawn.
    """
    # In numpy, which takes half the time of torch for the few rows of a round.
    cumulative = weight.detach().double().numpy(force=True).cumsum(-1)
    # A number of 24 bits below 1: in float64, its product with the sum stays below the sum.
    threshold = rng.random(cumulative.shape[:-1], dtype=np.float32)[..., None] * cumulative[..., -1:]
    return torch.from_numpy(np.asarray((cumulative <= threshold).sum(-1))).to(weight.device)


class _Redirected(TorchFunctionMode):
    """Lets random functions of torch that this thread calls on the CPU draw from a generator, if none is passed."""

    def __init__(self, generator: torch.Generator) -> None:
        super().__init__()
        self._generator = generator

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        draws = "generator" in kwargs or func.__name__ in _RANDOM_FUNCTIONS
        if draws and kwargs.get("generator") is None and not (args and isinstance(args[0], Tensor) and args[0].is_cuda):
            kwargs["generator"] = self._generator
        return func(*args, **kwargs)


@contextmanager
def seeded_weights() -> Iterator[None]:
    """Let networks that this thread makes within take their weights from the seed of `set_pkg_seed`, if it has one.

    Then what others seed or draw changes nothing of these weights, and torch's global generator stays as it is.
    """
    if OF_THREAD.seed is None:
        yield
        return
    with _Redirected(torch.Generator().manual_seed(int(new_generator().integers(2**63)))):
        yield


class RandomModule(nn.Module):
    """A module that draws random numbers, from a generator of its own; a copy of it draws others.

    Attributes:
        rng: the generator; the state of a policy includes it, that of the module (`state_dict`) does not.
    """

    _saved: ClassVar[tuple[str, ...]] = ("rng",)

    def __init__(self) -> None:
        super().__init__()
        self.rng = new_generator()

    def __deepcopy__(self, memo: dict[int, Any]) -> RandomModule:
        copied = type(self).__new__(type(self))
        memo[id(self)] = copied
        memo[id(self.rng)] = new_generator()
        vars(copied).update(copy.deepcopy(vars(self), memo))
        return copied
