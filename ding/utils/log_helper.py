"""Text loggers, TensorBoard writers that open their event file at the first entry, and display that never ends a run.

`shown` shows objects of users. Code that only shows something, such as a write to a log, runs in `only_shows`: if it
fails, one warning says so.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import inspect
import itertools
import json
import logging
import numbers
import os
import sys
import textwrap
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping
from types import TracebackType
from typing import Any, Protocol

# Seconds between two flushes of tensorboardX's thread, and the length of its queue, after which an `add_*` blocks.
_DEFAULTS = {"flush_secs": 10, "max_queue": 1000}
_JOIN_S = 1.0
_THREADS_A_FILE = 2  # the writer thread and the thread of its queue
# Bytes of entries to keep while they cannot be written.
_MAX_WAITING = 1 << 24
_PREFIX = "ding-event-file"
_logger = logging.getLogger("ding")
_told: set[str] = set()  # in this process
_file_numbers = itertools.count()
_starting = threading.Lock()  # only one writer at a time starts threads, so that each finds its own
_writers: weakref.WeakSet[DistributedWriter] = weakref.WeakSet()


def shown(obj: Any, text_of: Callable[[Any], str] = repr) -> str:
    """Return the text of `obj` for a message, or `<name of its class>` if that fails, with one warning for each class.

    Args:
        obj: any object, even one whose `__repr__` raises.
        text_of: `repr`, `str` or another function that returns the text.

    Example:
        >>> class Unready:
        ...     def __repr__(self):
        ...         return self.name
        >>> logging.getLogger("ding").setLevel("ERROR")
        >>> shown(3), shown(Unready())
        ('3', '<Unready>')
    """
    name = type(obj).__name__
    with only_shows(f"showing a {name}"):
        return text_of(obj)
    return f"<{name}>"


def in_one_line(obj: Any) -> str:
    """Return `shown(obj)` in one line of at most 200 characters."""
    return textwrap.shorten(shown(obj), 200)


@contextlib.contextmanager
def only_shows(what: str, told: set[str] | None = None) -> Iterator[None]:
    """Catch exceptions of a block that only shows something, and warn of the first one.

    Args:
        what: what the block does, as the subject of "fails".
        told: the earlier warnings, so that each is logged once; None for once per process.
    """
    try:
        yield
    except Exception as e:  # the purpose of this block
        tell_once(what, e, told)


def tell_once(what: str, error: Exception, told: set[str] | None = None) -> None:
    """Warn that `what` fails with `error` and that the run continues, unless that was logged; see `only_shows`."""
    told = _told if told is None else told
    if what in told:
        return
    told.add(what)
    try:
        reason = f"{type(error).__name__}: {' '.join(str(error).split())}"
    except Exception:  # its text fails, too
        reason = type(error).__name__
    with contextlib.suppress(Exception):  # of a handler, such as one that writes to a closed standard error
        _logger.warning(
            "%s fails with %s; it is only shown, so the run goes on, and this is not told again", what, reason
        )


@functools.lru_cache(maxsize=1024)
def one_time_warning(warning_msg: str) -> None:
    """Log a warning, once per process for each text."""
    _logger.warning(warning_msg)


class Router(Protocol):
    """Carrier of events between processes; see `DistributedWriter.plugin`."""

    is_active: bool

    def emit(self, event: str, *args: Any, **kwargs: Any) -> None:
        """Send an event to the other processes."""

    def on(self, event: str, fn: Callable[..., None]) -> None:
        """Call `fn` for each such event."""


class DistributedWriter:
    """A tensorboardX `SummaryWriter` that is created, with its event file, by the first `add_*`.

    It has all methods of `SummaryWriter`. A thread of tensorboardX writes the entries; they are on disk after `close`,
    or when the program ends. `flush` and `close` are idempotent; an `add_*` after `close` opens another event file.
    After a fork the child opens its own file. If entries cannot be written, as on a full disk, an error is logged, and
    they are written later if possible; if tensorboardX refuses entries, or cannot open a file because /dev/shm is full,
    one warning is logged, and these entries are lost. The program continues.

    The arguments are those of `SummaryWriter`; the defaults of `flush_secs` and `max_queue` are 10 and 1000.

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
        self._threads: list[threading.Thread] = []  # of tensorboardX and its queues
        self._lock = threading.RLock()
        self._told: set[str] = set()
        self._router: Router | None = None
        self._is_writer = True
        _writers.add(self)

    @classmethod
    def get_instance(cls, *args: Any, **kwargs: Any) -> DistributedWriter:
        """Return the root writer if called without arguments, else a new writer, which becomes the root if missing."""
        if not args and not kwargs and cls.root is not None:
            return cls.root
        writer = cls(*args, **kwargs)
        if cls.root is None:
            cls.root = writer
        return writer

    def plugin(self, router: Router, is_writer: bool = False) -> DistributedWriter:
        """Connect the writers of several processes: the one with `is_writer` writes the entries of the others."""
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
        """Write one value, with the arguments of `SummaryWriter.add_scalar`: `global_step`, `walltime`, ..."""
        self._add("add_scalar", tag, scalar_value, *args, **kwargs)

    def export_scalars_to_json(self, path: str) -> None:
        """Raise an error: this is not supported, because scalars are not kept in memory.

        Raises:
            NotImplementedError: always.
        """
        raise NotImplementedError(f"cannot export to {path}: scalars are kept in the event file only; read it back")

    @property
    def logdir(self) -> Any:
        """The folder of the event file; reading it does not open the file."""
        if self._args:
            return self._args[0]
        return self._kwargs.get("logdir") or self._kwargs.get("log_dir")

    def flush(self) -> None:
        """Flush what tensorboardX's thread has written so far, without the entries in its queue."""
        with self._lock:
            if self._is_open():
                self._summary.flush()

    def close(self) -> None:
        """Write all entries and close the event file; a second call does nothing."""
        self._close_file()

    def _close_file(self) -> None:
        with self._lock:
            summary, is_open = self._summary, self._is_open()
            self._summary = None
            if not is_open:
                return
            summary.close()
            # tensorboardX joins its own thread, but not the threads of its queues, which end a moment later.
            for thread in self._threads:
                thread.join(_JOIN_S)

    def state_dict(self) -> dict[str, Any]:
        """Close the event file, so that all entries are written, and return the sizes of all event files by name."""
        self._close_file()
        return {"files": {name: os.path.getsize(os.path.join(self.logdir, name)) for name in self._event_files()}}

    def load_state_dict(self, state: Mapping[str, Any]) -> list[str]:
        """Remove what was written after `state_dict` returned `state`; later entries go to another file.

        Returns:
            A message for each file that is missing or shorter than in `state`.
        """
        self._close_file()
        files, missing = dict(state["files"]), []
        for name in self._event_files():
            path, size = os.path.join(self.logdir, name), files.pop(name, None)
            if size is None:
                os.remove(path)
            elif os.path.getsize(path) < size:
                missing.append(f"the event file {path} is shorter than it was: entries for TensorBoard are missing")
            else:
                os.truncate(path, size)
        gone = [f"the event file {os.path.join(self.logdir, name)} is missing" for name in files]
        return missing + gone

    def _event_files(self) -> list[str]:
        """Return the event files under the folder, relative to it; `add_scalars` writes into subfolders."""
        found = [
            os.path.relpath(os.path.join(folder, name), self.logdir)
            for folder, _, names in os.walk(self.logdir)
            for name in names
            if ".tfevents." in name
        ]
        return sorted(found)

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
        # A copy, also in another process, opens its own event file.
        return functools.partial(type(self), *self._args, **self._kwargs), ()

    def _add(self, method: str, *args: Any, **kwargs: Any) -> None:
        if self._router is not None and self._router.is_active and not self._is_writer:
            self._router.emit("distributed_writer", method, *args, **kwargs)
            return
        with self._lock:
            try:
                summary = self._open()
            except OSError as e:
                tell_once(f"opening an event file of TensorBoard in {self.logdir}", e, self._told)
                return
            # A queue starts its thread at its first entry; `add_scalars` makes further files.
            may_start = len(self._threads) < _THREADS_A_FILE or method != "add_scalar"
            noting = self._noting_threads() if may_start else contextlib.nullcontext()
            add = getattr(summary, method)
            folder = _plain_folder(summary) if method == "add_embedding" else contextlib.nullcontext()
            with noting, folder, only_shows(f"{method} of TensorBoard", self._told):
                add(*args, **kwargs)
            # tensorboardX keeps the values of `add_scalars` for its JSON export, which would grow without limit.
            summary.scalar_dict.clear()

    def _on_remote_entry(self, method: str, *args: Any, **kwargs: Any) -> None:
        if not method.startswith("add_"):
            raise ValueError(f"{method!r} is not a method that adds an entry")
        self._add(method, *args, **kwargs)

    def _enter_child(self) -> None:
        """Begin to serve a process that was forked just now."""
        self._lock = threading.RLock()

    def _is_open(self) -> bool:
        return self._summary is not None and self._pid == os.getpid()

    def _open(self) -> Any:
        if not self._is_open():
            self._pid = os.getpid()
            self._threads = []
            with self._noting_threads():
                self._summary = _make_summary_writer(self._args, self._kwargs)
        return self._summary

    @contextlib.contextmanager
    def _noting_threads(self) -> Iterator[None]:
        with _starting:
            before = set(threading.enumerate())
            yield
            started = [thread for thread in threading.enumerate() if thread not in before]
        self._threads += [thread for thread in started if _is_writer(thread) or thread.name == "QueueFeederThread"]


