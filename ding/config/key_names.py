"""Names of keys in a user's config: which of them are read, and what the others probably mean."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Iterable, Iterator, Mapping
from enum import Enum
from typing import Any, NamedTuple

from ding.config.main_settings import MAIN_SETTINGS, value_at
from ding.utils.config_helper import (
    EVERYWHERE,
    NO_DEFAULT,
    ConfigError,
    Setting,
    is_of_package,
    mark_as_reported,
    nearest,
    settings_of,
    worded,
)
from ding.utils.default_helper import one_time_warning

# --- the names of Stable-Baselines3, CleanRL, Tianshou and TorchRL, and the config keys with their meaning ---

# The targets of one name; of them, a config has those that its classes read.
_RATE = ("policy.learn.learning_rate",)
_ACTOR_RATE = ("policy.learn.learning_rate_actor", "policy.learn.learning_rate_policy", *_RATE)
_CRITIC_RATE = ("policy.learn.learning_rate_critic", "policy.learn.learning_rate_q", *_RATE)
DISCOUNTS = ("policy.discount_factor", "policy.learn.discount_factor", "policy.collect.discount_factor")
_CAPACITY = ("policy.other.replay_buffer.replay_buffer_size",)
_COLLECTED = ("policy.collect.n_sample", "policy.n_sample", "policy.collect.n_episode", "policy.n_episode")
_NSTEP = ("policy.nstep", "policy.learn.nstep", "policy.collect.nstep")
_BATCH = ("policy.learn.batch_size", "policy.batch_size")
_UPDATES = ("policy.learn.update_per_collect", "policy.learn.epoch_per_collect")
_EPOCHS = ("policy.learn.epoch_per_collect", "policy.learn.update_per_collect")
_ENTROPY = ("policy.learn.entropy_weight", "policy.learn.alpha")
CLIPPING = ("policy.learn.grad_clip_value", "policy.learn.clip_value", "policy.learn.grad_norm")
_PRIORITY = ("policy.priority",)

_MEANINGS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("lr learning_rate", (*_RATE, *_ACTOR_RATE, *_CRITIC_RATE, "policy.learn.learning_rate_quantile")),
    ("actor_lr lr_actor pi_lr policy_lr", _ACTOR_RATE),
    ("critic_lr lr_critic q_lr vf_lr value_lr", _CRITIC_RATE),
    ("alpha_lr ent_lr", ("policy.learn.learning_rate_alpha",)),
    ("lr_schedule learning_rate_schedule anneal_lr", ("policy.learn.lr_scheduler",)),
    ("gamma discount discount_rate", DISCOUNTS),
    ("buffer_size buffer_capacity replay_size memory_size", _CAPACITY),
    ("n_steps num_steps", (*_COLLECTED[:2], *_NSTEP)),
    ("n_step n_step_return estimation_step n_step_return_horizon multi_step", _NSTEP),
    ("train_freq train_frequency step_per_collect frames_per_batch", _COLLECTED[:2]),
    ("rollout_length steps_per_epoch", _COLLECTED[:2]),
    ("episode_per_collect collection_num_episodes", _COLLECTED[2:]),
    ("hidden_sizes hidden_size hidden_dim num_cells", ("policy.model.net_arch",)),
    ("tau polyak soft_update_coef", ("policy.learn.target_theta",)),
    (
        "target_update_interval target_network_frequency target_network_update_freq target_update_freq",
        ("policy.learn.target_update_freq",),
    ),
    ("ent_coef entropy_coef entropy_coeff entropy_bonus", _ENTROPY),
    ("vf_coef value_coef value_loss_coef critic_coeff", ("policy.learn.value_weight",)),
    ("clip_range clip_coef clip_epsilon eps_clip", ("policy.learn.clip_ratio",)),
    ("gae_lambda lmbda lam", ("policy.collect.gae_lambda",)),
    ("n_epochs num_epochs update_epochs repeat_per_collect", _EPOCHS),
    ("gradient_steps update_per_step utd_ratio num_updates", _UPDATES),
    ("batch_size minibatch_size mini_batch_size sgd_minibatch_size", _BATCH),
    ("max_grad_norm clip_grad_norm grad_norm gradient_clip", CLIPPING),
    ("norm_adv normalize_advantage advantage_normalization", ("policy.learn.adv_norm",)),
    ("learning_starts start_timesteps init_random_frames start_steps warmup_steps", ("policy.random_collect_size",)),
    ("exploration_fraction eps_decay epsilon_decay annealing_num_steps eps_train_decay", ("policy.other.eps.decay",)),
    ("exploration_initial_eps start_e eps_init eps_start epsilon_start eps_train", ("policy.other.eps.start",)),
    ("exploration_final_eps end_e eps_end epsilon_end eps_train_final", ("policy.other.eps.end",)),
    ("exploration_noise action_noise", ("policy.collect.noise_sigma", "policy.collect.noise_sigma.start")),
    ("policy_noise target_policy_noise", ("policy.learn.noise_sigma",)),
    ("policy_delay policy_frequency update_actor_freq", ("policy.learn.actor_update_freq",)),
    ("prioritized prioritized_replay use_per", _PRIORITY),
    ("n_atoms num_atoms", ("policy.model.n_atom",)),
    ("num_envs n_envs num_train_envs training_num env_num", ("env.collector_env_num",)),
    ("test_num num_eval_envs num_test_envs", ("env.evaluator_env_num",)),
    ("n_eval_episodes eval_episodes episode_per_test", ("env.n_evaluator_episode",)),
    ("env_name", ("env.env_id",)),
    ("env_kwargs make_kwargs", ("env.kwargs",)),
    ("reward_threshold stop_reward", ("env.stop_value",)),
    ("device use_cuda", ("policy.cuda",)),
    ("log_interval log_freq", ("policy.learn.learner.hook.log_show_after_iter",)),
    ("save_interval save_freq", ("policy.learn.learner.hook.save_ckpt_after_iter",)),
    ("eval_interval evaluation_interval", ("policy.eval.evaluator.eval_freq",)),
)
SYNONYMS = {name: keys for names, keys in _MEANINGS for name in names.split()}

# Names whose value belongs in each of the keys that a policy reads.
ALL_ALIKE = frozenset(
    ("lr", "learning_rate", "actor_lr", "lr_actor", "critic_lr", "lr_critic", "gamma", "discount", "discount_rate")
    + ("discount_factor",)
)

# What to mind where the value of a name is in other units than that of the key.
UNITS = {
    **dict.fromkeys(
        ("lr_schedule", "learning_rate_schedule", "anneal_lr"), "such as 'linear', which multiplies the learning rate"
    ),
    "polyak": "which is 1 - polyak if that is the share which the target keeps",
    **dict.fromkeys(("exploration_fraction", "eps_decay", "epsilon_decay"), "which counts env steps"),
    **dict.fromkeys(("train_freq", "train_frequency"), "which counts the steps of all envs together"),
    **dict.fromkeys(
        ("target_update_interval", "target_network_frequency", "save_freq"), "which counts training iterations"
    ),
    **dict.fromkeys(
        ("vf_coef", "value_coef", "value_loss_coef", "critic_coeff"),
        "which in PPO weighs half of the squared error, as in CleanRL",
    ),
    **dict.fromkeys(("update_per_step", "utd_ratio"), "which is for a whole collection, not a step"),
}


# What to write for names of other libraries that stand for no key.
INSTEAD = {
    "total_timesteps": "env_steps=... in train, --env-steps on the command line, max_env_step=... in a pipeline",
    "policy_kwargs": "its entries as settings: net_arch=[64, 64], and activation='tanh' for activation_fn",
    "activation_fn": "activation='tanh', 'relu' and so on, as a setting",
    "callback": "on_evaluation=..., a function of env steps and mean return, in train, or a LearnerHook",
    **dict.fromkeys(
        ("frame_stack", "n_stack"), "env.wrappers = [('gymnasium.wrappers:FrameStackObservation', {'stack_size': 4})]"
    ),
    "tensorboard_log": "folder=..., the folder of the run, which always has TensorBoard files in log/",
}


def keys_meant_by(name: str, known: Container[str]) -> list[str]:
    """Return the `known` dotted keys with the meaning of a setting's name in other libraries, the likeliest first."""
    return list(dict.fromkeys(path for path in SYNONYMS.get(name.lower(), ()) if path in known))


