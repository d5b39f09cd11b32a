"""Saving the state of a run to a file, and resuming it in another coordinator."""

from __future__ import annotations

import contextlib
import json
import os
import threading
import zlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, NamedTuple

from ding.utils.compression_helper import compress, expand
from ding.utils.data.plain_columns import from_plain, to_plain
from ding.utils.data.samples import Table
from ding.utils.data.samples import pack as pack_column
from ding.utils.file_helper import atomic_write
from ding.utils.msgpack_helper import pack, unpack
from ding.worker.coordinator.run_state import RunState
from ding.worker.coordinator.scheduler import COMMANDER_TIMEOUT_S, TaskScheduler

if TYPE_CHECKING:
    from ding.worker.coordinator.buffers import BufferSet
    from ding.worker.coordinator.coordinator import Coordinator

STATE_FILE = "coordinator_state.msgpack"
_FORMAT, _VERSION = "ding-coordinator", 3
# Lists of at least this length are written as a column, represented by a dict with this key.
_LONG, _COLUMN = 16, "__column__"


class RunIdentity(NamedTuple):
    """The identity of a run."""

    exp_name: str
    seed: int | None


class StateError(ValueError):
    """A file contains no state from which the run can be resumed."""


def write_state(path: str, run: RunIdentity, state: dict[str, Any]) -> int:
    """Write a state of plain values and arrays; the file appears whole. Returns its size in bytes.

    Long lists are written as columns: the items of metadata lists have much in common.

    Raises:
        TypeError, ValueError: the state contains a value that cannot be written; see `pack`.
        OSError: the file cannot be written.
    """
    body = compress(pack(_with_columns(state)), level=1)
    head = {"format": _FORMAT, "version": _VERSION, **run._asdict(), "checksum": zlib.crc32(body)}
    content = pack({**head, "body": body})
    with atomic_write(path) as file:
        file.write(content)
    return len(content)


def read_state(path: str, run: RunIdentity) -> dict[str, Any]:
    """Read the state that `write_state` has written for this run. Nothing in the file is executed.

    Raises:
        FileNotFoundError: there is no such file.
        StateError: it is damaged, of another version, or of another run.
    """
    content = _read(path)
    found = RunIdentity(content.get("exp_name", ""), content.get("seed"))
    if found != run:
        raise StateError(
            f"{path} is the state of another run: exp_name = {found.exp_name!r}, seed = {found.seed!r}; this one has "
            f"exp_name = {run.exp_name!r}, seed = {run.seed!r}; remove the file, or set coordinator.resume to False"
        )
    try:
        state: dict[str, Any] = _without_columns(unpack(expand(content["body"])))
        return state
    except (LookupError, MemoryError, TypeError, ValueError) as e:
        raise StateError(f"{path} is damaged ({e}); {_REMEDY}") from e


def _with_columns(value: Any) -> Any:
    if type(value) is list and len(value) >= _LONG:
        return {_COLUMN: to_plain(Table({_COLUMN: pack_column(value)}))}
    if isinstance(value, Mapping):
        if _COLUMN in value:
            raise ValueError(f"a dict with the key {_COLUMN!r} cannot be kept")
        return {key: _with_columns(item) for key, item in value.items()}
    return value


