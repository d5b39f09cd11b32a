"""The state of a serial run: collecting it from all workers, saving it periodically, and resuming from it."""

from __future__ import annotations

import contextlib
import copy
import logging
import math
import os
import re
import time
from collections.abc import Callable, Collection, Iterator, Mapping, MutableMapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import IO, Any

import numpy as np
from easydict import EasyDict

from ding.config.main_settings import MAIN_SETTINGS, value_at
from ding.entry.run_folder import BEST, EVALUATIONS, cut_evaluations, mean_return
from ding.envs.env_manager.base_env_manager import BaseEnvManager
from ding.torch_utils.checkpoint_helper import Interruption, refuse_nan
from ding.utils.config_helper import ConfigError, check_values
from ding.utils.data.nested import plain
from ding.utils.file_helper import atomic_write, beside, sweep_temporary
from ding.utils.object_state import global_generators_state, load_global_generators_state
from ding.utils.pytorch_ddp_dist_helper import get_world_size
from ding.utils.state_folder import (
    FOLDER,
    StateError,
    StateFolder,
    describe_state,
    flat_config,
    hold_run,
    read_run_state,
)

_SETTINGS = MAIN_SETTINGS.section("run_state")
_WORKERS = (
    *("policy", "learner", "collector_env", "evaluator_env", "collector", "evaluator", "buffer", "commander"),
    "writer",
)
# Parts without a state in the middle of a round.
_IN_ROUND = ("collector_env", "evaluator_env", "collector", "expert")
_COUNTERS = ("stop", "best_return", "idle_evaluations", "is_starved", "idle_rounds", "last_push_iter", "evaluated_iter")
_OF_ENVS = re.compile(r"^envs? [\d, ]+: ")  # the beginning of the reasons of an env manager


def run_state_settings(main: Mapping[str, Any]) -> EasyDict | None:
    """Return the section `run_state` of a main config with its defaults; None if it is False and no states are saved.

    Raises:
        ConfigError: a value is not allowed.
    """
    section = main.get("run_state", {})
    if section is False:
        return None
    if not isinstance(section, Mapping):
        raise ConfigError(f"run_state = {section!r} is not allowed; it must be a dict, or False for no states")
    check_values(section, "the section run_state", _SETTINGS.rules())
    return EasyDict({**_SETTINGS.config(), **section})


@dataclass(slots=True)
class Start:
    """The way in which a run starts.

    Attributes:
        settings: see `run_state_settings`.
        renew: whether to use another folder if `exp_name` exists.
        state: the state to resume from, if any.
        lock: the lock of the folder, acquired before its state is read.
    """

    settings: EasyDict | None
    renew: bool
    state: dict[str, Any] | None
    lock: IO[bytes] | None = None

    def take_state(self) -> dict[str, Any] | None:
        """Return the state, and forget it here, as it may take as much memory as the run itself."""
        state, self.state = self.state, None
        return state


