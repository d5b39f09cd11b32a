"""The workers of a parallel training on Ray: actors, and their supervisor."""

from __future__ import annotations

import contextlib
import itertools
import math
import os
import queue
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from time import monotonic
from typing import Any

import ray
from easydict import EasyDict
from ray.exceptions import RayError
from ray.util.placement_group import placement_group, remove_placement_group
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy, PlacementGroupSchedulingStrategy

from ding.config.utils import LOCAL_HOST, workers_of
from ding.entry.dist_roles import be_worker
from ding.entry.supervisor import RestartLimit
from ding.entry.worker_pool import CLOSE_LIMITS_S, COLLECTOR_NICE
from ding.entry.worker_process import WorkerDied, later_seed, quiet_flask
from ding.utils.default_helper import derive_seed
from ding.worker.collector.comm.base_comm_collector import create_comm_collector
from ding.worker.coordinator.coordinator import Coordinator
from ding.worker.learner.comm.base_comm_learner import create_comm_learner
from ding.worker.transport.ray.cluster import RayCluster
from ding.worker.transport.ray.config import actor_options, bundle
from ding.worker.transport.ray.transport import actor_class, actor_name, start_server, when_done
from ding.worker.transport.transport import WorkerReleased

_CREATE: dict[str, Callable[[EasyDict], Any]] = {"learner": create_comm_learner, "collector": create_comm_collector}
# Numbers of the lives of workers, unique over all runs of this process.
_lives = itertools.count(1)
_JOIN_S = 5.0
# Marks seeds of ranks, as in serial pipelines: all ranks have different seeds.
_RANK_SEED = 2


class _Worker:
    """A worker over all its restarts: one actor, or one for each rank, which start and end together.

    Attributes:
        life: number of the current actors.
        lives: how often the worker was restarted.
        actors: the current actors, by rank.
        places: process and node of each actor that has started, by rank.
    """

    def __init__(self, kind: str, name: str, ranks: int, make: Callable[[_Worker, int], Any]) -> None:
        self.kind, self.name, self.ranks, self.make = kind, name, ranks, make
        self.life = self.lives = 0
        self.actors: list[Any] = []
        self.places: dict[int, dict[str, Any]] = {}

    @property
    def place(self) -> dict[str, Any] | None:
        """Process and node of rank 0, which takes the tasks; None until all ranks have started."""
        return self.places[0] if len(self.places) == self.ranks else None

    def rank_name(self, rank: int) -> str:
        """The name of the actor of a rank."""
        return self.name if rank == 0 else f"{self.name}.rank{rank}"

    def start(self) -> None:
        """Kill the current actors, if any, and start new ones."""
        self.kill()
        self.lives += self.life > 0
        self.life, self.places = next(_lives), {}
        self.actors = [self.make(self, rank) for rank in range(self.ranks)]

    def kill(self) -> None:
        """Kill the actors."""
        for actor in self.actors:
            ray.kill(actor)


