"""Text loggers and TensorBoard writers."""

from __future__ import annotations

import json
import logging
import numbers
import os
import sys
from collections.abc import Mapping
from typing import Any

from ding.utils.log_writer_helper import DistributedWriter
from ding.utils.showing import tell_once

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
        except Exception as e:
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
