"""What is shared among configs: keys that entries read, names of keys that nothing reads, and checks of sections.

Classes have tables of the keys that they read.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from ding.utils.config_helper import (
    EVERYWHERE,
    NO_DEFAULT,
    ConfigError,
    Setting,
    Settings,
    count,
    integer,
    is_of_package,
    nearest,
    number,
    settings_of,
    value_at,
)
from ding.utils.default_helper import one_time_warning
from ding.utils.references import fits_config


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
            "Learn from goals reached in hindsight; True, or a dict of `strategy` and `k` of the buffer `her`."
        ),
        "run_state": _read("When to save states that a run can resume from; False for never."),
        "run_state.every_iter": Setting(0, integer(0), "Number of iterations between two states; 0 for never."),
        "run_state.every_s": Setting(300, number(0), "Seconds between two states; 0 for never."),
        "run_state.keep": Setting(2, integer(1), "Number of states to keep."),
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

# --- the names of Stable-Baselines3, CleanRL, Tianshou and TorchRL, and the config keys with their meaning ---

_RATE = ("policy.learn.learning_rate",)
_ACTOR_RATE = ("policy.learn.learning_rate_actor", "policy.learn.learning_rate_policy", *_RATE)
_CRITIC_RATE = ("policy.learn.learning_rate_critic", "policy.learn.learning_rate_q", *_RATE)
DISCOUNTS = ("policy.discount_factor", "policy.learn.discount_factor", "policy.collect.discount_factor")
_COLLECTED = ("policy.collect.n_sample", "policy.n_sample", "policy.collect.n_episode", "policy.n_episode")
_NSTEP = ("policy.nstep", "policy.learn.nstep", "policy.collect.nstep")
_TARGET_FREQ = ("policy.learn.target_update_freq",)
_UPDATES = ("policy.learn.update_per_collect", "policy.learn.epoch_per_collect")
_DECAY = ("policy.other.eps.decay",)
CLIPPING = ("policy.learn.grad_clip_value", "policy.learn.clip_value", "policy.learn.grad_norm")
_BATCH, _RANDOM = ("policy.learn.batch_size", "policy.batch_size"), ("policy.random_collect_size",)
_VALUE_WEIGHT = ("policy.learn.value_weight",)
_SAVE_FREQ = ("policy.learn.learner.hook.save_ckpt_after_iter",)


class Meaning(NamedTuple):
    """What a name of another library stands for.

    Attributes:
        keys: the config keys; of them, a config has those that its classes read.
        note: what to mind, where the value is in other units; without keys, what to write instead.
    """

    keys: tuple[str, ...] = ()
    note: str = ""


_MEANINGS = {
    "lr learning_rate": Meaning((*_RATE, *_ACTOR_RATE, *_CRITIC_RATE, "policy.learn.learning_rate_quantile")),
    "actor_lr lr_actor pi_lr policy_lr": Meaning(_ACTOR_RATE),
    "critic_lr lr_critic q_lr vf_lr value_lr": Meaning(_CRITIC_RATE),
    "alpha_lr ent_lr": Meaning(("policy.learn.learning_rate_alpha",)),
    "lr_schedule learning_rate_schedule anneal_lr": Meaning(
        ("policy.learn.lr_scheduler",), "such as 'linear', which multiplies the learning rate"
    ),
    "gamma discount discount_rate": Meaning(DISCOUNTS),
    "buffer_size buffer_capacity replay_size memory_size": Meaning(("policy.other.replay_buffer.replay_buffer_size",)),
    "n_steps num_steps": Meaning((*_COLLECTED[:2], *_NSTEP)),
    "n_step n_step_return estimation_step n_step_return_horizon multi_step": Meaning(_NSTEP),
    "train_freq train_frequency": Meaning(_COLLECTED[:2], "which counts the steps of all envs together"),
    "step_per_collect frames_per_batch rollout_length steps_per_epoch": Meaning(_COLLECTED[:2]),
    "episode_per_collect collection_num_episodes": Meaning(_COLLECTED[2:]),
    "hidden_sizes hidden_size hidden_dim num_cells": Meaning(("policy.model.net_arch",)),
    "tau soft_update_coef": Meaning(("policy.learn.target_theta",)),
    "polyak": Meaning(
        ("policy.learn.target_theta",), "which is 1 - polyak if polyak is the share that the target keeps"
    ),
    "target_update_interval target_network_frequency": Meaning(_TARGET_FREQ, "which counts training iterations"),
    "target_network_update_freq target_update_freq": Meaning(_TARGET_FREQ),
    "ent_coef entropy_coef entropy_coeff entropy_bonus": Meaning(("policy.learn.entropy_weight", "policy.learn.alpha")),
    "vf_coef value_coef value_loss_coef critic_coeff": Meaning(
        ("policy.learn.value_weight",), "which PPO multiplies by half of the squared error, as CleanRL does"
    ),
    "clip_range clip_coef clip_epsilon eps_clip": Meaning(("policy.learn.clip_ratio",)),
    "gae_lambda lmbda lam": Meaning(("policy.collect.gae_lambda",)),
    "n_epochs num_epochs update_epochs repeat_per_collect": Meaning(_UPDATES[::-1]),
    "gradient_steps num_updates": Meaning(_UPDATES),
    "update_per_step utd_ratio": Meaning(_UPDATES, "which is for a whole collection, not a step"),
    "batch_size minibatch_size mini_batch_size sgd_minibatch_size": Meaning(
        ("policy.learn.batch_size", "policy.batch_size")
    ),
    "max_grad_norm clip_grad_norm grad_norm gradient_clip": Meaning(CLIPPING),
    "norm_adv normalize_advantage advantage_normalization": Meaning(("policy.learn.adv_norm",)),
    "learning_starts start_timesteps init_random_frames start_steps warmup_steps": Meaning(
        ("policy.random_collect_size",)
    ),
    "exploration_fraction eps_decay epsilon_decay": Meaning(_DECAY, "which counts env steps"),
    "annealing_num_steps eps_train_decay": Meaning(_DECAY),
    "exploration_initial_eps start_e eps_init eps_start epsilon_start eps_train": Meaning(("policy.other.eps.start",)),
    "exploration_final_eps end_e eps_end epsilon_end eps_train_final": Meaning(("policy.other.eps.end",)),
    "exploration_noise action_noise": Meaning(("policy.collect.noise_sigma", "policy.collect.noise_sigma.start")),
    "policy_noise target_policy_noise": Meaning(("policy.learn.noise_sigma",)),
    "policy_delay policy_frequency update_actor_freq": Meaning(("policy.learn.actor_update_freq",)),
    "prioritized prioritized_replay use_per": Meaning(("policy.priority",)),
    "n_atoms num_atoms": Meaning(("policy.model.n_atom",)),
    "num_envs n_envs num_train_envs training_num env_num": Meaning(("env.collector_env_num",)),
    "test_num num_eval_envs num_test_envs": Meaning(("env.evaluator_env_num",)),
    "n_eval_episodes eval_episodes episode_per_test": Meaning(("env.n_evaluator_episode",)),
    "env_name": Meaning(("env.env_id",)),
    "env_kwargs make_kwargs": Meaning(("env.kwargs",)),
    "reward_threshold stop_reward": Meaning(("env.stop_value",)),
    "device use_cuda": Meaning(("policy.cuda",)),
    "log_interval log_freq": Meaning(("policy.learn.learner.hook.log_show_after_iter",)),
    "save_interval": Meaning(_SAVE_FREQ),
    "save_freq": Meaning(_SAVE_FREQ, "which counts training iterations"),
    "eval_interval evaluation_interval": Meaning(("policy.eval.evaluator.eval_freq",)),
    "total_timesteps": Meaning(
        (), "env_steps=... in train, --env-steps on the command line, max_env_step=... in a pipeline"
    ),
    "policy_kwargs": Meaning((), "its entries as settings: net_arch=[64, 64], and activation='tanh' for activation_fn"),
    "activation_fn": Meaning((), "activation='tanh', 'relu' and so on, as a setting"),
    "callback": Meaning((), "on_evaluation=..., a function of env steps and mean return, in train, or a LearnerHook"),
    "frame_stack n_stack": Meaning(
        (), "env.wrappers = [('gymnasium.wrappers:FrameStackObservation', {'stack_size': 4})]"
    ),
    "tensorboard_log": Meaning((), "folder=..., the folder of the run, which always has TensorBoard files in log/"),
}
MEANINGS = {name: meaning for names, meaning in _MEANINGS.items() for name in names.split()}


_MISSING = object()
# Sections that must be dicts, if present.
_SECTIONS = (
    *("env", "env.manager", "policy", "policy.learn", "policy.collect", "policy.eval", "policy.other"),
    *("policy.learn.learner", "policy.collect.collector", "policy.eval.evaluator"),
    *("policy.model", "policy.other.replay_buffer", "policy.other.commander"),
)
# Sections that may also be None.
_OPTIONAL = ("policy.model", "policy.other.replay_buffer", "policy.other.commander")
MAX_SEED = 2**32 - 1


def check_tree(tree: Any, where: str) -> None:
    """Check that all keys of a config can be attributes of an `EasyDict`, and that `import_names` are lists.

    Raises:
        ConfigError: a key cannot, as it hides a method that reads the config, or a value of `import_names` is no list;
            the message names the key and its section.
    """
    if isinstance(tree, (list, tuple)):
        for value in tree:
            check_tree(value, where)
    if not isinstance(tree, Mapping):
        return
    for key, value in tree.items():
        if not fits_config(key):
            raise ConfigError(
                f"the key {key!r} in {where} is not allowed: the keys of a config are attributes; choose a str that "
                "is not the name of a method of a dict"
            )
        if key == "import_names" and not isinstance(value, (list, tuple, type(None))):
            raise ConfigError(f"{where}.import_names = {value!r} is not allowed; it must be a list of module names")
        check_tree(value, f"{where}.{key}")


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
    if count(0)(seed) is not None or seed > MAX_SEED:
        raise ConfigError(f"seed = {seed!r} is not allowed; it must be an int in [0, {MAX_SEED}], such as seed=0")
    return int(seed)


def check_main(main: Mapping[str, Any], has_buffer: bool) -> None:
    """Check values of a compiled main config that would otherwise fail during the run only.

    Args:
        main: the compiled main config.
        has_buffer: whether `policy.other.replay_buffer` is the section of a buffer.

    Raises:
        ConfigError: a count is not an int, `exp_name` is no folder name, or a batch does not fit into the buffer.
    """
    for path, setting in MAIN_SETTINGS.items():
        if setting.rule is None:
            continue
        value = value_at(main, path, _MISSING)
        allowed = None if value is _MISSING else setting.rule(value)
        if allowed is not None:
            raise ConfigError(f"{path} = {value!r} is not allowed; it must be {allowed}")
    if not has_buffer or value_at(main, "policy.on_policy"):
        return
    where = "policy.learn.batch_size" if value_at(main, "policy.batch_size") is None else "policy.batch_size"
    batch_size, size = value_at(main, where), value_at(main, "policy.other.replay_buffer.replay_buffer_size")
    if isinstance(batch_size, int) and isinstance(size, (int, float)) and batch_size > size:
        raise ConfigError(
            f"policy.other.replay_buffer.replay_buffer_size = {size!r} is not allowed; it must be at least {where} = "
            f"{batch_size!r}; increase the size or reduce the batch"
        )


# --- the names of keys in a user's config: which of them are read, and what the others probably mean ---

_MODEL = "policy.model"
_MANAGER = "env.manager."
_INNER = (_MANAGER, "policy.eval.evaluator.", "policy.other.replay_buffer.")  # of parts that come last by a bare name
_HOOKS = "policy.learn.learner.hook"  # hooks in full form have any name
_CHECKED_ELSEWHERE = ("logger", "policy.learn.lr_scheduler")
# Sections of the main config that no worker reads.
_PLAIN = ("env", "policy", "policy.learn", "policy.collect", "policy.eval", "policy.other")


class UnknownKey(NamedTuple):
    """A key in a user's config that nothing in the package reads.

    Attributes:
        path: its path, as the user knows it.
        hint: advice what to write instead; empty if nothing is similar.
        targets: paths of keys with the meaning of this one.
        is_foreign: whether a class from outside reads the section, which may read any key.
    """

    path: str
    value: Any
    hint: str
    targets: list[str] = []
    is_foreign: bool = False


class KnownKeys:
    """The keys of a main config that entries and the classes of a run read.

    Attributes:
        classes: the classes that were added, by section.

    Example:
        >>> from ding.policy import DQNPolicy
        >>> known = KnownKeys()
        >>> known.add_class("policy", DQNPolicy)
        >>> [key.hint for key in known.find_unknown({"policy": {"gamma": 0.9}})]
        ['use policy.discount_factor']
    """

    def __init__(self) -> None:
        self._settings: dict[str, Setting] = {}
        self._names: defaultdict[str, set[str]] = defaultdict(set)  # by section
        self.classes: dict[str, Any] = {}
        self.add("", MAIN_SETTINGS)

    def add_class(self, section: str, cls: Any) -> None:
        """Add the keys that a class reads from `section`; None if the class is not known."""
        self.classes[section] = cls
        self.add(f"{section}.", settings_of(cls))

    def add(self, prefix: str, settings: Mapping[str, Setting]) -> None:
        """Add keys, each with the prefix."""
        for end, setting in settings.items():
            path = key = f"{prefix}{end}"
            while key:
                key, _, name = key.rpartition(".")
                self._names[key].add(name)
            doc = setting.doc or self._settings.get(path, Setting()).doc
            self._settings[path] = setting._replace(doc=doc)

    def __contains__(self, path: object) -> bool:
        """Return whether a dotted key is read."""
        return path in self._settings

    def named(self, name: str) -> list[str]:
        """Return the dotted keys whose last part is `name`."""
        return self._usual(path for path in self._settings if path.rpartition(".")[2] == name)

    def meant_by(self, name: str) -> list[str]:
        """Return the dotted keys that other libraries call `name`, the likeliest first."""
        keys = MEANINGS.get(name.lower(), Meaning()).keys
        return self._usual(dict.fromkeys(path for path in keys if path in self))

    def _usual(self, paths: Iterable[str]) -> list[str]:
        """Return the paths that have an effect and a default or, if there are none, those that have an effect."""
        paths = [path for path in paths if not self._settings[path].doc.startswith("Accepted for compatibility")]
        return [path for path in paths if self._settings[path].default is not NO_DEFAULT] or paths

    def paths_meant_by(self, name: str) -> list[str]:
        """Return the dotted keys for which a name stands: its own, else those that other libraries call by it.

        A dotted key stands for itself. There are several only if one value belongs in all of them, such as the
        learning rates of actor and critic.

        Raises:
            ConfigError: nothing reads such a key, several may be meant, or the value would be in other units.
        """
        if "." in name and name in self:
            return [name]
        places, (keys, note) = self.named(name), MEANINGS.get(name.lower(), Meaning())
        paths = places or self.meant_by(name)
        if not paths and note and not keys:
            raise ConfigError(f"{name} is not a setting; use {note}")
        if not paths:
            names = {path.rpartition(".")[2] for path in self._settings}
            near = nearest(name, names | {other for other in MEANINGS if self.meant_by(other)})
            raise ConfigError(
                f"nothing reads a setting {name!r}{f'; did you mean {near!r}?' if near else '.'} "
                "`ding show CONFIG` lists the keys, and config={'policy.learn....': value} or --set "
                "policy.learn....=VALUE sets any of them"
            )
        if not places and note:
            raise ConfigError(f"{name} has another meaning here: set {self._one_of(paths)}, {note}")
        if all(path.rpartition(".")[2].startswith(("learning_rate", "discount_factor")) for path in paths):
            return paths
        if name in paths or not places:  # a key of the whole run, such as exp_name
            return [name if name in paths else paths[0]]
        # batch_size means that of training, even if a simulator has one, too, and alpha that of SAC, not of a buffer.
        is_of_section = any(path in paths for path in (f"env.{name}", f"policy.learn.{name}", f"policy.collect.{name}"))
        inner = _INNER if is_of_section else _MANAGER
        paths = [path for path in paths if not path.startswith(inner)] or paths
        most = max(path.count(".") for path in paths)
        deepest = [path for path in paths if path.count(".") == most]
        if len(deepest) > 1:
            raise ConfigError(
                f"{name} may mean {self._one_of(deepest)}: write the full key, as in config={{{deepest[0]!r}: ...}} or "
                f"--set {deepest[0]}=VALUE"
            )
        return deepest

    def find_unknown(self, section: Mapping[str, Any], at: str = "", shown: str | None = None) -> list[UnknownKey]:
        """Return the unknown keys of a part of a config.

        The arguments of a model are checked by its constructor; only names are unknown here that its policy reads under
        another one.

        Args:
            at: path of the part in the main config.
            shown: path of the part as the user knows it.
        """
        shown = at if shown is None else shown
        found: list[UnknownKey] = []
        for key, value in section.items():
            name, path = str(key), _join(at, str(key))
            is_section = isinstance(value, Mapping)
            if name in EVERYWHERE or (at == _HOOKS and is_section):
                continue
            if name not in self._names[at]:
                targets, hint = self._hint(at, shown, name)
                if at != _MODEL or targets:
                    found.append(UnknownKey(_join(shown, name), value, hint, targets, self._is_foreign(at)))
                continue
            is_own_model = path == _MODEL and ("type" in (value or {}) or self._is_foreign("policy"))
            if is_section and path in self._names and not is_own_model and path not in _CHECKED_ELSEWHERE:
                found += self.find_unknown(value, path, _join(shown, name))
        return found

    def _is_foreign(self, at: str) -> bool:
        """Return whether a class from outside reads the section `at`."""
        while at and at not in self.classes:
            at = at.rpartition(".")[0]
        return bool(at) and not is_of_package(self.classes[at])

    def _hint(self, at: str, shown: str, name: str) -> tuple[list[str], str]:
        """Return the keys that are meant by an unknown one, and a sentence about them."""
        if "." in name:
            return [], "nest a section for each part of the path"
        is_foreign = self._is_foreign(at)
        places = [path for path in self.named(name) if _may_mean(at, path, is_foreign)]
        if places:
            return places, f"it takes effect as {self._one_of(places)}"
        meant, (keys, note) = self.meant_by(name), MEANINGS.get(name.lower(), Meaning())
        if meant:
            return meant, f"use {self._one_of(meant)}{f', {note}' if note else ''}"
        if note and not keys:
            return [], f"use {note}"
        near = nearest(name, (*self._names[at], *EVERYWHERE))
        if near is not None:
            return [], f"did you mean {_join(shown, near)}?"
        ends = {path.rpartition(".")[2] for path in self._settings}
        near = None if is_foreign else nearest(name, sorted(end for end in ends if "_" in end))
        return [], f"did you mean {self._one_of(self.named(near))}?" if near and self.named(near) else ""

    def _one_of(self, paths: list[str]) -> str:
        """Return the paths as text, with their meanings if there are several."""
        if len(paths) == 1:
            return paths[0]
        docs = [self._settings[path].doc.split(". ")[0].rstrip(".") for path in paths]
        return " or ".join(f"{path} ({doc})" if doc else path for path, doc in zip(paths, docs, strict=True))


def unknown_entries(section: Mapping[str, Any], shown: str, known: Iterable[str]) -> list[UnknownKey]:
    """Return the keys of one section, without its subsections, that are not `known`."""
    known = (*known, *EVERYWHERE)
    suggestions = {name: nearest(str(name), known) for name in section if name not in known}
    return [
        UnknownKey(f"{shown}.{name}", section[name], f"did you mean {shown}.{suggestion}?" if suggestion else "")
        for name, suggestion in suggestions.items()
    ]


_ADVICE = (
    "for keys of your own, list those of a policy in `config` of its class and those of an env in its `config_keys`, "
    "or pass strict_config=False or --no-strict-config"
)


def report_unknown(keys: list[UnknownKey], compiled: Mapping[str, Any], is_strict: bool) -> None:
    """Log a warning for each key, unless its value is in effect, because the key that is meant has it, too.

    Keys in sections of classes from outside that are not similar to known ones are left out.

    Args:
        compiled: the compiled main config.
        is_strict: whether to raise instead.

    Raises:
        ConfigError: `is_strict` is set; it has a line for each key.
    """
    keys = [key for key in keys if key.hint or not key.is_foreign]
    if is_strict and keys:
        lines = [f"ding does not read the config key {key.path} = {key.value!r}; {key.hint or _ADVICE}" for key in keys]
        raise ConfigError("\n".join(lines))
    for key in keys:
        if not any(_equal(value_at(compiled, path), key.value) for path in key.targets):
            hint = key.hint or "it has an effect only if your code reads it"
            one_time_warning(f"ding does not read the config key {key.path}; {hint}")


def _join(section: str, name: str) -> str:
    return f"{section}.{name}" if section else name


def _equal(one: Any, other: Any) -> bool:
    return type(one) is type(other) and isinstance(one, (str, int, float)) and one == other


def _may_mean(at: str, path: str, is_foreign: bool) -> bool:
    """Return whether a key in the section `at` may stand for the known key `path` of the same name."""
    section, _, name = path.rpartition(".")
    if at == _MODEL or section.count(".") > 3:  # deep within a worker, where names are as general as print_freq
        return False
    if is_foreign and at.startswith("env"):
        return section == "env.manager"
    # Short names, such as alpha, have different meanings in different sections.
    return "_" in name or section in _PLAIN or section.startswith(_join(at, ""))
