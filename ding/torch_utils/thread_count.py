"""How a thread computes with torch: settings that hold for the calling thread."""

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
    """Let torch compute with one thread where `model` is small; for the time of the block.

    On busy processors the threads of a small product wait for each other: a training of seconds takes a minute. Nothing
    is changed where somebody has chosen: by `torch.set_num_threads`, `OMP_NUM_THREADS` or `MKL_NUM_THREADS`. The
    environment variable `DING_TORCH_THREADS` is a number that holds for all models, or `auto`.

    Raises:
        ValueError: the variable is something else.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(_fitting_count(model, before))
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _fitting_count(model: nn.Module | None, current: int) -> int:
    wanted = os.environ.get(_VARIABLE, "auto")
    if wanted != "auto":
        if not wanted.isdecimal() or int(wanted) < 1:
            raise ValueError(f"{_VARIABLE} = {wanted!r} is not allowed; it must be 'auto' or a number of threads")
        return int(wanted)
    is_chosen = current != _at_import or any(os.environ.get(name) for name in _OTHER_VARIABLES)
    return 1 if not is_chosen and _is_small(model) else current


def _is_small(model: nn.Module | None) -> bool:
    if model is None or any(isinstance(module, _CONVOLUTIONS) for module in model.modules()):
        return False
    return sum(parameter.numel() for parameter in model.parameters()) < _SMALL


def keep_thread_count() -> None:
    """Let what the calling thread computes be split among as many threads as `torch.get_num_threads()` says.

    To be called where a thread that computes begins. What `torch.set_num_threads` was told elsewhere does not reach the
    matrix library in a new thread by itself: that takes one thread for each core. On busy cores these wait for each
    other at each small product, which then takes many times as long.
    """
    torch.set_num_threads(torch.get_num_threads())


@contextmanager
def flushed_denormals() -> Iterator[None]:
    """Compute with zeros in place of numbers too small for full precision (below 1e-38), in the calling thread.

    The moments that an optimizer keeps of a gradient that has become zero shrink to such numbers, with which a
    processor computes 20 times slower: for a network with dead units a step of Adam took 328 us, and takes 121 us so.
    """
    was_on = _SMALLEST_NORMAL * 0.5 == 0.0
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(was_on)
