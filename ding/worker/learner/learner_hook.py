"""The hooks of a learner: base classes, built-in hooks, and the table of hooks that is built from a config."""

from __future__ import annotations

import numbers
import os
import sys
import zlib
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import numpy as np
import torch
from easydict import EasyDict

from ding.utils.config_helper import (
    ConfigError,
    Rule,
    anything,
    check_config,
    instance_of,
    integer,
    nearest,
    number,
)
from ding.utils.data.nested import is_container, is_mapping, plain
from ding.utils.file_helper import read_file, save_file
from ding.utils.object_state import SavedAttributes
from ding.utils.pytorch_ddp_dist_helper import allreduce
from ding.worker.learner.checkpoint import (
    EXTRA,
    NORMALIZATION,
    checkpoint_folder,
    checkpoint_state,
    delete_old_checkpoints,
    normalization_of,
)

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

_PER_ITERATION = ("before_iter", "after_iter")
_FREQ_NOTE = ", the number of iterations from one call to the next. To switch the hook off, leave it out of the config."
# For `LogReduceHook`: the prefix of keys that are left out, and how many numbers are sent at least.
_KEPT_PREFIX = "noreduce_"
_MIN_SIZE = 256


class Hook(SavedAttributes, ABC):
    """A callable with a name and a priority; a lower priority runs earlier.

    Other keyword arguments are ignored, so that a subclass need not declare `ext_args`. A subclass with a state that a
    resumed run needs names its attributes in `_saved`, see `SavedAttributes`.

    Raises:
        AssertionError: the priority is negative.
    """

    def __init__(self, name: str, priority: float, **kwargs: Any) -> None:
        if not priority >= 0:
            raise AssertionError(f"hook {name!r}: priority = {priority!r} is not allowed; it must be a number >= 0")
        self._name = name
        self._priority = priority

    @property
    def name(self) -> str:
        """The name by which a learner finds the hook; it need not be unique."""
        return self._name

    @property
    def priority(self) -> float:
        """The priority among the hooks of a position; lower runs earlier."""
        return self._priority

    @abstractmethod
    def __call__(self, engine: Any) -> Any:
        """Act on `engine`, the learner."""
        raise NotImplementedError


