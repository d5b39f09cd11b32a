"""The metrics of a parallel run, which a thread of the coordinator's process writes to the sinks."""

from __future__ import annotations

import contextlib
import logging
import os
import threading
from collections.abc import Mapping, Sequence
from time import monotonic
from typing import Any

import numpy as np

from ding.utils.metric_sinks import RunInfo, create_metric_writer
from ding.utils.showing import tell_once
from ding.worker.coordinator.solo_parallel_commander import REPORTED

# How long rows wait at most.
_INTERVAL_S = 2.0
# How long a state of the run and the end of the run wait for a sink, such as a service that does not answer.
_STATE_TIMEOUT_S, _CLOSE_TIMEOUT_S = 5.0, 60.0

_logger = logging.getLogger("ding")
Row = tuple[str, Mapping[str, Any], "int | None", int]


class ParallelMetrics:
    """The writer of evaluations and the learner's averages to the sinks of a run. It is thread-safe.

    The rows have the worker `evaluator` or `learner`. A thread writes them every few seconds, so that a slow service
    does not delay tasks; only `close` waits for sinks. Iterations that a restarted learner trains again are not written
    again.

    Args:
        main: the compiled main config; `logger` chooses the sinks.

    Raises:
        ConfigError: the section `logger` has an unknown name or a wrong value.
        ImportError: a sink needs a package that is not installed.
    """

    def __init__(self, main: Mapping[str, Any]) -> None:
        folder = os.path.join(".", main["exp_name"], "log", "metrics")
        # The commander and the learner write TensorBoard files themselves.
        settings = main.get("logger", {})
        self._writer = create_metric_writer(folder, RunInfo(main["exp_name"], main), settings, has_tensorboard=False)
        self._changed = threading.Condition()
        self._rows: list[Row] = []
        self._added = self._written = 0  # numbers of rows so far
        self._last_iter = -1  # the last iteration of the learner's rows
        self._state: dict[str, Any] | None = None  # the state after the last rows that were written
        self._is_urgent = self._is_closing = self._is_failed = False
        self._thread = threading.Thread(target=self._work, name="parallel_metrics", daemon=True)

    def start(self) -> None:
        """Start writing."""
        self._thread.start()

    def add_evaluation(self, finished_task: Mapping[str, Any], env_step: int) -> None:
        """Add the result of an evaluation task with episodes."""
        values = {shown: finished_task[key] for key, shown in REPORTED.items()}
        train_iter = finished_task.get("train_iter")
        with self._changed:
            self._add("evaluator", values, None if train_iter is None else int(np.max(train_iter)), env_step)

    def add_averages(self, rows: Sequence[Mapping[str, Any]], env_step: int) -> None:
        """Add averages of the learner, each with `train_iter` and `values`."""
        with self._changed:
            for row in rows:
                if row["train_iter"] > self._last_iter:
                    self._last_iter = row["train_iter"]
                    self._add("learner", row["values"], row["train_iter"], env_step)

    def _add(self, worker: str, values: Mapping[str, Any], train_iter: int | None, env_step: int) -> None:
        if self._is_closing or self._is_failed:
            return
        self._rows.append((worker, values, train_iter, env_step))
        self._added += 1
        self._changed.notify_all()

    def state_dict(self) -> dict[str, Any]:
        """Return the positions of the sinks and the learner, for `load_state_dict`.

        It waits a few seconds for rows that are not written yet; if a sink takes longer, the state is the one before
        these rows.
        """
        with self._changed:
            target = self._added
            self._is_urgent = self._written < target
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._written >= target or not self._thread.is_alive(), _STATE_TIMEOUT_S)
            return self._state or {}

    def load_state_dict(self, state: Mapping[str, Any]) -> list[str]:
        """Remove the rows after `state`, and return a message for each missing part; call it before `start`."""
        if not state:
            return []
        self._state, self._last_iter = dict(state), state["last_iter"]
        return self._writer.load_state_dict(state["writer"])

    def close(self) -> None:
        """Write all rows and close the sinks, within a minute at most. Further calls do nothing."""
        with self._changed:
            self._is_closing = True
            self._changed.notify_all()
        if self._thread.ident is None:
            self._writer.close()
            return
        self._thread.join(_CLOSE_TIMEOUT_S)
        if self._thread.is_alive():
            _logger.error("the sinks of the metrics have not closed within %g s", _CLOSE_TIMEOUT_S)

    def _work(self) -> None:
        try:
            while self._write(*self._next_rows()):
                pass
            self._writer.close()
        except Exception as e:
            with self._changed:
                self._is_failed = True
                self._rows.clear()
                self._changed.notify_all()
            tell_once("writing the metrics of the run", e)
            with contextlib.suppress(Exception):  # the first error counts
                self._writer.close()

    def _next_rows(self) -> tuple[list[Row], int, bool]:
        """Wait for rows, and some time for more; return the rows, the learner's position, and whether more may come."""
        with self._changed:
            self._changed.wait_for(lambda: bool(self._rows) or self._is_closing)
            deadline = monotonic() + _INTERVAL_S
            self._changed.wait_for(lambda: self._is_urgent or self._is_closing, deadline - monotonic())
            rows, self._rows, self._is_urgent = self._rows, [], False
            return rows, self._last_iter, not self._is_closing

    def _write(self, rows: Sequence[Row], last_iter: int, may_more_come: bool) -> bool:
        for worker, values, train_iter, env_step in rows:
            self._writer.add_scalars_of(worker, values, train_iter, env_step)
        state = {"writer": self._writer.state_dict(), "last_iter": last_iter}  # this writes them
        with self._changed:
            self._state = state
            self._written += len(rows)
            self._changed.notify_all()
        return may_more_come
