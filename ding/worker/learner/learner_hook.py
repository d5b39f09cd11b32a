"""The hook table of a learner: build it from a config, extend, merge and print it."""

from __future__ import annotations

import sys
from bisect import bisect_right
from collections.abc import Callable, Mapping
from typing import Any

from easydict import EasyDict

from ding.utils.config_helper import Rule, anything, check_config, edit_distance, instance_of, number
from ding.worker.learner.builtin_hooks import LoadCkptHook, LogReduceHook, LogShowHook, SaveCkptHook
from ding.worker.learner.hook_base import Hook, LearnerHook, PeriodicHook

__all__ = [
    "Hook",
    "HookTable",
    "LearnerHook",
    "LoadCkptHook",
    "LogReduceHook",
    "LogShowHook",
    "PeriodicHook",
    "SaveCkptHook",
    "add_learner_hook",
    "build_learner_hook_by_cfg",
    "find_char",
    "hook_mapping",
    "merge_hooks",
    "register_learner_hook",
    "show_hooks",
    "simplified_hook_mapping",
]

# The hooks of each position in the order in which they run: by priority, then by insertion.
HookTable = dict[str, list[LearnerHook]]

hook_mapping: dict[str, type[LearnerHook]] = {
    "load_ckpt": LoadCkptHook,
    "save_ckpt": SaveCkptHook,
    "log_show": LogShowHook,
    "log_reduce": LogReduceHook,
}


def find_char(s: str, flag: str, num: int, reverse: bool = False) -> int:
    """Returns the index of the `num`-th `flag` in `s`, counted from the end if `reverse`; -1 if there are fewer.

    Raises:
        AssertionError: `num` is not positive.
    """
    if num <= 0:
        raise AssertionError(f"find_char: num = {num} is not allowed; it must be at least 1, the first occurrence")
    found = [index for index, char in enumerate(s) if char == flag]
    if len(found) < num:
        return -1
    return found[-num] if reverse else found[num - 1]


def _simplified(
    type_name: str, name: str, priority: float, position: str, arg: str | None = None
) -> Callable[[Any], LearnerHook]:
    """Returns a function that builds a hook of a value; it looks up the class at each call."""

    def build(value: Any) -> LearnerHook:
        ext_args = EasyDict() if arg is None else EasyDict({arg: value})
        return hook_mapping[type_name](name, priority, position=position, ext_args=ext_args)

    return build


simplified_hook_mapping: dict[str, Callable[[Any], LearnerHook]] = {
    "load_ckpt_before_run": _simplified("load_ckpt", "load_ckpt", 20, "before_run", "load_path"),
    "log_show_after_iter": _simplified("log_show", "log_show", 20, "after_iter", "freq"),
    "save_ckpt_after_iter": _simplified("save_ckpt", "save_ckpt_after_iter", 20, "after_iter", "freq"),
    "save_ckpt_after_run": _simplified("save_ckpt", "save_ckpt_after_run", 20, "after_run"),
    "log_reduce_after_iter": _simplified("log_reduce", "log_reduce_after_iter", 10, "after_iter"),
}

# Keys whose value is True or False.
_SWITCHES = ("save_ckpt_after_run", "log_reduce_after_iter")

_FULL_FORM: dict[str, Rule] = {
    "name": instance_of(str),
    "type": instance_of(str),
    "priority": number(),
    "position": anything,
    "ext_args": instance_of(Mapping),
}


def build_learner_hook_by_cfg(cfg: Mapping[str, Any]) -> HookTable:
    """Build the hooks of a `hook` config section, `{key: value}`.

    A simplified key takes a plain value: a path for `load_ckpt_before_run`, a number of iterations for
    `log_show_after_iter` and `save_ckpt_after_iter`, True or False for `save_ckpt_after_run` and
    `log_reduce_after_iter`. Any key takes the full form, `EasyDict(name=, type=, priority=100, position=, ext_args={})`
    with a type of `hook_mapping`.

    Raises:
        AttributeError: a simplified key is unknown, or a full form lacks a field or is not an EasyDict.
        KeyError: the `type` is unknown.
        AssertionError: the position is unknown or the priority is negative.
        ConfigError: a value has the wrong type or range, such as `freq` 0.

    Example:
        >>> hooks = build_learner_hook_by_cfg({"log_show_after_iter": 100, "save_ckpt_after_run": True})
        >>> [hook.name for hook in hooks["after_iter"]], [hook.name for hook in hooks["after_run"]]
        (['log_show'], ['save_ckpt_after_run'])
    """
    hooks: HookTable = {position: [] for position in LearnerHook.positions}
    for key, value in cfg.items():
        if isinstance(value, Mapping):
            add_learner_hook(hooks, _build_full(key, value))
        elif key not in simplified_hook_mapping:
            raise AttributeError(_unknown_key(key))
        elif value or key not in _SWITCHES:
            add_learner_hook(hooks, simplified_hook_mapping[key](value))
    return hooks


