"""The saved form of a config: plain data, with names `module:name` in the place of classes, functions and objects."""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
import operator
import os
import sys
import sysconfig
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from easydict import EasyDict

from ding.utils.config_helper import ConfigError
from ding.utils.import_helper import import_module
from ding.utils.log_helper import shown

# The name in a config file of the folders whose modules it names.
IMPORT_PATHS = "import_paths"
# Keys of the saved form: of `module:name`, with "args" and "kwargs" if it is called; of the items of a dict.
REFERENCE, _ITEMS = "__reference__", "__items__"
SCALARS = frozenset((str, bool, int, float, type(None)))  # types that are their own saved form
_NUMBERS_AND_TEXT = "biufcSU"  # kinds of dtypes
_SPACES = ("Box", "Discrete", "MultiDiscrete", "MultiBinary", "Dict", "Tuple")
# What makes again what JSON lacks.
_UNPACKED: dict[str, Callable[[Any], Any]] = {
    f"builtins:{kind.__name__}": kind for kind in (tuple, set, frozenset, bytes, dict)
}
_importing: list[str] = []  # references whose modules are being imported
_files: dict[str, str] = {}  # of modules that were executed under a private name, by that name
_named_files: set[str] = set()  # those of them of which something was saved by its name


def note_file(module: str, path: str) -> None:
    """Remember the file of a module that is executed under a private name, such as a config."""
    _files[module] = path


def saved_form(value: Any, is_json: bool = False) -> Any:
    """Return a copy of a tree as data that files and messages can hold, from which `resolved` makes it again.

    A class, a function or a member of an enum becomes `{"__reference__": "module:name"}`. Partials, paths, arrays,
    dtypes, dataclasses, named tuples, spaces and activations of torch become calls, `{"__reference__": ..., "args":
    [...], "kwargs": {...}}`. What cannot be imported by its name, such as a lambda, stays as it is.

    Args:
        is_json: whether what JSON lacks becomes a call, too: tuples, sets, bytes, complex numbers, numpy's scalars, and
            dicts with keys that are no texts; see `unpacked`.

    Example:
        >>> saved_form({"scale": (1, abs), "where": "crypto:BTC"})
        {'scale': (1, {'__reference__': 'builtins:abs'}), 'where': 'crypto:BTC'}
        >>> resolved(saved_form(partial(pow, exp=2)), "env.reward")(3)
        9
    """
    kind = type(value)
    if isinstance(value, dict):
        items = [(key, item if type(item) in SCALARS else saved_form(item, is_json)) for key, item in items_of(value)]
        if is_json and not set(map(type, value)) <= {str}:
            return {REFERENCE: "builtins:dict", "args": [saved_form(items, is_json)]}
        return dict(items)
    if kind is list or (kind is tuple and not is_json):
        return kind([item if type(item) in SCALARS else saved_form(item, is_json) for item in value])
    reference = reference_to(value)
    if reference is not None:
        return {REFERENCE: reference}
    function, args, kwargs = _call_of(value)
    if function is None and is_json:
        function, args = _call_for_json(value)
    if function is None or (reference := reference_to(function)) is None:
        return value
    form = {REFERENCE: reference, "args": saved_form(config_form(list(args)), is_json)}
    return form | ({"kwargs": saved_form(config_form(kwargs), is_json)} if kwargs else {})


def _call_for_json(value: Any) -> tuple[Callable[..., Any] | None, Iterable[Any]]:
    """Return a function that makes a value that JSON lacks from values that it has, and the arguments."""
    if isinstance(value, complex):
        return complex, (value.real, value.imag)
    if isinstance(value, np.generic) and value.dtype.kind in _NUMBERS_AND_TEXT:
        item = value.item()
        return (None, ()) if isinstance(item, np.generic) else (type(value), (item,))  # Python has no long doubles
    return (type(value), (list(value),)) if type(value) in (tuple, set, frozenset, bytes) else (None, ())


def unpacked(form: dict[str, Any]) -> Any:
    """Return what JSON lacks of its form by `saved_form`, and any other dict itself.

    Example:
        >>> unpacked({"__reference__": "builtins:tuple", "args": [[1, 2]]})
        (1, 2)
    """
    reference = form.get(REFERENCE)
    if not isinstance(reference, str) or len(form.get("args") or ()) != 1:
        return form
    value = form["args"][0]
    module, _, name = reference.partition(":")
    scalar = getattr(np, name, None) if module == "numpy" and type(value) in SCALARS else None
    is_scalar = isinstance(scalar, type) and issubclass(scalar, np.generic)
    make = scalar if is_scalar else _UNPACKED.get(reference)
    return form if make is None else make(value)


def _call_of(value: Any) -> tuple[Callable[..., Any] | None, Iterable[Any], Mapping[str, Any]]:
    """Return a function that makes `value` and its arguments; None for the function if there is none."""
    if isinstance(value, partial):
        return partial, (value.func, *value.args), value.keywords
    if isinstance(value, Path):
        return Path, (str(value),), {}
    if isinstance(value, np.dtype) and value.kind in _NUMBERS_AND_TEXT:
        return np.dtype, (value.str,), {}
    if isinstance(value, np.ndarray) and value.dtype.kind in _NUMBERS_AND_TEXT:
        function: Any = np.array if value.size else np.zeros
        return function, (value.tolist() if value.size else value.shape,), {"dtype": value.dtype.str}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value), value, {}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = [field.name for field in dataclasses.fields(value) if field.init]
        return type(value), (), {name: getattr(value, name) for name in names}
    module = type(value).__module__
    is_activation = module == "torch.nn.modules.activation" and not any(True for _ in value.parameters())
    if is_activation or (module.startswith("gymnasium.spaces.") and type(value).__name__ in _SPACES):
        parameters = inspect.signature(type(value)).parameters.keys() - {"seed"}
        return type(value), (), {name: getattr(value, name) for name in sorted(parameters) if hasattr(value, name)}
    return None, (), {}


