"""The mean of the logged values over all ranks."""

from __future__ import annotations

import numbers
import zlib
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch

from ding.utils.pytorch_ddp_dist_helper import allreduce
from ding.worker.learner.hook_base import LearnerHook

_KEPT_PREFIX = "noreduce_"
_MIN_SIZE = 256


class LogReduceHook(LearnerHook):
    """Replaces every number in the log buffer by its mean over the ranks, with one all-reduce per call.

    Numbers become floats; tuples, arrays and tensors become lists. Values of keys that start with `noreduce_` stay.

    Raises:
        TypeError: when called, if a value is neither a number nor a dict, sequence, array or tensor of numbers.
        RuntimeError: when called, if the ranks logged different keys or lengths.
    """

    def __call__(self, engine: Any) -> None:
        """Average the log buffer of `engine`, in place."""
        pack = _Pack()
        _walk(engine.log_buffer, "", pack.add)
        means = iter(pack.all_mean())
        for key, section in _walk(engine.log_buffer, "", lambda value, path: next(means)).items():
            if isinstance(engine.log_buffer[key], dict):
                engine.log_buffer[key].update(section)
            else:
                engine.log_buffer[key] = section


class _Pack:
    """The numbers of a nested structure in one row, after a checksum of their paths."""

    def __init__(self) -> None:
        self._values = [0.0]
        self._checksum = 0

    def add(self, value: float, path: str) -> float:
        self._values.append(value)
        self._checksum = zlib.crc32(path.encode(), self._checksum)
        return value

    def all_mean(self) -> list[float]:
        """Returns the means over all ranks in the order of the `add` calls, then padding."""
        self._values[0] = float(self._checksum)
        # Gloo aborts the process if the sizes of the ranks differ; rounding up makes that rare.
        # The checksum finds differences within one size.
        packed = torch.zeros(max(_MIN_SIZE, 1 << (len(self._values) - 1).bit_length()), dtype=torch.float64)
        packed[: len(self._values)] = torch.tensor(self._values, dtype=torch.float64)
        allreduce(packed)
        checksum, *means = packed.tolist()
        if checksum != self._checksum:
            raise RuntimeError(
                "log_reduce: the ranks logged different keys, whose values cannot be averaged; log the same keys and "
                f"lengths on every rank, or prefix a key with {_KEPT_PREFIX!r} to leave it out"
            )
        return means


def _walk(node: Any, path: str, visit: Callable[[float, str], float]) -> Any:
    """Returns a copy of `node` with each number replaced by `visit(number, path)`, in a fixed order."""
    if isinstance(node, Mapping):
        return {
            key: value if str(key).startswith(_KEPT_PREFIX) else _walk(value, f"{path}/{key}", visit)
            for key, value in node.items()
        }
    if isinstance(node, torch.Tensor | np.ndarray):
        node = node.tolist()
    if isinstance(node, list | tuple):
        return [_walk(value, path, visit) for value in node]
    if isinstance(node, numbers.Real):
        return visit(float(node), path)
    raise TypeError(
        f"log_reduce: {path.lstrip('/')} = {node!r} is not a number or a dict, sequence or tensor of numbers"
    )
