"""The state of a serial run: collecting it from all workers, saving it periodically, and resuming from it."""

from __future__ import annotations

import logging
import math
import os
import re
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from types import MappingProxyType
from typing import IO, Any

from easydict import EasyDict

from ding.config.save import claim_experiment
from ding.config.topics import MAIN_SETTINGS
from ding.entry.run_folder import EVALUATIONS, mean_return
from ding.envs.env_manager.base_env_manager import BaseEnvManager
from ding.torch_utils.checkpoint_helper import Interruption
from ding.utils.config_helper import ConfigError, check_values
from ding.utils.data.nested import plain
from ding.utils.default_helper import closing
from ding.utils.metric_sinks import cut_file
from ding.utils.object_state import global_generators_state, load_global_generators_state, undeclared
from ding.utils.pytorch_ddp_dist_helper import get_world_size
from ding.utils.state_folder import (
    FOLDER,
    StateError,
    StateFolder,
    describe_state,
    flat_config,
    hold_run,
    plain_tree,
    read_run_state,
)
from ding.worker.learner.base_learner import BaseLearner

_SETTINGS = MAIN_SETTINGS.section("run_state")
_WORKERS = (
    *("policy", "learner", "collector_env", "evaluator_env", "collector", "evaluator", "buffer", "commander"),
    "writer",
)
_COUNTERS = ("stop", "best_return", "idle_evaluations", "is_starved", "idle_rounds", "last_push_iter", "evaluated_iter")
_OF_ENVS = re.compile(r"^envs? [\d, ]+: ")  # the beginning of the reasons of an env manager


