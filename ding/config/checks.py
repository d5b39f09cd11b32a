"""Checks of the values in a user's config that would fail only later."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ding.config.main_settings import MAIN_SETTINGS
from ding.utils.config_helper import ConfigError, count, instance_of

_MISSING = object()
# Sections that must be dicts, if present.
_SECTIONS = (
    *("env", "env.manager", "policy", "policy.learn", "policy.collect", "policy.eval", "policy.other"),
    *("policy.learn.learner", "policy.collect.collector", "policy.eval.evaluator"),
    *("policy.model", "policy.other.replay_buffer", "policy.other.commander"),
)
# Sections that may also be None.
_OPTIONAL = ("policy.model", "policy.other.replay_buffer", "policy.other.commander")
_MAX_SEED = 2**32 - 1


def check_keys(tree: Any, where: str) -> None:
    """Check that all keys of a config can be attributes of an `EasyDict`, and hide no method that reads it.

    Raises:
        ConfigError: a key cannot; the message names the key and its section.
    """
    if isinstance(tree, (list, tuple)):
        for value in tree:
            check_keys(value, where)
    if not isinstance(tree, Mapping):
        return
    for key in tree:
        if not isinstance(key, str) or key in ("get", "items"):
            raise ConfigError(
                f"the key {key!r} in {where} is not allowed: the keys of a config are attributes; choose a name that "
                "is a str and no method of a dict"
            )
    for key, value in dict.items(tree) if isinstance(tree, dict) else tree.items():
        check_keys(value, f"{where}.{key}")


def check_sections(user: Mapping[str, Any]) -> None:
    """Check that the sections of a user's main config are dicts.

    Raises:
        ConfigError: a section is not a dict; the message names it.
    """
    for path in _SECTIONS:
        *above, key = path.rsplit(".", 1)
        section = value_at(user, above[0]) if above else user
        is_section = key not in (section or {}) or isinstance(section[key], Mapping)
        if not is_section and not (path in _OPTIONAL and section[key] is None):
            raise ConfigError(
                f"{path} = {section[key]!r} is not allowed; it must be a dict; leave it out for the defaults"
            )


def check_seed(seed: Any) -> int:
    """Return `seed` as a Python int, because some generators do not take numpy's ints.

    Raises:
        ConfigError: it is not an int in [0, 2**32 - 1].
    """
    if count(0)(seed) is not None or seed > _MAX_SEED:
        raise ConfigError(f"seed = {seed!r} is not allowed; it must be an int in [0, {_MAX_SEED}], such as seed=0")
    return int(seed)


def check_import_names(tree: Mapping[str, Any], where: str) -> None:
    """Check that `import_names` is a list in all sections of the config `where`.

    Raises:
        ConfigError: it is not a list in a section, which the message names.
    """
    for key, value in tree.items():
        if isinstance(value, Mapping):
            check_import_names(value, f"{where}.{key}")
        elif key == "import_names" and instance_of(list, tuple, optional=True)(value) is not None:
            hint = f"; write {where}.import_names = [{value!r}]" if isinstance(value, str) else ""
            raise ConfigError(
                f"{where}.import_names = {value!r} is not allowed; it must be a list of module names{hint}"
            )


def check_values(main: Mapping[str, Any], has_buffer: bool) -> None:
    """Check values of a compiled main config that would otherwise fail during the run only.

    Args:
        main: the compiled main config.
        has_buffer: whether `policy.other.replay_buffer` is the section of a buffer.

    Raises:
        ConfigError: a count is not an int, `exp_name` is empty, or a batch does not fit into the buffer.
    """
    for path, setting in MAIN_SETTINGS.items():
        value = value_at(main, path, _MISSING)
        allowed = None if value is _MISSING or setting.rule is None else setting.rule(value)
        if allowed is not None:
            hint = f"; write {int(value)}" if isinstance(value, float) and value.is_integer() else ""
            raise ConfigError(f"{path} = {value!r} is not allowed; it must be {allowed}{hint}")
    if has_buffer and not value_at(main, "policy.on_policy"):
        _check_batch_fits(main)


def _check_batch_fits(main: Mapping[str, Any]) -> None:
    where = "policy.learn.batch_size" if value_at(main, "policy.batch_size") is None else "policy.batch_size"
    batch_size, size = value_at(main, where), value_at(main, "policy.other.replay_buffer.replay_buffer_size")
    is_known = isinstance(batch_size, int) and isinstance(size, (int, float))
    if is_known and batch_size > size:
        raise ConfigError(
            f"policy.other.replay_buffer.replay_buffer_size = {size!r} is not allowed; it must be at least {where} = "
            f"{batch_size!r}; increase the size or reduce the batch"
        )


def value_at(tree: Any, path: str, default: Any = None) -> Any:
    """Return the value at the dotted path, or `default` if it is missing."""
    for key in path.split("."):
        if not isinstance(tree, Mapping) or key not in tree:
            return default
        tree = tree[key]
    return tree