def choose_start(
    main: Any,
    create: Any,
    compile_both: Callable[..., Mapping[str, Any]],
    resume: bool,
    kind: str = "serial",
    flatten: Callable[[Mapping[str, Any]], dict[str, str]] = flat_config,
) -> Start:
    """Look for a state to resume from if `resume` or `policy.learn.resume_training` is set; return how the run starts.

    `resume_training` with a `load_ckpt_before_run` resumes from that checkpoint instead. If there is no state, the
    folder of an earlier run is renamed.

    Args:
        main: the main config; its `load_ckpt_before_run` is cleared if there is a state.
        create: the create config.
        compile_both: compiles a main config and `create_cfg` without changing them or writing files.
        kind: 'serial' or 'parallel'; the state of a run of the other kind is refused.
        flatten: takes a compiled config, and returns the values that must be equal in the state.

    Raises:
        StateError: no state in the folder is readable, it is of the other kind, or another process uses the folder.
        ConfigError: the state belongs to another config, the section `run_state` is wrong, or there are several ranks,
            for which no states are saved.
    """
    settings = run_state_settings(main)
    by_key = bool(value_at(main, "policy.learn.resume_training"))
    hook = value_at(main, "policy.learn.learner.hook") or {}
    if not (resume or by_key):
        return Start(settings, renew=True, state=None)
    from_checkpoint = by_key and not resume and bool(hook.get("load_ckpt_before_run"))
    if get_world_size() > 1 and not from_checkpoint:
        key = "resume" if resume else "policy.learn.resume_training"
        raise ConfigError(
            f"{key} = True works with a single process only: the state "
            "of several ranks is not saved; load a checkpoint with policy.learn.resume_training = True and "
            "learn.learner.hook.load_ckpt_before_run"
        )
    if from_checkpoint:
        return Start(settings, renew=False, state=None)
    exp_name = str(main.get("exp_name", "default_experiment"))
    path = os.path.join(exp_name, FOLDER)

    def flat(main: Any, create: Any) -> dict[str, str]:
        return flatten(compile_both(main, create_cfg=create))

    state = lock = None
    if os.path.isdir(path):
        with ExitStack() as stack:
            lock = hold_run(exp_name)
            if lock is not None:
                stack.enter_context(lock)
            state = read_run_state(path, kind, flat(main, create), partial(_defaults_of, main, create, flat))
            if state is not None:
                stack.pop_all()
    if state is None:
        lock = None
        aside = set_aside(exp_name)
        moved = f"; the former folder is renamed to {aside}" if aside else ""
        logging.getLogger("ding").warning("%s: no state to resume from, so the run starts afresh%s", exp_name, moved)
    elif "load_ckpt_before_run" in hook:
        hook["load_ckpt_before_run"] = ""
    return Start(settings, renew=False, state=state, lock=lock)


def _defaults_of(
    main: Any, create: Any, flat: Callable[[Any, Any], dict[str, str]], keys: Collection[str]
) -> dict[str, str]:
    """Return the defaults of `keys` of a compiled config, as text; keys without a default are left out.

    A state that was saved before a key was added lacks that key. Its value then is the default, as a new key by default
    changes nothing.
    """
    if not keys:
        return {}
    bare, bare_create = copy.deepcopy((main, create))
    for key in keys:
        *sections, name = key.split(".")
        section = value_at(bare, ".".join(sections)) if sections else bare
        if isinstance(section, MutableMapping):
            section.pop(name, None)
        for entry in bare_create.values():
            if isinstance(entry, MutableMapping) and name != "type":  # without a type nothing can be compiled
                entry.pop(name, None)
    try:
        defaults = flat(bare, bare_create)
    except ConfigError:  # a key that must be set has no default
        return {}
    return {key: defaults[key] for key in keys if key in defaults}


def set_aside(exp_name: str) -> str:
    """Rename the folder of an earlier run, and return the new name; "" if there is no folder."""
    if not os.path.exists(os.path.join(exp_name, "total_config.py")):
        return ""
    aside, number = beside(exp_name, time.strftime("%y%m%d_%H%M%S")), 1
    while os.path.exists(aside):
        aside, number = beside(exp_name, f"{time.strftime('%y%m%d_%H%M%S')}_{number}"), number + 1
    os.rename(exp_name, aside)
    return aside