def unknown_hooks(cfg: Mapping[str, Any]) -> list[str]:
    """Return the keys of a `hook` config section that are neither a simplified key nor have a full form."""
    return [key for key, value in cfg.items() if not isinstance(value, Mapping) and key not in simplified_hook_mapping]


def _build_full(key: str, form: Mapping[str, Any]) -> LearnerHook:
    where = f"the hook config {key!r}"
    if not isinstance(form, EasyDict):
        raise AttributeError(f"{where} is a {type(form).__name__}; make it an EasyDict, whose keys are attributes")
    missing = [field for field in ("name", "type", "position") if field not in form]
    if missing:
        raise AttributeError(f"{where} lacks {', '.join(missing)}; the fields are {', '.join(_FULL_FORM)}")
    check_config(form, where, _FULL_FORM)
    if form.type not in hook_mapping:
        raise KeyError(f"{where}: unknown type {form.type!r}; registered: {', '.join(sorted(hook_mapping))}")
    hook_type = hook_mapping[form.type]
    return hook_type(
        form.name, form.get("priority", 100), position=form.position, ext_args=form.get("ext_args", EasyDict())
    )


def _unknown_key(key: str) -> str:
    nearest = min(simplified_hook_mapping, key=lambda known: edit_distance(key, known))
    return (
        f"unknown hook config key {key!r}; did you mean {nearest!r}? A plain value goes with one of "
        f"{', '.join(simplified_hook_mapping)}; any other hook needs the full form, EasyDict(name=, type=, position=)"
    )


def add_learner_hook(hooks: HookTable, hook: LearnerHook) -> None:
    """Insert `hook` in place, after the hooks of its position with the same or a lower priority number.

    Raises:
        AssertionError: `hook` is not a `Hook`.
    """
    if not isinstance(hook, Hook):
        raise AssertionError(f"hook must be a LearnerHook, not {hook!r}")
    row = hooks[hook.position]
    row.insert(bisect_right(row, hook.priority, key=lambda other: other.priority), hook)


def merge_hooks(hooks1: HookTable, hooks2: HookTable) -> HookTable:
    """Returns a new table with the hooks of both; hooks of `hooks1` precede hooks of `hooks2` of equal priority.

    Raises:
        AssertionError: the tables have different positions.
    """
    if hooks1.keys() != hooks2.keys():
        raise AssertionError(f"hook tables of different positions cannot be merged: {list(hooks1)} and {list(hooks2)}")
    return {key: sorted(hooks1[key] + hooks2[key], key=lambda hook: hook.priority) for key in hooks1}


def register_learner_hook(name: str, hook_type: type[LearnerHook]) -> None:
    """Register `hook_type` as the type `name` of hook configs; replaces an existing entry.

    Simplified keys use the registered classes: after registering `log_show`, `log_show_after_iter` builds that class.

    Raises:
        TypeError: `hook_type` is not a class.
        AssertionError: `hook_type` is not a subclass of LearnerHook.

    Example:
        >>> class MyHook(LearnerHook):
        ...     def __call__(self, engine):
        ...         engine.info(f"iteration {engine.train_iter}")
        >>> register_learner_hook("mine", MyHook)
    """
    if not isinstance(hook_type, type):
        raise TypeError(f"register_learner_hook({name!r}, ...) needs a class, not {hook_type!r}")
    if not issubclass(hook_type, LearnerHook):
        raise AssertionError(f"hook type {name!r}: {hook_type.__name__} is not a subclass of LearnerHook")
    hook_mapping[name] = hook_type


def show_hooks(hooks: HookTable) -> None:
    """Print the class names of the hooks, one line per position."""
    for position, row in hooks.items():
        sys.stdout.write(f"{position}: {', '.join(type(hook).__name__ for hook in row) or '-'}\n")