@dataclass(slots=True)
class Start:
    """The way in which a run starts.

    Attributes:
        settings: the section `run_state` with its defaults; None if no states are saved.
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
    cfg: EasyDict,
    resume: bool,
    kind: str = "serial",
    flatten: Callable[[], dict[str, str]] | None = None,
) -> Start:
    """Look for a state to resume from if `resume` or `policy.learn.resume_training` is set; return how the run starts.

    `resume_training` with a `load_ckpt_before_run` resumes from that checkpoint instead. If there is no state, the
    folder of an earlier run is renamed.

    Args:
        cfg: the compiled main config; its `load_ckpt_before_run` is cleared if there is a state.
        kind: 'serial' or 'parallel'; the state of a run of the other kind is refused.
        flatten: returns the values that must be equal in the state; None for those of `cfg`.

    Raises:
        StateError: no state in the folder is readable, it is of the other kind, or another process uses the folder.
        ConfigError: the state belongs to another config, the section `run_state` is wrong, or there are several ranks,
            for which no states are saved.
    """
    section, settings = cfg.get("run_state", {}), None
    if section is not False:
        if not isinstance(section, Mapping):
            raise ConfigError(f"run_state = {section!r} is not allowed; it must be a dict, or False for no states")
        check_values(section, "the section run_state", _SETTINGS.rules())
        settings = EasyDict({**_SETTINGS.config(), **section})
    by_key, hook = bool(cfg.policy.learn.get("resume_training")), cfg.policy.learn.learner.get("hook", {})
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
    path = os.path.join(cfg.exp_name, FOLDER)
    lock = hold_run(cfg.exp_name) if os.path.isdir(path) else None
    with ExitStack() as stack:
        closing(stack, lock)
        state = read_run_state(path, kind, flat_config(cfg) if flatten is None else flatten())
        if state is not None:
            stack.pop_all()
    if state is None:
        lock = None
        aside = set_aside(cfg.exp_name)
        moved = f"; the former folder is renamed to {aside}" if aside else ""
        text = "%s: no state to resume from, so the run starts afresh%s"
        logging.getLogger("ding").warning(text, cfg.exp_name, moved)
    elif "load_ckpt_before_run" in hook:
        hook["load_ckpt_before_run"] = ""
    return Start(settings, renew=False, state=state, lock=lock)


def set_aside(exp_name: str) -> str:
    """Rename the folder of an earlier run, and return the new name; "" if there is no folder."""
    if not os.path.exists(os.path.join(exp_name, "total_config.py")):
        return ""
    aside = claim_experiment(exp_name)
    os.rmdir(aside)
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
        self._lock = hold_run(cfg.exp_name) if self._settings is not None and start.lock is None else start.lock
        self.interruption = Interruption()
        self.is_resumed = start.state is not None
        self.inexact: list[str] = []

    def close(self) -> None:
        """Release the lock of the folder."""
        if self._lock is not None:
            self._lock.close()

    # ---- saving

    def checkpoint(self, run: Any) -> None:
        """Save a state if it is due, and exit if a signal was received; call this between two rounds.

        Raises:
            SystemExit: a signal was received.
        """
        signal_name = self.interruption.signal_name
        if signal_name is not None:
            self.save(run, signal_name)
            self.interruption.leave_if_interrupted()
        elif self._is_due(run.learner.train_iter):
            self.save(run, "interval")

    def _is_due(self, train_iter: int) -> bool:
        settings = self._settings
        if settings is None:
            return False
        by_iter = 0 < settings.every_iter <= train_iter - self._last_iter
        return bool(by_iter or 0 < settings.every_s <= time.monotonic() - self._last_s)

    def save(self, run: Any, reason: str) -> None:
        """Save a state; a failure is logged and does not end the run."""
        if self._settings is None:
            return
        begin_s = time.monotonic()
        try:
            state, reached = self._gather(run), mean_return(run.eval_info)
            about = describe_state(
                self.inexact,
                kind="serial",
                exp_name=self._cfg.exp_name,
                config=self._flat,
                reason=reason,
                train_iter=int(run.learner.train_iter),
                env_step=int(run.envstep),
                last_return=None if math.isnan(reached) else reached,
                arguments=self._arguments,
            )
            size = self._folder.write(state, about)
        except (TypeError, ValueError, OSError) as e:
            self._logger.warning("%s: the state of the run is not saved: %s", self._cfg.exp_name, e)
        else:
            self._logger.info(
                "%s: saved the state of the run at iteration %d, env step %d (%.1f MB, %.2f s)",
                self._cfg.exp_name,
                run.learner.train_iter,
                run.envstep,
                size / 1e6,
                time.monotonic() - begin_s,
            )
        self._last_s, self._last_iter = time.monotonic(), run.learner.train_iter

    def note_cut(self, cause: str) -> None:
        """Note that the run ends in the middle of a round, of which the rest is lost."""
        self._note_inexact([f"{cause} ended the run in the middle of a round"], logging.INFO)

    def _gather(self, run: Any) -> dict[str, Any]:
        parts, reasons = gather_states(_parts(run))
        self._note_inexact(reasons, logging.INFO)
        path = os.path.join(self._cfg.exp_name, "eval.jsonl")
        return {
            "parts": parts,
            "counters": {name: getattr(run, name) for name in _COUNTERS},
            "eval_info": plain(run.eval_info),
            "eval_size": os.path.getsize(path) if os.path.exists(path) else 0,
            "stop_value": self._cfg.env.get("stop_value"),
            "inexact": list(self.inexact),
            "generators": global_generators_state(),
        }

    def _note_inexact(self, reasons: list[str], level: int = logging.WARNING) -> None:
        for reason in reasons:
            causes = [noted.split(": ", 1)[-1] for noted in self.inexact]  # without the names of parts
            if reason.split(": ", 1)[-1] not in causes:
                self.inexact.append(reason)
                text = "%s: the run does not resume exactly: %s"
                self._logger.log(level, text, self._cfg.exp_name, reason)

    # ---- resuming

    def load(self, run: Any) -> None:
        """Restore the state, if any, into `run`, which was built from the same config.

        Raises:
            StateError: the state has parts that the run does not have, or lacks some of it.
        """
        state = self._start.take_state()
        if state is None:
            return
        parts, saved = _parts(run), state["parts"]
        more, less = sorted(saved.keys() - parts.keys()), sorted(run.further_parts.keys() - saved.keys())
        if more or less:
            how = f"has {', '.join(more)}, which this run does not have" if more else f"lacks {', '.join(less)}"
            raise StateError(f"the state in {self._folder.path} {how}; call the pipeline that saved it")
        self._note_inexact(state["inexact"])
        self._note_inexact(restore_states(parts, saved))
        for name, value in state["counters"].items():
            setattr(run, name, value)
        run.stop = run.stop and state["stop_value"] == self._cfg.env.get("stop_value")
        run.eval_info = state["eval_info"]
        cut_file(os.path.join(self._cfg.exp_name, EVALUATIONS), state["eval_size"])
        self._last_s, self._last_iter = time.monotonic(), run.learner.train_iter
        self._logger.info(
            "%s: resumes at iteration %d, env step %d", self._cfg.exp_name, run.learner.train_iter, run.envstep
        )
        load_global_generators_state(state["generators"])


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
            reasons += [f"{name}: {reason}" for reason in _unsaved(part)]
            if isinstance(part, BaseEnvManager) and part.why_inexact:
                reasons.append(f"{name}: {part.why_inexact}")
    return states, reasons


def _unsaved(part: Any) -> list[str]:
    """Return a line for each object of a user's own class, the part or a hook of it, that saves nothing of its own."""
    cfg = plain_tree(getattr(part, "_cfg", None) or {})
    owners = [part, *part.hooks] if isinstance(part, BaseLearner) else [part]
    return [
        f"{type(owner).__name__} does not save {', '.join(names)}; name the attributes of its state in _saved = (...)"
        for owner in owners
        if (names := undeclared(owner, cfg))
    ]


def restore_states(parts: Mapping[str, Any], states: Mapping[str, Any]) -> list[str]:
    """Restore states of `gather_states` into `parts` in order, and return the reasons why that is not exact, if any.

    Each reason is `<parts>: <cause>`; a cause that several envs of env managers share is returned once.
    """
    names: dict[str, list[str]] = {}
    for name, part in parts.items():
        if name in states:
            reasons = part.load_state_dict(states[name])
            for reason in reasons if isinstance(reasons, list) else ():  # user code may return anything
                cause = _OF_ENVS.sub("", reason)
                if name not in names.setdefault(cause, []):
                    names[cause].append(name)
    return [f"{', '.join(of_cause)}: {cause}" for cause, of_cause in names.items()]


def _parts(run: Any) -> dict[str, Any]:
    """Return all parts of a run by name, in the order in which states are restored."""
    found = {name: getattr(run, name) for name in _WORKERS} | run.further_parts
    return {name: part for name, part in found.items() if part is not None}
