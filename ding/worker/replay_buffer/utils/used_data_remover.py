"""Deletes the files of items that left a buffer."""

from __future__ import annotations

import logging
import os
import queue
import threading
from typing import Any


class UsedDataRemover:
    """Deletes the file named by `data_id` of each added item, on a thread that `start` starts and `close` ends.

    Without `start`, files are deleted by `close`. Logs a warning for each file that cannot be deleted. Thread-safe.
    """

    def __init__(self) -> None:
        self._used_data: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start the thread. Does nothing if it is running."""
        if self._thread is None:
            self._thread = threading.Thread(target=self.delete_used_data, name="delete_used_data", daemon=True)
            self._thread.start()

    def close(self) -> None:
        """Delete the remaining files and end the thread. May be called any number of times."""
        self._used_data.put(None)
        if self._thread is None:
            self.delete_used_data()
        else:
            self._thread.join()
            self._thread = None

    def add_used_data(self, data: Any) -> None:
        """Queue the file of an item for deletion.

        Raises:
            AssertionError: If `data` is not a dict with the key `data_id`.
        """
        if not isinstance(data, dict) or "data_id" not in data:
            raise AssertionError(
                f"with enable_track_used_data each item must be a dict with 'data_id', got {data!r:.200}"
            )
        self._used_data.put(data["data_id"])

    def delete_used_data(self) -> None:
        """Delete queued files until `close` is called and the queue is empty."""
        while (data_id := self._used_data.get()) is not None:
            try:
                os.remove(data_id)
            except FileNotFoundError:  # already deleted
                continue
            except (OSError, TypeError, ValueError) as error:  # a folder, for example
                logging.getLogger("ding").warning("cannot delete the used data file %s: %s", data_id, error)
