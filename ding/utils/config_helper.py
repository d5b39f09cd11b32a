"""Checks of configuration sections: names of keys, types and ranges of values."""

from __future__ import annotations

import copy
import inspect
import math
import numbers
from collections.abc import Callable, Collection, ItemsView, Iterable, Iterator, Mapping
from difflib import get_close_matches
from functools import cache, reduce
from typing import Any, ClassVar, NamedTuple

from easydict import EasyDict

from ding.utils.log_helper import one_time_warning

# A rule returns None for an allowed value, else a description of the allowed values.
Rule = Callable[[Any], "str | None"]


class ConfigError(ValueError, AssertionError):
    """A configuration value or key is not allowed; also an AssertionError, as DI-engine raises."""


def _rule(allowed: str, accepts: Callable[[Any], bool], optional: bool = False) -> Rule:
    if optional:
        allowed += " or None"
    return lambda value: None if (optional if value is None else accepts(value)) else allowed


def _is_number(value: Any, minimum: float, maximum: float) -> bool:
    is_number = isinstance(value, numbers.Real) and not isinstance(value, bool)
    return is_number and minimum <= float(value) <= maximum


def number(minimum: float = -math.inf, maximum: float = math.inf, *, optional: bool = False) -> Rule:
    """Return a rule for real numbers in [minimum, maximum]: they may be infinite, but not NaN or a bool."""
    return _rule(f"a number in [{minimum}, {maximum}]", lambda value: _is_number(value, minimum, maximum), optional)


def integer(minimum: float = -math.inf, maximum: float = math.inf, *, optional: bool = False) -> Rule:
    """Return a rule for whole numbers in [minimum, maximum], which may be floats such as 1e4."""
    return _rule(
        f"an integer in [{minimum}, {maximum}]",
        lambda value: _is_number(value, minimum, maximum) and float(value).is_integer(),
        optional=optional,
    )


def count(minimum: int) -> Rule:
    """Return a rule for ints of `minimum` or more, without floats, because the value is used in slices and ranges."""
    return _rule(
        f"an int of {minimum} or more",
        lambda value: isinstance(value, numbers.Integral) and _is_number(value, minimum, math.inf),
    )


def positive(value: Any) -> str | None:
    """Apply the rule for a number above 0."""
    return "a number above 0" if number()(value) is not None or value <= 0 else None


def one_of(*choices: Any) -> Rule:
    """Return a rule for one of `choices`, compared by `==`."""
    allowed = "one of " + ", ".join(map(repr, choices))
    return lambda value: None if value in choices else allowed


def instance_of(*types: type, optional: bool = False) -> Rule:
    """Return a rule for instances of one of `types`."""
    return _rule(" or ".join(kind.__name__ for kind in types), lambda value: isinstance(value, types), optional)


def boolean(value: Any) -> str | None:
    """Apply the rule for True or False."""
    return None if isinstance(value, bool) else "True or False"


def anything(value: Any) -> str | None:
    """Apply the rule that allows any value; a section is not checked further."""
    return None


# The default of keys that are read where they are given, and are not in the default config.
NO_DEFAULT: Any = inspect.Parameter.empty


class Setting(NamedTuple):
    """One key of a config section: its default, the check of its values (None: none), and its meaning."""

    default: Any = NO_DEFAULT
    rule: Rule | None = None
    doc: str = ""

    def completed(self, other: Setting) -> Setting:
        """Return this setting, completed by values of `other` for those that it leaves out."""
        default = other.default if self.default is NO_DEFAULT else self.default
        return Setting(default, self.rule or other.rule, self.doc or other.doc)


