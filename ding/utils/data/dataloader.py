"""Asynchronous loading and collation of batches."""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

from ding.utils.data.collate_fn import default_collate
from ding.utils.data.prefetch import Prefetcher, StreamCopier
from ding.utils.data.samples import Samples
from ding.utils.data.worker_pool import WorkerPool

Source = Callable[[int], Any]


class IDataLoader(ABC):
    """An endless iterator over batches."""

    @abstractmethod
    def __next__(self) -> Any:
        """Returns the next batch."""

    @abstractmethod
    def __iter__(self) -> IDataLoader:
        """Returns the dataloader itself."""

    @abstractmethod
    def close(self) -> None:
        """Stop loading and end all threads. May be called any number of times."""


class AsyncDataLoader(IDataLoader):
    """An endless iterator over batches that a thread loads, collates and moves to the device in advance.

    Loading starts at construction; at most `2 * max(1, num_workers)` batches wait, in the order of the calls of
    `data_source`. After an error in loading, each `next` raises it. After `close`, `next` returns None.

    Args:
        data_source: `data_source(batch_size)` returns a list of samples, or a list of callables that return one sample
            each. It is called in one thread, the callables in one or several.
        batch_size: Argument of `data_source`.
        device: Device of the batches. Copies to 'cuda' devices use a separate stream.
        chunk_size: Number of callables in one job of a worker, 1 by default. Must divide `batch_size`.
        collate_fn: Turns a list of samples into a batch, `default_collate` by default.
        num_workers: Number of threads that run the callables; with 0 and 1, the loading thread does. Keeps the order.
        to_device_fn: `(batch, device) -> batch`, for 'cuda' devices; by default, the tensors in dicts and sequences are
            moved.

    Raises:
        TypeError: If `data_source` is not callable, or `device` is not a str.
        ValueError: If `num_workers` is negative.
        AssertionError: If `chunk_size` does not divide `batch_size`.

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
        self._pool = WorkerPool(num_workers, "dataloader_worker") if num_workers > 1 else None
        self._copier = StreamCopier(device, to_device_fn) if "cuda" in device else None
        make = _BatchMaker(data_source, batch_size, chunk_size, collate_fn or default_collate, self._pool, self._copier)
        self._prefetcher = Prefetcher(make, 2 * max(1, num_workers), "dataloader")

    def __iter__(self) -> AsyncDataLoader:
        return self

    def __next__(self) -> Any:
        batch = self._prefetcher.get()
        return batch if self._copier is None else self._copier.hand_over(batch)

    def close(self) -> None:
        """Stop loading and wait for the threads to end, at most a few seconds if one is stuck in user code.

        May be called any number of times. A waiting `next` returns None.
        """
        self._prefetcher.stop()
        if self._pool is not None:
            self._pool.close()
        self._prefetcher.close()

    def __del__(self) -> None:
        # At interpreter exit, the threads no longer run and need not be waited for.
        if hasattr(self, "_prefetcher") and not sys.is_finalizing():
            self.close()


class _BatchMaker:
    """Returns one batch per call. Separate from the loader, so that the thread does not keep the loader alive."""

    def __init__(
        self,
        source: Source,
        batch_size: int,
        chunk_size: int,
        collate_fn: Callable[[Any], Any],
        pool: WorkerPool | None,
        copier: StreamCopier | None,
    ) -> None:
        self._source = source
        self._batch_size = batch_size
        self._chunk_size = chunk_size
        self._collate = collate_fn
        self._pool = pool
        self._copier = copier

    def __call__(self) -> Any:
        data = self._source(self._batch_size)
        is_in_columns = isinstance(data, Samples) and data.has_columns  # access to an item would create all items
        if isinstance(data, (list, tuple)) and data and not is_in_columns and callable(data[0]):
            data = self._run(data)
        batch = self._collate(data)
        return batch if self._copier is None else self._copier.move(batch)

    def _run(self, calls: Sequence[Callable[[], Any]]) -> list[Any]:
        if self._pool is None:
            return [call() for call in calls]
        chunks = [_Chunk(calls[i : i + self._chunk_size]) for i in range(0, len(calls), self._chunk_size)]
        return [sample for chunk in self._pool.run(chunks) for sample in chunk]


class _Chunk:
    """The callables of one job of a worker."""

    def __init__(self, calls: Sequence[Callable[[], Any]]) -> None:
        self._calls = calls

    def __call__(self) -> list[Any]:
        return [call() for call in self._calls]