_MODEL = "policy.model"
_MANAGER = "env.manager."
_INNER = (_MANAGER, "policy.eval.evaluator.", "policy.other.replay_buffer.")  # of parts that come last by a bare name
_HOOKS = "policy.learn.learner.hook"  # hooks in full form have any name
# Sections whose keys are checked where they are read.
_CHECKED_ELSEWHERE = ("logger", _MODEL, "policy.learn.lr_scheduler")


# Sections of the main config that no worker reads.
_PLAIN = ("env", "policy", "policy.learn", "policy.collect", "policy.eval", "policy.other")
# Number of keys that a warning names.
_MOST_LISTED = 12


class _Reader(Enum):
    """Readers of a section: the package, a class from outside that lists its keys, or one that does not."""

    PACKAGE = "package"
    FOREIGN = "foreign"
    UNKNOWN = "unknown"


class UnknownKey(NamedTuple):
    """A key in a user's config that nothing in the package reads.

    Attributes:
        section: path of its section, as the user knows it.
        name: the key.
        reader: the reader of the section.
        targets: paths of keys with the meaning of this one.
        hint: advice what to write instead; empty if nothing is similar.
    """

    section: str
    name: str
    value: Any
    reader: _Reader
    targets: list[str]
    hint: str

    @property
    def path(self) -> str:
        return f"{self.section}.{self.name}" if self.section else self.name


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
        self._places: dict[str, list[str]] = {}  # paths by name
        self._readers = {"": _Reader.PACKAGE}
        self.classes: dict[str, Any] = {}
        self._add("", MAIN_SETTINGS)

    def add_class(self, section: str, cls: Any) -> None:
        """Add the keys that a class reads from `section`; None if the class is not known."""
        settings = settings_of(cls)
        if is_of_package(cls):
            reader = _Reader.PACKAGE
        else:
            reader = _Reader.FOREIGN if settings else _Reader.UNKNOWN
        self._readers[section], self.classes[section] = reader, cls
        self._add(f"{section}.", settings)

    def _add(self, prefix: str, settings: Mapping[str, Setting]) -> None:
        for end, setting in settings.items():
            path = f"{prefix}{end}"
            if path not in self._settings:
                self._places.setdefault(path.rpartition(".")[2], []).append(path)
                while path:
                    path, _, name = path.rpartition(".")
                    self._names[path].add(name)
            path = f"{prefix}{end}"
            doc = setting.doc or self._settings.get(path, Setting()).doc
            self._settings[path] = setting._replace(doc=doc)

    def __contains__(self, path: object) -> bool:
        """Return whether a dotted key is read."""
        return path in self._settings

    def add_model(self, names: Iterable[str]) -> None:
        """Add the arguments of the policy's model."""
        self._add(f"{_MODEL}.", {name: Setting(NO_DEFAULT) for name in names})

    def paths_meant_by(self, name: str) -> list[str]:
        """Return the dotted keys for which a name stands: its own, else those that other libraries call by it.

        A dotted key stands for itself. There are several only if one value belongs in all of them, such as the
        learning rates of actor and critic.

        Raises:
            ConfigError: nothing reads such a key, several may be meant, or the value would be in other units.
        """
        if "." in name and name in self:
            return [name]
        paths = self._usual(self._places.get(name, ())) or self._usual(keys_meant_by(name, self))
        if paths and name.lower() in UNITS and name not in self._places:
            raise ConfigError(f"{name} is not taken over: set {self._one_of(paths)}, {UNITS[name.lower()]}")
        if not paths and name.lower() in INSTEAD:
            raise ConfigError(f"{name} is no setting: write {INSTEAD[name.lower()]}")
        if not paths:
            near = nearest(name, {*self._places, *(other for other in SYNONYMS if keys_meant_by(other, self))})
            in_full = worded("config={'policy.learn....': value}", "--set policy.learn....=VALUE")
            raise ConfigError(
                f"nothing reads a setting {name!r}{f'; did you mean {near!r}?' if near else '.'} "
                f"`ding show CONFIG` lists the keys, and {in_full} sets any of them"
            )
        if name in ALL_ALIKE:
            return paths
        if name in paths:  # a key of the whole run, such as exp_name
            return [name]
        # batch_size means that of training, even if a simulator has one, too, and alpha that of SAC, not of a buffer.
        is_of_section = any(path in paths for path in (f"env.{name}", f"policy.learn.{name}", f"policy.collect.{name}"))
        inner = _INNER if is_of_section else _MANAGER
        paths = [path for path in paths if not path.startswith(inner)] or paths
        most = max(path.count(".") for path in paths)
        deepest = [path for path in paths if path.count(".") == most]
        if len(deepest) > 1 and name in self._places:
            raise ConfigError(
                f"{name} may be {self._one_of(deepest)}: give it in full, as in "
                + worded(f"config={{{deepest[0]!r}: ...}}", f"--set {deepest[0]}=VALUE")
            )
        return [paths[0] if name not in self._places else deepest[0]]

    def find_unknown(self, section: Mapping[str, Any], at: str = "", shown: str | None = None) -> list[UnknownKey]:
        """Return the unknown keys of a part of a config.

        Args:
            at: path of the part in the main config.
            shown: path of the part as the user knows it.
        """
        return list(self._walk(section, at, at if shown is None else shown))

    def _walk(self, section: Mapping[str, Any], at: str, shown: str) -> Iterator[UnknownKey]:
        for key, value in section.items():
            name = str(key)
            path = _join(at, name)
            if name in EVERYWHERE:
                continue
            if at == _HOOKS and isinstance(value, Mapping):
                continue
            if name not in self._names[at]:
                yield self._describe(at, shown, name, value)
            elif path == _MODEL and isinstance(value, Mapping):
                yield from self._walk_model(value)
            elif isinstance(value, Mapping) and path in self._names and path not in _CHECKED_ELSEWHERE:
                yield from self._walk(value, path, _join(shown, name))

    def _walk_model(self, model: Mapping[str, Any]) -> Iterator[UnknownKey]:
        """Yield arguments that the policy's own model has under another name; its constructor checks all others."""
        if "type" in model or self._readers.get("policy") is not _Reader.PACKAGE:
            return
        for name in model:
            if name not in self._names[_MODEL] and (targets := self._usual(keys_meant_by(str(name), self))):
                hint = f"use {self._one_of(targets)}"
                yield UnknownKey(_MODEL, str(name), model[name], _Reader.PACKAGE, targets, hint)

    def _describe(self, at: str, shown: str, name: str, value: Any) -> UnknownKey:
        reader, owner = self._reader(at)
        if owner in self.classes and reader is _Reader.PACKAGE:
            mark_as_reported(self.classes[owner], _join(at[len(owner) + 1 :], name))
        targets, hint = self._hint(at, shown, name, reader)
        return UnknownKey(shown, name, value, reader, targets, hint)

    def _reader(self, at: str) -> tuple[_Reader, str]:
        """Return the reader of the section `at`, and the section of that class."""
        while at not in self._readers:
            at = at.rpartition(".")[0]
        return self._readers[at], at

    def _hint(self, at: str, shown: str, name: str, reader: _Reader) -> tuple[list[str], str]:
        """Return the keys that are meant by an unknown one, and a sentence about them."""
        if "." in name:
            return [], "write a section for each part of its path"
        places = self._usual(path for path in self._places.get(name, ()) if _may_mean(at, path, reader))
        if places:
            return places, f"it works as {self._one_of(places)}"
        meant = self._usual(keys_meant_by(name, self))
        if meant:
            note = UNITS.get(name.lower())
            return meant, f"use {self._one_of(meant)}{f', {note}' if note else ''}"
        if name.lower() in INSTEAD:
            return [], f"write {INSTEAD[name.lower()]}"
        near = nearest(name, (*self._names[at], *EVERYWHERE))
        if near is not None:
            return [], f"did you mean {_join(shown, near)}?"
        near = nearest(name, (known for known in self._places if "_" in known))
        places = [] if near is None or reader is not _Reader.PACKAGE else self._usual(self._places[near])
        return [], f"did you mean {self._one_of(places)}?" if places else ""

    def _usual(self, paths: Iterable[str]) -> list[str]:
        """Return the paths that have an effect and a default or, if there are none, those that have an effect."""
        paths = [path for path in paths if not self._settings[path].doc.startswith("Accepted for compatibility")]
        return [path for path in paths if self._settings[path].default is not NO_DEFAULT] or paths

    def _one_of(self, paths: list[str]) -> str:
        """Return the paths as text, with their meanings if there are several."""
        if len(paths) == 1:
            return paths[0]
        docs = [self._settings[path].doc.split(". ")[0].rstrip(".") for path in paths]
        return " or ".join(f"{path} ({doc})" if doc else path for path, doc in zip(paths, docs, strict=True))


