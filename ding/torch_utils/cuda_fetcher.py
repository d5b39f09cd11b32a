"""Copy a stream of batches to a GPU ahead of need."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ding.torch_utils.nested_tensor import to_device
from ding.utils.data.prefetch import Prefetcher, StreamCopier


class CudaFetcher:
    """Takes batches from an iterator and moves them to a device, in a background thread and on a stream of its own.

    `run` starts the thread, `next(fetcher)` or `fetcher.next()` takes the next batch, `close` ends it. An exception of
    the source, StopIteration too, is raised where the batch is taken; after `close`, None is returned.

    Args:
        source: what batches are taken from.
        device: where they are moved, 'cuda' for instance.
        queue_size: how many moved batches may wait.
        sleep: accepted for compatibility; nothing polls.

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
        """Start fetching. Does nothing when it runs already."""
        if self._prefetcher is None:
            source, copier = self._source, self._copier
            self._prefetcher = Prefetcher(lambda: copier.move(next(source)), self._queue_size, "cuda_fetcher")

    def close(self) -> None:
        """Stop fetching and wait for the thread to end. May be called any number of times."""
        if self._prefetcher is not None:
            self._prefetcher.close()

    def __iter__(self) -> CudaFetcher:
        return self

    def __next__(self) -> Any:
        if self._prefetcher is None:
            raise RuntimeError("the fetcher does not run: call run() before next()")
        return self._copier.hand_over(self._prefetcher.get())

    def next(self) -> Any:
        """The next batch on the device, see the class.

        Raises:
            RuntimeError: `run` was not called.
        """
        return self.__next__()
