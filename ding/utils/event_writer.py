"""A tensorboardX writer that writes in the calling thread, so that errors, as of a full disk, reach the caller.

The thread of tensorboardX ends with its first error; whoever logs after that waits forever for its queue.
"""

from __future__ import annotations

import os
import time
from typing import Any

from tensorboardX import FileWriter, SummaryWriter
from tensorboardX.event_file_writer import EventsWriter
from tensorboardX.summary import scalar

# The longest time in seconds until an entry is on the disk.
_FLUSH_S = 10.0


class _EventFile(EventsWriter):  # type: ignore[misc]
    """An event file, flushed every ten seconds."""

    def __init__(self, folder: str, suffix: str) -> None:
        os.makedirs(folder, exist_ok=True)
        # tensorboardX names files by the second and overwrites existing ones. TensorBoard reads them in the order of
        # their names.
        super().__init__(os.path.join(folder, "events"), f".{time.time_ns()}.{os.getpid()}{suffix}")
        self._folder, self._flush_s = folder, time.monotonic() + _FLUSH_S

    def get_logdir(self) -> str:
        return self._folder

    def add_event(self, event: Any) -> None:
        self.write_event(event)
        if time.monotonic() > self._flush_s:
            self._flush_s = time.monotonic() + _FLUSH_S
            self.flush()


class _EventFileWriter(FileWriter):  # type: ignore[misc]
    """A `FileWriter` over an `_EventFile`."""

    def __init__(self, folder: str, suffix: str) -> None:  # not that of the base class, which starts a thread
        self.event_writer = _EventFile(folder, suffix)
        self._default_metadata: dict[str, Any] = {}


class EventWriter(SummaryWriter):  # type: ignore[misc]
    """A `SummaryWriter` without a thread: `max_queue` and `flush_secs` have no effect, and scalars are not kept."""

    file_writer: Any
    all_writers: dict[str, Any]

    def _get_file_writer(self) -> Any:
        if not self._write_to_disk:
            return super()._get_file_writer()
        if self.file_writer is None:
            self.all_writers = {}
            self.file_writer = self._writer_of(str(self.logdir))
        return self.file_writer

    def _writer_of(self, folder: str) -> Any:
        if folder not in self.all_writers:
            self.all_writers[folder] = _EventFileWriter(folder, self._filename_suffix)
        return self.all_writers[folder]

    def add_scalars(
        self, main_tag: str, tag_scalar_dict: dict[str, Any], global_step: Any = None, walltime: float | None = None
    ) -> None:
        """Write each value into the folder `<main_tag>/<tag>`."""
        folder = self._get_file_writer().get_logdir()
        for tag, value in tag_scalar_dict.items() if self._write_to_disk else ():
            writer = self._writer_of(os.path.join(folder, main_tag, tag))
            writer.add_summary(scalar(main_tag, value), global_step, walltime)
