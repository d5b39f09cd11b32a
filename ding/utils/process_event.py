"""An event between processes that no death of a process can spoil."""

from __future__ import annotations

import multiprocessing
from multiprocessing.connection import Connection


class ProcessEvent:
    """What `multiprocessing.Event` offers, made of a pipe: nobody holds a lock while waiting or setting.

    A process that is killed while it waits for a `multiprocessing.Event` takes the count of its waiters along, and the
    next `set` never returns. Here a set event is a pipe with something in it, which nobody reads.

    May be given to processes as they start, by any start method.

    Attributes:
        reader: becomes readable when the event is set; for `multiprocessing.connection.wait`.

    Example:
        >>> event = ProcessEvent()
        >>> event.wait(0), event.set(), event.wait(0), event.is_set()
        (False, None, True, True)
        >>> event.close()
    """

    def __init__(self) -> None:
        reader, writer = multiprocessing.Pipe(duplex=False)
        self.reader: Connection = reader
        self._writer: Connection = writer

    def set(self) -> None:
        """Set it, for good. Any number of times."""
        if not self.is_set():
            self._writer.send_bytes(b"1")

    def is_set(self) -> bool:
        """Whether it is set."""
        return self.reader.poll(0)

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until it is set; False when `timeout` seconds have passed first."""
        return self.reader.poll(timeout)

    def close(self) -> None:
        """Give back what this process has of it; it is of no use here afterwards. Idempotent."""
        self.reader.close()
        self._writer.close()
