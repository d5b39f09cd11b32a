"""The comm learner for runs on Ray."""

from __future__ import annotations

import concurrent.futures
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ding.interaction.exception import TaskFail
from ding.utils.collectives import BrokenCollective
from ding.utils.registry_factory import COMM_LEARNER_REGISTRY
from ding.worker.learner.comm.comm_learner import CommLearner
from ding.worker.learner.comm.rank_group import RankGroup, find_store, open_store
from ding.worker.transport.link import TaskFailed, WorkerLost
from ding.worker.transport.tasks import (
    LEARNER_CLOSE,
    LEARNER_GET_DATA,
    LEARNER_START,
    task_fail,
)

if TYPE_CHECKING:
    from ding.worker.adapter.learner_group import LearnerSeat

# Key of a task with the address, as host and port, of the store at which the ranks meet.
_MEETING = "meeting"
# After an error of rank 0, how long to wait for the other ranks, one of which may have caused it.
_GRACE_S = 20.0
# The exception that a learner names whose task has ended.
_CLOSED = "LearnerClosed"


@COMM_LEARNER_REGISTRY.register("ray")
class RayLearner(CommLearner):
    """Serves learner tasks in an actor of Ray, see `WorkerActor`.

    Batches come from the shards of the replay buffer, weights go through the object store. Each rank of a learner runs
    in its own actor. The coordinator talks to rank 0, which forwards tasks to the other ranks. All ranks begin, train
    and end together, each on batches that it draws itself. The reports of rank 0 count; an error or the loss of another
    rank is one of the whole learner.

    Args:
        cfg: `path_data` and `path_policy`; with `multi_gpu` also `gpu_num`, the number of ranks, `rank`, and for rank 0
            `peers`, the other ranks as (name, life) of their actors. `rank_host` is the address of this machine for
            the other ranks, by default that of the node. See also `CommLearner`.
    """

    transport = "ray"
    _store: Any = None
    _peers: Sequence[LearnerSeat] = ()

    def _place(self) -> tuple[int, int]:
        return int(self._cfg.get("rank", 0)), int(self._cfg.gpu_num)

    @property
    def _is_leading(self) -> bool:
        return self._rank == 0 and self._world_size > 1

    @property
    def _host(self) -> str:
        host = self._cfg.get("rank_host")
        if host is None:
            import ray

            host = ray.util.get_node_ip_address()  # type: ignore[no-untyped-call]
        return str(host)

    def _join_group(self, task_info: Mapping[str, Any]) -> RankGroup | None:
        if self._world_size == 1:
            return None
        host, port = task_info[_MEETING]
        timeout_s = self._cfg.rank_timeout_s
        store = self._store if self._rank == 0 else find_store(host, port, timeout_s)
        return RankGroup(store, self._rank, self._world_size, self._host, timeout_s)

    def serve(self, task: dict[str, Any]) -> Any:
        if self._is_leading and task.get("name") in (LEARNER_START, LEARNER_GET_DATA, LEARNER_CLOSE):
            return self._lead(task)
        return super().serve(task)

    def _lead(self, task: dict[str, Any]) -> Any:
        """Run a task on all ranks at the same time; returns the result of rank 0.

        Raises:
            TaskFail: a rank has failed; the result has its traceback.
            WorkerLost: a rank is lost, or ranks have lost their connection; all ranks must be restarted.
        """
        name = task["name"]
        if name == LEARNER_START:
            task = self._prepared(task)
        futures = [seat.run(task, self._cfg.rank_timeout_s) for seat in self._peers]
        own_error: Exception | None = None
        try:
            result = super().serve(task)
        except Exception as e:
            own_error = e
        limit_s = _GRACE_S if own_error is not None else self._cfg.rank_timeout_s
        concurrent.futures.wait(futures, limit_s)
        errors = dict(enumerate([own_error, *(_error_of(future, limit_s) for future in futures)]))
        found = _cause({rank: error for rank, error in errors.items() if error is not None})
        if found is None or (name == LEARNER_CLOSE and own_error is None):
            return result
        if name == LEARNER_START:
            self._end_all()
        raise found

    def _prepared(self, task: dict[str, Any]) -> dict[str, Any]:
        self._connect_peers()
        self._store = open_store(self._host, self._world_size, self._cfg.rank_timeout_s)
        info = {**task["task_info"], _MEETING: [self._host, self._store.port]}
        return {**task, "task_info": info}

    def _connect_peers(self) -> None:
        if self._peers:
            return
        from ding.worker.adapter.learner_group import LearnerSeat
        from ding.worker.transport.ray.worker import RayLink

        seats = []
        for name, life in self._cfg.peers:
            link = RayLink(name, life, set())
            link.connect(self._cfg.rank_timeout_s)
            seats.append(LearnerSeat(name, link, {"batched": True}))
        self._peers = seats

    def _end_all(self) -> None:
        """End a task that has begun on some of the ranks only."""
        close = {"name": LEARNER_CLOSE}
        futures = [seat.run(close, self._cfg.close_timeout_s) for seat in self._peers]
        super().serve(close)
        concurrent.futures.wait(futures, self._cfg.close_timeout_s)

    def deal_with_lost_coordinator(self) -> None:
        self._disconnect_peers()
        super().deal_with_lost_coordinator()

    def _disconnect_peers(self) -> None:
        """Disconnect from the other ranks, which end their task."""
        peers, self._peers = self._peers, ()
        for seat in peers:
            seat.close()

    def close(self) -> None:
        """See `CommLearner.close`. The caller must close the other ranks at the same time."""
        try:
            super().close()
        finally:
            self._disconnect_peers()
            self._store = None


def _error_of(future: concurrent.futures.Future[Any], limit_s: float) -> BaseException | None:
    if not future.done():
        return WorkerLost(f"it has not answered within {limit_s:g} s")
    return future.exception()


def _cause(errors: Mapping[int, BaseException]) -> Exception | None:
    """The error to report, given the errors of the ranks; None if no error counts.

    A rank that fails a request because its task has ended is no error.
    """
    failures = {rank: dict(e.result) for rank, e in errors.items() if isinstance(e, (TaskFail, TaskFailed))}
    failures = {rank: result for rank, result in failures.items() if rank == 0 or result.get("exception") != _CLOSED}
    others = {rank: error for rank, error in errors.items() if not isinstance(error, (TaskFail, TaskFailed))}
    lost = [f"rank {rank}: {error}" for rank, error in others.items() if isinstance(error, WorkerLost)]
    if lost:
        return WorkerLost(f"the learner has lost {'; '.join(lost)}")
    for error in others.values():
        assert isinstance(error, Exception)
        return error
    for rank, result in sorted(failures.items()):
        if result.get("exception") != BrokenCollective.__name__:
            return task_fail({**result, "message": f"rank {rank}: {result.get('message')}"})
    for rank, result in failures.items():
        return WorkerLost(f"rank {rank} of the learner has lost the others: {result.get('message')}")
    return None
