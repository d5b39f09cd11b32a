"""Checks a user's config when it is compiled: names of keys, their places, and values that would fail much later."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from typing import Any

from ding.utils.config_helper import ConfigError, count, edit_distance, instance_of, nearest
from ding.utils.default_helper import one_time_warning
from ding.utils.import_helper import import_module
from ding.utils.registry_factory import MODEL_REGISTRY

_Names = dict[str, Any]  # known key -> the known keys of the section under it; {} where there is none, or any may be

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
# What entries, workers and data sets read of a policy section, whether the policy's class has a default for it or not.
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
# What workers accept in their sections without having a default for it, and users may look for elsewhere.
_WORKER_EXTRAS = {
    "policy.learn.learner": ("learner_num", "send_policy_freq"),
    "policy.collect.collector": ("collector_num",),
}
_FIELDS = ("learn", "collect", "eval", "other")
# Sections whose readers check the names of their keys themselves, when they are constructed.
_WORKERS = (
    "env.manager",
    "policy.learn.learner",
    "policy.collect.collector",
    "policy.eval.evaluator",
    "policy.other.replay_buffer",
    "policy.other.commander",
)
# Keys that some worker reads from its own section, and that also are keys of a policy.
_WORKER_KEYS = frozenset(("n_episode", "multi_gpu", "load_path", "priority", "priority_IS_weight"))
# Sections that must be dicts where users have them.
_SECTIONS = ("env", "env.manager", "policy", *(f"policy.{name}" for name in _FIELDS), *_WORKERS[1:4])
_OWN = ("policy", *(f"policy.{name}" for name in _FIELDS))
# The smallest value of what must be an int, or None.
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
    """Refuse keys in `user` that are misspelt or belong elsewhere.

    A key is known if it has a default, if a rule of the policy's class or the signature of its model names it, if an
    env class lists it in `config_keys` or `config`, or if an entry reads it. A key within edit distance 2 of a known
    key of its section is misspelt, though a known name of up to four letters must be nearer. A key that belongs
    elsewhere is refused, unless `user` has the same value there. Any other unknown key passes in `env`, `model` and at
    the top, and warns once in the sections of the policy. Those of the workers check their own names; here they are
    searched for keys of the policy only.

    Args:
        user: the user's main config.
        defaults: what the classes and the create config make of it, before `user` is merged in.
        compiled: after that.
        policy: the policy's class.
        env: the env's class, or a function that makes envs.

    Raises:
        ConfigError: it names the key, and the one that is meant or the place where it belongs.
    """
    declared = _names_of(defaults)
    known = _names_of(defaults)
    for path in (*_TOP, *(f"env.{key}" for key in _ENV), *(f"policy.{key}" for key in _POLICY)):
        _add(known, path)
    for section, keys in _WORKER_EXTRAS.items():
        for key in keys if value_at(defaults, section) else ():
            _add(known, f"{section}.{key}")
    for cls in getattr(policy, "__mro__", ()):
        for path in cls.__dict__.get("setting_rules", ()):
            _add(known, f"policy.{path}")
    env_keys = {*getattr(env, "config_keys", ()), *_names_of(getattr(env, "config", None) or {})}
    for key in env_keys:
        _add(known, f"env.{key}")
    arguments, is_model_open = _model_arguments(policy, compiled.get("policy") or {})
    for key in arguments:
        _add(known, f"policy.model.{key}")
        _add(declared, f"policy.model.{key}")
    if not arguments:  # defaults alone do not tell what a model takes
        known["policy"]["model"] = {}
    is_env_open = not env_keys and not hasattr(env, "default_config")
    _KeyNames(known, declared, is_env_open, is_model_open).check(user)


class _KeyNames:
    """The walk through a user's config; see `check_key_names`."""

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
            self._check_place(path, key, section[key])
        if path in _WORKERS:
            return
        self._check_near(path, unknown, names)
        if path.startswith("policy") and path != "policy.model":
            for key in unknown:
                one_time_warning(f"config key {path}.{key} is unknown; it has an effect only if your own code reads it")
        for key, value in section.items():
            if isinstance(value, Mapping) and names.get(key):
                self._check(f"{path}.{key}", value, names[key])

    def _check_near(self, path: str, unknown: list[str], names: _Names) -> None:
        where = f"{path}." if path else ""
        for key in unknown:
            meant = _similar(key, (*names, *_EVERYWHERE))
            if meant is not None:
                raise ConfigError(
                    f"unknown config key {where + key!r}; did you mean {where + meant!r}? A key of your own with "
                    f"such a name goes into {_own_place(path)}"
                )

    def _check_place(self, path: str, key: str, value: Any) -> None:
        # What has a default comes first: of several places it is the usual one.
        places = list(self._places(path, key, self._declared)) or list(self._places(path, key, self._known))
        is_repeated = isinstance(value, (str, int, float)) and any(
            value_at(self._user, place) == value for place in places
        )
        if not places or is_repeated:
            return
        message = f"config key '{path}.{key}' has no effect there; it belongs to {' or '.join(map(repr, places))}"
        if path == "env" and self._is_env_open:  # the env may read it
            one_time_warning(f"{message}, unless the env reads it")
        else:
            raise ConfigError(message)

    def _places(self, path: str, key: str, names: _Names) -> Iterator[str]:
        """Where else `key` is known."""
        if path == "policy.model" and self._is_model_open:
            return
        for section, keys in _sections(names):
            if key in keys and _may_mean(path, key, section):
                yield f"{section}.{key}"