def unknown_entries(section: Mapping[str, Any], shown: str, known: Iterable[str]) -> list[UnknownKey]:
    """Return the keys of one section, without its subsections, that are not `known`."""
    known = (*known, *EVERYWHERE)
    hints = {str(name): nearest(str(name), known) for name in section if name not in known}
    return [
        UnknownKey(shown, name, section[name], _Reader.PACKAGE, [], f"did you mean {shown}.{near}?" if near else "")
        for name, near in hints.items()
    ]


def report_unknown(keys: list[UnknownKey], compiled: Mapping[str, Any], is_strict: bool) -> None:
    """Log one warning for each key that stands for another, and one for the other keys of each section.

    Keys whose value is in effect, because the key that is meant has it, too, and keys that a class from outside may
    read, are left out.

    Args:
        compiled: the compiled main config.
        is_strict: whether to raise instead.

    Raises:
        ConfigError: `is_strict` is set; it has a line for each key and, if some may be the user's own, advice.
            Classes from outside that do not list their keys may read any key that is not similar to a known one.
    """
    if is_strict:
        wrong = [key for key in keys if key.hint or key.reader is not _Reader.UNKNOWN]
        if wrong:
            may_be_own = any(not key.hint or key.reader is not _Reader.PACKAGE for key in wrong)
            raise ConfigError(
                "\n".join(
                    (*map(_line, wrong), *[_ADVICE + worded("strict_config=False", "--no-strict-config")] * may_be_own)
                )
            )
        return
    keys = [key for key in keys if not any(_equal(value_at(compiled, path), key.value) for path in key.targets)]
    own = [key for key in keys if key.reader is _Reader.PACKAGE]
    for key in own:
        if key.hint:
            one_time_warning(f"ding does not read the config key {key.path}; {key.hint}")
    for section in dict.fromkeys(key.section for key in own if not key.hint):
        paths = [key.path for key in own if key.section == section and not key.hint]
        one_time_warning(f"ding does not read {_listed(paths)}")
    foreign = [f"{key.path} ({key.hint})" for key in keys if key.reader is not _Reader.PACKAGE and key.hint]
    if foreign:
        one_time_warning(f"ding does not read {_listed(foreign)}")