def items_of(value: Mapping[Any, Any]) -> Iterable[tuple[Any, Any]]:
    """Return the items of a mapping, also of an `EasyDict` with a key `items`, which hides the method."""
    return dict.items(value) if isinstance(value, dict) else value.items()


def fits_config(key: Any) -> bool:
    """Return whether `key` can be the key of an `EasyDict`, of which it is an attribute."""
    return isinstance(key, str) and key not in ("get", "items")


def config_form(value: Any) -> Any:
    """Return a copy of a tree of arguments in which an `EasyDict` can hold every dict; `plain` makes these again.

    Example:
        >>> config_form({"moves": {0: "left"}})
        {'moves': {'__items__': [[0, 'left']]}}
    """
    if isinstance(value, dict):
        items = {key: item if type(item) in SCALARS else config_form(item) for key, item in items_of(value)}
        return items if all(map(fits_config, items)) else {_ITEMS: [list(item) for item in items.items()]}
    return type(value)(map(config_form, value)) if type(value) in (list, tuple) else value


def plain(value: Any) -> Any:
    """Return a copy of a tree of arguments with plain dicts for `EasyDict`s and for the results of `config_form`."""
    if isinstance(value, dict) and _ITEMS in value:
        return {key: plain(item) for key, item in value[_ITEMS]}
    if type(value) in (dict, EasyDict):
        return {key: item if type(item) in SCALARS else plain(item) for key, item in dict.items(value)}
    return type(value)(map(plain, value)) if type(value) in (list, tuple) else value


# Keys of the sections `env` and `env.manager` with arguments of functions, which may have any keys and values.
_ARGUMENTS = ("env", "kwargs", "vector_kwargs", "wrappers")


def with_arguments(main: Any, form: Callable[[Any], Any] = config_form) -> Any:
    """Return a main config with the arguments of envs in another form, by default one that an `EasyDict` can hold."""
    section = main.get("env") if isinstance(main, Mapping) else None
    return type(main)({**main, "env": _with_arguments(section, form)}) if isinstance(section, Mapping) else main


def _with_arguments(section: Mapping[str, Any], form: Callable[[Any], Any]) -> Any:
    changed = {key: form(section[key]) for key in _ARGUMENTS if key in section}
    if isinstance(section.get("manager"), Mapping):
        changed["manager"] = _with_arguments(section["manager"], form)
    return type(section)({**section, **changed})  # type: ignore[call-arg]


def resolved(value: Any, where: str) -> Any:
    """Return a tree with the objects that `saved_form` has named; parts without any are not copied.

    Args:
        where: the config key of the tree, for messages.

    Raises:
        ConfigError, ImportError: see `resolve_reference`.
    """
    if isinstance(value, dict) and REFERENCE in value:
        found = resolve_reference(value[REFERENCE], where)
        if "args" not in value:
            return found
        return found(*plain(resolved(value["args"], where)), **plain(resolved(value.get("kwargs", {}), where)))
    if isinstance(value, dict):
        pairs = dict.items(value)
        items = {key: item if type(item) in SCALARS else resolved(item, f"{where}.{key}") for key, item in pairs}
        if all(map(operator.is_, items.values(), dict.values(value))):
            return value
        return EasyDict(config_form(items)) if isinstance(value, EasyDict) else items
    if type(value) in (list, tuple):
        entries = [item if type(item) in SCALARS else resolved(item, where) for item in value]
        return value if all(map(operator.is_, entries, value)) else type(value)(entries)
    return value


def reference_to(obj: Any) -> str | None:
    """Return `module:name` of a class, a function or a member of an enum.

    It is None if importing that name would not give this very object.

    A script that runs is named like its file: `train:MyEnv` is the class `MyEnv` of `train.py`.

    Example:
        >>> from collections import OrderedDict
        >>> reference_to(OrderedDict), reference_to(lambda: 0)
        ('collections:OrderedDict', None)
    """
    if isinstance(obj, Enum):
        reference = reference_to(type(obj))
        return None if reference is None or obj.name not in type(obj).__members__ else f"{reference}.{obj.name}"
    if not callable(obj):
        return None
    module, name = getattr(obj, "__module__", None), getattr(obj, "__qualname__", None)
    if not isinstance(module, str) or not isinstance(name, str) or "<" in name:
        return None
    if module in _files:
        _named_files.add(_files[module])
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
    """Return the object that `reference_to` has named.

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


def import_folders() -> list[str]:
    """Return the folders on `sys.path`, and of configs that define what was saved, but none of installed packages."""
    named = [os.path.dirname(path) for path in reversed(_files.values()) if path in _named_files]  # the newest first
    folders = map(os.path.abspath, [*sys.path, *named])
    installed, stdlib = ("site-packages", "dist-packages"), os.path.realpath(sysconfig.get_path("stdlib"))
    project_folders = (
        folder for folder in folders if os.path.isdir(folder) and os.path.basename(folder) not in installed
    )
    return [*dict.fromkeys(folder for folder in project_folders if not os.path.realpath(folder).startswith(stdlib))]


def add_to_path(folders: Iterable[str]) -> None:
    """Append folders to the end of `sys.path`, so that they hide no module."""
    sys.path.extend(folder for folder in folders if folder not in sys.path)


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