class RunStates:
    """The saved states of a run, and the state from which it resumes.

    Args:
        start: how the run starts.
        cfg: the compiled config, which is stored in the states.
        arguments: those with which the run was started, beside its configs: its limits, and the names of objects that
            no file can hold. They are stored, too, for `ding train --resume FOLDER`.

    Attributes:
        is_resumed: whether the run resumes from a state.
        inexact: the reasons why the run is not exactly reproducible after resuming; empty if it is.
    """

    def __init__(self, start: Start, cfg: EasyDict, arguments: Mapping[str, Any] = MappingProxyType({})) -> None:
        settings = start.settings
        self._arguments = dict(arguments)
        # Several ranks would have to save at the same time.
        self._settings = None if get_world_size() > 1 else settings
        self._cfg = cfg
        self._flat = flat_config(cfg)
        self._start = start
        self._folder = StateFolder(os.path.join(cfg.exp_name, FOLDER), 1 if settings is None else settings.keep)
        self._logger = logging.getLogger("ding")
        self._last_s, self._last_iter = time.monotonic(), 0
        self._left_out: tuple[str, ...] = ()
        self._best_path = os.path.join(cfg.exp_name, "ckpt", BEST)  # it belongs to the state
        self._lock = hold_run(cfg.exp_name) if self._settings is not None and start.lock is None else start.lock
        self.interruption = Interruption()
        self.is_resumed = start.state is not None
        self.inexact: list[str] = []

    @property
    def is_on(self) -> bool:
        """Whether states are saved at all."""
        return self._settings is not None

    def close(self) -> None:
        """Release the lock of the folder."""
        if self._lock is not None:
            self._lock.close()

    def enable(self, env: Any) -> None:
        """Have an env manager record what its state needs; call it before the launch."""
        if self._settings is not None and isinstance(env, BaseEnvManager):
            env.enable_states(self._settings.trust_pickle)

    # ---- saving

    def checkpoint(self, run: Any) -> None:
        """Save a state if it is due, and exit if a signal was received; call this between two rounds.

        Raises:
            SystemExit: a signal was received.
        """
        signal_name = self.interruption.signal_name
        if signal_name is not None:
            self.interruption.close()
            self.save(run, signal_name)
            self.interruption.leave_if_asked()
        elif self._is_due(run.learner.train_iter):
            self.save(run, "interval")

    def _is_due(self, train_iter: int) -> bool:
        settings = self._settings
        if settings is None:
            return False
        by_iter = settings.every_iter > 0 and train_iter - self._last_iter >= settings.every_iter
        by_time = settings.every_s > 0 and time.monotonic() - self._last_s >= settings.every_s
        return bool(by_iter or by_time)

    def save(self, run: Any, reason: str) -> None:
        """Save a state; a failure is logged and does not end the run."""
        if self._settings is None:
            return
        begin_s = time.monotonic()
        try:
            size = self._folder.write(self._gather(run), self._about(run, reason))
        except (TypeError, ValueError, OSError) as e:
            self._logger.warning("%s: the state of the run is not saved: %s", self._cfg.exp_name, e)
        else:
            seconds = time.monotonic() - begin_s
            self._logger.info(
                "%s: saved the state of the run at iteration %d, env step %d (%.1f MB, %.2f s)",
                *(self._cfg.exp_name, run.learner.train_iter, run.envstep, size / 1e6, seconds),
            )
        self._last_s, self._last_iter = time.monotonic(), run.learner.train_iter

    @contextlib.contextmanager
    def guard(self, run: Any) -> Iterator[None]:
        """Save a state if an exception or a signal ends the `with` block and no state exists.

        A run that ends in the middle of a round or an evaluation cannot resume exactly: the state has no envs and no
        unfinished episodes, and records that.
        """
        try:
            yield
        except (Exception, SystemExit) as e:  # a signal that could not wait for the end of the round is a SystemExit
            if not any(self._folder.states()):
                self._save_broken(run, "a signal" if isinstance(e, SystemExit) else "an exception")
            raise

    def _save_broken(self, run: Any, cause: str) -> None:
        try:
            refuse_nan(run.policy.state_dict(), f"after {cause}")
        except FloatingPointError as e:
            self._logger.error("%s: the state of the run is not saved: %s", self._cfg.exp_name, e)
            return
        self.note_cut(cause)
        self._left_out = _IN_ROUND
        self.save(run, self.interruption.signal_name or "exception")

    def note_cut(self, cause: str) -> None:
        """Note that the run ends in the middle of a round, of which the rest is lost."""
        self._note_inexact([f"{cause} ended the run in the middle of a round"], logging.INFO)

    def _gather(self, run: Any) -> dict[str, Any]:
        parts, reasons = gather_states({k: v for k, v in _parts(run).items() if k not in self._left_out})
        self._note_inexact(reasons, logging.INFO)
        path = os.path.join(self._cfg.exp_name, "eval.jsonl")
        return {
            "parts": parts,
            "counters": {name: getattr(run, name) for name in _COUNTERS},
            "env_step": int(run.envstep),
            "eval_info": plain(run.eval_info),
            "eval_size": os.path.getsize(path) if os.path.exists(path) else 0,
            "stop_value": value_at(self._cfg, "env.stop_value"),
            "inexact": list(self.inexact),
            "generators": global_generators_state(),
            "best": np.fromfile(self._best_path, np.uint8) if os.path.exists(self._best_path) else None,
        }

    def _about(self, run: Any, reason: str) -> dict[str, Any]:
        counts, reached = (int(run.learner.train_iter), int(run.envstep)), mean_return(run.eval_info)
        last = None if math.isnan(reached) else reached
        about = describe_state("serial", self._cfg.exp_name, self._flat, reason, *counts, last, self.inexact)
        return {**about, "arguments": self._arguments}

    def _note_inexact(self, reasons: list[str], level: int = logging.WARNING) -> None:
        for reason in reasons:
            if _cause(reason) not in map(_cause, self.inexact):
                self.inexact.append(reason)
                text = "%s: the run does not resume exactly: %s"
                self._logger.log(level, text, self._cfg.exp_name, reason)

    # ---- resuming

    def load(self, run: Any) -> None:
        """Restore the state, if any, into `run`, which was built from the same config.

        Raises:
            StateError: the state has parts that the run does not have.
        """
        state = self._start.take_state()
        if state is None:
            return
        own, saved = _parts(run), state["parts"]
        if missing := sorted(saved.keys() - own.keys()):
            raise StateError(
                f"the state in {self._folder.path} has {', '.join(missing)}, which this run does not have; call the "
                "pipeline that saved it"
            )
        self._note_inexact(state["inexact"])
        self._note_inexact(restore_states(own, saved))
        if "collector" not in saved and run.collector is not None:
            run.collector.envstep = state["env_step"]
        for name, value in state["counters"].items():
            setattr(run, name, value)
        run.stop = run.stop and state["stop_value"] == value_at(self._cfg, "env.stop_value")
        run.eval_info = state["eval_info"]
        self._note_inexact(cut_evaluations(os.path.join(self._cfg.exp_name, EVALUATIONS), state["eval_size"]))
        self._put_best_back(state["best"])
        self._last_s, self._last_iter = time.monotonic(), run.learner.train_iter
        self._logger.info(
            "%s: resumes at iteration %d, env step %d", self._cfg.exp_name, run.learner.train_iter, run.envstep
        )
        load_global_generators_state(state["generators"])

    def _put_best_back(self, content: np.ndarray | None) -> None:
        sweep_temporary(os.path.dirname(self._best_path))
        if content is None:
            Path(self._best_path).unlink(missing_ok=True)
        else:
            with atomic_write(self._best_path) as file:
                file.write(content.data)


