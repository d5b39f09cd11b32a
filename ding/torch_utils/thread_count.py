"""Settings of torch for the calling thread."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch
from torch import nn

_SMALLEST_NORMAL = 2.0**-1022
# Networks with fewer parameters, or multiplications for an observation if they have convolutions, gain little from a
# second thread, and lose much where another process uses its core: an update of 2 million multiplications for each of
# 64 images took 49 ms with one thread, and 1.3 s with two.
_SMALL, _SMALL_CONVOLUTIONAL = 1_000_000, 5_000_000
_CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)
_PIXELS = 100  # of convolutions without a linear layer after them
_VARIABLE = "DING_TORCH_THREADS"
_OTHER_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")
# Number of torch's threads if nobody has set it.
AT_IMPORT = torch.get_num_threads()


def fitting_threads(model: nn.Module | None) -> AbstractContextManager[None]:
    """Use one torch thread within the block if `model` is small.

    On busy processors the threads of a small matrix product wait for each other, which can slow training down tenfold.
    A number that the user has set with `torch.set_num_threads`, `OMP_NUM_THREADS` or `MKL_NUM_THREADS` stays. The
    environment variable `DING_TORCH_THREADS` is a number for all models, or `auto`.

    Raises:
        ValueError: the variable has another value.
    """
    return threads(fitting_count(model))


@contextmanager
def threads(count: int | None) -> Iterator[None]:
    """Use `count` torch threads within the block, unless the program has chosen their number; see `fitting_count`."""
    before = torch.get_num_threads()
    if count in (None, before) or (before != AT_IMPORT and os.environ.get(_VARIABLE, "auto") == "auto"):
        yield
        return
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def fitting_count(model: nn.Module | None) -> int | None:
    """Return the number of torch threads for a model, or None to leave it unchanged; see `fitting_threads`.

    Raises:
        ValueError: see `fitting_threads`.
    """
    value = os.environ.get(_VARIABLE, "auto")
    if value != "auto":
        if not value.isdecimal() or int(value) < 1:
            raise ValueError(f"{_VARIABLE} = {value!r} is not allowed; it must be 'auto' or a number of threads")
        return int(value)
    return 1 if _is_small(model) and not any(map(os.environ.get, _OTHER_VARIABLES)) else None


def model_of(mode: Any) -> nn.Module | None:
    """Return the model of a mode of a policy of this package, None for other policies."""
    # A mode, or its `forward`, may be anything that a user has written.
    model = getattr(getattr(getattr(mode, "forward", None), "__self__", None), "_model", None)
    return model if isinstance(model, nn.Module) else None


def _is_small(model: nn.Module | None) -> bool:
    if model is None:
        return False
    # The multiplications of all convolutions for one observation: the pixels of a convolution follow from the linear
    # layer after it, and the strides between them.
    multiplications, stack = 0, list[Any]()  # of convolutions
    for module in model.modules():
        if isinstance(module, _CONVOLUTIONS):
            stack.append(module)
        elif isinstance(module, nn.Linear) and stack:
            pixels = max(1, module.in_features // stack[-1].out_channels)
            for convolution in reversed(stack):
                multiplications += convolution.weight.numel() * pixels
                pixels *= math.prod(convolution.stride)
            stack = []
    multiplications += sum(convolution.weight.numel() * _PIXELS for convolution in stack)
    size = sum(parameter.numel() for parameter in model.parameters())
    return bool(size + multiplications < (_SMALL_CONVOLUTIONAL if multiplications else _SMALL))


def keep_thread_count() -> None:
    """Use `torch.get_num_threads()` threads for the computations of the calling thread.

    Call it at the start of a thread that computes: the matrix library of a new thread ignores an earlier
    `torch.set_num_threads` and uses one thread per core, which slows small products down on busy cores.
    """
    torch.set_num_threads(torch.get_num_threads())


def flushing_denormals(function: Callable[[], Any]) -> None:
    """Call a function while denormal numbers (below 1e-38) are flushed to zero, in the calling thread.

    The moments of a gradient that has become zero decay to denormals, with which processors compute 20 times slower:
    for a network with dead units, a step of Adam takes 121 us instead of 328 us.
    """
    was_on = _SMALLEST_NORMAL * 0.5 == 0.0
    torch.set_flush_denormal(True)
    try:
        function()
    finally:
        torch.set_flush_denormal(was_on)
