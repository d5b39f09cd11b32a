"""Names of classes and functions, `module:name`, by which a saved config refers to them."""

from __future__ import annotations

import contextlib
import inspect
import os
import site
import sys
import sysconfig
from collections.abc import Iterable, Iterator, Sequence
from importlib.machinery import PathFinder
from typing import Any

from ding.utils.config_helper import ConfigError
from ding.utils.import_helper import import_module
from ding.utils.log_helper import shown

# The name in a config file of the folders whose modules it names.
IMPORT_PATHS = "import_paths"
_importing: list[str] = []  # references whose modules are being imported
_files: dict[str, str] = {}  # of modules that were executed under a private name, by that name


def note_file(module: str, path: str) -> None:
    """Remember the file of a module that is executed under a private name, such as a config."""
    _files[module] = path


def reference_to(obj: Any) -> str | None:
    """Return `module:name` of a class or function, or None if importing it would not give this very object.

    A script that runs is named like its file: `train:MyEnv` is the class `MyEnv` of `train.py`.

    Example:
        >>> from collections import OrderedDict
        >>> reference_to(OrderedDict), reference_to(lambda: 0)
        ('collections:OrderedDict', None)
    """
    if not (isinstance(obj, type) or inspect.isroutine(obj)):
        return None
    # Objects with `__get__` count as routines, also those without a name.
    module, name = getattr(obj, "__module__", None), getattr(obj, "__qualname__", None)
    if not isinstance(module, str) or not isinstance(name, str) or "<" in name:
        return None
    if module in _files:
        module = _stem(_files[module]) or ""
    else:
        found: Any = sys.modules.get(module)
        for part in name.split("."):
            found = getattr(found, part, None)
        if found is not obj and not (inspect.ismethod(obj) and found == obj):
            return None
        if module in ("__main__", "__mp_main__"):  # the second one in a process that was started by this script
            module = _name_of_main() or ""
    return f"{module}:{name}" if module else None


def is_of_notebook(obj: Any) -> bool:
    """Return whether a class or function was defined in a notebook or a prompt, where it has a name but no file."""
    if not (isinstance(obj, type) or inspect.isroutine(obj)):
        return False
    module, name = getattr(obj, "__module__", None), getattr(obj, "__qualname__", "<")
    return module == "__main__" and "<" not in name and _name_of_main() is None


def hidden_file(module: str) -> str | None:
    """Return the script or config that is named `module`, if an installed module hides it, as `test` hides test.py."""
    files = [getattr(sys.modules["__main__"], "__file__", None) or "", *_files.values()]
    path = next((path for path in files if _stem(path) == module), None)
    if path is None or module in sys.builtin_module_names:
        return path
    spec = PathFinder.find_spec(module, list(filter(_is_installed, sys.path)))
    return None if spec is None or spec.origin == os.path.abspath(path) else path


def is_reference(value: Any) -> bool:
    """Return whether `value` has the form `module:name`.

    Example:
        >>> is_reference("my_envs:Corridor"), is_reference("CartPole-v1"), is_reference("<function <lambda>>")
        (True, False, False)
    """
    if not isinstance(value, str):
        return False
    module, colon, name = value.partition(":")
    return bool(colon) and all(part.isidentifier() for part in (*module.split("."), *name.split(".")))


def resolve_reference(reference: str, where: str) -> Any:
    """Return the class or function that `reference_to` has named.

    Args:
        where: the config key with the reference, for messages.

    Raises:
        ConfigError: it does not have the form `module:name`, or the module has no such name.
        ImportError: there is no such module, or its import fails; the message says what to do.
    """
    if not is_reference(reference):
        raise ConfigError(
            f"{where} = {reference!r} is not allowed; it must be a class or function, or its name as module:name, such "
            "as my_envs:Corridor for the class Corridor in my_envs.py"
        )
    module, _, name = reference.partition(":")
    if module == _name_of_main():
        found: Any = sys.modules["__main__"]
    else:
        _importing.append(reference)
        try:
            import_module(module, where)
        finally:
            _importing.pop()
        found = sys.modules[module]
    for depth, part in enumerate(name.split(".")):
        if not hasattr(found, part) or (depth and not isinstance(found, type)):  # not what a module has imported
            raise ConfigError(f"{where} = {reference!r} is not allowed: {shown(found)} has no {part!r}")
        found = getattr(found, part)
    return found


