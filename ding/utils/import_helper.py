"""Imports by name of modules of configurations, optional clients, and lazy attributes of packages."""

from __future__ import annotations

import difflib
import importlib
import pkgutil
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
        ModuleNotFoundError: there is no such module. The message says which part of the name is missing.
        ImportError: a module raises an exception while it is imported, which is the cause of this one.
    """
    names = [modules] if isinstance(modules, str) else modules or []
    for name in names:
        try:
            importlib.import_module(name)
        except ModuleNotFoundError as e:
            _check_is_dotted(name, where)
            if e.name is not None and f"{name}.".startswith(f"{e.name}."):
                raise ModuleNotFoundError(_missing(name, e.name, where), name=e.name) from None
            raise ImportError(f"{where} has {name!r}, which failed to import: {_told(e)}", name=e.name) from e
        except Exception as e:  # a module may raise anything while it is imported
            _check_is_dotted(name, where)
            raise ImportError(f"{where} has {name!r}, which failed to import: {_told(e)}", name=name) from e


def _check_is_dotted(name: Any, where: str) -> None:
    if not isinstance(name, str) or "/" in name or name.startswith(".") or name.endswith((".py", ".")) or not name:
        raise ImportError(
            f"{where} has {name!r}, which is no name of a module: write it as in an import statement, such as "
            "my_package.my_env for my_package/my_env.py, in a folder on PYTHONPATH"
        ) from None


def _missing(name: str, missing: str, where: str) -> str:
    parent, _, last = missing.rpartition(".")
    if not parent:
        return (
            f"{where} has {name!r}, but no package {missing!r} is installed: install it (pip install), add its folder "
            "to PYTHONPATH, or correct the name"
        )
    path = getattr(sys.modules.get(parent), "__path__", None)
    if path is None:
        return f"{where} has {name!r}, but {parent!r} is a module, not a package: correct the name"
    similar = difflib.get_close_matches(last, [module.name for module in pkgutil.iter_modules(path)], n=1)
    hint = f"did you mean {parent}.{similar[0]}?" if similar else "correct the name"
    return f"{where} has {name!r}, but the package {parent!r} has no module {last!r}: {hint}"


def _told(error: Exception) -> str:
    lines = str(error).splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__


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


def _try_import(name: str, purpose: str) -> ModuleType | None:
    try:
        return importlib.import_module(name)
    except ImportError:
        one_time_warning(f"the package {name!r} is not installed: {purpose} is not available")
        return None


def try_import_ceph() -> ModuleType | None:
    """Return the module of the ceph client, or None, with one warning, if it is not installed."""
    return _try_import("ceph", "reading and writing ceph objects")


def try_import_mc() -> ModuleType | None:
    """Return the module of the memcached client, or None, with one warning, if it is not installed."""
    return _try_import("mc", "the memcached file cache")


def try_import_redis() -> ModuleType | None:
    """Return the module of the redis client, or None, with one warning, if it is not installed."""
    return _try_import("redis", "reading and writing redis entries")


def try_import_rediscluster() -> ModuleType | None:
    """Return the module of the redis cluster client, or None, with one warning, if it is not installed."""
    return _try_import("rediscluster", "reading and writing redis cluster entries")


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