class Settings(Mapping[str, Setting]):
    """The config keys that a class reads, by dotted path: their defaults, checks and meanings in one table.

    A value of the table is a `Setting`, or a default alone. A default, rule or meaning that it leaves out is that of
    the same path in `base`, or of the longest ending of the path that `glossary` has; so use the rule `anything` for a
    key that is not checked although others of its name are. A section with a rule is open: keys in it without a setting
    of their own are accepted.

    Args:
        table: the keys.
        base: the settings that the table adds to and overrides.
        glossary: settings of keys that several classes have, by an ending of their path. That of `base` is kept.
        without: keys of `base` that the class does not read.

    Example:
        >>> common = {"batch_size": Setting(rule=integer(1), doc="Number of samples in a batch.")}
        >>> base = Settings({"cuda": Setting(False, boolean, "Compute on a GPU.")}, glossary=common)
        >>> settings = Settings({"cuda": True, "learn.batch_size": 64}, base)
        >>> settings.config()
        {'cuda': True, 'learn': {'batch_size': 64}}
        >>> settings["learn.batch_size"].doc
        'Number of samples in a batch.'
    """

    def __init__(
        self,
        table: Mapping[str, Any],
        base: Settings | None = None,
        glossary: Mapping[str, Setting] | None = None,
        without: Collection[str] = (),
    ) -> None:
        self._glossary: dict[str, Setting] = {**(base._glossary if base is not None else {}), **(glossary or {})}
        self._settings = {path: setting for path, setting in (base or {}).items() if path not in without}
        for path, value in table.items():
            setting = value if isinstance(value, Setting) else Setting(value)
            self._settings[path] = setting.completed(self._known(path))
        self._rules: dict[str, Rule] | None = None

    def _known(self, path: str) -> Setting:
        names = path.split(".")
        endings = (".".join(names[i:]) for i in range(len(names)))
        glossary = next((self._glossary[ending] for ending in endings if ending in self._glossary), Setting())
        return self._settings.get(path, glossary)

    def __getitem__(self, path: str) -> Setting:
        return self._settings[path]

    def __iter__(self) -> Iterator[str]:
        return iter(self._settings)

    def __len__(self) -> int:
        return len(self._settings)

    def items(self) -> ItemsView[str, Setting]:
        """Return the paths and settings."""
        return self._settings.items()

    def rules(self) -> Mapping[str, Rule]:
        """Return the rule of each key, except for sections without a rule of their own."""
        if self._rules is None:
            sections = {path.rpartition(".")[0] for path in self._settings}
            rules = {path: setting.rule for path, setting in self._settings.items()}
            self._rules = {path: rule or anything for path, rule in rules.items() if rule or path not in sections}
        return self._rules

    def section(self, path: str) -> Settings:
        """Return the settings below a dotted path."""
        start = f"{path}."
        return Settings({key[len(start) :]: setting for key, setting in self.items() if key.startswith(start)})

    def config(self) -> dict[str, Any]:
        """Return a new nested dict of all defaults."""
        cfg: dict[str, Any] = {}
        for path, setting in self._settings.items():
            if setting.default is NO_DEFAULT:
                continue
            *sections, key = path.split(".")
            section = cfg
            for name in sections:
                section = section.setdefault(name, {})
            section[key] = copy.deepcopy(setting.default)
        return cfg


class Configurable:
    """A class with a table of settings, from which its default config and the checks of its config come.

    `config` is made from `settings` if a class does not define it. A class of a user may define `config` alone. A class
    with several bases has the settings of all of them; those of earlier bases have precedence.
    """

    settings: ClassVar[Settings] = Settings({})
    config: ClassVar[dict[str, Any]] = {}

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        own_settings = cls.__dict__.get("settings")
        if own_settings is None and len(cls.__bases__) > 1:
            tables = [settings_of(base) for base in cls.__bases__ if issubclass(base, Configurable)]
            cls.settings = reduce(lambda base, table: Settings(table, base), reversed(tables))
        elif isinstance(own_settings, Settings) and "config" not in cls.__dict__:
            cls.config = cls.settings.config()

    @classmethod
    def default_config(cls) -> EasyDict:
        """Return a deep copy of `config` with the additional key `cfg_type` = `<ClassName>Dict`."""
        return default_config_of(cls)


# Keys of every section.
EVERYWHERE = frozenset(("type", "import_names", "cfg_type", "name"))


def is_of_package(cls: Any) -> bool:
    """Return whether a class or function belongs to this package."""
    return str(getattr(cls, "__module__", "")).partition(".")[0] == __name__.partition(".")[0]


def settings_of(cls: Any) -> Settings:
    """Return the settings of a class and its base classes.

    A class from outside may define `config`, `default_config` or `config_keys` instead; its settings then lack rules.
    """
    bases = getattr(cls, "__mro__", (cls,))
    settings = getattr(cls, "settings", None)
    if isinstance(settings, Settings) and is_of_package(cls) and _is_in_tables(cls):
        return settings
    tables = (vars(base).get("settings") for base in bases if hasattr(base, "__dict__"))
    table: dict[str, Setting] = dict(next((table for table in tables if isinstance(table, Settings)), {}))
    for base in reversed(bases):
        settings = getattr(base, "__dict__", {})
        if isinstance(settings.get("config"), Mapping) and not isinstance(settings.get("settings"), Settings):
            _add_paths(table, settings["config"])
        for key in settings.get("config_keys") or ():
            table.setdefault(key, Setting())
    if hasattr(cls, "default_config") and not is_of_package(cls):
        _add_paths(table, cls.default_config())
    return Settings(table)


