"""Prefetching: a bounded queue that a thread fills, and asynchronous copies to a GPU."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

_JOIN_S = 5.0


def join_or_warn(*threads: threading.Thread) -> None:
    """Wait a few seconds for daemon threads to end, and log a warning for each that is stuck in user code.

    Skips the calling thread, in which the garbage collector may run a finalizer.
    """
    deadline = time.monotonic() + _JOIN_S
    for thread in threads:
        if thread is threading.current_thread():
            continue
        thread.join(max(0.0, deadline - time.monotonic()))
        if thread.is_alive():
            logging.getLogger("ding").warning("thread %s did not end within %g s of its close", thread.name, _JOIN_S)


class Prefetcher:
    """Calls `produce` ahead of time, in a thread, and returns the results in order.

    An exception in `produce` ends the thread; `get` raises it after the earlier results. `get` and `close` may be
    called from different threads.

    Args:
        produce: Returns the next item. Called only while fewer than `capacity` items are waiting. It must not refer to
            the owner of the prefetcher, which could then never be garbage collected.
        capacity: Maximum number of waiting items.
        name: Name of the thread.
    """

    def __init__(self, produce: Callable[[], Any], capacity: int, name: str) -> None:
        self._produce = produce
        self._capacity = capacity
        self._items: deque[Any] = deque()
        self._error: BaseException | None = None
        self._closed = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._fill, name=name, daemon=True)
        self._thread.start()

    def _fill(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._closed or len(self._items) < self._capacity)
                if self._closed:
                    return
            try:
                item = self._produce()
            except BaseException as error:  # raised by get
                with self._changed:
                    self._error = error
                    self._changed.notify_all()
                return
            with self._changed:
                if not self._closed:
                    self._items.append(item)
                self._changed.notify_all()
            del item  # free the batch while the next one is produced

    def get(self) -> Any:
        """Wait for the next item. Returns None after `close`.

        Raises:
            BaseException: The exception that `produce` raised.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._closed or self._items or self._error is not None)
            if self._closed:
                return None
            if self._items:
                item = self._items.popleft()
                self._changed.notify_all()
                return item
            assert self._error is not None
            raise self._error

    def stop(self) -> None:
        """Wake all waiting threads and stop, without waiting for the thread to end."""
        with self._changed:
            self._closed = True
            self._items.clear()
            self._changed.notify_all()

    def close(self) -> None:
        """Stop and wait for the thread to end. May be called any number of times."""
        self.stop()
        join_or_warn(self._thread)


def map_tensors(data: Any, function: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    """Apply `function` to each tensor in nested data. Mappings become dicts, sequences lists."""
    if isinstance(data, torch.Tensor):
        return function(data)
    if isinstance(data, Mapping):
        return {key: map_tensors(value, function) for key, value in data.items()}
    if isinstance(data, Sequence) and not isinstance(data, (str, bytes)):
        return [map_tensors(value, function) for value in data]
    return data


class StreamCopier:
    """Moves batches to `device`, on a separate CUDA stream if it is a GPU.

    One thread calls `move`; the computing thread calls `hand_over` on each batch it gets.

    Args:
        device: A device name.
        to_device_fn: `(batch, device) -> batch`; by default, the tensors in dicts and sequences are moved.
    """

    def __init__(self, device: str, to_device_fn: Callable[[Any, str], Any] | None = None) -> None:
        self._device = device
        self._to_device = to_device_fn or _move
        make_stream: Any = torch.cuda.Stream  # has no types
        self._stream: Any = make_stream(device) if "cuda" in device else None

    def move(self, batch: Any) -> Any:
        """Move `batch` and wait until the copy is complete."""
        if self._stream is None:
            return self._to_device(batch, self._device)
        with torch.cuda.stream(self._stream):
            moved = self._to_device(batch, self._device)
        self._stream.synchronize()
        return moved

    def hand_over(self, moved: Any) -> Any:
        """Mark `moved` as used by the caller's stream, so that its memory is not reused too soon."""
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
