"""Deletes the files of items that a buffer has dropped."""

from __future__ import annotations

import logging
import os
import queue
import threading
from typing import Any


class UsedDataRemover:
    """Removes the file named by `data_id` of each item it is given, on a thread that `start` makes and `close` ends.

    Without `start`, files are kept until `close`. A file that cannot be removed is named in a warning. Thread-safe.
    """

    def __init__(self) -> None:
        self._used_data: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start removing. Does nothing when started already."""
        if self._thread is None:
            self._thread = threading.Thread(target=self.delete_used_data, name="delete_used_data", daemon=True)
            self._thread.start()

    def close(self) -> None:
        """Remove what is still waiting and end the thread. May be called any number of times."""
        self._used_data.put(None)
        if self._thread is None:
            self.delete_used_data()
        else:
            self._thread.join()
            self._thread = None

    def add_used_data(self, data: Any) -> None:
        """Hand over a dropped item.

        Raises:
            AssertionError: `data` is not a dict with the key `data_id`.
        """
        if not isinstance(data, dict) or "data_id" not in data:
            raise AssertionError(
                f"with enable_track_used_data each item must be a dict with 'data_id', got {data!r:.200}"
            )
        self._used_data.put(data["data_id"])

    def delete_used_data(self) -> None:
        """Remove files until `close` says that there are no more."""
        while (data_id := self._used_data.get()) is not None:
            try:
                os.remove(data_id)
            except FileNotFoundError:  # it has gone before
                continue
            except (OSError, TypeError, ValueError) as error:  # a folder, for example
                logging.getLogger("ding").warning("the used data file %s could not be removed: %s", data_id, error)
