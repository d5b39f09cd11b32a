"""Checks of a user's config at compilation: names and sections of keys, and values that would fail only later."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from typing import Any

from ding.utils.config_helper import ConfigError, count, edit_distance, instance_of, nearest
from ding.utils.default_helper import one_time_warning
from ding.utils.import_helper import import_module
from ding.utils.registry_factory import MODEL_REGISTRY

_Names = dict[str, Any]  # known key -> known keys of its section; {} if it is not a section, or takes any key

# Keys that are known in every section.
_EVERYWHERE = frozenset(("type", "import_names", "cfg_type", "name"))
_TOP = ("exp_name", "env", "policy", "seed", "reward_model", "world_model", "logger", "run_state")
_ENV = (
    "manager",
    "stop_value",
    "n_evaluator_episode",
    "collector_env_num",
    "evaluator_env_num",
    "collector_episode_num",
    "evaluator_episode_num",
    "replay_path",
    "norm_obs",
    "eval_opponent",
)
# Keys that entries, workers and data sets read from a policy section, with or without a default in the policy's class.
_POLICY = (
    "load_path",
    "random_collect_size",
    "transition_with_policy_data",
    "batch_size",
    "unroll_len",
    "n_sample",
    "n_episode",
    "traj_len_inf",
    "learn.learner",
    "learn.batch_size",
    "learn.update_per_collect",
    "learn.train_epoch",
    "learn.resume_training",
    "collect.collector",
    "collect.n_sample",
    "collect.n_episode",
    "collect.unroll_len",
    "collect.traj_len_inf",
    "collect.env_num",
    "collect.data_type",
    "collect.data_path",
    "collect.save_path",
    "collect.trusted",
    "collect.normalize_states",
    "collect.download",
    "collect.model_path",
    "eval.evaluator",
    "eval.env_num",
    "other.replay_buffer",
    "other.commander",
    "other.eps",
    "other.eps.collect",
)
# Keys without a default that workers accept in their sections, and that users may write to other sections.
_WORKER_EXTRAS = {
    "policy.learn.learner": ("learner_num", "send_policy_freq"),
    "policy.collect.collector": ("collector_num",),
}
_FIELDS = ("learn", "collect", "eval", "other")
# Sections whose keys are checked by the class that reads them, at construction.
_WORKERS = (
    "env.manager",
    "policy.learn.learner",
    "policy.collect.collector",
    "policy.eval.evaluator",
    "policy.other.replay_buffer",
    "policy.other.commander",
)
# Keys of a policy that some worker also reads from its own section.
_WORKER_KEYS = frozenset(("n_episode", "multi_gpu", "load_path", "priority", "priority_IS_weight"))
# Sections that must be dicts, if present.
_SECTIONS = ("env", "env.manager", "policy", *(f"policy.{name}" for name in _FIELDS), *_WORKERS[1:4])
_OWN = ("policy", *(f"policy.{name}" for name in _FIELDS))
# Smallest value of keys that must be an int or None.
_COUNTS = {
    "env.collector_env_num": 1,
    "env.evaluator_env_num": 1,
    "env.n_evaluator_episode": 1,
    "policy.batch_size": 1,
    "policy.learn.batch_size": 1,
    "policy.n_sample": 1,
    "policy.collect.n_sample": 1,
    "policy.n_episode": 1,
    "policy.collect.n_episode": 1,
    "policy.learn.update_per_collect": 0,
    "policy.random_collect_size": 0,
}
_MAX_SEED = 2**32 - 1


def check_key_names(
    user: Mapping[str, Any], defaults: Mapping[str, Any], compiled: Mapping[str, Any], policy: Any, env: Any = None
) -> None:
    """Raise if a key in `user` is misspelt or in the wrong section.

    A key is known if it has a default, a rule of the policy's class or the signature of its model names it, an env
    class lists it in `config_keys` or `config`, or an entry reads it. An unknown key within edit distance 2 of a known
    key of its section is misspelt; for known names of up to four letters the distance must be smaller. An unknown key
    that is known in another section is in the wrong section, unless `user` has the same value there. Other unknown
    keys are accepted in `env`, `model` and the top level, and log one warning in the sections of the policy. In the
    sections of workers, which check their own keys, only keys of the policy are searched for.

    Args:
        user: The user's main config.
        defaults: The config before `user` is merged: class defaults and create config.
        compiled: The config after `user` is merged.
        policy: The policy's class.
        env: The env's class, or a function that creates envs.

    Raises:
        ConfigError: Names the key, and the nearest known key or the right section.
    """
    declared = _names_of(defaults)
    known = _names_of(defaults)
    for path in (*_TOP, *(f"env.{key}" for key in _ENV), *(f"policy.{key}" for key in _POLICY)):
        _add(known, path)
    for section, keys in _WORKER_EXTRAS.items():
        for key in keys if value_at(defaults, section) else ():
            _add(known, f"{section}.{key}")
    for path in getattr(policy, "settings", ()):
        _add(known, f"policy.{path}")
    env_keys = {*getattr(env, "config_keys", ()), *_names_of(getattr(env, "config", None) or {})}
    for key in env_keys:
        _add(known, f"env.{key}")
    arguments, is_model_open = _model_arguments(policy, compiled.get("policy") or {})
    for key in arguments:
        _add(known, f"policy.model.{key}")
        _add(declared, f"policy.model.{key}")
    if not arguments:  # the defaults need not be all arguments of the model
        known["policy"]["model"] = {}
    is_env_open = not env_keys and not hasattr(env, "default_config")
    _KeyNames(known, declared, is_env_open, is_model_open).check(user)


class _KeyNames:
    """Checks the keys of a user's config; see `check_key_names`."""

    def __init__(self, known: _Names, declared: _Names, is_env_open: bool, is_model_open: bool) -> None:
        self._known, self._declared = known, declared
        self._is_env_open, self._is_model_open = is_env_open, is_model_open

    def check(self, user: Mapping[str, Any]) -> None:
        self._user = user
        self._check_near("", _unknown(user, self._known), self._known)
        for name in ("env", "policy"):
            if isinstance(user.get(name), Mapping):
                self._check(name, user[name], self._known[name])

    def _check(self, path: str, section: Mapping[str, Any], names: _Names) -> None:
        unknown = _unknown(section, names)
        for key in unknown:
            self._check_section(path, key, section[key])
        if path in _WORKERS:
            return
        self._check_near(path, unknown, names)
        if path.startswith("policy") and path != "policy.model":
            for key in unknown:
                one_time_warning(f"config key {path}.{key} is unknown; it has an effect only if your code reads it")
        for key, value in section.items():
            if isinstance(value, Mapping) and names.get(key):
                self._check(f"{path}.{key}", value, names[key])

    def _check_near(self, path: str, unknown: list[str], names: _Names) -> None:
        where = f"{path}." if path else ""
        for key in unknown:
            meant = _similar(key, (*names, *_EVERYWHERE))
            if meant is not None:
                raise ConfigError(
                    f"unknown config key {where + key!r}; did you mean {where + meant!r}? If your code reads "
                    f"this key, add it to {_declaration(path)}"
                )

    def _check_section(self, path: str, key: str, value: Any) -> None:
        # Keys with a default come first: they are the usual ones.
        others = list(self._matches(path, key, self._declared)) or list(self._matches(path, key, self._known))
        is_repeated = isinstance(value, (str, int, float)) and any(
            value_at(self._user, other) == value for other in others
        )
        if not others or is_repeated:
            return
        message = f"config key '{path}.{key}' has no effect; it belongs to {' or '.join(map(repr, others))}"
        if path == "env" and self._is_env_open:  # the env may read it
            one_time_warning(f"{message}, unless the env reads it")
        else:
            raise ConfigError(message)

    def _matches(self, path: str, key: str, names: _Names) -> Iterator[str]:
        """Yields the known keys of other sections that `key` may stand for."""
        if path == "policy.model" and self._is_model_open:
            return
        for section, keys in _sections(names):
            if key in keys and _may_mean(path, key, section):
                yield f"{section}.{key}"


