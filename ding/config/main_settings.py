"""Keys of a main config that compilation, entries and data sets read, and checks of its sections.

Classes have tables of their own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ding.utils.config_helper import (
    NO_DEFAULT,
    ConfigError,
    Setting,
    Settings,
    boolean,
    count,
    instance_of,
    integer,
    number,
)
from ding.utils.references import fits_config, items_of


def _folder_name(value: Any) -> str | None:
    """Apply the rule for a non-empty str that can be written to files."""
    if isinstance(value, str) and value and value == value.encode("utf-8", "replace").decode():
        return None
    return "a folder name in UTF-8; leave it out for the default"


def _count(minimum: int, doc: str, default: Any = NO_DEFAULT) -> Setting:
    rule = count(minimum)
    return Setting(default, lambda value: None if value is None else rule(value), doc)


def _read(doc: str, default: Any = NO_DEFAULT) -> Setting:
    return Setting(default, None, doc)


MAIN_SETTINGS = Settings(
    {
        "exp_name": Setting(NO_DEFAULT, _folder_name, "Folder of the run; `default_experiment` by default."),
        "seed": _read("Set by compilation to the argument `seed` of the entry."),
        "reward_model": _read("Settings of a reward model of your own."),
        "world_model": _read("Settings of a world model of your own."),
        "logger": _read("Sinks of metrics."),
        "her": _read(
            "Whether to learn from goals reached in hindsight; or a dict of `strategy` and `k` of the buffer `her`."
        ),
        "run_state": _read("When to save states that a run can resume from; False for never."),
        "run_state.every_iter": Setting(0, integer(0), "Number of iterations between two states; 0 for never."),
        "run_state.every_s": Setting(300, number(0), "Seconds between two states; 0 for never."),
        "run_state.keep": Setting(2, integer(1), "Number of states to keep."),
        "run_state.trust_pickle": Setting(
            False, boolean, "Whether envs may be stored as pickles, which run code when they are loaded."
        ),
        "env.manager": _read("Settings of the env manager.", {}),
        "env.env_id": _read("Id of the env, for envs and managers that make it by one."),
        "env.stop_value": _read("Mean return of an evaluation that ends the run.", int(1e10)),
        "env.n_evaluator_episode": _count(1, "Number of episodes of an evaluation.", 4),
        "env.collector_env_num": _count(1, "Number of envs that collect."),
        "env.evaluator_env_num": _count(1, "Number of envs that evaluate."),
        "env.collector_episode_num": _read("Number of episodes of each env in a collector's task."),
        "env.evaluator_episode_num": _read("Number of episodes of each env in an evaluator's task."),
        "env.replay_path": _read("Folder for videos of evaluations."),
        "env.norm_obs": _read("Normalize observations, by running statistics or those of a data set."),
        "env.norm_reward": _read("Divide rewards by the deviation of the discounted return."),
        "env.eval_opponent": _read("Opponent of a battle evaluation."),
        "policy.load_path": _read("Checkpoint of a trained policy."),
        "policy.random_collect_size": _count(0, "Number of samples that a random policy collects before training."),
        "policy.transition_with_policy_data": _read("Whether samples hold the output of the policy at collection."),
        "policy.batch_size": _count(1, "Number of samples in a batch."),
        "policy.unroll_len": _read("Number of steps in a sample; overrides that of `policy.collect`."),
        "policy.n_sample": _count(1, "Number of samples of one collection."),
        "policy.n_episode": _count(1, "Number of episodes of one collection."),
        "policy.traj_len_inf": _read("Whether a trajectory is cut only at the end of its episode."),
        "policy.model": _read("Arguments of the model, and its `type`.", {}),
        "policy.model.obs_shape": _read("Shape of an observation; by default that of the env."),
        "policy.model.action_shape": _read("Number of actions, or shape of real-valued ones; by default the env's."),
        "policy.model.net_arch": _read(
            "Widths of the hidden layers: a list, or for actor and critic a dict of lists, `pi` and `vf` or `qf`."
        ),
        "policy.model.activation": _read("Activation between layers: a name, or a class of torch.nn."),
        "policy.learn.learner": _read("Settings of the learner.", {}),
        "policy.learn.batch_size": _count(1, "Number of samples in a batch."),
        "policy.learn.update_per_collect": _count(0, "Number of batches to train on after each collection."),
        "policy.learn.train_epoch": _read("Number of passes over a data set."),
        "policy.learn.resume_training": _read("Whether to resume from the newest state or the checkpoint to load."),
        "policy.collect.collector": _read("Settings of the collector.", {}),
        "policy.collect.n_sample": _count(1, "Number of samples of one collection."),
        "policy.collect.n_episode": _count(1, "Number of episodes of one collection."),
        "policy.collect.unroll_len": _read("Number of steps in a sample."),
        "policy.collect.traj_len_inf": _read("Whether a trajectory is cut only at the end of its episode."),
        "policy.collect.env_num": _read("Number of envs that collect, for policies that keep a state of each."),
        "policy.collect.data_type": _read("Format of a data set."),
        "policy.collect.data_path": _read("File of a data set."),
        "policy.collect.save_path": _read("File for collected demonstrations."),
        "policy.collect.trusted": _read("Whether a pickled data set, which can run code, may be read."),
        "policy.collect.normalize_states": _read("Whether observations of a data set are normalized."),
        "policy.collect.download": _read("Whether a data set may be downloaded."),
        "policy.collect.model_path": _read("Checkpoint of the expert that collects demonstrations."),
        "policy.command": _read("Kept for compatibility: no key in it has an effect."),
        "policy.eval.evaluator": _read("Settings of the evaluator.", {}),
        "policy.eval.env_num": _read("Number of envs that evaluate, for policies that keep a state of each."),
        "policy.other.replay_buffer": _read("Settings of the replay buffer, or of each of several.", {}),
        "policy.other.commander": _read("Settings of the commander."),
        "policy.other.eps": _read("Schedule of epsilon."),
        "policy.other.eps.collect": _read("A constant epsilon for collecting demonstrations."),
    }
)


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
        if not fits_config(key):
            raise ConfigError(
                f"the key {key!r} in {where} is not allowed: the keys of a config are attributes; choose a name that "
                "is a str and no method of a dict"
            )
    for key, value in items_of(tree):
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


def check_main(main: Mapping[str, Any], has_buffer: bool) -> None:
    """Check values of a compiled main config that would otherwise fail during the run only.

    Args:
        main: the compiled main config.
        has_buffer: whether `policy.other.replay_buffer` is the section of a buffer.

    Raises:
        ConfigError: a count is not an int, `exp_name` is no folder name, or a batch does not fit into the buffer.
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