def _without_columns(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    if _COLUMN in value:
        return [item[_COLUMN] for item in from_plain(value[_COLUMN])]
    return {key: _without_columns(item) for key, item in value.items()}


def _read(path: str) -> dict[str, Any]:
    try:
        content: Any = unpack(Path(path).read_bytes())
    except (MemoryError, ValueError) as e:
        raise StateError(f"{path} is damaged, or no state of a coordinator ({e}); {_REMEDY}") from e
    if not isinstance(content, dict) or content.get("format") != _FORMAT or content.get("version") != _VERSION:
        raise StateError(f"{path} is no state of a coordinator of version {_VERSION}; {_REMEDY}")
    body = content.get("body")
    if not isinstance(body, bytes) or zlib.crc32(body) != content.get("checksum"):
        raise StateError(f"{path} is damaged: its checksum is wrong; {_REMEDY}")
    return content


_REMEDY = "remove it to begin anew"


def remove_state(path: str) -> None:
    """Remove the file, if it is there."""
    if os.path.exists(path):
        os.remove(path)


# How long a writer waits for an earlier one to finish.
FILE_TIMEOUT_S = 5.0
_BUFFER_CFG = "replay_buffer_cfg"


class StateWriter:
    """Writes a state periodically, in a thread of its own.

    Args:
        path: path of the file.
        take_state: returns the state, or None to write nothing.
        interval_s: from the end of one write to the beginning of the next; 0 disables writing.
        logger: a text logger.

    Attributes:
        is_active: whether `start` has started the thread.
    """

    def __init__(
        self,
        path: str,
        run: RunIdentity,
        take_state: Callable[[], dict[str, Any] | None],
        interval_s: float,
        logger: Any,
    ) -> None:
        self.path, self.run = path, run
        self.is_active = False
        self._take_state, self._interval_s, self._logger = take_state, interval_s, logger
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._work, name="coordinator_state", daemon=True)
        self._writing = threading.Lock()
        self._last_problem = ""

    def start(self) -> None:
        """Start writing, the first time after `interval_s`."""
        if self._interval_s and not self._closing.is_set():
            self.is_active = True
            self._thread.start()

    def _work(self) -> None:
        while not self._closing.wait(self._interval_s):
            self.write()

    def write(self) -> None:
        """Write the state, if there is one. An error is logged, but does not end the run."""
        begin = monotonic()
        try:
            with self._having_file():
                state = self._take_state()
                size = 0 if state is None else write_state(self.path, self.run, state)
        except Exception as e:
            problem = f"{type(e).__name__}: {e}"
            if problem != self._last_problem:  # log a lasting problem once
                self._logger.error("the state of the coordinator cannot be written to %s: %s", self.path, problem)
            self._last_problem = problem
            return
        self._last_problem = ""
        self._logger.debug("%d bytes of state were written in %.3f s", size, monotonic() - begin)

    def stop(self, timeout_s: float) -> None:
        """Stop writing periodically; wait at most `timeout_s` for a write in progress. Idempotent."""
        self._closing.set()
        if self.is_active and self._thread is not threading.current_thread():
            self._thread.join(timeout_s)

    def remove(self) -> None:
        """Remove the file, if the thread was started."""
        if self.is_active:
            with contextlib.suppress(OSError), self._having_file():
                remove_state(self.path)

    @contextlib.contextmanager
    def _having_file(self) -> Iterator[None]:
        """Hold the lock of the file; raises TimeoutError, an OSError, if the disk hangs."""
        if not self._writing.acquire(timeout=FILE_TIMEOUT_S):
            raise TimeoutError(f"the last write has taken more than {FILE_TIMEOUT_S:g} s and continues")
        try:
            yield
        finally:
            self._writing.release()


