"""Waiting between threads."""

from __future__ import annotations

import threading


class DblEvent:
    """An event that can be waited for in both directions: to be opened, and to be closed.

    Args:
        opened: how it begins.

    Example:
        >>> event = DblEvent()
        >>> event.open()
        >>> event.wait_for_open(timeout=1)
        >>> event.is_open(), event.is_close()
        (True, False)
    """

    def __init__(self, opened: bool = False) -> None:
        self._condition = threading.Condition()
        self._is_open = opened

    def open(self) -> None:
        """Open it and wake those who wait for that."""
        self._set(True)

    def close(self) -> None:
        """Close it and wake those who wait for that."""
        self._set(False)

    def is_open(self) -> bool:
        """Whether it is open."""
        return self._is_open

    def is_close(self) -> bool:
        """Whether it is closed."""
        return not self._is_open

    def wait_for_open(self, timeout: float | None = None) -> None:
        """Wait until it is open, at most `timeout` seconds; `is_open` tells which."""
        self._wait(True, timeout)

    def wait_for_close(self, timeout: float | None = None) -> None:
        """Wait until it is closed, at most `timeout` seconds; `is_close` tells which."""
        self._wait(False, timeout)

    def _set(self, is_open: bool) -> None:
        with self._condition:
            self._is_open = is_open
            self._condition.notify_all()

    def _wait(self, is_open: bool, timeout: float | None) -> None:
        with self._condition:
            self._condition.wait_for(lambda: self._is_open is is_open, timeout)
