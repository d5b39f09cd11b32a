"""A TensorBoard writer that costs nothing until it is written to."""

from __future__ import annotations

import functools
import itertools
import os
import socket
import struct
import threading
import time
import weakref
from collections.abc import Callable
from types import TracebackType
from typing import IO, Any, Protocol

_file_numbers = itertools.count()


class Router(Protocol):
    """What `DistributedWriter.plugin` needs of the object that carries events between processes."""

    is_active: bool

    def emit(self, event: str, *args: Any, **kwargs: Any) -> None:
        """Send an event to the other processes."""

    def on(self, event: str, fn: Callable[..., None]) -> None:
        """Call `fn` for each such event that arrives."""


class DistributedWriter:
    """A tensorboardX `SummaryWriter` made, with its event file, at the first `add_*`; all its methods are here.

    Entries are written by the calling thread; there is no other thread or process. `flush` and `close` may be called at
    any time and any number of times; an `add_*` after `close` opens another event file. The file belongs to the process
    that opened it: after a fork the child opens its own.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder, DistributedWriter(folder) as writer:
        ...     writer.add_scalar("loss", 0.5, 1)
    """

    root: DistributedWriter | None = None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._args = args
        self._kwargs = kwargs
        self._summary: Any = None
        self._pid = 0
        self._finalizer: Any = None
        self._lock = threading.RLock()
        self._router: Router | None = None
        self._is_writer = True

    @classmethod
    def get_instance(cls, *args: Any, **kwargs: Any) -> DistributedWriter:
        """The root writer without arguments; otherwise a new writer, which becomes the root if there is none."""
        if not args and not kwargs and cls.root is not None:
            return cls.root
        writer = cls(*args, **kwargs)
        if cls.root is None:
            cls.root = writer
        return writer

    def plugin(self, router: Router, is_writer: bool = False) -> DistributedWriter:
        """Join the writers of several processes: the one with `is_writer` writes, the others send it their entries."""
        self._router = router
        self._is_writer = is_writer
        if router.is_active and is_writer:
            router.on("distributed_writer", self._on_remote_entry)
        return self

    def initialize(self) -> None:
        """Open the event file now."""
        with self._lock:
            self._open()

    def add_scalar(self, tag: str, scalar_value: Any, *args: Any, **kwargs: Any) -> None:
        """Write one value; further arguments are those of `SummaryWriter.add_scalar`: `global_step`, `walltime`..."""
        self._add("add_scalar", tag, scalar_value, *args, **kwargs)

    @property
    def logdir(self) -> Any:
        """The folder of the event file; asking for it opens nothing."""
        if self._args:
            return self._args[0]
        return self._kwargs.get("logdir") or self._kwargs.get("log_dir")

    def flush(self) -> None:
        """Hand everything that was written to the operating system; entries are on their way without it as well."""
        with self._lock:
            if self._is_open():
                self._summary.flush()

    def close(self) -> None:
        """Close the event file; does nothing when none is open."""
        with self._lock:
            if self._is_open():
                self._finalizer()
            self._summary = None

    def __enter__(self) -> DistributedWriter:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        if name.startswith("add_"):
            return functools.partial(self._add, name)
        with self._lock:
            return getattr(self._open(), name)

    def __reduce__(self) -> tuple[Any, ...]:
        # A copy, or one that another process unpickles, opens an event file of its own.
        return functools.partial(type(self), *self._args, **self._kwargs), ()

    def _add(self, method: str, *args: Any, **kwargs: Any) -> None:
        if self._router is not None and self._router.is_active and not self._is_writer:
            self._router.emit("distributed_writer", method, *args, **kwargs)
            return
        with self._lock:
            getattr(self._open(), method)(*args, **kwargs)

    def _on_remote_entry(self, method: str, *args: Any, **kwargs: Any) -> None:
        if not method.startswith("add_"):
            raise ValueError(f"{method!r} is not a method that adds an entry")
        self._add(method, *args, **kwargs)

    def _is_open(self) -> bool:
        return self._summary is not None and self._pid == os.getpid()

    def _open(self) -> Any:
        if not self._is_open():
            self._pid = os.getpid()
            self._summary = _summary_writer_class()(*self._args, **self._kwargs)
            # For a writer that nobody closes; also at the end of the program.
            self._finalizer = weakref.finalize(self, _close, self._summary, self._pid)
        return self._summary


def _close(summary: Any, pid: int) -> None:
    if pid == os.getpid():
        summary.close()


@functools.cache
def _summary_writer_class() -> type:
    """`SummaryWriter` that writes its event file itself; its own way takes a queue, a thread and an exit handler."""
    try:
        from tensorboardX import SummaryWriter
        from tensorboardX.writer import FileWriter
    except ImportError as error:
        raise ImportError("a TensorBoard log needs the package tensorboardX: pip install tensorboardX") from error

    class DirectFileWriter(FileWriter):  # type: ignore[misc]
        def __init__(self, logdir: str, suffix: str) -> None:
            self.event_writer = _EventFile(logdir, suffix)
            self._default_metadata: dict[str, Any] = {}

    class DirectSummaryWriter(SummaryWriter):  # type: ignore[misc]
        def _SummaryWriter__append_to_scalar_dict(self, *args: Any) -> None:
            # tensorboardX keeps every scalar in memory for its JSON export, without end; the event file has them all.
            return

        def export_scalars_to_json(self, path: str) -> None:
            raise NotImplementedError(f"cannot export to {path}: scalars are kept in the event file only; read it back")

        def _get_file_writer(self) -> Any:
            if not self._write_to_disk or "://" in str(self.logdir):
                return super()._get_file_writer()
            if self.file_writer is None:
                writer: Any = DirectFileWriter(str(self.logdir), self._filename_suffix)
                self.file_writer: Any = writer
                self.all_writers = {writer.get_logdir(): writer}
            return self.file_writer

    return DirectSummaryWriter


class _EventFile:
    """The interface of tensorboardX's `EventFileWriter`, without anything pending: each event is one write to the file.

    Readers see it at once, a crash loses nothing, and a forked child cannot write it again.
    """

    def __init__(self, logdir: str, suffix: str) -> None:
        self._logdir = logdir
        self._suffix = suffix
        self._file: IO[bytes] | None = None
        self.reopen()

    def get_logdir(self) -> str:
        return self._logdir

    def reopen(self) -> None:
        if self._file is not None:
            return
        from tensorboardX.proto.event_pb2 import Event

        os.makedirs(self._logdir, exist_ok=True)
        # The number keeps files apart that are opened within the same second.
        unique = f"{int(time.time())}.{socket.gethostname()}.{os.getpid()}.{next(_file_numbers)}{self._suffix}"
        path = os.path.join(self._logdir, f"events.out.tfevents.{unique}")
        self._file = open(path, "xb", buffering=0)  # noqa: SIM115
        self.add_event(Event(wall_time=time.time(), file_version="brain.Event:2"))

    def add_event(self, event: Any) -> None:
        """Append `event` as a TFRecord: length, checksum of the length, data, checksum of the data."""
        from tensorboardX.record_writer import masked_crc32c

        if self._file is None:
            return
        data = event.SerializeToString()
        length = struct.pack("<Q", len(data))
        checksums = [struct.pack("<I", masked_crc32c(part)) for part in (length, data)]
        self._file.write(b"".join((length, checksums[0], data, checksums[1])))

    def flush(self) -> None:
        return

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None