def gather_states(parts: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Return the states of `parts` by name, and a message for each part that cannot resume exactly from them.

    The states may share memory with the parts: write them before the parts continue.
    """
    states, reasons = {}, []
    for name, part in parts.items():
        # The class is asked, as a writer opens its event file for a name that it does not know.
        state_of = getattr(part, "live_state" if hasattr(type(part), "live_state") else "state_dict", None)
        if state_of is None:
            reasons.append(f"{name}: {type(part).__name__} has no state_dict")
        else:
            states[name] = state_of()
            if isinstance(part, BaseEnvManager) and part.why_inexact:
                reasons.append(f"{name}: {part.why_inexact}")
    return states, reasons


def restore_states(parts: Mapping[str, Any], states: Mapping[str, Any]) -> list[str]:
    """Restore states of `gather_states` into `parts` in order, and return the reasons why that is not exact, if any.

    Each reason is `<parts>: <cause>`; a cause that several envs of env managers share is returned once.
    """
    names: dict[str, list[str]] = {}
    for name, part in parts.items():
        if name in states:
            told = part.load_state_dict(states[name])
            for reason in told if isinstance(told, list) else ():  # user code may return anything
                cause = _OF_ENVS.sub("", reason)
                if name not in names.setdefault(cause, []):
                    names[cause].append(name)
    return [f"{', '.join(of_cause)}: {cause}" for cause, of_cause in names.items()]


def _cause(reason: str) -> str:
    """Return a reason of `restore_states` without the names of its parts."""
    parts, _, cause = reason.partition(": ")
    return cause or parts


def _parts(run: Any) -> dict[str, Any]:
    """Return all parts of a run by name, in the order in which states are restored."""
    found = {name: getattr(run, name) for name in _WORKERS} | run.further_parts
    return {name: part for name, part in found.items() if part is not None}
