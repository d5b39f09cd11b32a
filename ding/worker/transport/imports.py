"""Checks of tasks: a worker runs only code that its own config allows."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from ding.utils.references import REFERENCE, is_reference

_KEY, _TRUST = "import_names", "trust_pickle"
_OWN_PACKAGE = "ding."
# Gym and gymnasium import `module` for the env id `module:Name-v0`, or `module:Name`. Under these keys any text with a
# colon is taken for an id; in these sections any `module:Name` is, as the name of a class or function; elsewhere only
# one with a version.
_ID_KEYS = frozenset(("env_id", "env_name", "id"))
_REFERENCE_SECTIONS = frozenset(("env", "model", "lr_scheduler"))
_ID_WITH_VERSION = re.compile(r"([^:/\s]+):[^:\s]*-v\d+")
_ID = re.compile(r"([^:/\s]+):(?!//|\d*$)[^:\s]+")


def check_task(task_info: Mapping[str, Any], worker_cfg: Mapping[str, Any]) -> None:
    """Check that a task has a worker run only code that the worker's own config allows.

    Importing a module runs its code, so a peer must not choose it.

    Raises:
        PermissionError: the task names, anywhere in it, modules that are neither in `import_names` nor in
            `task_import_names`, or sets `trust_pickle` although the worker does not.
    """
    own = worker_cfg.get(_KEY, [])
    allowed = {*([own] if isinstance(own, str) else own), *worker_cfg.get("task_import_names", [])}
    foreign = sorted({str(name) for name in named_imports(task_info)} - allowed)
    # References, `module:name`, are never names of modules.
    foreign = [name for name in foreign if ":" in name or not name.startswith(_OWN_PACKAGE)]
    if foreign:
        raise PermissionError(
            f"the task imports {', '.join(foreign)}, which this worker's own config does not name; add them to its "
            f"{_KEY} if their code may run here"
        )
    if any(_values(task_info, _TRUST)) and not worker_cfg.get(_TRUST, False):
        raise PermissionError(
            f"the task sets {_TRUST}, which lets files run code; set it in this worker's own config if that is intended"
        )


def named_imports(content: Any) -> Iterator[Any]:
    """Yield the modules under `import_names` and those before the colon of env ids, anywhere in `content`.

    What the saved form or a section `env`, `model` or `lr_scheduler` names as `module:name` is yielded whole, too.
    """
    for names in _values(content, _KEY):
        yield from [names] if isinstance(names, str) else names or []
    yield from _modules_of_ids(content)


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
        elif key in _ID_KEYS and (":" in content or all(part.isidentifier() for part in content.split("."))):
            yield content.partition(":")[0]  # PettingZoo's ids are names of modules
        elif found := pattern.fullmatch(content):
            yield found[1]
            if is_reference(content):
                yield content


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
