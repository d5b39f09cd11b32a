"""Checks of tasks: a worker imports only modules, and loads only files, that its own config allows."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from ding.utils.references import REFERENCE, is_reference

_KEY, _TRUST, _FOLDER = "import_names", "trust_pickle", "exp_name"
_OWN_PACKAGE = "ding."
# Gym and gymnasium import `module` for the env id `module:Name-v0`, or `module:Name`. Under these keys any text with a
# colon is taken for an id; in these sections any `module:Name` is, as the name of a class or function; elsewhere only
# one with a version.
_ID_KEYS = frozenset(("env_id", "env_name", "id"))
_REFERENCE_SECTIONS = frozenset(("env", "model", "lr_scheduler"))
_ID_WITH_VERSION = re.compile(r"([^:/\s]+):[^:\s]*-v\d+")
_ID = re.compile(r"([^:/\s]+):(?!//|\d*$)[^:\s]+")
# The keys of files that a learner loads before it trains.
_LOAD_KEYS = ("load_path", "load_ckpt_before_run")


def check_task(task_info: Mapping[str, Any], worker_cfg: Mapping[str, Any]) -> None:
    """Check that a task requests only what the worker's own config allows.

    Raises:
        PermissionError: it names modules that are neither in `import_names` nor in `task_import_names`, sets
            `trust_pickle` although the worker does not, or its `exp_name` or a file to load is not allowed; see
            `check_exp_name` and `check_load_paths`.
    """
    for section in ("learner_cfg", "collector_cfg"):
        check_exp_name(task_info.get(section) or {}, worker_cfg.get(_FOLDER))
    check_import_names(task_info, [*worker_cfg.get(_KEY, []), *worker_cfg.get("task_import_names", [])])
    check_load_paths(task_info, worker_cfg.get(_FOLDER), worker_cfg.get("task_load_paths", []))
    if any(_values(task_info, _TRUST)) and not worker_cfg.get(_TRUST, False):
        raise PermissionError(
            f"the task sets {_TRUST}, which lets files run code; set it in this worker's own config if that is intended"
        )


def check_exp_name(cfg: Mapping[str, Any], own: str | None) -> None:
    """Check that the folder for logs and checkpoints is inside the folders of this worker.

    Allowed are relative paths that stay under the working directory, `own` (the folder of the worker's own config), and
    folders in `own`.

    Raises:
        PermissionError: the folder is not allowed.
    """
    if _FOLDER not in cfg:
        return
    exp_name = cfg[_FOLDER]
    if not isinstance(exp_name, str):
        raise PermissionError(f"the task's {_FOLDER} must be a str, got {exp_name!r}")
    if not _is_allowed(exp_name, own):
        raise PermissionError(
            f"the task writes into {exp_name!r}; allowed are relative paths without '..', and the folder that is "
            f"{_FOLDER} in this worker's own config (now {own!r})"
        )


def check_load_paths(task_info: Mapping[str, Any], own: str | None, allowed: Collection[str]) -> None:
    """Check that the files for a learner to load are in `allowed`, or in a folder that `check_exp_name` allows.

    Raises:
        PermissionError: a file is not allowed.
    """
    for path in (path for key in _LOAD_KEYS for path in _values(task_info, key)):
        if path and path not in allowed and not (isinstance(path, str) and _is_allowed(path, own)):
            raise PermissionError(
                f"the task loads {path!r}; allowed are relative paths without '..', files in the folder that is "
                f"{_FOLDER} in this worker's own config (now {own!r}), and those in its task_load_paths"
            )


def _is_allowed(path: str, own: str | None) -> bool:
    """Return whether a path is relative and stays under the working directory, or is `own` or inside it."""
    if own is not None and _is_in(os.path.abspath(path), os.path.abspath(own)):
        return True
    return not os.path.isabs(path) and ".." not in path.split(os.sep)


def _is_in(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip(os.sep) + os.sep)


def check_import_names(task_info: Mapping[str, Any], allowed: Collection[str]) -> None:
    """Check that a task names, anywhere in it, only modules that the worker's own config names.

    Importing a module runs its code, so a peer must not choose it.

    Raises:
        PermissionError: a module is not allowed.
    """
    named = set(named_imports(task_info))
    foreign = sorted(str(name) for name in named if name not in allowed and not _is_own(str(name)))
    if foreign:
        raise PermissionError(
            f"the task imports {', '.join(foreign)}, which this worker's own config does not name; add them to its "
            f"{_KEY} if their code may run here"
        )


def _is_own(name: str) -> bool:
    """Return whether `name` is the name of a module of this package; references, `module:name`, never are."""
    return name.startswith(_OWN_PACKAGE) and ":" not in name


def named_imports(content: Any) -> Iterator[Any]:
    """Yield the modules under `import_names` and those before the colon of env ids, anywhere in `content`.

    What the saved form or a section `env`, `model` or `lr_scheduler` names as `module:name` is yielded whole, too.
    """
    for names in _values(content, _KEY):
        yield from _listed(names)
    yield from _modules_of_ids(content)


def named_load_paths(content: Any) -> list[str]:
    """Return the files that learners load before they train, anywhere in a config; each one once."""
    paths = [path for key in _LOAD_KEYS for path in _values(content, key)]
    return sorted({path for path in paths if path and isinstance(path, str)})


def _modules_of_ids(content: Any, key: Any = None, pattern: re.Pattern[str] = _ID_WITH_VERSION) -> Iterator[str]:
    if isinstance(content, Mapping):
        for name, value in content.items():
            yield from _modules_of_ids(value, name, _ID if name in _REFERENCE_SECTIONS else pattern)
    elif isinstance(content, (list, tuple)):
        for value in content:
            yield from _modules_of_ids(value, key, pattern)
    elif isinstance(content, str):
        if key == REFERENCE:
            yield content
        elif key in _ID_KEYS and (":" in content or _is_module_name(content)):
            yield content.partition(":")[0]
        elif found := pattern.fullmatch(content):
            yield found[1]
            if is_reference(content):
                yield content


def _is_module_name(env_id: str) -> bool:
    """Return whether an env id may be the name of a module to import, as PettingZoo's ids are."""
    return all(part.isidentifier() for part in env_id.split("."))


def _listed(names: Any) -> Iterable[Any]:
    return [names] if isinstance(names, str) else names or []


def _values(content: Any, name: str) -> Iterator[Any]:
    """Yield the values under the key `name`, anywhere in `content`."""
    if isinstance(content, Mapping):
        for key, value in content.items():
            if key == name:
                yield value
            else:
                yield from _values(value, name)
    elif isinstance(content, (list, tuple)):
        for value in content:
            yield from _values(value, name)