_ADVICE = (
    "Keys of your own: list those of a policy in `config` of its class and those of an env in its `config_keys`, or "
    "pass "
)


def _line(key: UnknownKey) -> str:
    return f"ding does not read the config key {key.path} = {key.value!r}{'; ' if key.hint else ''}{key.hint}"


def _listed(paths: list[str]) -> str:
    if len(paths) == 1:
        return f"the config key {paths[0]}; it has an effect only if your code reads it"
    if len(paths) > _MOST_LISTED:
        paths = [*paths[:_MOST_LISTED], f"and {len(paths) - _MOST_LISTED} others"]
    return f"the config keys {', '.join(paths)}; they have an effect only if your code reads them"


def _join(section: str, name: str) -> str:
    return f"{section}.{name}" if section else name


def _equal(one: Any, other: Any) -> bool:
    return type(one) is type(other) and isinstance(one, (str, int, float)) and one == other


def _may_mean(at: str, path: str, reader: _Reader) -> bool:
    """Return whether a key in the section `at` may stand for the known key `path` of the same name."""
    section, _, name = path.rpartition(".")
    if section.count(".") > 3:  # deep within a worker, where names are as general as print_freq
        return False
    if reader is not _Reader.PACKAGE and at.startswith("env"):
        return section == "env.manager"
    # Short names, such as alpha, have different meanings in different sections.
    return "_" in name or section in _PLAIN or section.startswith(_join(at, ""))
