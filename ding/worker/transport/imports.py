"""What a task may have a worker do: import modules and load files of its own config, and nothing unsafe."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

_KEY, _TRUST, _FOLDER = "import_names", "trust_pickle", "exp_name"
_OWN_PACKAGE = "ding."
# Gym and gymnasium import `module` for the env id `module:Name-v0`, or `module:Name`. Under these keys whatever has a
# colon is taken for an id, anywhere in the section `env` what looks like one, elsewhere what has a version as well.
_ID_KEYS = frozenset(("env_id", "env_name", "id"))
_ID_SECTION = "env"
_ID_WITH_VERSION = re.compile(r"([^:/\s]+):[^:\s]*-v\d+")
_ID = re.compile(r"([^:/\s]+):(?!//|\d*$)[^:\s]+")
# What a learner loads before it trains.
_LOAD_KEYS = ("load_path", "load_ckpt_before_run")


def check_task(task_info: Mapping[str, Any], worker_cfg: Mapping[str, Any]) -> None:
    """Refuse a task that wants what only the worker's own config may allow.

    Raises:
        PermissionError: it names modules to import that are neither in `import_names` nor in `task_import_names`, or
            has `trust_pickle` where the worker has not; or its `exp_name`, or a file that it has a learner load, leads
            elsewhere, see `check_exp_name` and `check_load_paths`.
    """
    for section in ("learner_cfg", "collector_cfg"):
        check_exp_name(task_info.get(section) or {}, worker_cfg.get(_FOLDER))
    check_import_names(task_info, [*worker_cfg.get(_KEY, []), *worker_cfg.get("task_import_names", [])])
    check_load_paths(task_info, worker_cfg.get(_FOLDER), worker_cfg.get("task_load_paths", []))
    if any(_values(task_info, _TRUST)) and not worker_cfg.get(_TRUST, False):
        raise PermissionError(
            f"the task asks for {_TRUST}, which lets files run code; set it in this worker's own config if it is meant"
        )


def check_exp_name(cfg: Mapping[str, Any], own: str | None) -> None:
    """Refuse a folder for logs and checkpoints that a peer has chosen outside of where this worker works.

    It may be a relative path that stays under the working directory, or `own`, that of the worker's own config, or a
    folder in `own`.

    Raises:
        PermissionError: it is something else.
    """
    if _FOLDER not in cfg:
        return
    exp_name = cfg[_FOLDER]
    if not isinstance(exp_name, str):
        raise PermissionError(f"the task's {_FOLDER} must be a str, got {exp_name!r}")
    if not _is_allowed(exp_name, own):
        raise PermissionError(
            f"the task asks to write into {exp_name!r}; allowed is a relative path without '..', or the folder that "
            f"stands as {_FOLDER} in this worker's own config (now {own!r})"
        )


def check_load_paths(task_info: Mapping[str, Any], own: str | None, allowed: Collection[str]) -> None:
    """Refuse files that a peer has chosen for a learner to load, unless they are in `allowed`, or lie where its
    `exp_name` may; see `check_exp_name`.

    Raises:
        PermissionError: there are such files.
    """
    for path in (path for key in _LOAD_KEYS for path in _values(task_info, key)):
        if path and path not in allowed and not (isinstance(path, str) and _is_allowed(path, own)):
            raise PermissionError(
                f"the task asks to load {path!r}; allowed is a relative path without '..', a file in the folder that "
                f"stands as {_FOLDER} in this worker's own config (now {own!r}), and what its task_load_paths names"
            )


def _is_allowed(path: str, own: str | None) -> bool:
    """Whether it is relative and stays under the working directory, or is the folder `own` or lies in it."""
    if own is not None and _is_in(os.path.abspath(path), os.path.abspath(own)):
        return True
    return not os.path.isabs(path) and ".." not in path.split(os.sep)


def _is_in(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip(os.sep) + os.sep)


def check_import_names(task_info: Mapping[str, Any], allowed: Collection[str]) -> None:
    """Refuse a task that names modules to import, anywhere in it, which the worker's own config does not.

    Importing a module runs its code, so a peer must not choose it.

    Raises:
        PermissionError: there are such modules.
    """
    named = set(named_imports(task_info))
    foreign = sorted(str(name) for name in named if name not in allowed and not str(name).startswith(_OWN_PACKAGE))
    if foreign:
        raise PermissionError(
            f"the task asks to import {', '.join(foreign)}, which this worker's own config does not name; add them to "
            f"its {_KEY} if they are meant to be run"
        )


def named_imports(content: Any) -> Iterator[Any]:
    """The modules that stand under `import_names`, and those before the colon of an env id, anywhere."""
    for names in _values(content, _KEY):
        yield from _listed(names)
    yield from _modules_of_ids(content)


def named_load_paths(content: Any) -> list[str]:
    """The files that learners load before they train, anywhere in a config; without doubles."""
    paths = [path for key in _LOAD_KEYS for path in _values(content, key)]
    return sorted({path for path in paths if path and isinstance(path, str)})


def _modules_of_ids(content: Any, key: Any = None, pattern: re.Pattern[str] = _ID_WITH_VERSION) -> Iterator[str]:
    if isinstance(content, Mapping):
        for name, value in content.items():
            yield from _modules_of_ids(value, name, _ID if name == _ID_SECTION else pattern)
    elif isinstance(content, (list, tuple)):
        for value in content:
            yield from _modules_of_ids(value, key, pattern)
    elif isinstance(content, str):
        if key in _ID_KEYS and ":" in content:
            yield content.partition(":")[0]
        elif found := pattern.fullmatch(content):
            yield found[1]


def _listed(names: Any) -> Iterable[Any]:
    return [names] if isinstance(names, str) else names or []


def _values(content: Any, name: str) -> Iterator[Any]:
    """What stands under the key `name`, anywhere."""
    if isinstance(content, Mapping):
        for key, value in content.items():
            if key == name:
                yield value
            else:
                yield from _values(value, name)
    elif isinstance(content, (list, tuple)):
        for value in content:
            yield from _values(value, name)
