"""Prefetching of batches to a GPU."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ding.torch_utils.nested_tensor import to_device
from ding.utils.data.dataloader import Prefetcher, StreamCopier


class CudaFetcher:
    """Prefetcher that moves batches from an iterator to a device, in a background thread and on its own CUDA stream.

    `run` starts the thread, `next(fetcher)` or `fetcher.next()` returns the next batch, `close` ends the thread.
    Exceptions of the source, including StopIteration, are raised by `next`; after `close`, it returns None.

    Args:
        source: the iterator of batches.
        device: the target device, such as 'cuda'.
        queue_size: the number of batches to prefetch.
        sleep: ignored; for compatibility.

    Example:
        >>> import torch
        >>> fetcher = CudaFetcher(iter([{"x": torch.zeros(2)}]), "cpu")
        >>> fetcher.run()
        >>> next(fetcher)
        {'x': tensor([0., 0.])}
        >>> fetcher.close()
    """

    def __init__(self, source: Iterator[Any], device: str, queue_size: int = 4, sleep: float = 0.1) -> None:
        self._source = source
        self._queue_size = queue_size
        self._copier = StreamCopier(str(device), to_device)
        self._prefetcher: Prefetcher | None = None

    def run(self) -> None:
        """Start fetching; a second call does nothing."""
        if self._prefetcher is None:
            source, copier = self._source, self._copier
            self._prefetcher = Prefetcher(lambda: copier.move(next(source)), self._queue_size, "cuda_fetcher")

    def close(self) -> None:
        """Stop fetching and wait for the thread; a second call does nothing."""
        if self._prefetcher is not None:
            self._prefetcher.close()

    def __iter__(self) -> CudaFetcher:
        return self

    def __next__(self) -> Any:
        if self._prefetcher is None:
            raise RuntimeError("the fetcher is not running; call run() before next()")
        return self._copier.hand_over(self._prefetcher.get())

    def next(self) -> Any:
        """Return the next batch on the device; see the class.

        Raises:
            RuntimeError: `run` has not been called.
        """
        return self.__next__()
