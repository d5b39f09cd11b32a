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
from ding.utils.data.samples import Samples
from ding.utils.data.samples import pack as pack_column
from ding.utils.file_helper import atomic_write
from ding.utils.msgpack_helper import pack, unpack
from ding.worker.coordinator.comm_coordinator import Task
from ding.worker.coordinator.run_state import RunState
from ding.worker.coordinator.scheduler import PATIENCE_S, RunTasks

if TYPE_CHECKING:
    from ding.worker.coordinator.buffers import KeptBufferRoom
    from ding.worker.coordinator.coordinator import Coordinator

STATE_FILE = "coordinator_state.msgpack"
_FORMAT, _VERSION = "ding-coordinator", 2
# Lists of so many items are written as a column; the dict that stands for one has this key.
_LONG, _COLUMN = 16, "__column__"


class RunIdentity(NamedTuple):
    """What tells a run from others."""

    exp_name: str
    seed: int | None


class StateError(ValueError):
    """A file holds no state that a run could go on from."""


def write_state(path: str, run: RunIdentity, state: dict[str, Any]) -> int:
    """Write a state of plain values and arrays; the file appears whole. Returns its size in bytes.

    Long lists are written as columns, for those of the metadata of samples above all have much in common.

    Raises:
        TypeError, ValueError: there is something in the state that cannot be written; see `pack`.
        OSError: the file cannot be written.
    """
    body = compress(pack(_with_columns(state)), level=1)
    head = {"format": _FORMAT, "version": _VERSION, **run._asdict(), "checksum": zlib.crc32(body)}
    content = pack({**head, "body": body})
    with atomic_write(path) as file:
        file.write(content)
    return len(content)


def read_state(path: str, run: RunIdentity) -> dict[str, Any]:
    """The state that `write_state` has written for this run. Nothing in the file is executed.

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
        return {_COLUMN: to_plain(Samples({_COLUMN: pack_column(value)}))}
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


_BUFFER_CFG = "replay_buffer_cfg"


# How long whoever wants to write waits for what is being written.
_FILE_PATIENCE_S = 5.0


class StateKeeper:
    """Writes a state now and then, in a thread of its own.

    Args:
        path: of the file.
        take_state: takes the state; None where there is none to be kept.
        interval_s: from the end of one writing to the beginning of the next; 0 for no writing at all.
        logger: a text logger.

    Attributes:
        is_active: whether it writes, from `start` on.
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
        """Begin to write, first after `interval_s`."""
        if self._interval_s and not self._closing.is_set():
            self.is_active = True
            self._thread.start()

    def _work(self) -> None:
        while not self._closing.wait(self._interval_s):
            self.write()

    def write(self) -> None:
        """Write the state, if there is one. What goes wrong is logged: the run is not ended for it."""
        begin = monotonic()
        try:
            with self._having_file():
                state = self._take_state()
                size = 0 if state is None else write_state(self.path, self.run, state)
        except Exception as e:
            problem = f"{type(e).__name__}: {e}"
            if problem != self._last_problem:  # what goes wrong once goes wrong each time
                self._logger.error("the state of the coordinator cannot be written to %s: %s", self.path, problem)
            self._last_problem = problem
            return
        self._last_problem = ""
        self._logger.debug("%d bytes of state were written in %.3f s", size, monotonic() - begin)

    def stop(self, timeout_s: float) -> None:
        """Write no more by itself; wait so long for what is being written. Idempotent."""
        self._closing.set()
        if self.is_active and self._thread is not threading.current_thread():
            self._thread.join(timeout_s)

    def remove(self) -> None:
        """Remove the file of a run that there is nothing to go on with."""
        if self.is_active:
            with contextlib.suppress(OSError), self._having_file():
                remove_state(self.path)

    @contextlib.contextmanager
    def _having_file(self) -> Iterator[None]:
        """Alone with the file; raises TimeoutError, an OSError, where the disk hangs."""
        if not self._writing.acquire(timeout=_FILE_PATIENCE_S):
            raise TimeoutError(f"the last writing has taken more than {_FILE_PATIENCE_S:g} s and goes on")
        try:
            yield
        finally:
            self._writing.release()