def refuse_while_importing() -> None:
    """Refuse to train while the module of a reference is imported, since it would train whenever it is imported.

    Raises:
        ConfigError: a module is being imported.
    """
    if _importing:
        raise ConfigError(
            f"the module of {_importing[-1]!r} trains when it is imported: put its training under "
            "if __name__ == '__main__':, so that its env can be used after the training"
        )


def folders_of(modules: Iterable[str]) -> list[str]:
    """Return the folders that must be on `sys.path` for these modules, without those of installed packages."""
    packages = {module.partition(".")[0] for module in modules} - {"ding"}
    found = map(_folder_of, packages)
    return sorted({folder for folder in found if folder is not None and not _is_installed(folder)})


def add_to_path(folders: Iterable[str]) -> None:
    """Append folders to the end of `sys.path`, so that they hide no module."""
    sys.path.extend(folder for folder in folders if folder not in sys.path)


def clashes(modules: Iterable[str], folders: Sequence[str]) -> Iterator[tuple[str, str, str]]:
    """Yield packages that are in one of `folders`, but are imported from another one, as `(name, folder, other)`."""
    for package in sorted({module.partition(".")[0] for module in modules}):
        meant = _first_with(package, folders)
        taken = _folder_of(package) or _first_with(package, sys.path)
        if meant and taken and os.path.realpath(meant) != os.path.realpath(taken):
            yield package, meant, taken


def _first_with(package: str, folders: Iterable[str]) -> str | None:
    return next((folder or os.getcwd() for folder in folders if PathFinder.find_spec(package, [folder])), None)


@contextlib.contextmanager
def on_path(folder: str, first: bool = False) -> Iterator[None]:
    """Put a folder on `sys.path`: last, so that it hides no module, or first, as Python does for a script's folder."""
    if not first and folder in sys.path:
        yield
        return
    sys.path.insert(0 if first else len(sys.path), folder)
    try:
        yield
    finally:
        with contextlib.suppress(ValueError):  # the block has removed it
            sys.path.remove(folder)


def _name_of_main() -> str | None:
    """Return the name by which the running script can be imported, or None if it has no file, as in a notebook."""
    main = sys.modules.get("__main__")
    spec = getattr(main, "__spec__", None)
    if spec is not None:
        name: str = spec.name
        return None if name == "__main__" else name  # of a folder or an archive
    return _stem(getattr(main, "__file__", None) or "")


def _stem(path: str) -> str | None:
    """Return the name by which a Python file can be imported, or None if it has none."""
    stem, suffix = os.path.splitext(os.path.basename(path))
    return stem if suffix == ".py" and stem.isidentifier() else None


def _folder_of(package: str) -> str | None:
    """Return the folder that contains a top-level module or package, or None if it is built in or not imported."""
    for path in reversed(_files.values()):  # the newest of several files with the same name
        if package not in sys.modules and _stem(path) == package:
            return os.path.dirname(os.path.abspath(path))
    main = _name_of_main()
    is_main = main is not None and main.partition(".")[0] == package
    module = sys.modules.get(package) or (sys.modules["__main__"] if is_main else None)
    places = [getattr(module, "__file__", None), *getattr(module, "__path__", [])]
    place: str | None = next((place for place in places if place), None)
    if place is None:
        return None
    is_package = hasattr(module, "__path__")
    if is_package and os.path.basename(place).startswith("__init__."):
        place = os.path.dirname(place)
    return os.path.dirname(os.path.abspath(place))


def _is_installed(folder: str) -> bool:
    paths = sysconfig.get_paths()
    installed = [paths[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")]
    user = site.getusersitepackages() if site.ENABLE_USER_SITE else None
    roots = {os.path.realpath(path) for path in (*installed, *([user] if user else []))}
    return os.path.realpath(folder) in roots or os.path.basename(folder) in ("site-packages", "dist-packages")
