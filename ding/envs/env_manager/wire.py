"""Messages between a manager and the processes of its envs: pickled, each behind its length and number, on a socket."""

from __future__ import annotations

import pickle
import socket
import struct
from collections import deque
from typing import Any

import numpy as np

# Bytes of the message, and its number: it says what an answer belongs to even if the answer cannot be read.
_HEADER = struct.Struct("!QQ")
_START = _HEADER.size
# More than the kernel keeps for one socket, so that one system call takes all there is.
_RECEIVE_BYTES = 1 << 18


# The number of a message, and the message, still pickled.
Message = tuple[int, "memoryview | bytes"]


def encode(seq: int, message: Any) -> bytes:
    """A message as it goes over the wire; classes that only one function knows are sent by value."""
    try:
        body = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
    except Exception:
        import cloudpickle

        body = cloudpickle.dumps(message, pickle.HIGHEST_PROTOCOL)
    return _HEADER.pack(len(body), seq) + body


def pack_array(value: Any) -> tuple[Any, ...]:
    """An array of numbers as its dtype, shape and bytes, at a third of what pickling it costs; else `(value,)`."""
    if type(value) is np.ndarray and value.dtype.kind in "biuf":
        return value.dtype.str, value.shape, bytearray(value.tobytes())
    return (value,)


def unpack_array(packed: tuple[Any, ...]) -> Any:
    """What `pack_array` was given; an array is a new one, in C order."""
    if len(packed) == 1:
        return packed[0]
    dtype, shape, data = packed
    return np.frombuffer(data, dtype).reshape(shape)


class Channel:
    """One end of a connection; the messages of the other end come whole and in order.

    It has a socket for each direction: on one that serves both, reading a message would also wake whoever waits at the
    other end, for space to write, which costs as much as the message.

    Args:
        source: where messages come from.
        sink: where they go. If it blocks, `write` waits; otherwise it leaves what the kernel does not take at once for
            `flush`.
    """

    def __init__(self, source: socket.socket, sink: socket.socket) -> None:
        self._source = source
        self._sink = sink
        self._unsent = memoryview(b"")
        self._space = bytearray(_RECEIVE_BYTES)
        self._view = memoryview(self._space)
        self._partial = bytearray()
        self._messages: deque[Message] = deque()

    @property
    def source(self) -> socket.socket:
        """To wait on for messages."""
        return self._source

    @property
    def sink(self) -> socket.socket:
        """To wait on for space, when `write` has left something."""
        return self._sink

    def write(self, data: bytes) -> bool:
        """Send what `encode` made; whether nothing is left over for `flush`.

        Raises:
            OSError: the other end is closed.
        """
        if not self._unsent:
            try:
                sent = self._sink.send(data)
            except BlockingIOError:
                sent = 0
            if sent == len(data):
                return True
            self._unsent = memoryview(data)[sent:]
        else:
            self._unsent = memoryview(bytes(self._unsent) + data)
        return self.flush()

    def flush(self) -> bool:
        """Send what is left over from earlier writes; whether nothing is left now.

        Raises:
            OSError: the other end is closed.
        """
        while self._unsent:
            try:
                sent = self._sink.send(self._unsent)
            except BlockingIOError:
                return False
            self._unsent = self._unsent[sent:]
        return True

    def read(self) -> list[Message] | None:
        """The messages that are whole by now, valid until the next call; None if nothing has come at all.

        Raises:
            EOFError: the other end is closed.
        """
        try:
            size = self._source.recv_into(self._space)
        except BlockingIOError:
            return None
        except ConnectionError as e:
            raise EOFError("the other end is closed") from e
        if size == 0:
            raise EOFError("the other end is closed")
        if not self._partial and size >= _START:
            length, seq = _HEADER.unpack_from(self._space)
            if size == _START + length:
                return [(seq, self._view[_START:size])]
        self._partial += self._view[:size]
        return self._whole_ones()

    def receive(self) -> Message:
        """The next message, on a blocking channel; it is valid until the next call.

        Raises:
            EOFError: the other end is closed.
        """
        while not self._messages:
            messages = self.read()
            if messages is not None and len(messages) == 1:
                return messages[0]
            self._messages.extend(messages or ())
        return self._messages.popleft()

    def close(self) -> None:
        """Close the socket."""
        self._source.close()
        self._sink.close()

    def _whole_ones(self) -> list[Message]:
        messages: list[Message] = []
        start, end = 0, len(self._partial)
        with memoryview(self._partial) as view:
            while end - start >= _START:
                length, seq = _HEADER.unpack_from(view, start)
                first, after = start + _START, start + _START + length
                if after > end:
                    break
                messages.append((seq, bytes(view[first:after])))
                start = after
        del self._partial[:start]
        return messages
