"""The state of a parallel run: saving it, and resuming the run in another coordinator."""

from __future__ import annotations

import contextlib
import json
import os
import threading
from collections.abc import Callable, Mapping
from time import monotonic
from typing import Any

from ding.utils.state_folder import FOLDER, StateFolder, describe_state, flat_config, read_run_state
from ding.utils.system_helper import DaemonThreads
from ding.worker.coordinator.buffer_set import BufferSet
from ding.worker.coordinator.run_monitor import RunMonitor
from ding.worker.coordinator.scheduler import COMMANDER_TIMEOUT_S, RunOwner, TaskScheduler

# What the state of every parallel run contains.
_INEXACT = "episodes begin anew, and samples and iterations after the state are lost"


def config_of(cfg: Mapping[str, Any]) -> dict[str, str]:
    """Return the part of a compiled parallel config that must be equal when the run resumes; see `flat_config`."""
    own = {"exp_name": cfg["main"]["exp_name"], "seed": cfg.get("seed")}
    return flat_config(cfg["main"]) | {key: repr(value) for key, value in own.items()}


_BUFFER_CFG = "replay_buffer_cfg"


class ParallelRunState:
    """The saved state of a run, with which another coordinator resumes it.

    The state consists of the counters of the run, the commander's state, the learner tasks that run, their buffers,
    and the coordinator's `parts`. Running collector tasks are forgotten. Events after the last save are lost: the
    chunks of later samples are deleted, and a learner reports its own progress.

    Args:
        cfg: the compiled parallel config.
        own: the coordinator's section, with `state_interval_s` and `resume`.
        logger: a text logger.
        owner: receives messages and errors.
        parts: returns the further parts to save.

    A write that fails is reported once, and does not end the run.
    """

    def __init__(
        self,
        scheduler: TaskScheduler,
        buffers: BufferSet,
        monitor: RunMonitor,
        cfg: Mapping[str, Any],
        own: Mapping[str, Any],
        logger: Any,
        owner: RunOwner,
        parts: Callable[[], Mapping[str, Any]],
    ) -> None:
        self._scheduler, self._buffers, self._monitor = scheduler, buffers, monitor
        self._owner, self._parts = owner, parts
        main = cfg["main"]
        self._present_buffer_cfg: Mapping[str, Any] = main["policy"].get("other", {}).get("replay_buffer", {})
        learner_cfg = main["policy"].get("learn", {}).get("learner", {})
        # A run may be resumed with a different budget.
        self._present_budget = {key: learner_cfg[key] for key in ("train_iterations",) if key in learner_cfg}
        self._should_resume = bool(own["resume"])
        self._is_resumed = self._has_begun = self._is_taken_up = False
        self._exp_name, self._config = main["exp_name"], config_of(cfg)
        self._path = os.path.join(".", self._exp_name, FOLDER)
        self._folder, self._interval_s, self._logger = StateFolder(self._path), own["state_interval_s"], logger
        self._closing, self._threads = threading.Event(), DaemonThreads()
        self._last_problem = ""

    def state_dict(self) -> dict[str, Any]:
        """Return all that another coordinator needs to resume the run, in plain values and arrays.

        Neither the buffers nor the commander are blocked for long. The samples in the state belong to the buffers and
        must not be changed.

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
            "run": self._monitor.state_dict(),
            "parts": {name: part.state_dict() for name, part in self._parts().items()},
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
        self._monitor.load_state_dict(state_dict["run"])
        for name, part_state in state_dict["parts"].items():
            if name in self._parts():
                for problem in self._parts()[name].load_state_dict(part_state):
                    self._owner.error(problem)
        if not state_dict["commander"]:
            self._owner.error("the commander has no state: only the counters continue, the run begins anew")
            return
        with self._scheduler.locked_commander() as commander:
            commander.load_state_dict(state_dict["commander"])
        functions = {key: value for key, value in self._present_buffer_cfg.items() if callable(value)}
        counts = [
            self._buffers.restore(buffer_id, {**functions, **buffer["cfg"]}, buffer["content"], buffer["counts"])
            for buffer_id, buffer in state_dict["buffers"].items()
        ]
        for task in state_dict["learner_tasks"]:
            if "learner_cfg" in task:
                task["learner_cfg"].update(self._present_budget)
            self._scheduler.learner_tasks[task["task_id"]] = task
            self._scheduler.run_again(task)
        held, dropped = (sum(column) for column in zip((0, 0), *counts, strict=True))
        self._owner.info(f"{held} samples are restored; {dropped} are lost, as their chunks were deleted")

    def begin(self) -> None:
        """Resume a saved run if there is one and the config says so, and begin to save the state periodically."""
        if self._should_resume and not self._is_resumed:
            state = read_run_state(self._path, "parallel", self._config)
            if state is not None:
                self.load_state_dict(state)
                self._owner.info(f"the run resumes from {self._path}")
        self._has_begun = True
        if self._interval_s:
            self._threads.start("coordinator_state", self._write_periodically)

    def take_up(self) -> None:
        """Delete unneeded chunks of a resumed run; call it when the workers are connected and none has a task."""
        self._is_taken_up = True
        if self._is_resumed:
            self._buffers.is_deleting = True
            count = self._buffers.delete_unneeded()
            self._owner.info(f"{count} unneeded chunks are deleted")

    def end(self) -> None:
        """Write the last state of an unfinished run, or remove the state of a successful one.

        Then delete the samples that no other coordinator needs, also those of lost workers.
        """
        is_saved, self._has_begun = self._has_begun and self._interval_s > 0, True
        self._closing.set()
        has_stopped = self._threads.join(COMMANDER_TIMEOUT_S)  # otherwise the disk hangs
        is_complete = self._monitor.is_over and self._monitor.failure is None
        if is_saved and not is_complete:
            self._buffers.is_deleting = False
        if is_saved and has_stopped:
            if is_complete:
                with contextlib.suppress(OSError):
                    self._folder.clear()
            else:
                self._write("end")
        self._buffers.close()
        if self._is_taken_up:
            with contextlib.suppress(OSError):  # the folder may be gone, too
                self._buffers.delete_unneeded()

    def _write_periodically(self) -> None:
        while not self._closing.wait(self._interval_s):
            self._write("interval")

    def _write(self, reason: str) -> None:
        """Write the state, unless the run is over."""
        begin = monotonic()
        try:
            state, progress = self.state_dict(), self._monitor.progress()
            # A failing run is over before its failed task is removed, so no state without that task is ever saved.
            if self._monitor.is_over:
                return
            about = describe_state(
                [_INEXACT],
                kind="parallel",
                exp_name=self._exp_name,
                config=self._config,
                reason=reason,
                train_iter=progress.train_iter,
                env_step=progress.env_steps,
                last_return=progress.last_return,
            )
            size = self._folder.write(state, about)
        except Exception as e:  # a run does not end because its state cannot be saved
            problem = f"{type(e).__name__}: {e}"
            if problem != self._last_problem:
                self._owner.warn(f"the state of the run is not saved in {self._path}: {problem}")
            self._last_problem = problem
        else:
            self._last_problem = ""
            self._logger.debug("%d bytes of state were written in %.3f s", size, monotonic() - begin)
