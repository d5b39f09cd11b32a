"""Imports by name of modules of configurations, optional clients, and lazy attributes of packages."""

from __future__ import annotations

import functools
import importlib
import sys
from collections.abc import Callable, Iterable, Mapping
from types import ModuleType
from typing import Any

from ding.utils.log_helper import one_time_warning


def import_module(modules: str | Iterable[str] | None, where: str = "import_names") -> None:
    """Import each dotted name, to run its registrations; a string is a single name.

    Args:
        modules: the names.
        where: the config entry that has them, for messages.

    Raises:
        ModuleNotFoundError: there is no such module.
        ImportError: a module raises an exception while it is imported, which is the cause of this one.
    """
    for name in [modules] if isinstance(modules, str) else modules or []:
        try:
            importlib.import_module(name)
        except Exception as e:  # a module may raise anything while it is imported
            error = ModuleNotFoundError if isinstance(e, ModuleNotFoundError) else ImportError
            raise error(f"{where} has {name!r}, which cannot be imported: {type(e).__name__}: {e}") from e


class MissingPackageError(ImportError):
    """A package that the caller asked for is not installed; the message says how to install it."""


def missing_package(what: str, packages: str, extra: str = "") -> MissingPackageError:
    """Return the error that a package is missing.

    Args:
        what: what needs the package, as the subject of a sentence.
        packages: the arguments of `pip install`.
        extra: the extra of ding that contains it; by default the one of the same name.

    Example:
        >>> print(missing_package("a plot", "matplotlib", "plot"))
        a plot needs the package matplotlib, which is not installed: pip install matplotlib, or the extra [plot] of ding
    """
    return MissingPackageError(
        f"{what} needs the package {packages}, which is not installed: pip install {packages}, or the extra "
        f"[{extra or packages}] of ding"
    )


def optional_module(name: str, what: str, packages: str = "", extra: str = "") -> Any:
    """Return the module `name`; see `missing_package` for the other arguments.

    Args:
        packages: by default `name`.

    Raises:
        MissingPackageError: it is not installed.
    """
    try:
        return importlib.import_module(name)
    except ImportError as e:
        raise missing_package(what, packages or name, extra) from e


def _try_import(name: str) -> ModuleType | None:
    """Return the module of a client, or None, with one warning, if it is not installed."""
    try:
        return importlib.import_module(name)
    except ImportError:
        one_time_warning(f"the package {name!r} is not installed, and what needs it is not available")
        return None


try_import_ceph = functools.partial(_try_import, "ceph")
try_import_mc = functools.partial(_try_import, "mc")
try_import_redis = functools.partial(_try_import, "redis")
try_import_rediscluster = functools.partial(_try_import, "rediscluster")


class FakeLink:
    """Placeholder of the package `linklink` if it is not installed, without attributes."""


def try_import_link() -> Any:
    """Return the module `linklink`, or a `FakeLink` if it is not installed."""
    try:
        return importlib.import_module("linklink")
    except ImportError:
        return FakeLink()


def lazy_names(package: str, modules: Mapping[str, str], is_listed: bool = True) -> Callable[[str], Any]:
    """Return a `__getattr__` for `package` that imports the names `{name: module}` on access; see PEP 562.

    Args:
        is_listed: whether `dir(package)` has the names, whose modules must import no optional package then: `help`
            accesses all that is listed.

    Example:
        >>> find = lazy_names("ding.utils", {"FileLogger": "ding.utils.log_helper"})
        >>> find("FileLogger").__name__
        'FileLogger'
    """

    def __getattr__(name: str) -> Any:
        if name in modules:
            return getattr(importlib.import_module(modules[name]), name)
        inner = f"{package}.{name}"
        if any(f"{module}.".startswith(f"{inner}.") for module in modules.values()):  # a module not imported so far
            return importlib.import_module(inner)
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    if is_listed and package in sys.modules:
        known = vars(sys.modules[package])
        known["__dir__"] = lambda: sorted({*known, *modules})
    return __getattr__


def exports(
    package: str, names: Mapping[str, str], lazy: Mapping[str, str] | None = None
) -> tuple[list[str], Callable[[str], Any]]:
    """Return `__all__` and `__getattr__` of a package that exports names of its modules.

    Args:
        names: `{module within the package: "one_name another_name"}` of modules that are imported at once, as those
            that register classes have to be.
        lazy: the same for modules that are imported when one of their names is accessed.
    """
    modules = {}
    for module, text in {**names, **(lazy or {})}.items():
        modules.update(dict.fromkeys(text.split(), f"{package}.{module}"))
    for module in names:
        known = vars(importlib.import_module(f"{package}.{module}"))  # without those that are lazy there
        vars(sys.modules[package]).update({name: known[name] for name in names[module].split() if name in known})
    return sorted(modules), lazy_names(package, modules)