def _unknown(section: Mapping[str, Any], names: _Names) -> list[str]:
    return [str(key) for key in section if key not in names and key not in _EVERYWHERE]


def _may_mean(path: str, key: str, section: str) -> bool:
    """Whether `key` in the section `path` may well be the key of that name in `section`."""
    if path.startswith("env"):
        return {path, section} == {"env", "env.manager"}
    if path in _WORKERS:
        return section in _OWN and key not in _WORKER_KEYS
    # Short names, such as alpha, stand for different things in different sections.
    return section in _OWN or section.startswith(f"{path}.") or "_" in key


def _sections(names: _Names, path: str = "") -> Iterator[tuple[str, _Names]]:
    """All sections and their keys, from the outside in; of those in a worker's section only the hooks."""
    for key, under in names.items():
        here = f"{path}.{key}" if path else key
        if under and here.startswith(("env", "policy")):
            yield here, under
            if here not in _WORKERS:
                yield from _sections(under, here)
            elif under.get("hook"):
                yield f"{here}.hook", under["hook"]


def _similar(name: str, known: tuple[str, ...]) -> str | None:
    """The known name that `name` is a misspelling of, or None."""
    distance, similar = min((edit_distance(name, key), key) for key in known)
    # Two letters make another word of a short one; two that have changed places do not.
    is_near = 2 * distance < len(similar) or sorted(name) == sorted(similar)
    return similar if distance <= 2 and is_near else None


def _own_place(path: str) -> str:
    if path.startswith("env"):
        return "`config_keys` of the env's class"
    return "the constructor of the model" if path == "policy.model" else "`config` of the policy's class"


def _names_of(tree: Mapping[str, Any]) -> _Names:
    return {key: _names_of(value) if isinstance(value, Mapping) else {} for key, value in tree.items()}


def _add(names: _Names, path: str) -> None:
    for key in path.split("."):
        names = names.setdefault(key, {})


def _model_arguments(policy: Any, cfg: Mapping[str, Any]) -> tuple[list[str], bool]:
    """The names of the arguments of the policy's model, and whether it may take others."""
    section = cfg.get("model") or {}
    kind, modules = section.get("type"), section.get("import_names")
    if kind is None:
        kind, modules = _default_model(policy, cfg)
    try:
        import_module(modules)
    except ImportError:  # reported when the model is made, if it ever is: the user may pass a model instead
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
    except (AttributeError, NotImplementedError, ConfigError):  # there is none, or it depends on what is not there yet
        return None, None
    return kind, modules


def check_sections(user: Mapping[str, Any]) -> None:
    """Refuse sections of a user's main config that are no dicts, such as None.

    Raises:
        ConfigError: it names the section.
    """
    for path in _SECTIONS:
        *above, key = path.rsplit(".", 1)
        section = value_at(user, above[0]) if above else user
        if key in (section or {}) and not isinstance(section[key], Mapping):
            raise ConfigError(
                f"{path} = {section[key]!r} is not allowed; it must be a section (a dict), or left out for the defaults"
            )


def check_seed(seed: Any) -> int:
    """`seed` as a Python int, which all generators take; numpy's ints they do not.

    Raises:
        ConfigError: it cannot seed a run, as it is no int in [0, 2**32 - 1].
    """
    if count(0)(seed) is not None or seed > _MAX_SEED:
        raise ConfigError(f"seed = {seed!r} is not allowed; it must be an int in [0, {_MAX_SEED}], such as seed=0")
    return int(seed)


def check_import_names(tree: Mapping[str, Any], where: str) -> None:
    """Refuse `import_names` that are no list, or misspelt, in all sections of the config called `where`.

    Raises:
        ConfigError: it names the section.
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
    """Refuse values of a compiled main config that would fail only in the midst of a run.

    Args:
        has_buffer: whether `policy.other.replay_buffer` is the section of a buffer that is made.

    Raises:
        ConfigError: a count is no int, `exp_name` is empty, or a batch does not fit into the buffer.
    """
    exp_name = main["exp_name"]
    if not isinstance(exp_name, str) or not exp_name:
        raise ConfigError(
            f"exp_name = {exp_name!r} is not allowed; it must be the name of the folder of the experiment, or left out"
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
            f"policy.other.replay_buffer.replay_buffer_size = {size!r} is less than {where} = {batch_size!r}, so the "
            "buffer could never give a batch; raise the first or lower the second"
        )


def value_at(tree: Any, path: str) -> Any:
    """The value under the dotted path, None where a part of it is missing."""
    for key in path.split("."):
        tree = tree.get(key) if isinstance(tree, Mapping) else None
    return tree