def _unknown(section: Mapping[str, Any], names: _Names) -> list[str]:
    return [str(key) for key in section if key not in names and key not in _EVERYWHERE]


def _may_mean(path: str, key: str, section: str) -> bool:
    """Returns whether `key` in the section `path` may be meant as that of `section`."""
    if path.startswith("env"):
        return {path, section} == {"env", "env.manager"}
    if path in _WORKERS:
        return section in _OWN and key not in _WORKER_KEYS
    # Short names, such as alpha, have different meanings in different sections.
    return section in _OWN or section.startswith(f"{path}.") or "_" in key


def _sections(names: _Names, path: str = "") -> Iterator[tuple[str, _Names]]:
    """Yields all sections and their keys, outer ones first. Of a worker's sub-sections, only `hook`."""
    for key, under in names.items():
        here = f"{path}.{key}" if path else key
        if under and here.startswith(("env", "policy")):
            yield here, under
            if here not in _WORKERS:
                yield from _sections(under, here)
            elif under.get("hook"):
                yield f"{here}.hook", under["hook"]


def _similar(name: str, known: tuple[str, ...]) -> str | None:
    """Returns the known name that `name` is a misspelling of, or None."""
    distance, similar = min((edit_distance(name, key), key) for key in known)
    # Two other letters make a short name a different one, unless they are swapped.
    is_near = 2 * distance < len(similar) or sorted(name) == sorted(similar)
    return similar if distance <= 2 and is_near else None


