"""Checks a configuration section when the object that reads it is constructed: known names, types, ranges."""

from __future__ import annotations

import copy
import math
import numbers
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from easydict import EasyDict

from ding.utils.default_helper import one_time_warning

# A rule answers None for a value it accepts, else the words for what is allowed.
Rule = Callable[[Any], "str | None"]


class ConfigError(ValueError, AssertionError):
    """A configuration value or name is wrong. Also an AssertionError, which DI-engine raised for what it checked."""


def number(minimum: float = -math.inf, maximum: float = math.inf, *, optional: bool = False) -> Rule:
    """A real number (not a bool, not NaN) within [minimum, maximum]; infinity counts as a number."""
    allowed = f"a number in [{minimum}, {maximum}]" + (" or None" if optional else "")

    def rule(value: Any) -> str | None:
        if value is None:
            return None if optional else allowed
        is_number = isinstance(value, numbers.Real) and not isinstance(value, bool)
        return None if is_number and minimum <= float(value) <= maximum else allowed

    return rule


def integer(minimum: float = -math.inf, maximum: float = math.inf, *, optional: bool = False) -> Rule:
    """A whole number (an integral float such as 1e4 passes) within [minimum, maximum]."""
    allowed = f"an integer in [{minimum}, {maximum}]" + (" or None" if optional else "")

    def rule(value: Any) -> str | None:
        if value is None:
            return None if optional else allowed
        is_number = isinstance(value, numbers.Real) and not isinstance(value, bool)
        is_whole = is_number and math.isfinite(value) and float(value).is_integer()
        return None if is_whole and minimum <= value <= maximum else allowed

    return rule


def count(minimum: int) -> Rule:
    """An int of `minimum` or more; an integral float does not pass, because such a value slices and ranges."""
    allowed = f"an int of {minimum} or more"

    def rule(value: Any) -> str | None:
        is_int = isinstance(value, numbers.Integral) and not isinstance(value, bool)
        return None if is_int and int(value) >= minimum else allowed

    return rule


def one_of(*choices: Any) -> Rule:
    """One of `choices`, compared with ==."""
    allowed = "one of " + ", ".join(map(repr, choices))
    return lambda value: None if value in choices else allowed


def instance_of(*types: type, optional: bool = False) -> Rule:
    """An instance of one of `types`."""
    allowed = " or ".join(t.__name__ for t in types) + (" or None" if optional else "")
    return lambda value: None if isinstance(value, types) or (optional and value is None) else allowed


def boolean(value: Any) -> str | None:
    """True or False."""
    return None if isinstance(value, bool) else "True or False"


def anything(value: Any) -> str | None:
    """A key that is known, with any value; a section under it is not looked into."""
    return None


def check_config(cfg: Mapping[str, Any], where: str, rules: Mapping[str, Rule], required: Iterable[str] = ()) -> None:
    """Check the section `cfg` of the object called `where`.

    `rules` maps each known key to its rule; nested keys are dotted (`monitor.periodic_thruput.seconds`). `type`,
    `import_names`, `cfg_type` and `name` are always known. `required` names keys that must be there.

    An unknown key within edit distance 2 of a known one raises and names it; any other unknown key warns once.

    Raises:
        ConfigError: a near-miss key, a value its rule refuses, or a missing required key.
    """
    known = {**dict.fromkeys(("type", "import_names", "cfg_type", "name"), anything), **rules}
    _check_section(cfg, where, "", known)
    for key in required:
        if not _has(cfg, key):
            raise ConfigError(f"{where}: the config key {key!r} is missing; allowed: {rules[key](object())}")


def _check_section(section: Mapping[str, Any], where: str, prefix: str, rules: Mapping[str, Rule]) -> None:
    siblings = {key[len(prefix) :].split(".")[0] for key in rules if key.startswith(prefix)}
    for name, value in section.items():
        path = f"{prefix}{name}"
        if path in rules:
            allowed = rules[path](value)
            if allowed is not None:
                raise ConfigError(f"{where}: {path} = {value!r} is not allowed; it must be {allowed}")
        elif name not in siblings:
            _unknown(where, prefix, str(name), siblings)
        elif isinstance(value, Mapping):
            _check_section(value, where, f"{path}.", rules)
        else:
            raise ConfigError(f"{where}: {path} = {value!r} is not allowed; it must be a section (a dict)")


def _unknown(where: str, prefix: str, name: str, siblings: Iterable[str]) -> None:
    similar = nearest(name, siblings)
    if similar is not None:
        raise ConfigError(f"{where}: unknown config key {prefix + name!r}; did you mean {prefix + similar!r}?")
    one_time_warning(f"{where}: config key {prefix + name!r} is unknown here and has no effect")


def _has(cfg: Mapping[str, Any], key: str) -> bool:
    head, _, rest = key.partition(".")
    return head in cfg and (not rest or _has(cfg[head], rest))


def edit_distance(a: str, b: str) -> int:
    """Levenshtein distance: single-character insertions, deletions and substitutions that turn `a` into `b`."""
    row = list(range(len(b) + 1))
    for i, char_a in enumerate(a, 1):
        diagonal, row[0] = row[0], i
        for j, char_b in enumerate(b, 1):
            diagonal, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, diagonal + (char_a != char_b))
    return row[-1]


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The name in `known` that is most like `name`, if their edit distance is 2 or less."""
    distance, similar = min(((edit_distance(name, key), key) for key in known), default=(3, ""))
    return similar if distance <= 2 else None


def default_config_of(cls: type) -> EasyDict:
    """A fresh deep copy of `cls.config` with the extra key `cfg_type` = `<ClassName>Dict`."""
    cfg = EasyDict(copy.deepcopy(cls.config))  # type: ignore[attr-defined]
    cfg.cfg_type = f"{cls.__name__}Dict"
    return cfg