class RayWorkers:
    """A worker pool whose workers are actors of Ray; see `WorkerPool`.

    Args:
        system: the compiled system config.
        is_quiet: whether their servers log errors only.
    """

    def __init__(self, system: EasyDict, is_quiet: bool = True) -> None:
        self._system, self._section, self._is_quiet = system, system.ray, is_quiet
        self._workers = {
            name: _Worker(kind, name, _ranks_of(system[name]), self._make_actor)
            for kind in _CREATE
            for name in workers_of(system, kind)
        }
        # Worker and rank of each actor, in the order of the bundles of the placement group.
        self._order = [(worker.name, rank) for worker in self._workers.values() for rank in range(worker.ranks)]
        self._bundles = [bundle(self._section, self._workers[name].kind) for name, _ in self._order]
        self._cluster = RayCluster(self._section, math.ceil(sum(wanted.get("CPU", 0) for wanted in self._bundles)))
        self._opened = contextlib.ExitStack()
        self._group: Any = None
        self._weights: Any = None
        self._supervisor: RaySupervisor | None = None

    def start(self) -> None:
        with self._opened:
            self._opened.callback(self._cluster.close)
            self._cluster.start()
            for worker in self._workers.values():
                if worker.ranks > 1 and self._cluster.is_own:  # all ranks are on this machine
                    self._system[worker.name].rank_host = LOCAL_HOST
            self._opened.callback(self._end_actors)
            here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
            self._weights = start_server(self._system.learner0.path_policy, {"scheduling_strategy": here})
            if self._section.placement is not None:
                wanted = [wanted or {"CPU": 0.001} for wanted in self._bundles]  # a bundle must not be empty
                self._group = placement_group(wanted, strategy=self._section.placement)
            for worker in self._workers.values():
                worker.start()
            self._wait_until_up(monotonic() + self._section.start_timeout_s)
            self._opened = self._opened.pop_all()

    def _make_actor(self, worker: _Worker, rank: int) -> Any:
        options = actor_options(self._section, worker.kind)
        if self._group is not None:
            index = self._order.index((worker.name, rank))
            options["scheduling_strategy"] = PlacementGroupSchedulingStrategy(self._group, index)
        section = EasyDict(self._system[worker.name])
        if worker.kind == "collector":
            section.setdefault("nice", COLLECTOR_NICE)
        seed = later_seed(section.get("seed", 0), worker.lives)
        if worker.ranks > 1:
            section.rank = rank
            section.peers = [(worker.rank_name(peer), worker.life) for peer in range(1, worker.ranks)]
            seed = seed if rank == 0 else derive_seed(seed, _RANK_SEED, rank)
        if "seed" in section:
            section.seed = seed
        folder = None if "working_dir" in self._section.runtime_env else os.getcwd()
        make = partial(_make_worker, worker.kind, section, seed, folder, self._is_quiet)
        return actor_class().options(name=actor_name(worker.rank_name(rank), worker.life), **options).remote(make)

    def _wait_until_up(self, deadline: float) -> None:
        for name, rank in self._order:
            worker = self._workers[name]
            try:
                place = ray.get(worker.actors[rank].place.remote(), timeout=max(0.0, deadline - monotonic()))
            except TimeoutError as e:
                raise _not_started(self._workers.values(), self._section) from e
            except RayError as e:
                raise WorkerDied(worker.rank_name(rank), None, str(e)) from e
            worker.places[rank] = place
            if rank == 0:
                self._set_address(worker, place)

    def _set_address(self, worker: _Worker, place: dict[str, Any]) -> None:
        self._system[worker.name].update(host=place["host"], port=worker.life)
        self._system.coordinator[worker.kind][worker.name] = [worker.name, place["host"], worker.life]

    def pids(self) -> dict[str, int]:
        """Process ids of the running workers, each on its node; ranks above 0 are named `<worker>.rank<i>`."""
        return {
            worker.rank_name(rank): place["pid"]
            for worker in self._workers.values()
            for rank, place in sorted(worker.places.items())
        }

    def supervise(self, coordinator: Coordinator) -> None:
        own = {**Coordinator.config, **self._system.coordinator}
        limit = RestartLimit(own["max_restarts"], own["restart_window_s"])
        self._supervisor = RaySupervisor(self._workers, self._section, coordinator, limit)
        coordinator.supervisor = self._supervisor
        self._supervisor.start()

    def close(self) -> None:
        if self._supervisor is not None:
            self._supervisor.close()
        self._opened.close()

    def _end_actors(self) -> None:
        """Close the workers, and kill those that have not ended within the limit."""
        workers = self._workers.values()
        actors = [actor for worker in workers for actor in worker.actors]
        ends: dict[str, list[Any]] = {kind: [] for kind in CLOSE_LIMITS_S}
        for worker in workers:
            ends[worker.kind] += [worker.actors[rank].close.remote() for rank in worker.places]
        for kind, limit_s in CLOSE_LIMITS_S.items():
            if ends[kind]:
                ray.wait(ends[kind], num_returns=len(ends[kind]), timeout=limit_s)
        for actor in [*actors, self._weights]:
            if actor is not None:
                ray.kill(actor)
        if self._group is not None:
            remove_placement_group(self._group)


