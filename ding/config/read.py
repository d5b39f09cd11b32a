"""Reading of configurations: Python files, YAML files, packed compiled configs, and changes written as `key=value`."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import json
import math
import os
import sys
import types
import uuid
from collections.abc import Callable, Mapping
from typing import Any

from easydict import EasyDict

from ding.config.save import split_config
from ding.utils.config_helper import ConfigError
from ding.utils.msgpack_helper import unpack
from ding.utils.references import IMPORT_PATHS, add_to_path, config_form, note_file, unpacked


class Config:
    """A configuration dict and its source text.

    Args:
        cfg_dict: the configuration; None for an empty one.
        cfg_text: source text of the configuration. If None, it is read from `filename`, or is "." without one.
        filename: path of the file of the configuration.

    Raises:
        TypeError: `cfg_dict` is not a mapping.

    Example:
        >>> Config({"seed": 3}).cfg_dict
        {'seed': 3}
    """

    def __init__(
        self, cfg_dict: dict[str, Any] | None = None, cfg_text: str | None = None, filename: str | None = None
    ) -> None:
        if cfg_dict is None:
            cfg_dict = {}
        if not isinstance(cfg_dict, Mapping):
            raise TypeError(f"cfg_dict must be a dict, got {type(cfg_dict).__name__}: {cfg_dict!r}")
        self._cfg_dict = cfg_dict
        self._filename = filename
        self._text = cfg_text if cfg_text is not None else "." if filename is None else _source_of(filename)

    @staticmethod
    def file_to_dict(filename: str) -> Config:
        """Execute a Python file and return its globals that do not start with `_`.

        The module has a private name, so its `if __name__ == "__main__"` block is not executed. No byte code is
        written or reused. Exceptions of the file propagate.

        Raises:
            FileNotFoundError: the file does not exist.
        """
        path = os.path.abspath(os.path.expanduser(filename))
        source = _source_of(path)
        module = types.ModuleType(f"ding_config_{uuid.uuid4().hex}")
        module.__file__ = path
        note_file(module.__name__, path)
        sys.modules[module.__name__] = module  # dataclasses and pickle look their module up during execution
        try:
            exec(compile(source, path, "exec"), module.__dict__)
        finally:
            sys.modules.pop(module.__name__, None)
        cfg = {name: value for name, value in vars(module).items() if not name.startswith("_")}
        return Config(cfg, f"{path}\n{source}", filename=path)

    @property
    def cfg_dict(self) -> dict[str, Any]:
        """The configuration itself, not a copy."""
        return self._cfg_dict


def _source_of(path: str) -> str:
    with open(path, "rb") as f:
        return importlib.util.decode_source(f.read())


def load_saved(path: str, *names: str) -> Any:
    """Return a config, or several, that `save_config_py` or `save_pair` has written beside the Python file `path`.

    Folders of the modules that it names are added to `sys.path`. No module is imported.

    Raises:
        FileNotFoundError: the JSON file, which has the name of the Python file, is missing.
        ConfigError: it is damaged.
    """
    saved = read_json(f"{os.path.splitext(path)[0]}.json", unpacked)
    add_to_path(saved.get(IMPORT_PATHS, []))
    return saved[names[0]] if len(names) == 1 else tuple(EasyDict(saved[name]) for name in names)


def read_json(path: str, object_hook: Callable[[Any], Any] | None = None) -> Any:
    """Return the content of a JSON file; see `json.load` for the hook.

    Raises:
        FileNotFoundError: the file is missing.
        ConfigError: it is damaged.
    """
    with open(path, encoding="utf-8") as f:
        try:
            return json.load(f, object_hook=object_hook)
        except ValueError as e:
            raise ConfigError(f"{path} is damaged: {e}") from e


def read_config_directly(path: str) -> dict[str, Any]:
    """Return the public globals of the Python file `path`.

    Raises:
        KeyError: the suffix is not `.py`.
    """
    suffix = path.split(".")[-1]
    if suffix != "py":
        raise KeyError(f"invalid config file suffix: {suffix!r} of {path!r}; a Python config file ends in .py")
    return Config.file_to_dict(path).cfg_dict


def read_config(path: str) -> tuple[EasyDict, EasyDict]:
    """Return `(main_config, create_config)` of the Python file `path`.

    A compiled config of a serial experiment, such as its `total_config.py`, is split into such a pair.

    Raises:
        KeyError: the suffix is not `.py`.
        ConfigError: the file defines neither both names nor a compiled config `exp_config`.
    """
    cfg = read_config_directly(path)
    compiled = cfg.get("exp_config")
    if isinstance(compiled, Mapping) and not {"main_config", "create_config"} & cfg.keys() and "policy" in compiled:
        main, create = map(EasyDict, split_config(compiled))
        return main, create
    main, create = _named(cfg, path, "main_config", "create_config")
    return main, create


def read_config_with_system(path: str) -> tuple[EasyDict, EasyDict, EasyDict]:
    """Return `(main_config, create_config, system_config)` of the Python file `path`.

    Raises:
        KeyError: the suffix is not `.py`.
        ConfigError: the file does not define all three names.
    """
    main, create, system = _named(read_config_directly(path), path, "main_config", "create_config", "system_config")
    return main, create, system


def _named(cfg: Mapping[str, Any], path: str, *names: str) -> list[Any]:
    missing = [name for name in names if name not in cfg]
    if missing:
        found = ", ".join(sorted(cfg)) or "nothing"
        raise ConfigError(f"{path} must define {' and '.join(missing)}; it defines {found}")
    return [cfg[name] for name in names]


def read_config_yaml(path: str) -> EasyDict:
    """Return the mapping in the YAML file `path`; only plain YAML types are loaded."""
    import yaml

    with open(path, encoding="utf-8") as f:
        return EasyDict(yaml.safe_load(f))


def read_packed_config(path: str) -> EasyDict:
    """Return the compiled config in the file `path`, without executing code in the file.

    Raises:
        FileNotFoundError: the file does not exist.
        ConfigError: it was not written by `save_packed_config`, such as a pickle.
    """
    with open(path, "rb") as f:
        data = f.read()
    try:
        cfg = unpack(data)
    except ValueError as e:
        cfg = e
    if not isinstance(cfg, dict) or not {"main", "system"} <= cfg.keys():
        raise ConfigError(
            f"{os.path.abspath(path)} was not written by dist_prepare_config; pickles are not read, so write it again"
        )
    return EasyDict(cfg)


_WORDS: dict[str, Any] = {"inf": math.inf, "-inf": -math.inf, "true": True, "false": False, "null": None}


def change(cfg: Any, setting: str) -> None:
    """Set one value in place; see `read_setting`.

    Raises:
        ConfigError: the setting is malformed, or a part of its path is not a section.
    """
    key, value = read_setting(setting)
    put(cfg, key, value, f"--set {setting!r}")


def read_setting(setting: str) -> tuple[str, Any]:
    """Return the key and the value of a setting, as in `policy.learn.batch_size=128`.

    The value is a Python literal, `inf`, `-inf`, or `true`, `false` or `null` as in YAML, else a string.

    Raises:
        ConfigError: the setting is malformed.
    """
    key, equals, text = setting.partition("=")
    names = key.strip().split(".")
    if not equals or not all(name.isidentifier() and not hasattr(EasyDict, name) for name in names):
        raise ConfigError(f"--set {setting!r} is not allowed; it must be key=value, as policy.learn.batch_size=128")
    if names == ["seed"]:
        raise ConfigError(f"--set {setting!r} is not allowed, for --seed sets the seed of all parts; use --seed")
    return ".".join(names), read_value(text)


def read_value(text: str) -> Any:
    """Return the value that a text stands for; see `read_setting`."""
    try:
        return ast.literal_eval(text.strip())
    except (ValueError, SyntaxError):
        return _WORDS.get(text.strip(), text.strip())


def put(cfg: Any, key: str, value: Any, what: str = "") -> None:
    """Set the value at a dotted key in place; missing sections are made.

    Args:
        what: the setting in words, for error messages.

    Raises:
        ConfigError: a part of the path is not a section.
    """
    names = key.split(".")
    for depth, name in enumerate(names[:-1], 1):
        cfg = cfg.setdefault(name, {})
        if not hasattr(cfg, "setdefault"):
            section = ".".join(names[:depth])
            raise ConfigError(f"{what or f'{key} = {value!r}'} is not allowed: {section} is {cfg!r}, not a section")
    cfg[names[-1]] = config_form(value) if names[0] == "env" else value
