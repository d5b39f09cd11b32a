"""The state of a serial run: gathered from all that takes part in it, saved now and then, and gone on from."""

from __future__ import annotations

import contextlib
import logging
import os
import platform
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from typing import IO, Any, NamedTuple

import numpy as np
import torch
from easydict import EasyDict

from ding.config.checks import value_at
from ding.entry.run_folder import plain_tree
from ding.torch_utils.training_guard import Interruption, refuse_nan
from ding.utils.config_helper import ConfigError, Rule, boolean, check_config, integer, number
from ding.utils.file_helper import sweep_temporary
from ding.utils.lock_helper import hold_file
from ding.utils.object_state import global_generators_state, load_global_generators_state
from ding.utils.pytorch_ddp_dist_helper import get_world_size
from ding.utils.state_folder import StateError, StateFolder
from ding.worker.collector.base_serial_evaluator import as_plain

FOLDER = "run_state"
# The section `run_state` of the main config.
DEFAULTS: dict[str, Any] = {
    # Iterations, and seconds, from one state to the next; 0 for never.
    "every_iter": 0,
    "every_s": 300,
    # How many states to keep.
    "keep": 2,
    # Whether environments may be kept as pickles, which run code when they are read.
    "trust_pickle": False,
}
_RULES: dict[str, Rule] = {
    "every_iter": integer(0),
    "every_s": number(0),
    "keep": integer(1),
    "trust_pickle": boolean,
}
# What a run may go on with other values of: budgets, the folder, and how it is gone on.
_FREE = (
    "exp_name",
    "run_state",
    "env.stop_value",
    "policy.eval.evaluator.stop_value",
    "policy.eval.evaluator.patience",
    "policy.learn.learner.keep_checkpoints",
    "policy.learn.train_epoch",
    "policy.learn.resume_training",
    "policy.learn.learner.train_iterations",
    "policy.learn.learner.hook.load_ckpt_before_run",
)
_FREE_SECTIONS = ("run_state.", "logger.")
_WORKERS = (
    *("policy", "learner", "collector_env", "evaluator_env", "collector", "evaluator", "buffer", "commander"),
    "writer",
)
# Of these nothing can be told in the middle of a round.
_IN_ROUND = ("collector_env", "evaluator_env", "collector", "expert")
_COUNTERS = ("stop", "best_return", "idle_evaluations", "is_starved", "idle_rounds", "last_push_iter")
_BEST = "ckpt_best.pth.tar"


def run_state_settings(main: Mapping[str, Any]) -> EasyDict | None:
    """The section `run_state` of a main config with its defaults; None where it is False: no states are saved.

    Raises:
        ConfigError: a key or a value is not allowed.
    """
    section = main.get("run_state", {})
    if section is False:
        return None
    if not isinstance(section, Mapping):
        raise ConfigError(f"run_state = {section!r} is not allowed; it must be a dict, or False for no states")
    check_config(section, "the section run_state", _RULES)
    return EasyDict({**DEFAULTS, **section})


class Start(NamedTuple):
    """How a run begins.

    Attributes:
        settings: see `run_state_settings`.
        renew: whether to take another folder where `exp_name` exists.
        state: what to go on from, if there is anything.
        lock: of the folder, which is locked before its state is read.
    """

    settings: EasyDict | None
    renew: bool
    state: dict[str, Any] | None
    lock: IO[bytes] | None = None


def choose_start(main: Any, compile_main: Callable[[], EasyDict], resume: bool) -> Start:
    """Look for a state to go on from, if `resume` or `policy.learn.resume_training` asks for it.

    The latter with a `load_ckpt_before_run` goes on from that checkpoint. Where nothing is found, what an earlier run
    has left in the folder is set aside.

    Args:
        main: the main config; no checkpoint is loaded when there is a state.
        compile_main: compiles it, and writes nothing.

    Raises:
        StateError: there are states, and none can be read; or another process runs in the folder.
        ConfigError: the newest is that of another config; the section `run_state` is wrong; or there are several ranks,
            whose state is not saved.
    """
    settings = run_state_settings(main)
    by_key = bool(value_at(main, "policy.learn.resume_training"))
    hook = value_at(main, "policy.learn.learner.hook") or {}
    if not (resume or by_key):
        return Start(settings, renew=True, state=None)
    if resume and get_world_size() > 1:
        raise ConfigError(
            "resume = True goes on with a single process only: the state of several ranks is not saved; load a "
            "checkpoint with policy.learn.resume_training = True and learn.learner.hook.load_ckpt_before_run"
        )
    if get_world_size() > 1 or (by_key and not resume and hook.get("load_ckpt_before_run")):
        return Start(settings, renew=not by_key, state=None)
    exp_name = str(main.get("exp_name", "default_experiment"))
    state = lock = None
    if os.path.isdir(os.path.join(exp_name, FOLDER)):
        lock = _lock(exp_name)
        with ExitStack() as stack:
            if lock is not None:
                stack.enter_context(lock)
            state = _find(exp_name, compile_main())
            if state is not None:
                stack.pop_all()
    if state is None:
        lock = None
        aside = set_aside(exp_name)
        moved = f"; what was there is in {aside} now" if aside else ""
        logging.getLogger("ding").warning("%s: no state to go on from, so it begins anew%s", exp_name, moved)
    elif "load_ckpt_before_run" in hook:
        hook["load_ckpt_before_run"] = ""
    return Start(settings, renew=False, state=state, lock=lock)


