"""Text loggers, TensorBoard writers that open their event file at the first entry, and display that never ends a run.

`shown` shows objects of users. Code that only shows something, such as a write to a log, runs in `only_shows`: if it
fails, one warning says so.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import json
import logging
import numbers
import os
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

_logger = logging.getLogger("ding")
_warned: set[str] = set()  # in this process


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
def only_shows(what: str, warned: set[str] | None = None) -> Iterator[None]:
    """Catch exceptions of a block that only shows something, and warn of the first one.

    Args:
        what: what the block does, as the subject of "fails".
        warned: the earlier warnings, so that each is logged once; None for once per process.
    """
    try:
        yield
    except Exception as e:  # the purpose of this block
        warn_once(what, e, warned)


def warn_once(what: str, error: Exception, warned: set[str] | None = None) -> None:
    """Warn that `what` fails with `error` and that the run continues, unless that was logged; see `only_shows`."""
    warned = _warned if warned is None else warned
    if what in warned:
        return
    warned.add(what)
    reason = f"{type(error).__name__}: {' '.join(str(error).split())}"
    _logger.warning(
        "%s fails with %s; it is only shown, so the run continues; this warning is not repeated", what, reason
    )


@functools.lru_cache(maxsize=1024)
def one_time_warning(warning_msg: str) -> None:
    """Log a warning, once per process for each text."""
    _logger.warning(warning_msg)


class DistributedWriter(contextlib.AbstractContextManager["DistributedWriter"]):
    """A tensorboardX `SummaryWriter` that is created, with its event file, by the first `add_*`.

    It has all methods of `SummaryWriter`, and its arguments, except that `max_queue` and `flush_secs` have no effect:
    an entry is on disk ten seconds later at the latest, after `flush`, and after `close`. Both are idempotent; an
    `add_*` after `close` opens another event file. An entry that tensorboardX refuses is lost, with one warning. If the
    file cannot be written, as on a full disk, one warning is logged, and the writer writes nothing more.

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
        self._is_off = False
        self._lock = threading.RLock()
        self._warned: set[str] = set()

    @classmethod
    def get_instance(cls, *args: Any, **kwargs: Any) -> DistributedWriter:
        """Return the root writer if called without arguments, else a new writer, which becomes the root if missing."""
        if not args and not kwargs and cls.root is not None:
            return cls.root
        writer = cls(*args, **kwargs)
        if cls.root is None:
            cls.root = writer
        return writer

    def initialize(self) -> None:
        """Open the event file now."""
        with self._lock:
            self._open()

    def add_scalar(self, tag: str, scalar_value: Any, *args: Any, **kwargs: Any) -> None:
        """Write one value, with the arguments of `SummaryWriter.add_scalar`: `global_step`, `walltime`, ..."""
        self._add("add_scalar", tag, scalar_value, *args, **kwargs)

    @property
    def logdir(self) -> Any:
        """The folder of the event file; reading it does not open the file."""
        if self._args:
            return self._args[0]
        return self._kwargs.get("logdir") or self._kwargs.get("log_dir")

    def flush(self) -> None:
        """Write all entries to the disk."""
        with self._lock, self._off_if_it_fails():
            if self._summary is not None:
                self._summary.flush()

    def close(self) -> None:
        """Write all entries and close the event file; a second call does nothing."""
        self._close_file()

    def _close_file(self) -> None:
        with self._lock, self._off_if_it_fails():
            if self._summary is not None:
                atexit.unregister(self._close_file)
                summary, self._summary = self._summary, None
                summary.close()

    def state_dict(self) -> dict[str, Any]:
        """Close the event file, and return the names of all event files: later entries go to another file."""
        self._close_file()
        return {"files": self._event_files()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Remove the event files that were opened after `state_dict` returned `state`."""
        self._close_file()
        for name in {*self._event_files()}.difference(state["files"]):
            os.remove(os.path.join(self.logdir, name))

    def _event_files(self) -> list[str]:
        """Return the event files under the folder, relative to it; `add_scalars` writes into subfolders."""
        return sorted(str(path.relative_to(self.logdir)) for path in Path(self.logdir).rglob("*.tfevents.*"))

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        if name.startswith("add_"):
            return functools.partial(self._add, name)
        with self._lock:
            return getattr(self._open(), name)

    def _add(self, method: str, *args: Any, **kwargs: Any) -> None:
        with self._lock, only_shows(f"{method} of TensorBoard", self._warned), self._off_if_it_fails():
            if not self._is_off:
                getattr(self._open(), method)(*args, **kwargs)

    @contextlib.contextmanager
    def _off_if_it_fails(self) -> Iterator[None]:
        try:
            yield
        except OSError as e:
            self._is_off = True
            warn_once(f"writing entries for TensorBoard in {self.logdir}", e, self._warned)

    def _open(self) -> Any:
        if self._summary is None:
            from ding.utils.event_writer import EventWriter

            self._summary = EventWriter(*self._args, **self._kwargs)
            atexit.register(self._close_file)
        return self._summary


_COLUMNS_PER_GROUP = 4


class _AppendHandler(logging.Handler):
    """Handler that appends each record to a file, which it opens for each record, so that nothing must be closed."""

    def __init__(self, path: str) -> None:
        super().__init__()
        self._path = os.path.abspath(path)
        with only_shows(f"writing {self._path}"):  # a worker may open its log when the disk is full already
            os.makedirs(os.path.dirname(self._path), exist_ok=True)
            open(self._path, "a", encoding="utf-8").close()
        self.setFormatter(logging.Formatter("[%(asctime)s][%(levelname)s] %(message)s"))

    def emit(self, record: logging.LogRecord) -> None:
        with only_shows(f"writing {self._path}"), open(self._path, "a", encoding="utf-8") as file:
            file.write(self.format(record) + "\n")


class FileLogger(logging.Logger):
    """A logger that writes to its own file, or to no file if `file` is None.

    It is not registered with Python's `logging`; its parent is `logging.getLogger(name)`. Raising the level of the
    parent silences all loggers of that name; handlers of the parent get the records of all of them.
    """

    def __init__(self, name: str, file: str | None, level: int = logging.INFO) -> None:
        super().__init__(name, level)
        self.parent: logging.Logger = logging.getLogger(name)
        self.addHandler(logging.NullHandler() if file is None else _AppendHandler(file))

    def isEnabledFor(self, level: int) -> bool:
        # The inherited method caches, and only registered loggers have their caches cleared.
        is_disabled = self.disabled or self.parent.disabled
        return not is_disabled and self.manager.disable < level >= (self.parent.level or self.level)

    @staticmethod
    def get_tabulate_vars(variables: Mapping[str, float]) -> str:
        """Return a grid with a row `Name | Value` for each variable.

        Raises:
            ValueError: a value is not a number.
        """
        from tabulate import tabulate

        rows = [(name, _as_float(value)) for name, value in variables.items()]
        for name, number in rows:
            if number is None:
                raise ValueError(f"{name} = {variables[name]!r} is not a number; use get_tabulate_vars_hor for strings")
        return "\n" + tabulate(rows, headers=["Name", "Value"], tablefmt="grid")

    @staticmethod
    def get_tabulate_vars_hor(variables: Mapping[str, Any]) -> str:
        """Return grids with up to four variables side by side, numbers as `%.6f` and strings unchanged."""
        from tabulate import tabulate

        items = list(variables.items())
        grids = []
        for start in range(0, len(items), _COLUMNS_PER_GROUP):
            group = items[start : start + _COLUMNS_PER_GROUP]
            names = ["Name", *(name for name, _ in group)]
            values = ["Value", *(_cell(value) for _, value in group)]
            grids.append(tabulate([names, values], tablefmt="grid", disable_numparse=True))
        return "".join("\n" + grid for grid in grids)


class LoggerFactory:
    """A factory of text loggers and tables."""

    @classmethod
    def create_logger(cls, path: str, name: str = "default", level: int = logging.INFO) -> FileLogger:
        """Create a logger `<name>_logger` that appends to `<path>/<name>_logger.txt`, and the folder."""
        logger_name = f"{name}_logger"
        return FileLogger(logger_name, os.path.join(path, f"{logger_name}.txt"), level)

    get_tabulate_vars = staticmethod(FileLogger.get_tabulate_vars)
    get_tabulate_vars_hor = staticmethod(FileLogger.get_tabulate_vars_hor)


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
