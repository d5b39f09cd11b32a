"""Text and TensorBoard logs, made for one path at a time."""

from __future__ import annotations

import json
import logging
import numbers
import os
import sys
from collections.abc import Mapping
from typing import Any

from ding.utils.log_writer_helper import DistributedWriter

_COLUMNS_PER_GROUP = 4


class _AppendHandler(logging.Handler):
    """Appends each record to a file that is open only while it is written, so that nothing is left to close."""

    def __init__(self, path: str) -> None:
        super().__init__()
        self._path = os.path.abspath(path)
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
        except Exception:
            self.handleError(record)


class FileLogger(logging.Logger):
    """A logger that writes to one file (none where `file` is None) and belongs to nobody else.

    It is not entered in Python's table of loggers; its parent there is `logging.getLogger(name)`. Disabling the parent
    or raising its level silences every logger of that name, and handlers added to it see the records of all.
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
        # The parent's own level wins where it is set: it is what configures "the logger called so".
        return self.parent.level or self.level

    def isEnabledFor(self, level: int) -> bool:
        # Not the inherited version: it caches, and only loggers in Python's table have their caches cleared.
        return not self.disabled and self.manager.disable < level and level >= self.getEffectiveLevel()

    def __reduce__(self) -> tuple[Any, ...]:
        return FileLogger, (self.name, self._file, self.level)

    def get_tabulate_vars(self, variables: Mapping[str, float]) -> str:
        """A grid with one row `Name | Value` for each variable.

        Raises:
            ValueError: a value is not a number.
        """
        return LoggerFactory.get_tabulate_vars(variables)

    def get_tabulate_vars_hor(self, variables: Mapping[str, Any]) -> str:
        """Grids with up to four variables side by side; numbers as `%.6f`, strings as they are."""
        return LoggerFactory.get_tabulate_vars_hor(variables)


class LoggerFactory:
    """Makes text loggers, and the tables they log."""

    @classmethod
    def create_logger(cls, path: str, name: str = "default", level: int = logging.INFO) -> FileLogger:
        """A new logger called `<name>_logger` that appends to `<path>/<name>_logger.txt`; the folder is created."""
        logger_name = f"{name}_logger"
        return FileLogger(logger_name, os.path.join(path, f"{logger_name}.txt"), level)

    @staticmethod
    def get_tabulate_vars(variables: Mapping[str, float]) -> str:
        """See `FileLogger.get_tabulate_vars`."""
        from tabulate import tabulate

        rows = [(name, _as_float(value)) for name, value in variables.items()]
        for name, number in rows:
            if number is None:
                raise ValueError(
                    f"{name} = {variables[name]!r} is not a number; get_tabulate_vars_hor takes strings as well"
                )
        return "\n" + tabulate(rows, headers=["Name", "Value"], tablefmt="grid")

    @staticmethod
    def get_tabulate_vars_hor(variables: Mapping[str, Any]) -> str:
        """See `FileLogger.get_tabulate_vars_hor`."""
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
    """Makes TensorBoard writers."""

    @classmethod
    def create_logger(cls, logdir: str) -> DistributedWriter:
        """A new writer for the folder `logdir`; nothing is created before the first `add_*`."""
        return DistributedWriter(logdir)


def build_logger(
    path: str,
    name: str | None = None,
    need_tb: bool = True,
    need_text: bool = True,
    text_level: int = logging.INFO,
) -> tuple[FileLogger | None, DistributedWriter | None]:
    """Make the text logger `<path>/<name>_logger.txt` and the TensorBoard writer of `<path>/<name>_tb_logger`.

    Both belong to the caller alone: two calls never share a file handle or a writer. What is not needed is None. `name`
    is `default` unless given. The text logger needs no closing; the writer is to be closed by the caller.

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
    """`result` as YAML text, without top-level entries that are None; also written to stdout if `direct_print`.

    Raises:
        TypeError: a value cannot be written as JSON.
    """
    import yaml

    # By way of JSON, so that subclasses of dict and list come out as plain ones.
    plain = json.loads(json.dumps({key: value for key, value in result.items() if value is not None}))
    text: str = yaml.safe_dump(plain, default_flow_style=False)
    if direct_print:
        sys.stdout.write(text + "\n")
    return text


def _as_float(value: Any) -> float | None:
    """A number, or a tensor or array with one element, as a float; None for anything else."""
    if isinstance(value, numbers.Real):
        return float(value)
    count = value.numel() if hasattr(value, "numel") else getattr(value, "size", None)
    return float(value.item()) if count == 1 and hasattr(value, "item") else None


def _cell(value: Any) -> str:
    number = _as_float(value)
    return str(value) if number is None else f"{number:.6f}"
