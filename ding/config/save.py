"""Writing of configurations, and the folder of an experiment that holds them, with the git state."""

from __future__ import annotations

import copy
import errno
import itertools
import json
import logging
import os
import subprocess
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from easydict import EasyDict

from ding.utils.config_helper import ConfigError, value_at
from ding.utils.file_helper import atomic_write, beside
from ding.utils.log_helper import shown
from ding.utils.msgpack_helper import pack
from ding.utils.pytorch_ddp_dist_helper import broadcast_object_list, get_rank, get_world_size
from ding.utils.references import (
    IMPORT_PATHS,
    REFERENCE,
    import_folders,
    plain,
    saved_form,
    with_arguments,
)

_GIT_TIMEOUT_S = 1.0


def claim_experiment(exp_name: str, renew: bool = True) -> str:
    """Create the folder `exp_name` (relative to the current directory) and return its final name.

    If the folder exists and `renew` is true, a time stamp is appended, and a counter if necessary: two runs never get
    the same name, even if they start at the same time. If `renew` is false, an existing folder is used. Rank 0 chooses
    the name and sends it to the other ranks.

    Raises:
        OSError: on every rank, if the folder cannot be created or written to.
    """
    answer: list[object] = [None]
    if get_rank() == 0:
        try:
            answer[0] = _claim(exp_name, renew)
        except OSError as e:
            reason = f"cannot create the experiment folder {os.path.abspath(exp_name)!r}: {e.strerror or e}"
            answer[0] = type(e)(e.errno, f"{reason}; choose another exp_name or working directory")
    if get_world_size() > 1:
        broadcast_object_list(answer, 0)
    if isinstance(answer[0], OSError):
        raise answer[0]
    return str(answer[0])


def _claim(exp_name: str, renew: bool) -> str:
    stamp = time.strftime("%y%m%d_%H%M%S")
    suffixes = itertools.chain((stamp,), (f"{stamp}_{count}" for count in itertools.count(1)))
    candidates = itertools.chain((exp_name,), (beside(exp_name, suffix) for suffix in suffixes))
    for name in candidates if renew else (exp_name,):
        try:
            os.makedirs(name, exist_ok=False)
        except FileExistsError:
            continue
        return name
    if not os.path.isdir(exp_name):
        raise NotADirectoryError(errno.ENOTDIR, "it exists and is not a folder")
    if not os.access(exp_name, os.W_OK | os.X_OK):
        raise PermissionError(errno.EACCES, "it exists and is read-only")
    return exp_name


def save_project_state(exp_name: str) -> None:
    """Write the git state of the current directory to `<exp_name>/git_log.txt` and `git_diff.txt`.

    The log holds `git describe` and the last five commits with their statistics. Nothing is written outside a git
    working tree. If git fails or takes too long, a warning is logged instead.
    """
    folder = Path.cwd()
    if not any((parent / ".git").exists() for parent in (folder, *folder.parents)):  # without starting a process
        return
    try:
        describe, log = _git("describe", "--always", "--tags"), _git("log", "--stat", "-n", "5")
        diff = _git("diff", "--no-ext-diff")
    except (OSError, subprocess.SubprocessError) as e:
        logging.getLogger("ding").warning("the git state is not saved in %s: %s", exp_name, e)
        return
    Path(exp_name, "git_log.txt").write_bytes(describe + b"\n" + log)
    Path(exp_name, "git_diff.txt").write_bytes(diff)


