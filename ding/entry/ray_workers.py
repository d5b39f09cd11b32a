"""The workers of a parallel training as actors of Ray; see `Supervisor`."""

from __future__ import annotations

import contextlib
import itertools
import math
import os
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import ray
from easydict import EasyDict
from ray.util.placement_group import placement_group, remove_placement_group
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy, PlacementGroupSchedulingStrategy

from ding.config.utils import LOCAL_HOST
from ding.entry.supervisor import Backend
from ding.entry.worker_process import (
    CREATE,
    END_S,
    THREADS,
    Ended,
    Started,
    WorkerDied,
    be_worker,
    later_seed,
    quiet_flask,
)
from ding.interaction.access import RunToken
from ding.utils.default_helper import derive_seed
from ding.worker.transport.ray.cluster import RayCluster
from ding.worker.transport.ray.ray_settings import actor_options, bundle
from ding.worker.transport.ray.ray_transport import actor_class, actor_name, when_done
from ding.worker.transport.ray.stores import start_sample_server, start_weights_server

# Numbers of the lives of workers, unique over all runs of this process.
_lives = itertools.count(1)
# Marks seeds of ranks, as in serial pipelines: all ranks have different seeds.
_RANK_SEED = 2


class _Worker:
    """A worker over all its restarts: one actor, or one for each rank, which start and end together.

    Attributes:
        number: the number of the current life; 0 if its actors are known to have ended.
        actors: the current actors, by rank.
        places: process and node of each actor that has started, by rank.
    """

    def __init__(self, kind: str, name: str, ranks: int) -> None:
        self.kind, self.name, self.ranks = kind, name, ranks
        self.number = 0
        self.actors: list[Any] = []
        self.places: dict[int, dict[str, Any]] = {}

    def rank_name(self, rank: int) -> str:
        """Return the name of the actor of a rank."""
        return self.name if rank == 0 else f"{self.name}.rank{rank}"

    def kill(self) -> None:
        """Kill the actors."""
        for actor in self.actors:
            ray.kill(actor)


class _Report(NamedTuple):
    """The report that an actor has started, in a process on a node, or has ended."""

    worker: str
    number: int
    rank: int
    place: dict[str, Any] | None
    reason: object = None