def _declaration(path: str) -> str:
    if path.startswith("env"):
        return "`config_keys` of the env's class"
    return "the constructor of the model" if path == "policy.model" else "`config` of the policy's class"


def _names_of(tree: Mapping[str, Any]) -> _Names:
    return {key: _names_of(value) if isinstance(value, Mapping) else {} for key, value in tree.items()}


def _add(names: _Names, path: str) -> None:
    for key in path.split("."):
        names = names.setdefault(key, {})


def _model_arguments(policy: Any, cfg: Mapping[str, Any]) -> tuple[list[str], bool]:
    """Returns the argument names of the policy's model, and whether it may take others."""
    section = cfg.get("model") or {}
    kind, modules = section.get("type"), section.get("import_names")
    if kind is None:
        kind, modules = _default_model(policy, cfg)
    try:
        import_module(modules)
    except ImportError:  # raised later, if the model is created: the user may pass a model instead
        return [], True
    if kind not in MODEL_REGISTRY:
        return [], True
    parameters = inspect.signature(MODEL_REGISTRY[kind]).parameters.values()
    named = [parameter.name for parameter in parameters if parameter.kind is not parameter.VAR_KEYWORD]
    return named, len(named) < len(parameters)


def _default_model(policy: Any, cfg: Mapping[str, Any]) -> tuple[Any, Any]:
    if not hasattr(policy, "default_model") or inspect.isabstract(policy):
        return None, None
    blank = policy.__new__(policy)
    blank._cfg = cfg
    try:
        kind, modules = blank.default_model()
    except (AttributeError, NotImplementedError, ConfigError):  # no default model, or it depends on missing keys
        return None, None
    return kind, modules


def check_sections(user: Mapping[str, Any]) -> None:
    """Raise if a section of a user's main config is not a dict.

    Raises:
        ConfigError: Names the section.
    """
    for path in _SECTIONS:
        *above, key = path.rsplit(".", 1)
        section = value_at(user, above[0]) if above else user
        if key in (section or {}) and not isinstance(section[key], Mapping):
            raise ConfigError(
                f"{path} = {section[key]!r} is not allowed; it must be a dict; leave it out for the defaults"
            )


def check_seed(seed: Any) -> int:
    """Returns `seed` as a Python int, because some generators do not take numpy's ints.

    Raises:
        ConfigError: If it is not an int in [0, 2**32 - 1].
    """
    if count(0)(seed) is not None or seed > _MAX_SEED:
        raise ConfigError(f"seed = {seed!r} is not allowed; it must be an int in [0, {_MAX_SEED}], such as seed=0")
    return int(seed)


def check_import_names(tree: Mapping[str, Any], where: str) -> None:
    """Raise if `import_names` is not a list, or misspelt, in any section of the config `where`.

    Raises:
        ConfigError: Names the section.
    """
    for key, value in tree.items():
        if key != "import_names" and nearest(str(key), ["import_names"]):
            raise ConfigError(f"unknown config key '{where}.{key}'; did you mean '{where}.import_names'?")
        if isinstance(value, Mapping):
            check_import_names(value, f"{where}.{key}")
        elif key == "import_names" and instance_of(list, tuple, optional=True)(value) is not None:
            hint = f"; write {where}.import_names = [{value!r}]" if isinstance(value, str) else ""
            raise ConfigError(
                f"{where}.import_names = {value!r} is not allowed; it must be a list of module names{hint}"
            )


def check_values(main: Mapping[str, Any], has_buffer: bool) -> None:
    """Raise for values of a compiled main config that would fail only during the run.

    Args:
        main: The compiled main config.
        has_buffer: Whether `policy.other.replay_buffer` is the section of a buffer.

    Raises:
        ConfigError: If a count is not an int, `exp_name` is empty, or a batch does not fit into the buffer.
    """
    exp_name = main["exp_name"]
    if not isinstance(exp_name, str) or not exp_name:
        raise ConfigError(
            f"exp_name = {exp_name!r} is not allowed; it must be a folder name; leave it out for the default"
        )
    for path, minimum in _COUNTS.items():
        value = value_at(main, path)
        allowed = None if value is None else count(minimum)(value)
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


def value_at(tree: Any, path: str) -> Any:
    """Returns the value at the dotted path, None if it is missing."""
    for key in path.split("."):
        tree = tree.get(key) if isinstance(tree, Mapping) else None
    return tree