def _git(*arguments: str) -> bytes:
    """Return the output of git, including its error messages, such as that of a repository without commits."""
    done = subprocess.run(
        ["git", "--no-pager", "--no-optional-locks", *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=_GIT_TIMEOUT_S,
        check=False,
    )
    return done.stdout


def unsaved_values(cfg: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of a config, by dotted key, that have no saved form, such as a lambda or an `nn.Module`."""
    return dict(_unsaved(plain(saved_form(plain(cfg), is_json=True)), ""))


def _unsaved(value: Any, key: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        for name, item in value.items():
            yield from _unsaved(item, key if REFERENCE in value else f"{key}.{name}" if key else name)
    elif isinstance(value, list):
        for item in value:
            yield from _unsaved(item, key)
    elif not isinstance(value, str | int | float | None):
        yield key, value


# Entry of the create config -> section of a compiled config that holds its `type` and `import_names`.
CREATE_SECTIONS = {
    "env": "env",
    "env_manager": "env.manager",
    "policy": "policy",
    "collector": "policy.collect.collector",
    "evaluator": "policy.eval.evaluator",
    "replay_buffer": "policy.other.replay_buffer",
    "reward_model": "reward_model",
    "world_model": "world_model",
}
_COMMAND = "_command"
_TYPE_KEYS = ("type", "import_names")


def save_config(cfg: Mapping[str, Any], path: str, type_: str = "py", save_formatted: bool = False) -> None:
    """Write `cfg` to `path` as Python (`save_config_py`) or YAML (`save_config_yaml`).

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
    """Return the path of the runnable pair of the config file `path`."""
    folder, name = os.path.split(path)
    return os.path.join(folder, f"formatted_{name}")


def save_config_py(cfg: Mapping[str, Any], path: str) -> None:
    """Write a config as JSON to `<path without .py>.json`, and to `path` the Python that loads it as `exp_config`.

    `read_config_directly(path)["exp_config"]` returns it as a dict. See `saved_form` for classes, functions and
    objects; what has none, such as a lambda, becomes its repr.
    """
    write_saved(path, {"exp_config": saved_form(cfg, is_json=True)})


def write_saved(path: str, configs: Mapping[str, Any]) -> None:
    """Write configs, by name, in their saved form to files; see `save_config_py`."""
    text = json.dumps({**configs, IMPORT_PATHS: import_folders()}, indent=2, default=shown)
    _write(f"{os.path.splitext(path)[0]}.json", text + "\n")
    names = ", ".join(map(repr, configs))
    code = f"{', '.join(configs)} = load_saved(__file__, {names})"
    _write(path, f"from ding.config.read import load_saved\n\n{code}\n")


def save_config_yaml(cfg: Mapping[str, Any], path: str) -> None:
    """Write `cfg` as YAML, with tuples, sets and arrays as lists, and objects without a YAML type as their repr."""
    import yaml

    _write(path, yaml.safe_dump(_plain(cfg), sort_keys=False, allow_unicode=True))


def save_packed_config(cfg: Mapping[str, Any], path: str) -> None:
    """Write a compiled config to `path`, for roles that are started one by one.

    Raises:
        TypeError: it holds anything but numbers, strings, containers, arrays and tensors.
    """
    _write(path, pack(EasyDict(cfg)))


def save_config_formatted(
    cfg: Mapping[str, Any], path: str = "formatted_total_config.py", create_cfg: Mapping[str, Any] | None = None
) -> None:
    """Write a compiled config as a runnable file with `main_config` and `create_config`.

    The pair has all sections of `cfg` and compiles to it again. The policy type in the create config has no suffix
    `_command`, because the entries append it.

    Args:
        cfg: the compiled config.
        path: path of the file.
        create_cfg: the create config that `cfg` was compiled with. If None, it is derived from the types in `cfg`.

    Raises:
        ConfigError: `cfg` has no `exp_name` or no `policy`.
    """
    for key in ("exp_name", "policy"):
        if key not in cfg:
            raise ConfigError(f"the config has no key {key!r}; compile it with compile_config first")
    main, create = split_config(cfg, create_cfg)
    save_pair(main, create, path)


def save_pair(main: Mapping[str, Any], create: Mapping[str, Any], path: str) -> None:
    """Write `main_config` and `create_config` like `save_config_py`."""
    write_saved(path, saved_form({"main_config": main, "create_config": create}, is_json=True))


def split_config(
    cfg: Mapping[str, Any], create_cfg: Mapping[str, Any] | None = None
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the pair (main, create), as new plain dicts, that compiles to the compiled config `cfg`."""
    main = with_arguments(plain(EasyDict(cfg)))
    create: dict[str, Any] = {} if create_cfg is None else plain(EasyDict(create_cfg))
    for name, path in CREATE_SECTIONS.items():
        section = value_at(main, path)
        if create_cfg is None and isinstance(section, dict):  # derived from the types in the sections
            types: dict[str, Any] = _types_of(section)
            if section.get("multi_buffer", False):
                types = {key: _types_of(inner) for key, inner in section.items() if isinstance(inner, dict)}
            if types:
                create[name] = copy.deepcopy(types)
        entry = create.get(name)
        # The type of a compiled reward model does not come from the create config, so it is kept.
        if name != "reward_model" and isinstance(section, dict) and isinstance(entry, Mapping):
            for key in _TYPE_KEYS:
                if key in section and key in entry and section[key] == entry[key]:
                    del section[key]
    policy_type = create.get("policy", {}).get("type")
    if isinstance(policy_type, str):
        create["policy"]["type"] = policy_type.removesuffix(_COMMAND)
    return main, create


def _types_of(section: Mapping[str, Any]) -> dict[str, Any]:
    return {key: section[key] for key in _TYPE_KEYS if key in section}


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
    return shown(value)


def _write(path: str, data: str | bytes) -> None:
    """Write `data` to the file `path` atomically."""
    with atomic_write(path, "wb") as f:
        f.write(data.encode("utf-8") if isinstance(data, str) else data)