@cache
def _is_in_tables(cls: type) -> bool:
    """Return whether a class and its bases have all keys that they read in tables of settings."""
    owns = [vars(base) for base in cls.__mro__]
    return not any(own.get("config_keys") or ("config" in own and "settings" not in own) for own in owns)


def _add_paths(table: dict[str, Setting], config: Mapping[str, Any], prefix: str = "") -> None:
    for key, value in config.items():
        path = f"{prefix}{key}"
        if isinstance(value, Mapping) and value:
            _add_paths(table, value, f"{path}.")
        elif key not in EVERYWHERE:
            table[path] = table.get(path, Setting())._replace(default=value)


def check_section(cfg: Mapping[str, Any], cls: type, where: str = "", required: Iterable[str] = ()) -> None:
    """Check the section of a config from which an object of `cls` is constructed, by the settings of the class.

    Unknown keys are allowed; they are named when a config is compiled.

    Args:
        where: name of the object, for messages; by default that of the class.
        required: keys that must be present.

    Raises:
        ConfigError: a required key is missing, or a value is not allowed.
    """
    check_values(cfg, where or cls.__name__, settings_of(cls).rules(), required)


def check_config(cfg: Mapping[str, Any], where: str, rules: Mapping[str, Rule], required: Iterable[str] = ()) -> None:
    """Check a section of a config by the rules of its keys; an unknown key logs one warning.

    Args:
        cfg: the section.
        where: name of the object, for messages.
        rules: the rule of each known key. Nested keys are dotted, such as `monitor.periodic_thruput.seconds`.
        required: keys that must be present.

    Raises:
        ConfigError: a required key is missing, or a value is not allowed.
    """
    for path in check_values(cfg, where, rules, required):
        section, dot, name = path.rpartition(".")
        prefix = section + dot
        similar = nearest(name, {key[len(prefix) :].split(".")[0] for key in rules if key.startswith(prefix)})
        meant = "" if similar is None else f"; did you mean {prefix + similar}?"
        one_time_warning(f"{where}: ding does not read the config key {path}{meant}")


def check_values(
    cfg: Mapping[str, Any], where: str, rules: Mapping[str, Rule], required: Iterable[str] = ()
) -> list[str]:
    """Check like `check_config`, and return the paths of unknown keys; `type`, `import_names`, ... are always known."""
    known = {**dict.fromkeys(EVERYWHERE, anything), **rules}
    unknown = list(_unknown_keys(cfg, where, "", known))
    for key in required:
        if value_at(cfg, key, NO_DEFAULT) is NO_DEFAULT:
            raise ConfigError(f"{where}: the config key {key!r} is missing; it must be {rules[key](object())}")
    return unknown


def _unknown_keys(section: Mapping[str, Any], where: str, prefix: str, rules: Mapping[str, Rule]) -> Iterator[str]:
    """Yield the paths of unknown keys, and raise ConfigError for values that are not allowed."""
    siblings = {key[len(prefix) :].split(".")[0] for key in rules if key.startswith(prefix)}
    for name, value in section.items():
        path = f"{prefix}{name}"
        if path in rules:
            allowed = rules[path](value)
            if allowed is not None:
                raise ConfigError(f"{where}: {path} = {value!r} is not allowed; it must be {allowed}")
        elif name not in siblings:
            yield path
        elif isinstance(value, Mapping):
            yield from _unknown_keys(value, where, f"{path}.", rules)
        else:
            raise ConfigError(f"{where}: {path} = {value!r} is not allowed; it must be a dict")


def value_at(tree: Any, path: str, default: Any = None) -> Any:
    """Return the value at the dotted path, or `default` if a part of the path is missing."""
    for key in path.split("."):
        if not isinstance(tree, Mapping) or key not in tree:
            return default
        tree = tree[key]
    return tree


def nearest(name: str, known: Iterable[str], least: float = 0.8) -> str | None:
    """Return the known name of which `name` is a misspelling, or None if none has a similarity of `least` to it."""
    return next(iter(get_close_matches(name, known, n=1, cutoff=least)), None)


def default_config_of(cls: type) -> EasyDict:
    """Return a deep copy of `cls.config` with the additional key `cfg_type` = `<ClassName>Dict`."""
    cfg = EasyDict(copy.deepcopy(cls.config))  # type: ignore[attr-defined]
    cfg.cfg_type = f"{cls.__name__}Dict"
    return cfg