class ActorBackend(Backend):
    """The `Backend` of workers in actors of Ray.

    A worker that starts again waits for capacity of the cluster as long as another worker of its kind runs.

    Args:
        system: the compiled system config.
        kinds: the kind of each worker, by name.
        is_quiet: whether the servers of the workers log errors only.
    """

    waits = True

    def __init__(self, system: EasyDict, kinds: Mapping[str, str], is_quiet: bool = True) -> None:
        super().__init__(system.ray.start_timeout_s)
        self._system, self._section, self._is_quiet = system, system.ray, is_quiet
        self._workers = {}
        for name, kind in kinds.items():
            section = system[name]
            self._workers[name] = _Worker(kind, name, int(section["gpu_num"]) if section.get("multi_gpu") else 1)
        # Worker and rank of each actor, in the order of the bundles of the placement group.
        self._order = [(worker.name, rank) for worker in self._workers.values() for rank in range(worker.ranks)]
        self._bundles = [bundle(self._section, self._workers[name].kind) for name, _ in self._order]
        self._cluster = RayCluster(self._section, math.ceil(sum(wanted.get("CPU", 0) for wanted in self._bundles)))
        self._opened = contextlib.ExitStack()
        self._group: Any = None
        self._late: list[str] = []

    def open(self) -> None:
        self._opened.callback(self._cluster.close)
        self._cluster.start()
        node = ray.get_runtime_context().get_node_id()
        here = {"scheduling_strategy": NodeAffinitySchedulingStrategy(node, soft=False)}
        self._opened.callback(ray.kill, start_weights_server(self._system.learner0.path_policy, here))
        self._opened.callback(ray.kill, start_sample_server(self._system.learner0.path_data, here))
        if self._section.placement is not None:
            wanted = [wanted or {"CPU": 0.001} for wanted in self._bundles]  # a bundle must not be empty
            self._group = placement_group(wanted, strategy=self._section.placement)
            self._opened.callback(remove_placement_group, self._group)
        self._opened.callback(self._end_actors)

    def start(self, name: str, life: int) -> None:
        worker = self._workers[name]
        worker.number, worker.places = next(_lives), {}
        worker.actors = [self._make_actor(worker, rank, life) for rank in range(worker.ranks)]
        for rank in range(worker.ranks):
            self._watch(worker, rank)

    def _watch(self, worker: _Worker, rank: int) -> None:
        number = worker.number

        def started(place: dict[str, Any]) -> None:
            self._reports.put(_Report(worker.name, number, rank, place))

        def ended(reason: object) -> None:
            self._reports.put(_Report(worker.name, number, rank, None, reason))

        when_done(worker.actors[rank].place.remote(), started, ended)
        when_done(worker.actors[rank].watch.remote(), ended, ended)

    def _make_actor(self, worker: _Worker, rank: int, life: int) -> Any:
        options = actor_options(self._section, worker.kind)
        if self._group is not None:
            index = self._order.index((worker.name, rank))
            options["scheduling_strategy"] = PlacementGroupSchedulingStrategy(self._group, index)
        section = EasyDict(self._system[worker.name], port=0)
        section.run_token = RunToken(section.run_token.secret)  # it guards workers on other machines, too
        # The workers of a cluster of the run are all on this machine.
        section.host = LOCAL_HOST if self._cluster.is_own else None
        seed = later_seed(section.get("seed", 0), life)
        if worker.ranks > 1:
            section.rank = rank
            section.peers = [(worker.rank_name(peer), worker.number) for peer in range(1, worker.ranks)]
            seed = seed if rank == 0 else derive_seed(seed, _RANK_SEED, rank)
        if "seed" in section:
            section.seed = seed
        folder = None if "working_dir" in self._section.runtime_env else os.getcwd()
        make = partial(_make_worker, worker.kind, section, seed, folder, self._is_quiet)
        return actor_class().options(name=actor_name(worker.rank_name(rank), worker.number), **options).remote(make)

    def kill(self, name: str) -> None:
        if ray.is_initialized():  # else the cluster of the run has ended with all actors
            self._workers[name].kill()

    def _event(self, report: _Report) -> Started | Ended | None:
        worker = self._workers[report.worker]
        if report.number != worker.number:  # a report of earlier actors
            return None
        if report.place is None:
            worker.kill()  # other ranks may still run
            worker.number, worker.places = 0, {}
            return Ended(worker.name, WorkerDied(worker.rank_name(report.rank), None, str(report.reason)))
        worker.places[report.rank] = report.place
        if len(worker.places) < worker.ranks:
            return None
        return Started(worker.name, worker.places[0]["port"], worker.places[0]["host"])  # rank 0 takes the tasks

    def not_started(self, names: Sequence[str]) -> Exception:
        late = {
            worker.rank_name(rank): bundle(self._section, worker.kind)
            for worker in map(self._workers.__getitem__, names)
            for rank in range(worker.ranks)
            if rank not in worker.places
        }
        cluster: Mapping[str, float] = ray.cluster_resources()  # type: ignore[no-untyped-call]
        resources = {key: amount for key, amount in cluster.items() if ":" not in key}
        return TimeoutError(
            f"{', '.join(late)} could not be started within {self.start_s:g} s: wanted are {late}, "
            f"the cluster has {resources}; see system_config.ray.learner and .collector"
        )

    def pids(self) -> dict[str, int]:
        return {
            worker.rank_name(rank): place["pid"]
            for worker in self._workers.values()
            for rank, place in sorted(worker.places.items())
        }

    def close(self) -> list[str]:
        self._opened.close()
        return self._late

    def _end_actors(self) -> None:
        """Close the workers, and kill those that do not end."""
        workers = self._workers.values()
        ends = {worker.name: [worker.actors[rank].close.remote() for rank in worker.places] for worker in workers}

        def wait_for(names: Collection[str], timeout_s: float) -> bool:
            found = [end for name in names for end in ends[name]]
            return not found or not ray.wait(found, num_returns=len(found), timeout=timeout_s)[1]

        try:
            for kind in sorted(END_S, key=END_S.__getitem__):
                wait_for([worker.name for worker in workers if worker.kind == kind], END_S[kind])
            self._late = [name for name in ends if not wait_for([name], 0)]
        finally:  # also after a second signal
            for worker in workers:
                worker.kill()


def _make_worker(kind: str, section: EasyDict, seed: int, folder: str | None, is_quiet: bool) -> tuple[Any, str]:
    """Make a worker in the process of its actor, and start it; return it, and the address at which it listens.

    Args:
        folder: the working directory of the driver. If possible, the actor uses it, too, so that relative paths of the
            experiment mean the same.
    """
    if folder is not None:
        with contextlib.suppress(OSError):
            os.makedirs(folder, exist_ok=True)
            os.chdir(folder)
    if is_quiet:
        quiet_flask()
    be_worker(section, seed, THREADS[kind])
    section.host = section.host or str(ray.util.get_node_ip_address())  # type: ignore[no-untyped-call]
    worker = CREATE[kind](section)
    worker.start()
    return worker, section.host
