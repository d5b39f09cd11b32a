"""Messages through a pipe, of which an exception in a signal handler loses nothing.

A handler runs between two instructions of Python, so what `os.read` has returned is lost if the handler raises before
the result is stored. Here one call of a C function reads and stores: `list.extend(map(os.read, ...))`. The same
goes for the number of bytes that `os.write` has written. Whoever was interrupted calls again and continues.

Where pipes are not POSIX descriptors, as on Windows, `multiprocessing` moves each message in one piece.
"""

from __future__ import annotations

import os
import struct
from multiprocessing.connection import Connection

_LENGTH = struct.Struct("!Q")
_IS_POSIX = os.name == "posix"


class Outgoing:
    """A message of `data` that is being sent."""

    __slots__ = ("_data", "_written")

    def __init__(self, data: bytes) -> None:
        self._data = _LENGTH.pack(len(data)) + data if _IS_POSIX else data
        self._written: list[int] = []

    @property
    def size(self) -> int:
        """The length of the message in bytes."""
        return len(self._data)

    def send(self, sink: Connection) -> None:
        """Write what is left of the message.

        Raises:
            OSError: nobody reads from the pipe anymore.
        """
        if not _IS_POSIX:
            if not self._written:
                sink.send_bytes(self._data)
                self._written.append(len(self._data))
            return
        descriptor, written = sink.fileno(), self._written
        while (done := sum(written)) < len(self._data):
            written.extend(map(os.write, (descriptor,), (memoryview(self._data)[done:] if done else self._data,)))


class Incoming:
    """A message that is being received."""

    __slots__ = ("_data", "_head")

    def __init__(self) -> None:
        self._head: list[bytes] = []
        self._data: list[bytes] = []

    @property
    def has_begun(self) -> bool:
        """Whether any part of the message was read."""
        return bool(self._head or self._data)

    def receive(self, source: Connection) -> bytes:
        """Read what is left of the message; return all of it, also if it is called again.

        Raises:
            EOFError: the pipe ends before the message does.
            OSError: the pipe is closed.
        """
        if not _IS_POSIX:
            if not self._data:
                self._data.append(source.recv_bytes())
            return self._data[0]
        descriptor = source.fileno()
        _read(descriptor, self._head, _LENGTH.size)
        (length,) = _LENGTH.unpack(b"".join(self._head))
        _read(descriptor, self._data, length)
        return b"".join(self._data)


def _read(descriptor: int, chunks: list[bytes], length: int) -> None:
    """Read until `chunks` have `length` bytes together."""
    while (left := length - sum(map(len, chunks))) > 0:
        chunks.extend(map(os.read, (descriptor,), (left,)))
        if not chunks[-1]:
            raise EOFError


def send_message(sink: Connection, data: bytes) -> None:
    """Write a message for `receive_message` or `Incoming`.

    Raises:
        OSError: nobody reads from the pipe anymore.
    """
    Outgoing(data).send(sink)


def receive_message(source: Connection) -> bytes:
    """Read a message; wait until it has come.

    Raises:
        EOFError, OSError: the pipe ends or is closed.
    """
    return Incoming().receive(source)
