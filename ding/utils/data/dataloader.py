"""Asynchronous loading and collation of batches: a bounded queue, and copies to a GPU."""

from __future__ import annotations

import logging
import sys
import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch

from ding.utils.data.collate_fn import default_collate
from ding.utils.data.nested import map_tensors
from ding.utils.data.samples import table_of

Source = Callable[[int], Any]
_JOIN_S = 5.0


class IDataLoader(ABC):
    """An endless iterator over batches."""

    @abstractmethod
    def __next__(self) -> Any:
        """Return the next batch."""

    @abstractmethod
    def __iter__(self) -> IDataLoader:
        """Return the dataloader itself."""

    @abstractmethod
    def close(self) -> None:
        """Stop loading and end all threads; further calls do nothing."""


class AsyncDataLoader(IDataLoader):
    """An endless iterator over batches that a thread loads, collates and moves to the device in advance.

    Loading starts at construction; at most `2 * max(1, num_workers)` batches wait, in the order of the calls of
    `data_source`. After an error in loading, each `next` raises it. After `close`, `next` returns None.

    Args:
        data_source: `data_source(batch_size)` returns a list of samples, or a list of callables that return one sample
            each. It is called in one thread, the callables in one or several.
        batch_size: argument of `data_source`.
        device: device of the batches. Copies to 'cuda' devices use a separate stream.
        chunk_size: number of callables in one job of a worker, 1 by default. Must divide `batch_size`.
        collate_fn: turns a list of samples into a batch, `default_collate` by default.
        num_workers: number of threads that run the callables, in order; with 0 and 1, the loading thread runs them.
        to_device_fn: `(batch, device) -> batch`, for 'cuda' devices; by default, the tensors in dicts and sequences are
            moved.

    Raises:
        TypeError: `data_source` is not callable, or `device` is not a str.
        ValueError: `num_workers` is negative.
        AssertionError: `chunk_size` does not divide `batch_size`.

    Example:
        >>> loader = AsyncDataLoader(lambda n: [{"x": float(i)} for i in range(n)], batch_size=2, device="cpu")
        >>> next(loader)
        {'x': tensor([0., 1.])}
        >>> loader.close()
    """

    def __init__(
        self,
        data_source: Source,
        batch_size: int,
        device: str,
        chunk_size: int | None = None,
        collate_fn: Callable[[Any], Any] | None = None,
        num_workers: int = 0,
        to_device_fn: Callable[[Any, str], Any] | None = None,
    ) -> None:
        if not callable(data_source):
            raise TypeError(f"data_source = {data_source!r} is not allowed; it must be a function of the batch size")
        if not isinstance(device, str):
            raise TypeError(f"device = {device!r} is not allowed; it must be a str such as 'cpu' or 'cuda:0'")
        if num_workers < 0:
            raise ValueError(f"num_workers = {num_workers} is not allowed; it must be >= 0")
        chunk_size = 1 if chunk_size is None else chunk_size
        if chunk_size < 1 or batch_size % chunk_size:
            raise AssertionError(f"chunk_size = {chunk_size} is not allowed; it must divide batch_size = {batch_size}")
        self._copier = copier = StreamCopier(device, to_device_fn) if "cuda" in device else None
        collate = collate_fn or default_collate

        def make_batch() -> Any:  # without `self`, so that the thread does not keep the loader alive
            data = data_source(batch_size)
            is_in_columns = table_of(data) is not None  # access to an item would create all items
            if isinstance(data, (list, tuple)) and data and not is_in_columns and callable(data[0]):
                chunks = [data[start : start + chunk_size] for start in range(0, len(data), chunk_size)]
                with ThreadPoolExecutor(max(1, num_workers), "dataloader_worker") as pool:
                    done = list(pool.map(_run, chunks) if num_workers > 1 else map(_run, chunks))
                data = [sample for chunk in done for sample in chunk]
            batch = collate(data)
            return batch if copier is None else copier.move(batch)

        self._prefetcher = Prefetcher(make_batch, 2 * max(1, num_workers), "dataloader")

    def __iter__(self) -> AsyncDataLoader:
        return self

    def __next__(self) -> Any:
        batch = self._prefetcher.get()
        return batch if self._copier is None else self._copier.hand_over(batch)

    def close(self) -> None:
        """Stop loading and wait for the loading to end, at most a few seconds if it is stuck in user code.

        Further calls do nothing. A waiting `next` returns None.
        """
        self._prefetcher.close()

    def __del__(self) -> None:
        # At interpreter exit, the threads no longer run and need not be waited for.
        if hasattr(self, "_prefetcher") and not sys.is_finalizing():
            self.close()


def _run(calls: Sequence[Callable[[], Any]]) -> list[Any]:
    return [call() for call in calls]


class Prefetcher:
    """A thread that calls `produce` ahead of time, and keeps the results in order.

    An exception in `produce` ends the thread; `get` raises it after the earlier results. `get` and `close` may be
    called from different threads.

    Args:
        produce: returns the next item. Called only while fewer than `capacity` items are waiting. It must not refer to
            the owner of the prefetcher, which could then never be garbage collected.
        capacity: maximum number of waiting items.
        name: name of the thread.
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
        """Wait for the next item and return it, or None after `close`.

        Raises:
            BaseException: the exception that `produce` raised.
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

    def close(self) -> None:
        """Wake all waiting threads, stop, and wait a few seconds for the thread to end; further calls do nothing."""
        with self._changed:
            self._closed = True
            self._items.clear()
            self._changed.notify_all()
        if self._thread is threading.current_thread():  # in which the garbage collector runs a finalizer
            return
        self._thread.join(_JOIN_S)
        if self._thread.is_alive():
            logging.getLogger("ding").warning(
                "thread %s did not end within %g s of its close", self._thread.name, _JOIN_S
            )


class StreamCopier:
    """Transfer of batches to `device`, on a separate CUDA stream if it is a GPU.

    One thread calls `move`; the computing thread calls `hand_over` on each batch it gets.

    Args:
        device: a device name.
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
            map_tensors(lambda tensor: _record(tensor, stream), moved)
        return moved


def _move(batch: Any, device: str) -> Any:
    return map_tensors(lambda tensor: tensor.to(device), batch)


def _record(tensor: torch.Tensor, stream: Any) -> torch.Tensor:
    if tensor.is_cuda:
        tensor.record_stream(stream)
    return tensor
