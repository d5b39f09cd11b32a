"""Copy batches to a GPU beside the computation that runs there."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch


def map_tensors(data: Any, function: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    """Apply `function` to each tensor in nested data; dicts become dicts, sequences lists, other values stay."""
    if isinstance(data, torch.Tensor):
        return function(data)
    if isinstance(data, Mapping):
        return {key: map_tensors(value, function) for key, value in data.items()}
    if isinstance(data, Sequence) and not isinstance(data, (str, bytes)):
        return [map_tensors(value, function) for value in data]
    return data


class StreamCopier:
    """Moves batches to `device` on a stream of its own; on a CPU it merely calls the mover.

    One thread calls `move`, the one that computes calls `hand_over` on what it takes.

    Args:
        device: a device name.
        to_device_fn: `(batch, device) -> batch`; moves the tensors of dicts and sequences when not given.
    """

    def __init__(self, device: str, to_device_fn: Callable[[Any, str], Any] | None = None) -> None:
        self._device = device
        self._to_device = to_device_fn or _move
        make_stream: Any = torch.cuda.Stream  # has no types
        self._stream: Any = make_stream(device) if "cuda" in device else None

    def move(self, batch: Any) -> Any:
        """Move `batch`; return when the copy is complete."""
        if self._stream is None:
            return self._to_device(batch, self._device)
        with torch.cuda.stream(self._stream):
            moved = self._to_device(batch, self._device)
        self._stream.synchronize()
        return moved

    def hand_over(self, moved: Any) -> Any:
        """Tell the allocator that the caller's stream uses `moved`, so that it is not overwritten too soon."""
        if self._stream is not None:
            stream = torch.cuda.current_stream(self._device)
            map_tensors(moved, lambda tensor: _record(tensor, stream))
        return moved


def _move(batch: Any, device: str) -> Any:
    return map_tensors(batch, lambda tensor: tensor.to(device))


def _record(tensor: torch.Tensor, stream: Any) -> torch.Tensor:
    if tensor.is_cuda:
        tensor.record_stream(stream)
    return tensor