class SavedRun:
    """Saves what of a run outlives its coordinator's process, and resumes it.

    Saved are the counters of the run, the commander's state, the learner tasks that run, their buffers, and the
    coordinator's `parts`. Running
    collector tasks are forgotten. Events after the last save are lost: the chunks of later samples are deleted, and a
    learner reports its own progress.

    Args:
        cfg: the compiled parallel config.
        own: the coordinator's section, with `state_interval_s` and `resume`.
        logger: a text logger.
        coordinator: receives messages and errors.
    """

    def __init__(
        self,
        scheduler: TaskScheduler,
        buffers: BufferSet,
        state: RunState,
        cfg: Mapping[str, Any],
        own: Mapping[str, Any],
        logger: Any,
        coordinator: Coordinator,
    ) -> None:
        self._scheduler, self._buffers, self._state = scheduler, buffers, state
        self._coordinator = coordinator
        main = cfg["main"]
        self._present_buffer_cfg: Mapping[str, Any] = main["policy"].get("other", {}).get("replay_buffer", {})
        learner_cfg = main["policy"].get("learn", {}).get("learner", {})
        # A run may be resumed with another budget than it was started with.
        self._present_budget = {key: learner_cfg[key] for key in ("train_iterations",) if key in learner_cfg}
        self._should_resume = bool(own["resume"])
        self._is_resumed = self._has_begun = self._is_taken_up = False
        run = RunIdentity(main["exp_name"], cfg.get("seed"))
        path = os.path.join(".", run.exp_name, STATE_FILE)
        self._writer = StateWriter(path, run, self._state_to_save, own["state_interval_s"], logger)

    def state_dict(self) -> dict[str, Any]:
        """All that another coordinator needs to resume the run, in plain values and arrays.

        Neither the buffers nor the commander are blocked for long. The samples in it belong to the buffers and must not
        be changed.

        Raises:
            TimeoutError: the commander hangs.
        """
        with self._scheduler.locked_commander() as commander:
            commander_state, tasks = dict(commander.state_dict()), list(self._scheduler.learner_tasks.values())
        without_buffers = [{key: value for key, value in task.items() if key != _BUFFER_CFG} for task in tasks]
        return {
            "commander": commander_state,
            "learner_tasks": json.loads(json.dumps(without_buffers)),  # as they are sent to workers, in plain values
            "buffers": {
                task["buffer_id"]: self._buffers.freeze(task["buffer_id"], task.get(_BUFFER_CFG, {})) for task in tasks
            },
            "run": self._state.state_dict(),
            "parts": {name: part.state_dict() for name, part in self._coordinator.parts.items()},
        }

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Resume the run of a `state_dict`, unless it is empty. Samples whose chunks no longer exist are dropped.

        Raises:
            RuntimeError: the coordinator has been started.
        """
        if not state_dict:
            return
        if self._has_begun:
            raise RuntimeError("a coordinator loads a state before it starts; create another one")
        self._is_resumed = True
        self._buffers.is_deleting = False  # until the run has resumed
        self._state.load_state_dict(state_dict["run"])
        for name, part_state in state_dict.get("parts", {}).items():  # missing in older files
            if name in self._coordinator.parts:
                for problem in self._coordinator.parts[name].load_state_dict(part_state):
                    self._coordinator.error(problem)
        if not state_dict["commander"]:
            self._coordinator.error("the commander has no state: only the counters continue, the run begins anew")
            return
        with self._scheduler.locked_commander() as commander:
            commander.load_state_dict(state_dict["commander"])
        functions = {key: value for key, value in self._present_buffer_cfg.items() if callable(value)}
        counts = [
            self._buffers.restore(buffer_id, {**functions, **buffer["cfg"]}, buffer["content"])
            for buffer_id, buffer in state_dict["buffers"].items()
        ]
        for task in state_dict["learner_tasks"]:
            if "learner_cfg" in task:
                task["learner_cfg"].update(self._present_budget)
            self._scheduler.learner_tasks[task["task_id"]] = task
            self._scheduler.run_again(task)
        held, dropped = (sum(column) for column in zip((0, 0), *counts, strict=True))
        self._coordinator.info(f"{held} samples are restored; {dropped} are lost, as their chunks were deleted")

    def resume(self, path: str | None = None) -> None:
        """Resume the run whose state is in a file; call it before `start`.

        Args:
            path: path of the file; None is `<exp_name>/coordinator_state.msgpack`.

        Raises:
            FileNotFoundError: there is no such file.
            StateError: it is damaged, of a run with another `exp_name` or `seed`, or does not fit the config.
            RuntimeError: the coordinator has been started.
        """
        path = path or self._writer.path
        state = read_state(path, self._writer.run)
        try:
            self.load_state_dict(state)
        except (KeyError, TypeError, ValueError) as e:
            raise StateError(f"the state in {path} does not fit the config: {e!r}; remove it to begin anew") from e
        self._coordinator.info(f"the run resumes from {path}")

    def begin(self) -> None:
        """Resume a saved run if there is one and the config says so; save the state periodically after this call."""
        if self._should_resume and not self._is_resumed and os.path.exists(self._writer.path):
            self.resume()
        self._has_begun = True
        self._writer.start()

    def take_up(self) -> None:
        """Delete unneeded chunks of a resumed run: the workers are connected, and none has a task."""
        self._is_taken_up = True
        if self._is_resumed:
            self._buffers.is_deleting = True
            count = self._buffers.delete_unneeded()
            self._coordinator.info(f"{count} unneeded chunks are deleted")

    def end(self) -> None:
        """Write the last state of an unfinished run, or remove that of a successful one; then delete the samples that
        no other coordinator needs, also those of lost workers.
        """
        writer, self._has_begun = self._writer, True
        writer.stop(COMMANDER_TIMEOUT_S)
        if self._state.is_over and self._state.failure is None:
            writer.remove()
        elif writer.is_active:
            self._buffers.is_deleting = False
            if not self._state.is_over:
                writer.write()
        self._buffers.close()
        if self._is_taken_up:
            with contextlib.suppress(OSError):  # the folder may be gone, too
                self._buffers.delete_unneeded()

    def _state_to_save(self) -> dict[str, Any] | None:
        state = self.state_dict()
        # A failing run is over before its failed task is removed, so no state without that task is ever saved.
        return None if self._state.is_over else state
