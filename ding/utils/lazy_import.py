"""Names of a package whose modules are imported when the names are first used."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any


def lazy_names(package: str, modules: Mapping[str, str]) -> Callable[[str], Any]:
    """A `__getattr__` for `package` that finds the names `{name: module}`; see PEP 562.

    Example:
        >>> find = lazy_names("ding.utils", {"FileLogger": "ding.utils.log_helper"})
        >>> find("FileLogger").__name__
        'FileLogger'
    """

    def __getattr__(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(importlib.import_module(modules[name]), name)

    return __getattr__
