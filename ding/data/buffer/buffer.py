"""The buffer of the `ding.data` layer: a store whose operations pass through middleware."""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar, runtime_checkable

from ding.utils.fast_copy import fastcopy

# f(action, chain, *args, **kwargs): calls chain(*args, **kwargs) to go on, or answers itself.
Middleware = Callable[..., Any]
Result = TypeVar("Result")
SelfBuffer = TypeVar("SelfBuffer", bound="Buffer")


@dataclass(slots=True)
class _Fields:
    data: Any
    index: str
    meta: dict[str, Any] | None = None


_data_slot: Any = vars(_Fields)["data"]


class DataSource(Protocol):
    """Where the data of records is until somebody looks at it."""

    def make_data(self, record: BufferedData) -> None:
        """Set `record.data`, if this is still its source."""

    def copy_of(self, record: BufferedData) -> BufferedData:
        """A copy of `record` that shares nothing with it."""


class BufferedData(_Fields):
    """A record of a buffer: what was pushed, its id, and what is known about it.

    The data of a record that came in columns is made when somebody first looks at it, and is the record's own then.
    """

    __slots__ = ("__weakref__", "_source")

    _source: DataSource | None

    @property
    def data(self) -> Any:
        """What was pushed."""
        if self._source is not None:
            self._source.make_data(self)
        return _data_slot.__get__(self)

    @data.setter
    def data(self, data: Any) -> None:
        _data_slot.__set__(self, data)
        self._source = None

    @classmethod
    def deferred(cls, source: DataSource, place: Any, index: str, meta: dict[str, Any] | None) -> BufferedData:
        """A record whose data `source` makes from `place`."""
        record = cls(place, index, meta)
        record._source = source
        return record

    @property
    def source(self) -> DataSource | None:
        """Where its data still is; None once somebody has looked at it."""
        return self._source

    @property
    def place(self) -> Any:
        """Where in `source` its data is."""
        return _data_slot.__get__(self)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.data, self.index, self.meta)


def _copy_record(record: BufferedData) -> BufferedData:
    source = record.source
    if source is not None:
        return source.copy_of(record)
    return BufferedData(fastcopy.copy(record.data), record.index, fastcopy.copy(record.meta))


fastcopy.dispatch[BufferedData] = _copy_record


@runtime_checkable
class KeepsRecords(Protocol):
    """Middleware that keeps something for each record of the buffer."""

    def rebuild(self) -> None:
        """Begin anew with the records that the buffer holds now."""


def apply_middleware(func_name: str) -> Callable[[Callable[..., Result]], Callable[..., Result]]:
    """Decorator of a buffer method: calls go through the buffer's middleware under the action `func_name`.

    The middleware that was `use`d first is outermost.
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
    """An ordered store of records with a bounded size. Oldest records come first.

    Args:
        size: capacity, in records.
    """

    def __init__(self, size: int) -> None:
        if size < 1:
            raise ValueError(f"size = {size!r} is not allowed; it must be at least 1")
        self._middleware: list[Middleware] = []
        self.size = size

    @abstractmethod
    def push(self, data: Any, meta: dict[str, Any] | None = None) -> BufferedData:
        """Append `data`; returns its record. The oldest record leaves when the buffer is full."""
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
        """Draw records, or fetch those whose ids are `indices`."""
        raise NotImplementedError

    @abstractmethod
    def update(self, index: str, data: Any = None, meta: dict[str, Any] | None = None) -> bool:
        """Replace what is not None of the record with that id; False when there is none."""
        raise NotImplementedError

    @abstractmethod
    def delete(self, index: str | Iterable[str]) -> None:
        """Remove the record(s) with the id(s); unknown ids are ignored."""
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
        """Number of records."""
        raise NotImplementedError

    @abstractmethod
    def clear(self) -> None:
        """Remove all records."""
        raise NotImplementedError

    @abstractmethod
    def get_by_index(self, index: str) -> BufferedData:
        """The record with that id."""
        raise NotImplementedError

    def find(self, indices: list[str]) -> list[BufferedData | None]:
        """The records with the ids `indices`, None for an unknown id."""
        found: list[BufferedData | None] = []
        for index in indices:
            try:
                found.append(self.get_by_index(index))
            except KeyError:
                found.append(None)
        return found

    @abstractmethod
    def get(self, idx: int) -> BufferedData:
        """The record at that position, 0 being the oldest."""
        raise NotImplementedError

    @abstractmethod
    def __iter__(self) -> Iterator[BufferedData]:
        raise NotImplementedError

    @abstractmethod
    def view(self: SelfBuffer) -> SelfBuffer:
        """A buffer on the same records, without the middleware."""
        raise NotImplementedError

    def use(self: SelfBuffer, func: Middleware) -> SelfBuffer:
        """Add a middleware inside those added before; returns the buffer."""
        self._middleware.append(func)
        return self

    def __len__(self) -> int:
        return self.count()

    def __getitem__(self, idx: int) -> BufferedData:
        return self.get(idx)
