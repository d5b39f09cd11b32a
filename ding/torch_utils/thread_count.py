"""Torch settings for the calling thread."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn

_SMALLEST_NORMAL = 2.0**-1022
# Networks with fewer parameters, and without convolutions, gain nothing from a second thread.
_SMALL = 1_000_000
_CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)
_VARIABLE = "DING_TORCH_THREADS"
_OTHER_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")
_at_import = torch.get_num_threads()


@contextmanager
def fitting_threads(model: nn.Module | None) -> Iterator[None]:
    """Use one torch thread within the block if `model` is small.

    On busy processors the threads of a small product wait for each other, which can slow training down tenfold. A
    number that the user has set with `torch.set_num_threads`, `OMP_NUM_THREADS` or `MKL_NUM_THREADS` stays. The
    environment variable `DING_TORCH_THREADS` is a number for all models, or `auto`.

    Raises:
        ValueError: the variable has another value.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(_fitting_count(model, before))
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _fitting_count(model: nn.Module | None, current: int) -> int:
    value = os.environ.get(_VARIABLE, "auto")
    if value != "auto":
        if not value.isdecimal() or int(value) < 1:
            raise ValueError(f"{_VARIABLE} = {value!r} is not allowed; it must be 'auto' or a number of threads")
        return int(value)
    is_chosen = current != _at_import or any(os.environ.get(name) for name in _OTHER_VARIABLES)
    return 1 if not is_chosen and _is_small(model) else current


def _is_small(model: nn.Module | None) -> bool:
    if model is None or any(isinstance(module, _CONVOLUTIONS) for module in model.modules()):
        return False
    return sum(parameter.numel() for parameter in model.parameters()) < _SMALL


def keep_thread_count() -> None:
    """Use `torch.get_num_threads()` threads for the computations of the calling thread.

    Call it at the start of a thread that computes: the matrix library of a new thread ignores an earlier
    `torch.set_num_threads` and uses one thread per core, which slows small products down on busy cores.
    """
    torch.set_num_threads(torch.get_num_threads())


@contextmanager
def flushed_denormals() -> Iterator[None]:
    """Flush denormal numbers (below 1e-38) to zero within the block, in the calling thread.

    The moments of a gradient that has become zero decay to denormals, with which processors compute 20 times slower:
    for a network with dead units, a step of Adam takes 121 us instead of 328 us.
    """
    was_on = _SMALLEST_NORMAL * 0.5 == 0.0
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(was_on)