class LearnerHook(Hook):
    """A hook that a learner calls at `position`.

    `before_run` and `after_run` surround a training. `before_iter` hooks run once per `train`; `after_iter` hooks run
    once per dict that the policy returns, before the iteration counter is incremented.

    Raises:
        AssertionError: the position is unknown.

    Example:
        >>> class CountHook(LearnerHook):
        ...     calls = 0
        ...     def __call__(self, engine):
        ...         self.calls += 1
        >>> hook = CountHook("count", 50, position="after_iter")
        >>> hook.position
        'after_iter'
    """

    positions: ClassVar[list[str]] = ["before_run", "after_run", "before_iter", "after_iter"]

    def __init__(self, *args: Any, position: str, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if position not in self.positions:
            allowed = ", ".join(self.positions)
            raise AssertionError(
                f"hook {self._name!r}: position = {position!r} is not allowed; it must be one of {allowed}"
            )
        self._position = position

    @property
    def position(self) -> str:
        """The position at which the learner calls the hook."""
        return self._position

    def _ext_arg(self, ext_args: Mapping[str, Any] | None, key: str, default: Any, rule: Rule, note: str = "") -> Any:
        """Return the value of a key in `ext_args`; raise a ConfigError if the rule does not allow it."""
        value = default if ext_args is None else ext_args.get(key, default)
        allowed = rule(value)
        if allowed is not None:
            raise ConfigError(f"hook {self._name!r}: {key} = {value!r} is not allowed; it must be {allowed}{note}")
        return value


class PeriodicHook(LearnerHook):
    """A hook that acts every `ext_args['freq']` iterations (default 1), beginning with iteration 0.

    A subclass defines `act`. At `before_run` and `after_run` the hook always acts.

    Raises:
        ConfigError: `freq` is not an integer >= 1.
    """

    def __init__(self, *args: Any, ext_args: Mapping[str, Any] | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._freq = int(self._ext_arg(ext_args, "freq", 1, integer(1), _FREQ_NOTE))

    def __call__(self, engine: Any) -> None:
        """Call `act` if it is due."""
        if engine.train_iter % self._freq == 0 or self._position not in _PER_ITERATION:
            self.act(engine)

    @abstractmethod
    def act(self, engine: Any) -> None:
        """Act on `engine`, the learner; called every `freq` iterations."""
        raise NotImplementedError


# --- built-in hooks ---


class LoadCkptHook(LearnerHook):
    """A hook that loads the checkpoint `ext_args['load_path']` into the policy and the learner's counters.

    If the path is empty, it does nothing. It reads checkpoints of DI-engine, too. With `ext_args['trust_pickle']`
    (default False) it also reads files that contain more than tensors and plain values; loading such a file can run
    code that it contains.

    Raises:
        KeyError: `ext_args` has no `load_path`.
        FileNotFoundError: when called, if the file does not exist.
        TypeError: when called, if the file does not contain a dict.
    """

    def __init__(self, *args: Any, ext_args: Mapping[str, Any] | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if ext_args is None or "load_path" not in ext_args:
            raise KeyError(f"hook {self._name!r}: ext_args lacks 'load_path', the checkpoint file ('' for none)")
        self._load_path = os.fspath(ext_args["load_path"] or "")
        self._trust_pickle = bool(ext_args.get("trust_pickle", False))

    def __call__(self, engine: Any) -> None:
        """Load the checkpoint into `engine`."""
        path = self._load_path
        if not path:
            return
        if not os.path.isfile(path):
            raise FileNotFoundError(
                f"hook {self._name!r}: there is no checkpoint {path!r} (looked for at {os.path.abspath(path)!r}); "
                "correct load_ckpt_before_run in the learner's hook config, or set it to '' to start afresh"
            )
        state = read_file(path, trust_pickle=self._trust_pickle)
        if not isinstance(state, dict):
            raise TypeError(
                f"hook {self._name!r}: {path!r} holds a {type(state).__name__}, not the dict of a checkpoint"
            )
        if "last_iter" in state:
            engine.last_iter.update(int(state.pop("last_iter")))
        if "last_step" in state:
            engine.collector_envstep = int(state.pop("last_step"))
        if normalization := normalization_of(state):
            engine.ckpt_extra[NORMALIZATION] = normalization
        state.pop(EXTRA, None)
        engine.policy.load_state_dict(state)
        engine.info(
            f"loaded the checkpoint {path} at iteration {engine.train_iter}, env step {engine.collector_envstep}"
        )


class SaveCkptHook(PeriodicHook):
    """A hook that saves the policy's state with `last_iter` and `last_step` (the collector's env steps) on rank 0.

    The file is `./<exp_name>/ckpt/iteration_<n>.pth.tar`, or `engine.ckpt_name` if set; the folder is
    `ckpt_<instance_name>` unless the learner is called `learner`. The write is atomic, and
    `torch.load(path, weights_only=True)` reads the file.

    `ext_args['keep']` is the number of the newest `iteration_<n>` files to keep, by default `keep_checkpoints` of the
    learner's config; None keeps all. Other files, such as `ckpt_best`, are never deleted.

    Raises:
        ConfigError: `keep` is not an integer >= 1.
        FloatingPointError: when called, if the policy's state contains a NaN; nothing is written.
    """

    def __init__(self, *args: Any, ext_args: Mapping[str, Any] | None = None, **kwargs: Any) -> None:
        super().__init__(*args, ext_args=ext_args, **kwargs)
        self._keep = self._ext_arg(ext_args, "keep", None, integer(1, optional=True))

    def act(self, engine: Any) -> None:
        """Write the checkpoint."""
        if engine.rank != 0:
            return
        name = engine.ckpt_name or f"iteration_{engine.train_iter}.pth.tar"
        folder = checkpoint_folder(engine)
        path = os.path.join(folder, name)
        save_file(path, checkpoint_state(engine))
        engine.info(f"saved the checkpoint {path}")
        keep = self._keep or engine.keep_checkpoints
        if keep is not None:
            delete_old_checkpoints(folder, int(keep), newest=name)


class LogShowHook(PeriodicHook):
    """A hook that records the scalars of each iteration, and writes their averages every `freq` iterations.

    The averages of `policy.monitor_vars()` are written to the text log as a table, and to TensorBoard under
    `<instance_name>_iter/<name>_avg` and `<instance_name>_step/<name>_avg`. The newest `[histogram]` and `[scalars]`
    entries are written to TensorBoard under `<instance_name>/<key>`. On a rank that does not monitor, nothing is done.

    The learner clears the log buffer before it logs the next iteration, so hooks of any priority see the newest one.

    A value that cannot be logged, such as a monitored one that is not a number, causes one warning and ends nothing.
    """

    def __call__(self, engine: Any) -> None:
        """Record the scalars, advance the monitor's clock, and write the averages if they are due."""
        if not engine.is_monitor:
            return
        monitor, scalars = engine.monitor, engine.log_buffer["scalar"]
        try:
            monitor.record(scalars)
        except Exception:  # the other values are recorded, and a warning names this one
            for name, value in scalars.items():
                with engine.worker_log.only_shows(f"averaging {name}"):
                    monitor.record({name: value})
        monitor.time.step()
        super().__call__(engine)

    def act(self, engine: Any) -> None:
        """Write to the logs."""
        with engine.worker_log.only_shows():
            averages = {f"{name}_avg": engine.monitor.avg[name]() for name in engine.policy.monitor_vars()}
            engine.info(f"train iteration {engine.train_iter}, env step {engine.collector_envstep}")
            engine.logger.info(engine.logger.get_tabulate_vars_hor(averages))
            engine.worker_log.scalars(averages, engine.train_iter, engine.collector_envstep)
            if engine.on_averages is not None:
                engine.on_averages(engine.train_iter, averages)
            if engine.tb_logger is None:
                return
            for key, values in engine.log_buffer["histogram"].items():
                engine.tb_logger.add_histogram(f"{engine.instance_name}/{key}", np.asarray(values), engine.train_iter)
            for key, values in engine.log_buffer["scalars"].items():
                if not isinstance(values, Mapping):  # curves without names get those of their index
                    values = dict(enumerate(np.asarray(values).ravel().tolist()))
                curves = {str(name): value for name, value in values.items()}
                engine.tb_logger.add_scalars(f"{engine.instance_name}/{key}", curves, engine.train_iter)


class LogReduceHook(LearnerHook):
    """A hook that replaces every number in the log buffer by its mean over the ranks, with one all-reduce per call.

    Numbers become floats; tuples, arrays and tensors become lists. Values of keys that start with `noreduce_` are kept.

    Raises:
        TypeError: when called, if a value is neither a number nor a dict, sequence, array or tensor of numbers.
        RuntimeError: when called, if the ranks logged different keys or lengths.
    """

    def __call__(self, engine: Any) -> None:
        """Average the log buffer of `engine`, in place."""
        found: list[tuple[str, float]] = []

        def note(value: float, path: str) -> float:
            found.append((path, value))
            return value

        _walk(engine.log_buffer, "", note)
        means = iter(_all_mean(found))
        for key, section in _walk(engine.log_buffer, "", lambda value, path: next(means)).items():
            if isinstance(engine.log_buffer[key], dict):
                engine.log_buffer[key].update(section)
            else:
                engine.log_buffer[key] = section


def _all_mean(found: list[tuple[str, float]]) -> list[float]:
    """Return the mean over all ranks of each (path, number) in `found`, followed by padding."""
    checksum = zlib.crc32("\n".join(path for path, _ in found).encode())
    values = torch.tensor([checksum, *(value for _, value in found)], dtype=torch.float64)
    # Gloo aborts the process if the sizes of the ranks differ; rounding up makes that rare.
    # The checksum finds differences within one size.
    packed = torch.zeros(max(_MIN_SIZE, 1 << (len(values) - 1).bit_length()), dtype=torch.float64)
    packed[: len(values)] = values
    allreduce(packed)
    mean_checksum, *means = packed.tolist()
    if mean_checksum != checksum:
        raise RuntimeError(
            "log_reduce: the ranks logged different keys, whose values cannot be averaged; log the same keys and "
            f"lengths on every rank, or prefix a key with {_KEPT_PREFIX!r} to leave it out"
        )
    return means


def _walk(node: Any, path: str, visit: Callable[[float, str], float]) -> Any:
    """Return a copy of `node` with each number replaced by `visit(number, path)`, in a fixed order."""
    if is_mapping(node):
        return {
            key: value if str(key).startswith(_KEPT_PREFIX) else _walk(value, f"{path}/{key}", visit)
            for key, value in node.items()
        }
    node = plain(node)
    if is_container(node):
        return [_walk(value, path, visit) for value in node]
    if isinstance(node, numbers.Real):
        return visit(float(node), path)
    raise TypeError(
        f"log_reduce: {path.lstrip('/')} = {node!r} is not a number or a dict, sequence or tensor of numbers"
    )


# --- the table of a learner ---

# The hooks of each position in the order in which they run: by priority, then by insertion.
HookTable = dict[str, list[LearnerHook]]

hook_mapping: dict[str, type[LearnerHook]] = {
    "load_ckpt": LoadCkptHook,
    "save_ckpt": SaveCkptHook,
    "log_show": LogShowHook,
    "log_reduce": LogReduceHook,
}


def find_char(s: str, flag: str, num: int, reverse: bool = False) -> int:
    """Return the index of the `num`-th `flag` in `s`, counted from the end if `reverse`; -1 if there are fewer.

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
    """Return a function that builds a hook from a value; it looks up the class at each call."""

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
            similar = nearest(key, simplified_hook_mapping)
            meant = "" if similar is None else f" did you mean {similar!r}?"
            raise AttributeError(
                f"unknown hook config key {key!r};{meant} a plain value goes with one of "
                f"{', '.join(simplified_hook_mapping)}; any other hook needs the full form, "
                "EasyDict(name=, type=, position=)"
            )
        elif value or key not in _SWITCHES:
            add_learner_hook(hooks, simplified_hook_mapping[key](value))
    return hooks


def unknown_hooks(cfg: Mapping[str, Any]) -> list[str]:
    """Return the keys of a `hook` config section that are not simplified keys and have no full form."""
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
    """Return a new table with the hooks of both; hooks of `hooks1` precede hooks of `hooks2` of equal priority.

    Raises:
        AssertionError: the tables have different positions.
    """
    if hooks1.keys() != hooks2.keys():
        raise AssertionError(f"hook tables of different positions cannot be merged: {list(hooks1)} and {list(hooks2)}")
    return {key: sorted(hooks1[key] + hooks2[key], key=lambda hook: hook.priority) for key in hooks1}


def register_learner_hook(name: str, hook_type: type[LearnerHook]) -> None:
    """Register `hook_type` as the type `name` of hook configs, in place of an existing entry.

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