class RaySupervisor:
    """Restarts a worker when one of its actors has died; see `WorkerSupervisor`.

    Args:
        workers: by name; all have started.
        section: `ray` of the system config. A worker that does not start within `start_timeout_s` ends the run if no
            other worker of its kind runs; otherwise it joins as soon as the cluster has capacity for it.
        run: the coordinator, which is notified of lost and restarted workers.
        limit: a worker that dies more often ends the run.
    """

    def __init__(
        self, workers: Mapping[str, _Worker], section: Mapping[str, Any], run: Coordinator, limit: RestartLimit
    ) -> None:
        self._workers, self._section, self._run, self._limit = workers, section, run, limit
        self._due: dict[str, float] = {}  # when a worker should have started
        self._lost: queue.SimpleQueue[tuple[_Worker, int, object] | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._is_closed = False
        self._thread = threading.Thread(target=self._supervise, name="ray_supervisor", daemon=True)

    @property
    def restarts(self) -> Counter[str]:
        """How often each worker was restarted."""
        return +Counter({worker.name: worker.lives for worker in self._workers.values()})

    def start(self) -> None:
        """Begin to supervise."""
        self._thread.start()
        for worker in self._workers.values():
            self._watch(worker)

    def _watch(self, worker: _Worker) -> None:
        report = partial(self._report_loss, worker, worker.life)
        for actor in worker.actors:
            when_done(actor.watch.remote(), report, report)

    def _report_loss(self, worker: _Worker, life: int, reason: object) -> None:
        self._lost.put((worker, life, reason))

    def lost(self, kind: str, name: str, error: Exception) -> bool:
        """Restart a worker that the coordinator has lost; its process is killed, since it may hang.

        Nothing is done if the worker is being restarted already.

        Returns:
            whether the worker will be restarted, or its death will end the run.
        """
        with self._lock:
            worker = self._workers.get(name)
            if worker is None or self._is_closed:
                return False
            if worker.place is not None and not isinstance(error, WorkerReleased):
                worker.kill()
            return True

    def _supervise(self) -> None:
        try:
            while True:
                timeout_s = max(0.0, min(self._due.values()) - monotonic()) if self._due else None
                try:
                    loss = self._lost.get(timeout=timeout_s)
                except queue.Empty:
                    self._handle_late()
                    continue
                if loss is None:
                    return
                worker, life, reason = loss
                if life == worker.life:
                    self._replace(worker, WorkerDied(worker.name, None, str(reason)))
        except Exception as e:
            self._run.deal_with_error(e)

    def _handle_late(self) -> None:
        late = [self._workers[name] for name, due in self._due.items() if due <= monotonic()]
        for worker in late:
            del self._due[worker.name]
            if not any(other.place is not None for other in self._workers.values() if other.kind == worker.kind):
                self._run.deal_with_error(_not_started(self._workers.values(), self._section))

    def _replace(self, worker: _Worker, error: WorkerDied) -> None:
        with self._lock:
            if self._is_closed:
                return
            is_restarted = self._limit.take(worker.name)
            if is_restarted:
                worker.start()
        if not is_restarted:
            self._run.deal_with_error(error)
        self._run.deal_with_worker_gone(worker.kind, worker.name, error)
        if is_restarted:
            life, self._due[worker.name] = worker.life, monotonic() + self._section["start_timeout_s"]
            lost = partial(self._report_loss, worker, life)
            for rank, actor in enumerate(worker.actors):
                when_done(actor.place.remote(), partial(self._rejoin, worker, life, rank), lost)

    def _rejoin(self, worker: _Worker, life: int, rank: int, place: dict[str, Any]) -> None:
        with self._lock:
            if self._is_closed or life != worker.life:
                return
            worker.places[rank] = place
            if worker.place is None:
                return
        self._watch(worker)
        place = worker.places[0]
        address = worker.kind, worker.name, place["host"], life
        joining = partial(self._run.deal_with_worker_back, *address)
        threading.Thread(target=joining, name=f"join_{worker.name}", daemon=True).start()

    def close(self) -> None:
        """Stop restarting workers. Idempotent."""
        with self._lock:
            self._is_closed = True
        self._lost.put(None)
        if self._thread is not threading.current_thread():
            self._thread.join(_JOIN_S)


def _ranks_of(section: Mapping[str, Any]) -> int:
    return int(section["gpu_num"]) if section.get("multi_gpu") else 1


def _not_started(workers: Iterable[_Worker], section: Mapping[str, Any]) -> TimeoutError:
    """The error of workers that have not started: the resources they request, and those of the cluster."""
    late = {
        worker.rank_name(rank): bundle(section, worker.kind)
        for worker in workers
        for rank in range(worker.ranks)
        if rank not in worker.places
    }
    whole: Mapping[str, float] = ray.cluster_resources()  # type: ignore[no-untyped-call]
    resources = {key: amount for key, amount in whole.items() if ":" not in key}
    return TimeoutError(
        f"{', '.join(late)} could not be started within {section['start_timeout_s']:g} s: wanted are {late}, "
        f"the cluster has {resources}; see system_config.ray.learner and .collector"
    )


def _make_worker(kind: str, section: Mapping[str, Any], seed: int, folder: str | None, is_quiet: bool) -> Any:
    """Make a worker in the process of its actor, and start it.

    Args:
        folder: the working directory of the driver. If possible it becomes that of the actor, so that relative paths of
            the experiment mean the same.
    """
    if folder is not None:
        with contextlib.suppress(OSError):
            os.makedirs(folder, exist_ok=True)
            os.chdir(folder)
    if is_quiet:
        quiet_flask()
    be_worker(kind, section, seed)
    worker = _CREATE[kind](EasyDict(section))
    worker.start()
    return worker
