"""A group of learners that run one task together, and are one learner to the coordinator."""

from __future__ import annotations

import itertools
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, wait
from typing import Any

from ding.interaction.exception import TaskFail
from ding.utils.pytorch_ddp_dist_helper import BrokenCollective
from ding.worker.learner.checkpoint import NORMALIZATION
from ding.worker.transport.chunk import pack_batches, split, unpack_batches
from ding.worker.transport.comm_worker import WorkerTask
from ding.worker.transport.transport import Task, TaskFailed, TaskName, WorkerClient, WorkerLost

# Seconds for the other learners to answer after one has failed; they may be waiting for it.
GRACE_S = 1.0


class LearnerHandle:
    """A connected learner, to which messages are sent in threads, one after the other.

    Attributes:
        is_lost: whether it is disconnected.
    """

    def __init__(self, name: str, client: WorkerClient) -> None:
        self.name = name
        self.is_lost = False
        self._client = client
        self._turn = threading.Lock()

    def run(self, task: Task, timeout_s: float) -> Future[dict[str, Any]]:
        """Have the learner run `task`; see `WorkerClient.run`. One that does not answer in time counts as lost."""
        future: Future[dict[str, Any]] = Future()
        args = (task, timeout_s, future)
        threading.Thread(target=self._run, args=args, name=f"aggregator_{self.name}", daemon=True).start()
        return future

    def _run(self, task: Task, timeout_s: float, future: Future[dict[str, Any]]) -> None:
        try:
            with self._turn:
                if self.is_lost:
                    raise WorkerLost(f"the learner {self.name} is disconnected")
                future.set_result(self._client.run(task, timeout_s))
        except BaseException as e:  # passed on to the waiting caller
            if isinstance(e, WorkerLost):
                self.close()
            future.set_exception(e)

    def close(self) -> None:
        """Disconnect; running and waiting messages end with `WorkerLost`. Further calls do nothing."""
        if not self.is_lost:
            self.is_lost = True
            self._client.close()


def ask_all(
    calls: Sequence[tuple[LearnerHandle, Task]], timeout_s: float, message: str | None = None, to_the_end: bool = False
) -> list[dict[str, Any]]:
    """Have each learner run its task, all concurrently, and return the results in order.

    Args:
        timeout_s: seconds for all learners to answer; one that does not is lost.
        message: the error message if a learner fails; None for the message of the first learner that failed.
        to_the_end: whether to wait for all learners even if one has failed.

    Raises:
        TaskFail: a learner failed, is lost, or did not answer; its `traceback` has all errors. Of several errors, it
            tells of a loss first, and of a broken collective, which follows from another error, last.
    """
    futures = [handle.run(task, timeout_s) for handle, task in calls]
    left = wait(futures, timeout_s, "ALL_COMPLETED" if to_the_end else FIRST_EXCEPTION).not_done
    if left:
        wait(left, GRACE_S)
    outcomes = list(zip(calls, futures, strict=True))
    errors = {handle.name: future.exception() for (handle, _), future in outcomes if future.done()}
    failures = {name: error for name, error in errors.items() if error is not None}
    if not failures:
        failures = {
            handle.name: WorkerLost(f"{handle.name} has not answered the task {task['name']} within {timeout_s:g} s")
            for (handle, task), future in outcomes
            if not future.done()
        }
    if failures:
        name, error = min(failures.items(), key=lambda failure: _RANKS.get(_kind_of(failure[1]), 1))
        kind, details = _kind_of(error), error.result if isinstance(error, TaskFailed) else {}
        message = message or f"the learner {name}: {details.get('message') or error}"
        result = {
            "message": message,
            "exception": WorkerLost.__name__ if kind == BrokenCollective.__name__ else kind,
            "traceback": "\n".join(map(str, failures.values())),
        }
        raise TaskFail(result=result, message=message)
    return [future.result() for future in futures]


# The order in which errors are told, by kind; that of others is 1.
_RANKS = {WorkerLost.__name__: 0, BrokenCollective.__name__: 2}


def _kind_of(error: BaseException) -> str:
    """Return the type of the error, in the learner if it was there."""
    own = error.result.get("exception") if isinstance(error, TaskFailed) else None
    return str(own or type(error).__name__)


