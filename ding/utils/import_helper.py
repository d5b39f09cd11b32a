"""Imports by name: what configurations ask for, optional clients, and names of a package that load when used."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Mapping
from types import ModuleType
from typing import Any

from ding.utils.default_helper import one_time_warning


def import_module(modules: str | Iterable[str] | None) -> None:
    """Import each dotted name, so that what it registers is known; a single string is one name.

    Raises:
        ImportError: a name cannot be imported; the message is Python's own.
    """
    names = [modules] if isinstance(modules, str) else modules or []
    for name in names:
        importlib.import_module(name)


def _try_import(name: str, purpose: str) -> ModuleType | None:
    try:
        return importlib.import_module(name)
    except ImportError:
        one_time_warning(f"the package {name!r} is not installed: {purpose} is not available")
        return None


def try_import_ceph() -> ModuleType | None:
    """The module of the ceph client, or None when it is not installed (warned once)."""
    return _try_import("ceph", "reading and writing ceph objects")


def try_import_mc() -> ModuleType | None:
    """The module of the memcached client, or None when it is not installed (warned once)."""
    return _try_import("mc", "the memcached file cache")


def try_import_redis() -> ModuleType | None:
    """The module of the redis client, or None when it is not installed (warned once)."""
    return _try_import("redis", "reading and writing redis entries")


def try_import_rediscluster() -> ModuleType | None:
    """The module of the redis cluster client, or None when it is not installed (warned once)."""
    return _try_import("rediscluster", "reading and writing redis cluster entries")


class FakeLink:
    """Stands in for the `linklink` package where it is not installed; it has no attributes."""


def try_import_link() -> Any:
    """The module `linklink`, or a `FakeLink` when it is not installed."""
    try:
        return importlib.import_module("linklink")
    except ImportError:
        return FakeLink()


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