class SavedRun:
    """What of a run outlives its coordinator's process, and how it is kept.

    What is kept: the counters of the run, the commander's state, the learner tasks that run, and their buffers.
    Collector tasks that run are forgotten. What came after the state was taken is not in it: the chunks of later
    samples are deleted, and how far the learner is by now it tells itself.

    Args:
        cfg: the compiled parallel config.
        own: the coordinator's section, with `state_interval_s` and `resume`.
        logger: a text logger.
        coordinator: told what goes on, and what goes wrong.
    """

    def __init__(
        self,
        tasks: RunTasks,
        room: KeptBufferRoom,
        state: RunState,
        cfg: Mapping[str, Any],
        own: Mapping[str, Any],
        logger: Any,
        coordinator: Coordinator,
    ) -> None:
        self._tasks, self._room, self._state = tasks, room, state
        self._coordinator = coordinator
        main = cfg["main"]
        self._present_buffer_cfg: Mapping[str, Any] = main["policy"].get("other", {}).get("replay_buffer", {})
        self._should_resume = bool(own["resume"])
        self._is_resumed = self._has_begun = self._is_taken_up = False
        run = RunIdentity(main["exp_name"], cfg.get("seed"))
        path = os.path.join(".", run.exp_name, STATE_FILE)
        self._state_keeper = StateKeeper(path, run, self._state_to_keep, own["state_interval_s"], logger)

    def state_dict(self) -> dict[str, Any]:
        """All that another coordinator needs to go on with the run, in plain values and arrays.

        Neither the buffers nor the commander are held up for long. The rows in it are those of the buffers: leave them
        as they are.

        Raises:
            TimeoutError: the commander hangs.
        """
        with self._tasks.commander_in_time() as commander:
            commander_state, tasks = dict(commander.state_dict()), list(self._tasks.learner_tasks.values())
        return {
            "commander": commander_state,
            "learner_tasks": [_without_buffer(task) for task in tasks],
            "buffers": {
                task["buffer_id"]: self._room.freeze(task["buffer_id"], task.get(_BUFFER_CFG, {})) for task in tasks
            },
            "run": self._state.state_dict(),
        }

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Go on with the run that a `state_dict` tells of; `{}` is none. Samples whose chunks are gone are dropped.

        Raises:
            RuntimeError: it was started before.
        """
        if not state_dict:
            return
        if self._has_begun:
            raise RuntimeError("a coordinator takes over a state before it starts; make another one")
        self._is_resumed = True
        self._room.is_deleting = False  # as long as it is not certain that the run goes on
        self._state.load_state_dict(state_dict["run"])
        if not state_dict["commander"]:
            self._coordinator.error("the commander keeps no state: but for the counters, the run begins anew")
            return
        with self._tasks.commander_in_time() as commander:
            commander.load_state_dict(state_dict["commander"])
        kept = [self._restore(buffer_id, **buffer) for buffer_id, buffer in state_dict["buffers"].items()]
        for task in state_dict["learner_tasks"]:
            self._tasks.learner_tasks[task["task_id"]] = task
            self._tasks.run_again(task)
        held, dropped = (sum(counts) for counts in zip((0, 0), *kept, strict=True))
        self._coordinator.info(f"{held} samples are there again; {dropped} are not, for their chunks have been deleted")

    def _restore(self, buffer_id: str, cfg: Mapping[str, Any], content: Any) -> tuple[int, int]:
        functions = {key: value for key, value in self._present_buffer_cfg.items() if callable(value)}
        return self._room.restore(buffer_id, {**functions, **cfg}, content)

    def resume(self, path: str | None = None) -> None:
        """Go on with the run whose state is in a file; call it before `start`.

        Args:
            path: where the state was written; None is `<exp_name>/coordinator_state.msgpack`.

        Raises:
            FileNotFoundError: there is no such file.
            StateError: it is damaged, of a run with another `exp_name` or `seed`, or does not fit the config.
            RuntimeError: the coordinator was started before.
        """
        path = path or self._state_keeper.path
        state = read_state(path, self._state_keeper.run)
        try:
            self.load_state_dict(state)
        except (KeyError, TypeError, ValueError) as e:
            raise StateError(f"the state in {path} does not fit the config: {e!r}; remove it to begin anew") from e
        self._coordinator.info(f"the run goes on from {path}")

    def begin(self) -> None:
        """Go on with the run if there is one to go on with, and if that is wanted; keep the state from now on."""
        if self._should_resume and not self._is_resumed and os.path.exists(self._state_keeper.path):
            self.resume()
        self._has_begun = True
        self._state_keeper.start()

    def take_up(self) -> None:
        """The workers are there, and none has a task: the run goes on."""
        self._is_taken_up = True
        if self._is_resumed:
            self._room.is_deleting = True
            count = self._room.delete_unneeded()
            self._coordinator.info(f"{count} chunks that nobody needs are deleted")

    def end(self) -> None:
        """Nothing changes any more: keep the last state of a run that is not over, forget one that has ended well; then
        delete the samples."""
        self._end_keeping()
        self._close_room()

    def _end_keeping(self) -> None:
        keeper, self._has_begun = self._state_keeper, True
        keeper.stop(PATIENCE_S)
        if not keeper.is_active:
            return
        if self._state.is_over and self._state.failure is None:
            keeper.remove()
            return
        self._room.is_deleting = False
        if not self._state.is_over:
            keeper.write()

    def _close_room(self) -> None:
        """Delete the samples, also those that lost workers have left; but not those that another coordinator needs."""
        self._room.close()
        if self._is_taken_up:
            with contextlib.suppress(OSError):  # the folder has gone too
                self._room.delete_unneeded()

    def _state_to_keep(self) -> dict[str, Any] | None:
        state = self.state_dict()
        # Before a run fails it is over; so a state from which a failed task was taken away is never kept.
        return None if self._state.is_over else state


def _without_buffer(task: Task) -> Task:
    """The task as it is sent to a worker, in plain values."""
    sent: Task = json.loads(json.dumps({key: value for key, value in task.items() if key != _BUFFER_CFG}))
    return sent