def _enter_child() -> None:
    """Replace locks that other threads held when this process was forked, and leave to the parent what is its own."""
    global _starting
    _starting = threading.Lock()
    for writer in _writers:
        writer._enter_child()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_enter_child)


def _is_writer(thread: threading.Thread) -> bool:
    return type(thread).__module__.startswith("tensorboardX")


def _make_summary_writer(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    try:
        from tensorboardX import SummaryWriter
        from tensorboardX.record_writer import register_writer_factory
    except ImportError as error:
        raise ImportError("a TensorBoard log needs the package tensorboardX: pip install tensorboardX") from error
    call = inspect.signature(SummaryWriter).bind(*args, **kwargs)
    # tensorboardX names files by the second and truncates existing ones: the suffix makes names unique, and gives files
    # of one second the order in which they were opened, in which TensorBoard reads them.
    opened = f"{time.time_ns()}.{os.getpid()}.{next(_file_numbers):06}"
    suffix = f".{opened}{call.arguments.get('filename_suffix', '')}"
    call.arguments = {**_DEFAULTS, **call.arguments, "filename_suffix": suffix}
    if (folder := call.arguments.get("logdir")) and "://" not in str(folder):
        register_writer_factory(_PREFIX, _EventFiles)
        call.arguments["logdir"] = f"{_PREFIX}:{folder}"
    try:
        return SummaryWriter(*call.args, **call.kwargs)
    except OSError as e:
        if e.errno != errno.ENOSPC:
            raise
        # `_EventFile` raises no errors: the semaphores of tensorboardX's queue have no space.
        raise OSError(e.errno, f"{e.strerror}: the queue of tensorboardX needs some in /dev/shm") from e


@contextlib.contextmanager
def _plain_folder(summary: Any) -> Iterator[None]:
    """Give the plain folder to methods that write other files into it."""
    files, folder = summary.file_writer, _path_of(summary.file_writer.get_logdir())
    files.get_logdir = lambda: folder
    try:
        yield
    finally:
        del files.get_logdir


def _path_of(name: str) -> str:
    return name.removeprefix(f"{_PREFIX}:")


class _EventFiles:
    """Factory of the files of tensorboardX whose names start with `_PREFIX`."""

    @staticmethod
    def directory_check(name: str) -> None:
        with contextlib.suppress(OSError):  # opening the file reports it
            os.makedirs(_path_of(name), exist_ok=True)

    @staticmethod
    def open(name: str) -> _EventFile:
        return _EventFile(_path_of(name))


class _EventFile:
    """An event file that raises no errors: an error would end tensorboardX's thread and block its callers.

    `flush` is called only between two entries. Data that it cannot write is kept, and no part of it stays in the file.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._waiting: list[bytes] = []
        self._file: Any = None
        self._size = 0  # of the complete entries
        self._is_failing = False
        self.flush()

    def write(self, data: bytes) -> None:
        self._waiting.append(data)

    def flush(self) -> None:
        try:
            if self._file is None:
                self._file = open(self._path, "wb", buffering=0)  # noqa: SIM115
            data = memoryview(b"".join(self._waiting))
            written = 0
            while written < len(data):
                written += self._file.write(data[written:])
            os.fsync(self._file.fileno())
        except OSError as e:
            self._put_off(e)
        else:
            self._size += len(data)
            self._waiting.clear()
            self._is_failing = False

    def _put_off(self, error: OSError) -> None:
        if not self._is_failing:
            _logger.error(
                "entries for TensorBoard are not written: %s: %s; free some space if the disk is full, or choose "
                "another exp_name or working directory",
                error,
                self._path,
            )
        self._is_failing = True
        if self._file is not None:
            with contextlib.suppress(OSError):
                self._file.truncate(self._size)
                self._file.seek(self._size)
        if sum(map(len, self._waiting)) > _MAX_WAITING:
            self._waiting.clear()

    def close(self) -> None:
        self.flush()
        if self._file is not None:
            with contextlib.suppress(OSError):
                self._file.close()


_COLUMNS_PER_GROUP = 4


class _AppendHandler(logging.Handler):
    """Handler that appends each record to a file, which it opens for each record, so that nothing must be closed."""

    def __init__(self, path: str) -> None:
        super().__init__()
        self._path = os.path.abspath(path)
        self._told: set[str] = set()
        self._open().close()
        self.setFormatter(logging.Formatter("[%(asctime)s][%(levelname)s] %(message)s"))

    def _open(self) -> Any:
        try:
            return open(self._path, "a", encoding="utf-8")
        except FileNotFoundError:
            os.makedirs(os.path.dirname(self._path), exist_ok=True)
            return open(self._path, "a", encoding="utf-8")

    def emit(self, record: logging.LogRecord) -> None:
        try:
            with self._open() as file:
                file.write(self.format(record) + "\n")
        except Exception as e:  # a log must not end the run
            if not sys.is_finalizing():  # an object that is deleted so late may lack even `open`
                tell_once(f"writing {self._path}", e, self._told)


class FileLogger(logging.Logger):
    """A logger that writes to its own file, or to no file if `file` is None.

    It is not registered with Python's `logging`; its parent is `logging.getLogger(name)`. Disabling the parent or
    raising its level silences all loggers of that name; handlers of the parent get the records of all of them.
    """

    def __init__(self, name: str, file: str | None, level: int = logging.INFO) -> None:
        self._is_disabled = False
        super().__init__(name, level)
        self.parent: logging.Logger = logging.getLogger(name)
        self._file = None if file is None else os.path.abspath(file)
        self.addHandler(logging.NullHandler() if self._file is None else _AppendHandler(self._file))

    @property
    def disabled(self) -> bool:
        return self._is_disabled or self.parent.disabled

    @disabled.setter
    def disabled(self, value: bool) -> None:
        self._is_disabled = value

    def getEffectiveLevel(self) -> int:
        # The level of the parent has priority, because users configure loggers by name.
        return self.parent.level or self.level

    def isEnabledFor(self, level: int) -> bool:
        # The inherited method caches, and only registered loggers have their caches cleared.
        return not self.disabled and self.manager.disable < level and level >= self.getEffectiveLevel()

    def __reduce__(self) -> tuple[Any, ...]:
        return FileLogger, (self.name, self._file, self.level)

    def get_tabulate_vars(self, variables: Mapping[str, float]) -> str:
        """Return a grid with a row `Name | Value` for each variable.

        Raises:
            ValueError: a value is not a number.
        """
        return LoggerFactory.get_tabulate_vars(variables)

    def get_tabulate_vars_hor(self, variables: Mapping[str, Any]) -> str:
        """Return grids with up to four variables side by side, numbers as `%.6f` and strings unchanged."""
        return LoggerFactory.get_tabulate_vars_hor(variables)


class LoggerFactory:
    """A factory of text loggers and tables."""

    @classmethod
    def create_logger(cls, path: str, name: str = "default", level: int = logging.INFO) -> FileLogger:
        """Create a logger `<name>_logger` that appends to `<path>/<name>_logger.txt`, and the folder."""
        logger_name = f"{name}_logger"
        return FileLogger(logger_name, os.path.join(path, f"{logger_name}.txt"), level)

    @staticmethod
    def get_tabulate_vars(variables: Mapping[str, float]) -> str:
        """Return a grid; see `FileLogger.get_tabulate_vars`."""
        from tabulate import tabulate

        rows = [(name, _as_float(value)) for name, value in variables.items()]
        for name, number in rows:
            if number is None:
                raise ValueError(f"{name} = {variables[name]!r} is not a number; use get_tabulate_vars_hor for strings")
        return "\n" + tabulate(rows, headers=["Name", "Value"], tablefmt="grid")

    @staticmethod
    def get_tabulate_vars_hor(variables: Mapping[str, Any]) -> str:
        """Return grids; see `FileLogger.get_tabulate_vars_hor`."""
        from tabulate import tabulate

        items = list(variables.items())
        grids = []
        for start in range(0, len(items), _COLUMNS_PER_GROUP):
            group = items[start : start + _COLUMNS_PER_GROUP]
            names = ["Name", *(name for name, _ in group)]
            values = ["Value", *(_cell(value) for _, value in group)]
            grids.append(tabulate([names, values], tablefmt="grid", disable_numparse=True))
        return "".join("\n" + grid for grid in grids)


class TBLoggerFactory:
    """A factory of TensorBoard writers."""

    @classmethod
    def create_logger(cls, logdir: str) -> DistributedWriter:
        """Return a new writer for the folder `logdir`, which is created by the first `add_*`."""
        return DistributedWriter(logdir)


def build_logger(
    path: str,
    name: str | None = None,
    need_tb: bool = True,
    need_text: bool = True,
    text_level: int = logging.INFO,
) -> tuple[FileLogger | None, DistributedWriter | None]:
    """Create the text logger `<path>/<name>_logger.txt` and the TensorBoard writer of `<path>/<name>_tb_logger`.

    The result has None in place of a logger or writer that is not needed. `name` is `default` if None. Two calls never
    share a logger or a writer. The caller closes the writer; the text logger needs no closing.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     logger, tb_logger = build_logger(folder, "train", need_tb=False)
        ...     logger.info("hello")
        >>> tb_logger is None
        True
    """
    name = name or "default"
    text = LoggerFactory.create_logger(path, name, text_level) if need_text else None
    tb = TBLoggerFactory.create_logger(os.path.join(path, f"{name}_tb_logger")) if need_tb else None
    return text, tb


def pretty_print(result: Mapping[str, Any], direct_print: bool = True) -> str:
    """Return `result` as YAML text, without top-level entries that are None, and print it if `direct_print` is set.

    Raises:
        TypeError: a value cannot be written as JSON.
    """
    import yaml

    # JSON turns subclasses of dict and list into plain ones.
    plain = json.loads(json.dumps({key: value for key, value in result.items() if value is not None}))
    text: str = yaml.safe_dump(plain, default_flow_style=False)
    if direct_print:
        sys.stdout.write(text + "\n")
    return text


def _as_float(value: Any) -> float | None:
    """Return a number, or a tensor or array with one element, as a float, and None for anything else."""
    if isinstance(value, numbers.Real):
        return float(value)
    count = value.numel() if hasattr(value, "numel") else getattr(value, "size", None)
    return float(value.item()) if count == 1 and hasattr(value, "item") else None


def _cell(value: Any) -> str:
    number = _as_float(value)
    return str(value) if number is None else f"{number:.6f}"
