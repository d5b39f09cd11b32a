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

from ding.entry.supervisor import Backend
from ding.entry.worker_process import (
    CLOSE_S,
    CREATE,
    THREADS,
    Ended,
    Started,
    WorkerDied,
    be_worker,
    later_seed,
    quiet_flask,
    wait_while_saving,
)
from ding.worker.transport.ray.cluster import RayCluster
from ding.worker.transport.ray.policy_store import start_weights_server
from ding.worker.transport.ray.ray_settings import actor_options, bundle
from ding.worker.transport.ray.ray_transport import actor_class, actor_name, when_done
from ding.worker.transport.ray.sample_store import start_sample_server

# Numbers of the lives of workers, unique over all runs of this process.
_lives = itertools.count(1)


class _Worker:
    """A worker over all its restarts.

    Attributes:
        number: the number of the current life; 0 if its actor is known to have ended.
        actor: the current actor.
        place: process and node of the actor, once it has started.
    """

    def __init__(self, kind: str, name: str) -> None:
        self.kind, self.name = kind, name
        self.number = 0
        self.actor: Any = None
        self.place: dict[str, Any] | None = None

    def kill(self) -> None:
        """Kill the actor, if there is one."""
        if self.actor is not None:
            ray.kill(self.actor)


class _Report(NamedTuple):
    """The report that an actor has started, in a process on a node, or has ended."""

    worker: str
    number: int
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
        self._workers = {name: _Worker(kind, name) for name, kind in kinds.items()}
        self._bundles = [bundle(self._section, kind) for kind in kinds.values()]
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
        worker.number, worker.place = next(_lives), None
        worker.actor = self._make_actor(worker, life)
        about = worker.name, worker.number

        def started(place: dict[str, Any]) -> None:
            self._reports.put(_Report(*about, place))

        def ended(reason: object) -> None:
            self._reports.put(_Report(*about, None, reason))

        when_done(worker.actor.place.remote(), started, ended)
        when_done(worker.actor.watch.remote(), ended, ended)

    def _make_actor(self, worker: _Worker, life: int) -> Any:
        options = actor_options(self._section, worker.kind)
        if self._group is not None:
            index = list(self._workers).index(worker.name)  # the order of the bundles
            options["scheduling_strategy"] = PlacementGroupSchedulingStrategy(self._group, index)
        section = EasyDict(self._system[worker.name])
        seed = later_seed(section.get("seed", 0), life)
        if "seed" in section:
            section.seed = seed
        folder = None if "working_dir" in self._section.runtime_env else os.getcwd()
        make = partial(_make_worker, worker.kind, section, seed, folder, self._is_quiet)
        return actor_class().options(name=actor_name(worker.name, worker.number), **options).remote(make)

    def kill(self, name: str) -> None:
        self._workers[name].kill()

    def _event(self, report: _Report) -> Started | Ended | None:
        worker = self._workers[report.worker]
        if report.number != worker.number:  # a report of an earlier actor
            return None
        if report.place is None:
            worker.kill()
            worker.number, worker.place = 0, None
            return Ended(worker.name, WorkerDied(worker.name, None, str(report.reason)))
        worker.place = report.place
        return Started(worker.name, worker.number, report.place["host"])

    def not_started(self, names: Sequence[str]) -> Exception:
        late = {name: bundle(self._section, self._workers[name].kind) for name in names}
        whole: Mapping[str, float] = ray.cluster_resources()  # type: ignore[no-untyped-call]
        resources = {key: amount for key, amount in whole.items() if ":" not in key}
        return TimeoutError(
            f"{', '.join(late)} could not be started within {self.start_s:g} s: wanted are {late}, "
            f"the cluster has {resources}; see system_config.ray.learner and .collector"
        )

    def pids(self) -> dict[str, int]:
        return {name: worker.place["pid"] for name, worker in self._workers.items() if worker.place is not None}

    def close(self) -> list[str]:
        self._opened.close()
        return self._late

    def _end_actors(self) -> None:
        """Close the workers, and kill those that do not end."""
        workers = self._workers.values()
        ends = {worker.name: [worker.actor.close.remote()] if worker.place else [] for worker in workers}

        def wait_for(names: Collection[str], timeout_s: float) -> bool:
            found = [end for name in names for end in ends[name]]
            return not found or not ray.wait(found, num_returns=len(found), timeout=timeout_s)[1]

        wait_while_saving(partial(wait_for, ends), CLOSE_S, self._system.learner0)
        self._late = [name for name in ends if not wait_for([name], 0)]
        for worker in workers:
            worker.kill()


def _make_worker(kind: str, section: Mapping[str, Any], seed: int, folder: str | None, is_quiet: bool) -> Any:
    """Make a worker in the process of its actor, and start it.

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
    worker = CREATE[kind](EasyDict(section))
    worker.start()
    return worker