# Keys whose values are equal for all learners of a task.
_OF_THE_FIRST = ("learner_step", "buffer_id", "task_id", "learner_done", "averages")


def merge_info(infos: Sequence[Any]) -> Any:
    """Merge one info of each learner, in the order of the learners.

    Scalars (None, int, float, str) become a list; lists and tuples are concatenated; dicts are merged by key, including
    keys that only some of them have. In a dict, `learner_step`, `buffer_id`, `task_id`, `learner_done` and `averages`
    are taken from the first learner.

    Raises:
        TypeError: the infos have different or unsupported types.
        ValueError: `infos` is empty.

    Example:
        >>> merge_info([{"learner_step": 5, "priority": [1.0], "loss": 3}, {"learner_step": 5, "priority": [2.0]}])
        {'learner_step': 5, 'priority': [1.0, 2.0], 'loss': [3]}
    """
    if not infos:
        raise ValueError("infos is empty: there is nothing to merge")
    if all(info is None or isinstance(info, (int, float, str)) for info in infos):
        return list(infos)
    for kind in (list, tuple):
        if all(isinstance(info, kind) for info in infos):
            return kind(itertools.chain.from_iterable(infos))
    if all(isinstance(info, Mapping) for info in infos):
        keys = dict.fromkeys(itertools.chain.from_iterable(infos))
        values = {key: [info[key] for info in infos if key in info] for key in keys}
        return {key: own[0] if key in _OF_THE_FIRST else merge_info(own) for key, own in values.items()}
    kinds = ", ".join(sorted({type(info).__name__ for info in infos}))
    raise TypeError(f"infos of the type {kinds} cannot be merged; they must all be scalars, lists, tuples or dicts")


_DONE = "learner_done"
# Seconds for the learners that started a task to end it if another learner could not start it.
START_GRACE_S = 2.0


class _Learner:
    """A learner that runs the task of a group, and how far it is.

    Attributes:
        batch_size, capacity: the size and the number of batches that it requests.
        infos: its infos that the group has not reported yet.
        batches_done: the number of batches that it has read.
        silence_s: seconds without progress, as of the last request.
        is_done: whether it has reported its last info.
        is_closed: whether it has ended the task.
    """

    def __init__(self, handle: LearnerHandle) -> None:
        self.handle = handle
        self.batch_size = self.capacity = self.batches_done = 0
        self.silence_s = 0.0
        self.infos: deque[dict[str, Any]] = deque()
        self.is_done = self.is_closed = False

    def take_demand(self, reply: Mapping[str, Any]) -> None:
        self.batch_size, self.capacity = reply["batch_size"], reply["batch_num"]
        self.silence_s = float(reply.get("silence_s", 0.0))
        self.take_infos(reply)

    def take_infos(self, reply: Mapping[str, Any]) -> None:
        infos = reply.get("infos", ())  # a learner that ends may have none
        self.batches_done += reply.get("batches_done", 0)
        self.infos.extend(infos)
        self.is_done = self.is_done or any(info.get(_DONE) for info in infos)
        if self.is_done:
            self.capacity = 0


