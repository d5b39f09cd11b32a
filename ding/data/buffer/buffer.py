"""The abstract buffer of records, whose operations pass through middleware."""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from ding.utils.fast_copy import fastcopy

# f(action, chain, *args, **kwargs): returns chain(*args, **kwargs), or a result of its own.
Middleware = Callable[..., Any]
Result = TypeVar("Result")
SelfBuffer = TypeVar("SelfBuffer", bound="Buffer")


@dataclass(slots=True)
class BufferedData:
    """A record of a buffer: the pushed data, its id and its metadata."""

    data: Any
    index: str
    meta: dict[str, Any] | None = None


def _copy_record(record: BufferedData) -> BufferedData:
    return BufferedData(fastcopy.copy(record.data), record.index, fastcopy.copy(record.meta))


fastcopy.dispatch[BufferedData] = _copy_record


class RecordListener(Protocol):
    """What keeps a state for each record of a buffer, such as a priority."""

    def added(self, record: BufferedData) -> None:
        """Note a record that was appended."""

    def removed(self, records: list[BufferedData]) -> None:
        """Note records that left the buffer."""


def each_record(sample: list[Any]) -> Iterator[BufferedData]:
    """Yield all records of a sample, which is a list of records or of groups of records."""
    for item in sample:
        if isinstance(item, BufferedData):
            yield item
        else:
            yield from item


def apply_middleware(func_name: str) -> Callable[[Callable[..., Result]], Callable[..., Result]]:
    """Decorate a buffer method, whose calls then pass through the buffer's middleware with the action `func_name`.

    The middleware that was added first is outermost.
    """

    def decorate(base_func: Callable[..., Result]) -> Callable[..., Result]:
        @functools.wraps(base_func)
        def handler(buffer: Buffer, *args: Any, **kwargs: Any) -> Any:
            chain: Callable[..., Any] = functools.partial(base_func, buffer)
            for middleware in reversed(buffer._middleware):
                chain = functools.partial(middleware, func_name, chain)
            return chain(*args, **kwargs)

        return handler

    return decorate


class Buffer(ABC):
    """An ordered store of records with a bounded size, oldest first.

    Args:
        size: capacity, in records.

    Raises:
        ValueError: `size` is below 1.
    """

    def __init__(self, size: int) -> None:
        if size < 1:
            raise ValueError(f"size = {size!r} is not allowed; it must be at least 1")
        self._middleware: list[Middleware] = []
        self.size = size

    @abstractmethod
    def push(self, data: Any, meta: dict[str, Any] | None = None) -> BufferedData:
        """Append `data` and return its record; a full buffer removes its oldest record."""
        raise NotImplementedError

    @abstractmethod
    def sample(
        self,
        size: int | None = None,
        indices: list[str] | None = None,
        replace: bool = False,
        sample_range: slice | None = None,
        ignore_insufficient: bool = False,
        groupby: str | None = None,
        unroll_len: int | None = None,
    ) -> list[Any]:
        """Sample records, or return those with the ids `indices`."""
        raise NotImplementedError

    @abstractmethod
    def update(self, index: str, data: Any = None, meta: dict[str, Any] | None = None) -> bool:
        """Replace the `data` and `meta` of a record, unless None, and return whether the id `index` is known."""
        raise NotImplementedError

    @abstractmethod
    def delete(self, index: str | Iterable[str]) -> None:
        """Remove the record(s) with the id(s) `index`; unknown ids are ignored."""
        raise NotImplementedError

    @abstractmethod
    def save_data(self, file_name: str) -> None:
        """Write all records to a file."""
        raise NotImplementedError

    @abstractmethod
    def load_data(self, file_name: str) -> None:
        """Replace all records by those of a file that `save_data` wrote."""
        raise NotImplementedError

    @abstractmethod
    def count(self) -> int:
        """Return the number of records."""
        raise NotImplementedError

    @abstractmethod
    def clear(self) -> None:
        """Remove all records."""
        raise NotImplementedError

    @abstractmethod
    def get_by_index(self, index: str) -> BufferedData:
        """Return the record with the id `index`.

        Raises:
            KeyError: the id is unknown.
        """
        raise NotImplementedError

    @abstractmethod
    def get(self, idx: int) -> BufferedData:
        """Return the record at position `idx`; 0 is the oldest."""
        raise NotImplementedError

    @abstractmethod
    def __iter__(self) -> Iterator[BufferedData]:
        raise NotImplementedError

    @abstractmethod
    def view(self: SelfBuffer) -> SelfBuffer:
        """Return a buffer with the same records and without middleware."""
        raise NotImplementedError

    def use(self: SelfBuffer, func: Middleware) -> SelfBuffer:
        """Add a middleware inside the existing ones, and return the buffer."""
        self._middleware.append(func)
        return self

    def __len__(self) -> int:
        return self.count()

    def __getitem__(self, idx: int) -> BufferedData:
        return self.get(idx)
