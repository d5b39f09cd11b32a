"""Workers that begin and end with the station they take their tasks at."""

from __future__ import annotations

import contextlib

from ding.worker.transport.link import Station


class Hosted:
    """Put before a comm worker: what it serves, its station takes in.

    A subclass sets `_station`, which calls `serve`, when it is made.
    """

    _station: Station

    @property
    def port(self) -> int:
        """The port (or number, within one process) of the station, from `start` on."""
        return self._station.port

    def start(self) -> None:
        """Begin to take tasks.

        Raises:
            OSError: the port is taken.
        """
        self._station.start()
        super().start()  # type: ignore[misc]  # the comm worker

    def close(self) -> None:
        """End what still runs, and take no more tasks. Bounded in time; idempotent."""
        try:
            super().close()  # type: ignore[misc]
        finally:
            self._station.close()

    def __del__(self) -> None:
        with contextlib.suppress(Exception):  # half-built, or at interpreter exit: nobody is left to tell
            self.close()