def _lock(exp_name: str) -> IO[bytes] | None:
    """Keep other processes from running in the same folder: they would write over each other's states and results."""
    try:
        return hold_file(os.path.join(exp_name, FOLDER, "lock"))
    except BlockingIOError as e:
        raise StateError(f"another process runs in {exp_name} ({e}); end it first, or choose another exp_name") from e


def _find(exp_name: str, cfg: EasyDict) -> dict[str, Any] | None:
    path = os.path.join(exp_name, FOLDER)
    found = StateFolder(path).read()
    if found is None:
        return None
    state, about = found
    check_same_config(about["config"], flat_config(cfg), path)
    return state


def set_aside(exp_name: str) -> str:
    """Give the folder of an earlier run another name, which is returned; "" where there is none."""
    if not os.path.exists(os.path.join(exp_name, "total_config.py")):
        return ""
    aside = f"{exp_name}_{time.strftime('%y%m%d_%H%M%S')}"
    number = 1
    while os.path.exists(aside):
        aside, number = f"{exp_name}_{time.strftime('%y%m%d_%H%M%S')}_{number}", number + 1
    os.rename(exp_name, aside)
    return aside


class RunStates:
    """Saves states of one run, and puts back what it goes on from.

    Args:
        start: how the run begins.
        cfg: the compiled config; a state tells of it.

    Attributes:
        is_resumed: whether there is a state to go on from, or to have gone on from.
        inexact: why the run is no longer exact; empty if it is.
    """

    def __init__(self, start: Start, cfg: EasyDict) -> None:
        settings = start.settings
        # Ranks would have to save at the same moment.
        self._settings = None if get_world_size() > 1 else settings
        self._cfg = cfg
        self._flat = flat_config(cfg)
        self._state = start.state
        self._folder = StateFolder(os.path.join(cfg.exp_name, FOLDER), 1 if settings is None else settings.keep)
        self._logger = logging.getLogger("ding")
        self._last_s, self._last_iter = time.monotonic(), 0
        self._left_out: tuple[str, ...] = ()
        self._lock = _lock(cfg.exp_name) if self._settings is not None and start.lock is None else start.lock
        self.interruption = Interruption()
        self.is_resumed = start.state is not None
        self.inexact: list[str] = []

    @property
    def is_on(self) -> bool:
        """Whether states are saved at all."""
        return self._settings is not None

    def close(self) -> None:
        """Let other processes run in the folder."""
        if self._lock is not None:
            self._lock.close()

    def enable(self, env: Any) -> None:
        """Have an env manager that is not launched yet keep what its state needs."""
        if self._settings is not None and hasattr(env, "enable_states"):
            env.enable_states(self._settings.trust_pickle)

    # ---- saving

    def checkpoint(self, run: Any) -> None:
        """To be called between two rounds, where nothing is under way: save if it is time to, leave if a signal came.

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
        """Save a state; one that cannot be saved is logged, and does not end the run."""
        if self._settings is None:
            return
        begin_s = time.monotonic()
        try:
            best = self._keep_best()
            state = {**self._gather(run), "best": best}
            about = {**self._about(run, reason), "best": best}
            size = self._folder.write(state, about)
            self._drop_former_best()
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
        """Save a state when the block ends by an exception, and there is none to go on from.

        What breaks off in the middle of a round cannot go on exactly: such a state has no envs and no unfinished
        episodes, and says so.
        """
        try:
            yield
        except Exception:
            if not any(self._folder.states()):
                self._save_broken(run)
            raise

    def _save_broken(self, run: Any) -> None:
        try:
            refuse_nan(run.policy.state_dict(), "after an exception")
        except FloatingPointError as e:
            self._logger.error("%s: the state of the run is not saved: %s", self._cfg.exp_name, e)
            return
        self._note_inexact(["an exception broke the run off in the middle of a round"], logging.INFO)
        self._left_out = _IN_ROUND
        self.save(run, "exception")

    def _gather(self, run: Any) -> dict[str, Any]:
        parts, reasons = told_states({k: v for k, v in _parts(run).items() if k not in self._left_out})
        self._note_inexact(reasons, logging.INFO)
        path = os.path.join(self._cfg.exp_name, "eval.jsonl")
        return {
            "parts": parts,
            "counters": {name: getattr(run, name) for name in _COUNTERS},
            "env_step": int(run.envstep),
            "eval_info": as_plain(run.eval_info),
            "eval_size": os.path.getsize(path) if os.path.exists(path) else 0,
            "stop_value": value_at(self._cfg, "env.stop_value"),
            "inexact": list(self.inexact),
            "generators": global_generators_state(),
        }

    def _about(self, run: Any, reason: str) -> dict[str, Any]:
        return {
            "config": self._flat,
            "exp_name": self._cfg.exp_name,
            "reason": reason,
            "train_iter": int(run.learner.train_iter),
            "env_step": int(run.envstep),
            "last_return": mean_of(run.eval_info),
            "time": time.time(),
            "is_exact": not self.inexact,
            "inexact": list(self.inexact),
            "versions": {"python": platform.python_version(), "torch": str(torch.__version__), "numpy": np.__version__},
        }

    def _note_inexact(self, reasons: list[str], level: int = logging.WARNING) -> None:
        for reason in reasons:
            if reason not in self.inexact:
                self.inexact.append(reason)
                text = "%s: the run does not go on exactly as it would have done: %s"
                self._logger.log(level, text, self._cfg.exp_name, reason)

    # ---- the best checkpoint, which is that of the state again when the run goes on

    def _best_path(self) -> str:
        return os.path.join(self._cfg.exp_name, "ckpt", _BEST)

    def _keep_best(self) -> str:
        """Have the state folder refer to the best checkpoint, too: that file is replaced, never changed.

        Returns:
            its name there, "" where there is none yet.
        """
        if not os.path.exists(self._best_path()):
            return ""
        found = os.stat(self._best_path())
        name = f"best_{found.st_mtime_ns}_{found.st_size}.pth.tar"
        if os.path.exists(os.path.join(self._folder.path, name)):
            return name
        os.makedirs(self._folder.path, exist_ok=True)
        new = os.path.join(self._folder.path, f".{_BEST}.new")
        with contextlib.suppress(FileNotFoundError):
            os.remove(new)
        try:
            os.link(self._best_path(), new)
        except OSError:  # a file system without links
            shutil.copyfile(self._best_path(), new)
        os.replace(new, os.path.join(self._folder.path, name))
        return name

    def _drop_former_best(self) -> None:
        needed = {saved.about.get("best") for saved in self._folder.states()}
        for name in os.listdir(self._folder.path):
            if name.startswith("best_") and name not in needed:
                os.remove(os.path.join(self._folder.path, name))

    # ---- going on

    def load(self, run: Any) -> None:
        """Put the state that was found into `run`, which was built of the same config; does nothing without one.

        Raises:
            StateError: the state tells of other parts than the run has.
        """
        if self._state is None:
            return
        state, self._state = self._state, None
        own, told = _parts(run), state["parts"]
        if missing := sorted(told.keys() - own.keys()):
            raise StateError(
                f"the state in {self._folder.path} tells of {', '.join(missing)}, which this run has not; call the "
                "pipeline that saved it"
            )
        self._note_inexact(state["inexact"])
        self._note_inexact(put_states(own, told))
        if "collector" not in told and run.collector is not None:
            run.collector.envstep = state["env_step"]
        for name, value in state["counters"].items():
            setattr(run, name, value)
        run.stop = run.stop and state["stop_value"] == value_at(self._cfg, "env.stop_value")
        run.eval_info = state["eval_info"]
        self._cut_evaluations(state["eval_size"])
        self._put_best_back(state["best"])
        self._last_s, self._last_iter = time.monotonic(), run.learner.train_iter
        self._logger.info(
            "%s: goes on at iteration %d, env step %d", self._cfg.exp_name, run.learner.train_iter, run.envstep
        )
        load_global_generators_state(state["generators"])

    def _cut_evaluations(self, size: int) -> None:
        path = os.path.join(self._cfg.exp_name, "eval.jsonl")
        found = os.path.getsize(path) if os.path.exists(path) else 0
        if found > size:
            os.truncate(path, size)
        elif found < size:
            self._note_inexact([f"{path} is shorter than it was"])

    def _put_best_back(self, name: str) -> None:
        kept, path = os.path.join(self._folder.path, name), self._best_path()
        sweep_temporary(os.path.dirname(path))
        if not name:
            with contextlib.suppress(FileNotFoundError):
                os.remove(path)
        elif os.path.exists(kept):
            os.makedirs(os.path.dirname(path), exist_ok=True)
            shutil.copyfile(kept, f"{path}.new")
            os.replace(f"{path}.new", path)


def told_states(parts: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """The states of `parts`, by name, and a sentence for each of them that tells none.

    They may share memory with the parts: they are to be written before these go on.
    """
    states, reasons = {}, []
    for name, part in parts.items():
        tell = getattr(part, "live_state", None) or getattr(part, "state_dict", None)
        if tell is None:
            reasons.append(f"{name}: {type(part).__name__} has no state_dict")
        else:
            states[name] = tell()
    return states, reasons


def put_states(parts: Mapping[str, Any], states: Mapping[str, Any]) -> list[str]:
    """Put states of `told_states` into `parts`, in their order; returns why these do not go on exactly, if they do
    not.
    """
    reasons = []
    for name, part in parts.items():
        if name in states:
            reasons += [f"{name}: {reason}" for reason in part.load_state_dict(states[name]) or ()]
    return reasons


def _parts(run: Any) -> dict[str, Any]:
    """All that takes part in a run, by name, in the order in which states are put back."""
    found = {name: getattr(run, name) for name in _WORKERS} | run.further_parts
    return {name: part for name, part in found.items() if part is not None}


def mean_of(eval_info: Any) -> float | None:
    """The mean return of an evaluation; None without one."""
    returns = (eval_info or {}).get("eval_episode_return")
    return None if returns is None or not len(returns) else float(np.mean(returns))


# ---- configs


def flat_config(cfg: Mapping[str, Any]) -> dict[str, str]:
    """The values of a compiled config as text, by dotted key, without those that a run may go on with others of."""
    leaves = plain_tree(cfg).items()
    return {key: _as_text(value) for key, value in leaves if key not in _FREE and not key.startswith(_FREE_SECTIONS)}


def _as_text(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(_as_text, value))}]"
    if isinstance(value, (set, frozenset)):  # their order differs from one process to the next
        return f"{{{', '.join(sorted(map(_as_text, value)))}}}"
    if callable(value):
        return f"{getattr(value, '__module__', '')}.{getattr(value, '__qualname__', type(value).__name__)}"
    text = repr(value)
    return type(value).__qualname__ if " at 0x" in text else text


def check_same_config(told: Mapping[str, str], own: Mapping[str, str], path: str) -> None:
    """Refuse to go on with another config.

    Raises:
        ConfigError: it names the keys that differ.
    """
    keys = sorted(key for key in told.keys() | own.keys() if told.get(key) != own.get(key))
    if keys:
        shown = "; ".join(f"{key}: {told.get(key, 'missing')} then, {own.get(key, 'missing')} now" for key in keys[:10])
        more = f"; and {len(keys) - 10} more" if len(keys) > 10 else ""
        raise ConfigError(
            f"the state in {path} is of another config: {shown}{more}; make them equal, or choose another exp_name to "
            "begin anew. Budgets (stop_value, train_iterations, train_epoch, max_env_step, max_train_iter) may differ"
        )


def show_states(exp_name: str) -> tuple[list[tuple[str, ...]], list[str]]:
    """A row for each state of a run: file, time, reason, iteration, env steps, mean return, size, whether it is exact;
    and what else there is to know of the newest.

    Raises:
        StateError: there is no state that can be read.
    """
    path = os.path.join(exp_name, FOLDER)
    states = list(StateFolder(path).states())
    if not states:
        raise StateError(f"there is no state in {path!r}")
    rows: list[tuple[str, ...]] = []
    for saved in states:
        about = saved.about
        when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(about["time"]))
        shown = "-" if about["last_return"] is None else f"{about['last_return']:.1f}"
        counts = str(about["train_iter"]), str(about["env_step"])
        exact = "yes" if about["is_exact"] else "no"
        size = f"{saved.size_bytes / 1e6:.1f} MB"
        rows.append((os.path.basename(saved.path), when, about["reason"], *counts, shown, size, exact))
    newest = states[-1].about
    versions = ", ".join(f"{name} {version}" for name, version in newest["versions"].items())
    notes = [f"Written with {versions}.", *(f"Not exact: {reason}" for reason in newest["inexact"])]
    return rows, notes
