"""The messages of one running task: from its start to its end, batched where the worker knows how."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from ding.utils.data.samples import part_of
from ding.worker.coordinator.worker_table import Worker
from ding.worker.transport.chunk import from_text, pack_batches
from ding.worker.transport.link import TaskFailed, WorkerLost
from ding.worker.transport.tasks import (
    COLLECTOR_CLOSE,
    COLLECTOR_DATA,
    COLLECTOR_START,
    LEARNER_CLOSE,
    LEARNER_GET_DATA,
    LEARNER_LEARN,
    LEARNER_START,
)

if TYPE_CHECKING:
    from ding.worker.coordinator.coordinator import Coordinator

Rows = list[dict[str, Any]]
Task = dict[str, Any]

COLLECTOR, LEARNER = "collector", "learner"
_START = {COLLECTOR: COLLECTOR_START, LEARNER: LEARNER_START}
_CLOSE = {COLLECTOR: COLLECTOR_CLOSE, LEARNER: LEARNER_CLOSE}


class TaskStalled(WorkerLost):
    """A worker answers, but its task makes no progress."""


class TaskRun:
    """Runs one task on one worker; used by one thread.

    Args:
        side: who is told what the worker says.
        timeout_s: how long the worker may take to answer a message.
        is_ending: whether the coordinator wants all tasks to end.
        number: of the task, if the worker is to know it: its seeds follow from that.
        silence_limit_s: how long the task may make no progress; 0 for any time.
    """

    def __init__(
        self,
        worker: Worker,
        task: Task,
        side: Coordinator,
        timeout_s: float,
        is_ending: Callable[[], bool],
        number: int | None = None,
        silence_limit_s: float = 0.0,
    ) -> None:
        self.worker, self.task, self._number = worker, task, number
        self._side, self._timeout_s, self._is_ending = side, timeout_s, is_ending
        self._demand: dict[str, Any] | None = None  # of a learner, told with its last answer
        self._silence_limit_s = silence_limit_s
        # Those of the task, not those that the worker puts into its replies.
        self.task_id: str = task["task_id"]
        self.buffer_id: str = task["buffer_id"]

    def start(self) -> None:
        """Have the worker begin.

        Raises:
            TaskFailed, WorkerLost: see `Link.run`; of all methods.
            TypeError: there is something in the task that JSON cannot hold.
        """
        own: dict[str, Any] = {f"{self.worker.kind}_id": self.worker.worker_id, "resource_info": self.worker.resource}
        if self._number is not None:
            own["task_number"] = self._number
        try:
            self._send(_START[self.worker.kind], task_info={**self.task, **own})
        except TypeError as e:
            raise TypeError(
                f"the task {self.task_id} cannot be sent to a worker: {e}; in parallel training the sections env and "
                "policy may hold numbers, strings, lists and dicts only"
            ) from e

    def run(self) -> bool:
        """Exchange messages until the task is done (True), or the coordinator ends (False).

        Raises:
            TaskStalled: a collector makes no env step, or a learner that has batches no iteration.
        """
        step = self._collect if self.worker.kind == COLLECTOR else self._learn
        while not self._is_ending():
            if step():
                return True
        return False

    def close(self) -> dict[str, Any]:
        """Have the worker end the task; returns what it reports."""
        return self._send(_CLOSE[self.worker.kind])

    def finish(self, finished_task: dict[str, Any]) -> None:
        """Tell the coordinator that the task is done."""
        if self.worker.kind == COLLECTOR:
            self._side.deal_with_collector_finish_task(self.task_id, finished_task)
        else:
            self._side.deal_with_learner_finish_task(self.task_id, {**finished_task, "buffer_id": self.buffer_id})

    def _send(self, name: str, **content: Any) -> dict[str, Any]:
        if self.worker.is_batched:
            content["batched"] = True
        return self.worker.link.run({"name": name, **content}, self._timeout_s)

    def _collect(self) -> bool:
        reply = self._send(COLLECTOR_DATA)
        rows, infos = _collected(reply)
        pushed = reply.get("pushed")
        if not (rows or pushed or infos):
            self._check_silence(reply, "made no env step")
        if reply.get("progress"):
            self._side.deal_with_collector_progress(self.task_id, reply["progress"])
        if rows:
            data: Any = rows if self.worker.is_batched else rows[0]
            first = part_of(rows, 0, 1)[0]  # looking at an item makes all of them
            self._side.deal_with_collector_send_data(self.task_id, self.buffer_id, first.get("data_id", ""), data)
        if pushed:
            self._side.deal_with_collector_pushed(self.task_id, self.buffer_id, pushed)
        # Every info counts, so not one generator: `any` would stop at the first that says the end.
        ends = [self._side.deal_with_collector_judge_finish(self.task_id, info) for info in infos]
        return any(ends) or self._side.is_collector_task_useless(self.task_id)

    def _learn(self) -> bool:
        demand, self._demand = self._demand, None
        if demand is None:
            demand = self._send(LEARNER_GET_DATA)
            if self._take_infos(demand):
                return True
        self._check_silence(demand, "made no iteration, though it has data,")
        if "level" in demand:  # it draws its batches itself
            self._side.deal_with_learner_level(self.buffer_id, int(demand["level"]))
            return False
        batches = self._batches(demand)
        if not batches:
            return False
        if not self.worker.is_batched:
            return self._take_infos(self._send(LEARNER_LEARN, data=list(batches[0])))
        reply = self._send(LEARNER_LEARN, **pack_batches(batches), demand=True)
        if "batch_num" in reply:  # else it has to be asked
            self._demand = reply
        return self._take_infos(reply)

    def _check_silence(self, reply: Mapping[str, Any], what: str) -> None:
        """By the worker's own clock: time in which it was not asked, or was stopped, does not count."""
        silence_s, limit_s = float(reply.get("silence_s", 0.0)), self._silence_limit_s
        if limit_s and silence_s > limit_s:
            raise TaskStalled(
                f"{self.worker.kind} {self.worker.worker_id} has {what} for {silence_s:.0f} s in the task "
                f"{self.task_id}, more than task_silence_s = {limit_s:g} allows"
            )

    def _batches(self, demand: Mapping[str, Any]) -> list[Rows]:
        """What the buffer has of what the learner wants; waits for the first batch, but not if the learner may have
        something to tell meanwhile: that it is done, perhaps."""
        batches: list[Rows] = []
        wanted = demand.get("batch_num", 1)
        while len(batches) < wanted and not self._is_ending():
            batch = self._side.deal_with_learner_get_data(
                self.task_id, self.buffer_id, demand["batch_size"], demand["cur_learner_iter"]
            )
            if batch is not None:
                batches.append(batch)
            elif batches:
                break
            else:
                self._side.wait_for_data(self.task_id)
                if self.worker.is_batched:
                    break
        return batches

    def _take_infos(self, reply: Mapping[str, Any]) -> bool:
        if "infos" in reply:
            infos, done = list(reply["infos"]), int(reply.get("batches_done", 0))
        else:  # one batch, one info
            infos = [reply["info"]] if "info" in reply else []
            done = len(infos)
        if done:
            self._side.deal_with_learner_batches_done(self.task_id, done)
        is_done = False
        for info in infos:
            if self._side.deal_with_learner_judge_finish(self.task_id, info):
                is_done = True
            else:
                self._side.deal_with_learner_send_info(self.task_id, self.buffer_id, info)
        return is_done


def _collected(reply: Mapping[str, Any]) -> tuple[Rows, list[Mapping[str, Any]]]:
    """The samples and the infos in a collector's answer."""
    if "pushed" in reply:
        return [], list(reply["infos"])
    if "samples" in reply:
        return from_text(reply["samples"]), list(reply.get("infos", ()))
    return ([dict(reply)], []) if "data_id" in reply else ([], [reply])


def failure_text(error: BaseException) -> str:
    """What to tell about the failure of a run: the worker's own traceback where it failed there, else that of here."""
    if isinstance(error, (TaskFailed, WorkerLost)):
        return str(error)
    return "".join(traceback.format_exception(type(error), error, error.__traceback__))
