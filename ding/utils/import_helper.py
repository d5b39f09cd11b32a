"""Imports by name: modules of configurations, optional clients, and lazy attributes of packages."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Mapping
from types import ModuleType
from typing import Any


def import_module(modules: str | Iterable[str] | None) -> None:
    """Import each dotted name, to run its registrations. A string is a single name.

    Raises:
        ImportError: If a name cannot be imported.
    """
    names = [modules] if isinstance(modules, str) else modules or []
    for name in names:
        importlib.import_module(name)


def _try_import(name: str, purpose: str) -> ModuleType | None:
    from ding.utils.default_helper import one_time_warning

    try:
        return importlib.import_module(name)
    except ImportError:
        one_time_warning(f"the package {name!r} is not installed: {purpose} is not available")
        return None


def try_import_ceph() -> ModuleType | None:
    """Returns the module of the ceph client, or None, with one warning, if it is not installed."""
    return _try_import("ceph", "reading and writing ceph objects")


def try_import_mc() -> ModuleType | None:
    """Returns the module of the memcached client, or None, with one warning, if it is not installed."""
    return _try_import("mc", "the memcached file cache")


def try_import_redis() -> ModuleType | None:
    """Returns the module of the redis client, or None, with one warning, if it is not installed."""
    return _try_import("redis", "reading and writing redis entries")


def try_import_rediscluster() -> ModuleType | None:
    """Returns the module of the redis cluster client, or None, with one warning, if it is not installed."""
    return _try_import("rediscluster", "reading and writing redis cluster entries")


class FakeLink:
    """Placeholder of the package `linklink` if it is not installed. Has no attributes."""


def try_import_link() -> Any:
    """Returns the module `linklink`, or a `FakeLink` if it is not installed."""
    try:
        return importlib.import_module("linklink")
    except ImportError:
        return FakeLink()


def lazy_names(package: str, modules: Mapping[str, str]) -> Callable[[str], Any]:
    """Returns a `__getattr__` for `package` that imports the names `{name: module}` on access; see PEP 562.

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