class GroupTask(WorkerTask):
    """A task on a fixed group of learners.

    Each batch is split into one part per learner, in order. All learners get the same number of batches, so learners
    that average their gradients stay synchronized. The group reports an info once all learners have reported theirs.

    Args:
        handles: the learners, at least one.
        task: the start task with its `task_info`.
        timeout_s: seconds for a learner to answer a message.
    """

    def __init__(self, handles: Sequence[LearnerHandle], task: Task, timeout_s: float) -> None:
        super().__init__(task.get("task_info") or {})
        self._timeout_s = timeout_s
        self._learners = [_Learner(handle) for handle in handles]
        self._batches_done = 0
        self._has_failed = self._has_ended = False
        try:
            self._ask([task] * len(self._learners), message="one of learner can't start_task")
        except TaskFail:  # some may have started
            wait(
                [learner.handle.run({"name": TaskName.LEARNER_CLOSE}, self._timeout_s) for learner in self._learners],
                START_GRACE_S,
            )
            raise

    def demand(self, task: Task) -> dict[str, Any]:
        """Return the request of the group: the sum of the batch sizes, and the smallest number of batches."""
        asked = [learner for learner in self._learners if not learner.is_done]
        return self._request([task] * len(asked), asked)

    def _request(self, tasks: Sequence[Task], asked: Sequence[_Learner]) -> dict[str, Any]:
        replies = self._ask(tasks, asked)
        for learner, reply in zip(asked, replies, strict=True):
            learner.take_demand(reply)
        requested = {"batch_size": sum(learner.batch_size for learner in self._learners)}
        if any(learner.is_done for learner in self._learners):
            self._end([learner for learner in self._learners if not learner.is_done])
        first = replies[0] if replies else {}
        # The others wait for the slowest learner.
        silence_s = max((learner.silence_s for learner in self._learners if not learner.is_done), default=0.0)
        reported = {"cur_learner_iter": first.get("cur_learner_iter", 0), "silence_s": silence_s}
        return {**reported, **requested, "batch_num": self._capacity, **self._new_infos()}

    @property
    def _capacity(self) -> int:
        return min(learner.capacity for learner in self._learners)

    def learn(self, task: Task) -> dict[str, Any]:
        """Send each learner its part of each batch, and return the next request of the group.

        Raises:
            ValueError: the number or the size of the batches differs from the request.
        """
        batches = unpack_batches(task)
        if len(batches) > self._capacity:
            raise ValueError(f"the learners requested {self._capacity} batches at most, but got {len(batches)}")
        sizes = [learner.batch_size for learner in self._learners]
        by_learner = zip(*(split(batch, sizes) for batch in batches), strict=True)
        more = {key: task[key] for key in (NORMALIZATION,) if key in task}
        return self._request(
            [{"name": TaskName.LEARNER_LEARN, "demand": True, **pack_batches(parts), **more} for parts in by_learner],
            self._learners,
        )

    def close(self) -> dict[str, Any]:
        """End the task on all connected learners, and return the remaining infos.

        Unless a learner has failed, the learners first train on the batches they have, so that none of them waits for
        the gradients of another.

        Raises:
            TaskFail: a learner could not end the task.
        """
        self._end([learner for learner in self._learners if not learner.is_closed and not learner.handle.is_lost])
        return self._new_infos()

    def _end(self, chosen: Sequence[_Learner]) -> None:
        task = {"name": TaskName.LEARNER_CLOSE, "drain": not self._has_failed}
        for learner, reply in zip(chosen, self._ask([task] * len(chosen), chosen, to_the_end=True), strict=True):
            learner.take_infos(reply)
            learner.is_done = learner.is_closed = True

    def _ask(self, tasks: Sequence[Task], chosen: Sequence[_Learner] | None = None, **how: Any) -> list[dict[str, Any]]:
        calls = [(t.handle, task) for t, task in zip(self._learners if chosen is None else chosen, tasks, strict=True)]
        try:
            return ask_all(calls, self._timeout_s, **how)
        except TaskFail:
            self._has_failed = True
            raise

    def _new_infos(self) -> dict[str, Any]:
        """Return the merged new infos of all learners, and the number of batches that all of them have read.

        The last info of one learner is the last of the group: the others cannot continue without that learner.
        """
        infos: list[dict[str, Any]] = []
        while not self._has_ended and all(learner.infos for learner in self._learners):
            heads = [learner.infos.popleft() for learner in self._learners]
            self._has_ended = any(info.get(_DONE) for info in heads)
            infos.append(_merged(heads, self._has_ended))
        left = [learner.infos[-1] for learner in self._learners if learner.infos]
        if left and not self._has_ended and all(learner.is_done for learner in self._learners):  # some reported fewer
            self._has_ended = True
            infos.append(_merged(left, True))
        done = min(learner.batches_done for learner in self._learners) - self._batches_done
        self._batches_done += done
        return {"infos": infos, "batches_done": done, **self.ids}


def _merged(infos: Sequence[dict[str, Any]], is_last: bool) -> dict[str, Any]:
    merged: dict[str, Any] = merge_info(infos)
    return {**merged, _DONE: True} if is_last else merged
