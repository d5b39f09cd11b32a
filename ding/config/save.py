"""Writing configurations and the state of the project beside an experiment."""

from __future__ import annotations

import copy
import os
from collections.abc import Mapping
from typing import Any

import numpy as np
from easydict import EasyDict

from ding.config.literal import is_literal, to_source
from ding.utils.config_helper import ConfigError
from ding.utils.file_helper import atomic_write
from ding.utils.msgpack_helper import pack

# Name in the create config -> path of the section that holds its `type` and `import_names` in a compiled config.
CREATE_SECTIONS = {
    "env": ("env",),
    "env_manager": ("env", "manager"),
    "policy": ("policy",),
    "collector": ("policy", "collect", "collector"),
    "evaluator": ("policy", "eval", "evaluator"),
    "replay_buffer": ("policy", "other", "replay_buffer"),
    "reward_model": ("reward_model",),
    "world_model": ("world_model",),
}
_COMMAND = "_command"
_TYPE_KEYS = ("type", "import_names")


def save_config(cfg: Mapping[str, Any], path: str, type_: str = "py", save_formatted: bool = False) -> None:
    """Write `cfg` to `path` as Python (`save_config_py`) or YAML.

    With `save_formatted`, a Python config is also written as a runnable pair to `formatted_<name>` in the same folder.

    Raises:
        AssertionError: `type_` is neither 'py' nor 'yaml'.
    """
    if type_ not in ("py", "yaml"):
        raise AssertionError(f"type_ = {type_!r} is not allowed; it must be 'py' or 'yaml'")
    if type_ == "yaml":
        save_config_yaml(cfg, path)
        return
    save_config_py(cfg, path)
    if save_formatted:
        save_config_formatted(cfg, formatted_path(path))


def formatted_path(path: str) -> str:
    """Where the runnable pair of the config file `path` goes."""
    folder, name = os.path.split(path)
    return os.path.join(folder, f"formatted_{name}")


def save_config_py(cfg: Mapping[str, Any], path: str) -> None:
    """Write `exp_config = <cfg>` as Python; `read_config_directly(path)["exp_config"]` gives it back as a dict."""
    _write(path, f"exp_config = {to_source(cfg)}\n")


def save_config_yaml(cfg: Mapping[str, Any], path: str) -> None:
    """Write `cfg` as YAML: tuples and sets as lists, what YAML cannot hold as its repr."""
    import yaml

    _write(path, yaml.safe_dump(_plain(cfg), sort_keys=False, allow_unicode=True))


def save_packed_config(cfg: Mapping[str, Any], path: str) -> None:
    """Write a compiled config to `path`, for roles that are started one by one.

    Raises:
        TypeError: it holds something besides numbers, strings, containers, arrays and tensors.
    """
    _write(path, pack(EasyDict(cfg)))


def save_config_formatted(
    cfg: Mapping[str, Any], path: str = "formatted_total_config.py", create_cfg: Mapping[str, Any] | None = None
) -> None:
    """Write a compiled config as a runnable file with `main_config` and `create_config`.

    Every section of `cfg` is there; compiling the pair again gives the same tree. The policy type in the create config
    has no `_command` suffix, because the entries append it.

    Args:
        create_cfg: the create config that `cfg` was compiled with; derived from the types in `cfg` when None.

    Raises:
        ConfigError: `cfg` has no `exp_name` or no `policy`.
    """
    for key in ("exp_name", "policy"):
        if key not in cfg:
            raise ConfigError(f"a formatted config needs the key {key!r}; compile the config with compile_config first")
    main, create = split_config(cfg, create_cfg)
    lines = ["from easydict import EasyDict", ""]
    if not (is_literal(main) and is_literal(create)):
        lines += ["# Values with a comment beside them could not be written as Python literals.", ""]
    for name, section in (("main_config", main), ("create_config", create)):
        lines += [f"{name} = {to_source(section)}", f"{name} = EasyDict({name})"]
    _write(path, "\n".join(lines) + "\n")


def split_config(
    cfg: Mapping[str, Any], create_cfg: Mapping[str, Any] | None = None
) -> tuple[dict[str, Any], dict[str, Any]]:
    """A compiled config as the pair (main, create) that compiles to it; both are fresh plain dicts."""
    main = _as_dict(cfg)
    create = _create_of(main) if create_cfg is None else _as_dict(create_cfg)
    for name, section_path in CREATE_SECTIONS.items():
        # A compiled reward model does not take its type from the create config, so it keeps its own.
        if name != "reward_model":
            _strip(_section(main, section_path), create.get(name))
    policy_type = create.get("policy", {}).get("type")
    if isinstance(policy_type, str):
        create["policy"]["type"] = policy_type.removesuffix(_COMMAND)
    return main, create


def _create_of(main: Mapping[str, Any]) -> dict[str, Any]:
    create: dict[str, Any] = {}
    for name, section_path in CREATE_SECTIONS.items():
        section = _section(main, section_path) or {}
        entry = {key: section[key] for key in _TYPE_KEYS if key in section}
        if section.get("multi_buffer", False):
            entry = {
                key: {k: sub[k] for k in _TYPE_KEYS if k in sub}
                for key, sub in section.items()
                if isinstance(sub, dict)
            }
        if entry:
            create[name] = copy.deepcopy(entry)
    return create


def _strip(section: dict[str, Any] | None, entry: Any) -> None:
    """Take out of a main section the type keys that the create config says again."""
    if section is None or not isinstance(entry, Mapping):
        return
    for key in _TYPE_KEYS:
        if key in section and key in entry and section[key] == entry[key]:
            del section[key]


def _section(tree: Mapping[str, Any], path: tuple[str, ...]) -> dict[str, Any] | None:
    for key in path:
        tree = tree.get(key)  # type: ignore[assignment]
        if not isinstance(tree, dict):
            return None
    return tree  # type: ignore[return-value]


def _as_dict(value: Any) -> Any:
    """A copy of the mappings and sequences of a tree, with plain dicts; leaves are shared."""
    if isinstance(value, Mapping):
        return {key: _as_dict(item) for key, item in value.items()}
    if type(value) in (list, tuple):
        return type(value)(map(_as_dict, value))
    return value


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, Mapping):
        return {_plain(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_plain(item) for item in (sorted(value, key=repr) if isinstance(value, (set, frozenset)) else value)]
    if isinstance(value, np.ndarray):
        return _plain(value.tolist())
    if type(value) in (str, bytes, bool, int, float, type(None)):
        return value
    return repr(value)


def _write(path: str, data: str | bytes) -> None:
    """Make `data` the content of the file `path`, whole or not at all."""
    with atomic_write(path, "wb") as f:
        f.write(data.encode("utf-8") if isinstance(data, str) else data)
