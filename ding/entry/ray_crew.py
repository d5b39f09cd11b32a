"""The workers of a parallel training on Ray: each is an actor."""

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

from ding.config.utils import workers_of
from ding.entry.crew import COLLECTOR_NICE
from ding.entry.dist_roles import be_worker
from ding.entry.worker_process import CLOSE_S, WorkerDied, later_seed, quiet_flask
from ding.worker.collector.comm.base_comm_collector import create_comm_collector
from ding.worker.coordinator.coordinator import Coordinator
from ding.worker.coordinator.worker_table import RestartLimit
from ding.worker.learner.comm.base_comm_learner import create_comm_learner
from ding.worker.transport.link import WorkerLetGo
from ding.worker.transport.ray.cluster import RayCluster
from ding.worker.transport.ray.config import actor_options, bundle
from ding.worker.transport.ray.weights import start_server
from ding.worker.transport.ray.worker import actor_class, actor_name, when_done

_CREATE: dict[str, Callable[[EasyDict], Any]] = {"learner": create_comm_learner, "collector": create_comm_collector}
# Actors are told apart by the number of their life, over all runs of this process.
_lives = itertools.count(1)
_JOIN_S = 5.0


class _Worker:
    """One worker, in all its lives.

    Attributes:
        life: the number of the actor that it is now.
        lives: how many actors it has been before.
        place: where that runs; None until it has started.
    """

    def __init__(self, kind: str, name: str, make: Callable[[_Worker], Any]) -> None:
        self.kind, self.name, self.make = kind, name, make
        self.life = self.lives = 0
        self.actor: Any = None
        self.place: dict[str, Any] | None = None

    def start(self) -> None:
        """Be a new actor."""
        self.lives += self.life > 0
        self.life, self.place = next(_lives), None
        self.actor = self.make(self)


class RayCrew:
    """Workers in actors of Ray; see `Crew`.

    Args:
        system: the compiled system config.
        is_quiet: whether their servers log errors only.
    """

    def __init__(self, system: EasyDict, is_quiet: bool = True) -> None:
        self._system, self._section, self._is_quiet = system, system.ray, is_quiet
        self._workers = {
            name: _Worker(kind, name, self._make_actor) for kind in _CREATE for name in workers_of(system, kind)
        }
        self._bundles = [bundle(self._section, worker.kind) for worker in self._workers.values()]
        self._cluster = RayCluster(self._section, math.ceil(sum(wanted.get("CPU", 0) for wanted in self._bundles)))
        self._opened = contextlib.ExitStack()
        self._group: Any = None
        self._weights: Any = None
        self._supervisor: RaySupervisor | None = None

    def start(self) -> None:
        with self._opened:
            self._opened.callback(self._cluster.close)
            self._cluster.start()
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

    def _make_actor(self, worker: _Worker) -> Any:
        options = actor_options(self._section, worker.kind)
        if self._group is not None:
            index = list(self._workers).index(worker.name)
            options["scheduling_strategy"] = PlacementGroupSchedulingStrategy(self._group, index)
        section = EasyDict(self._system[worker.name])
        if worker.kind == "collector":
            section.setdefault("nice", COLLECTOR_NICE)
        seed = later_seed(section.get("seed", 0), worker.lives)
        if "seed" in section:
            section.seed = seed
        folder = None if "working_dir" in self._section.runtime_env else os.getcwd()
        make = partial(_make_worker, worker.kind, section, seed, folder, self._is_quiet)
        return actor_class().options(name=actor_name(worker.name, worker.life), **options).remote(make)

    def _wait_until_up(self, deadline: float) -> None:
        for worker in self._workers.values():
            try:
                place = ray.get(worker.actor.place.remote(), timeout=max(0.0, deadline - monotonic()))
            except TimeoutError as e:
                raise _lack(self._workers.values(), self._section) from e
            except RayError as e:
                raise WorkerDied(worker.name, None, str(e)) from e
            self._take_place(worker, place)

    def _take_place(self, worker: _Worker, place: dict[str, Any]) -> None:
        worker.place = place
        self._system[worker.name].update(host=place["host"], port=worker.life)
        self._system.coordinator[worker.kind][worker.name] = [worker.name, place["host"], worker.life]

    def pids(self) -> dict[str, int]:
        """The process ids of the workers that run, each on its node."""
        return {worker.name: worker.place["pid"] for worker in self._workers.values() if worker.place is not None}

    def supervise(self, coordinator: Coordinator) -> None:
        own = {**Coordinator.config, **self._system.coordinator}
        limit = RestartLimit(own["max_restarts"], own["restart_window_s"])
        self._supervisor = RaySupervisor(self._workers, self._section, coordinator, limit)
        coordinator.worker_keeper = self._supervisor
        self._supervisor.start()

    def close(self) -> None:
        if self._supervisor is not None:
            self._supervisor.close()
        self._opened.close()

    def _end_actors(self) -> None:
        """Let the workers end by themselves, for a while."""
        actors = [worker.actor for worker in self._workers.values() if worker.actor is not None]
        ends = [worker.actor.close.remote() for worker in self._workers.values() if worker.place is not None]
        if ends:
            ray.wait(ends, num_returns=len(ends), timeout=CLOSE_S)
        for actor in [*actors, self._weights]:
            if actor is not None:
                ray.kill(actor)
        if self._group is not None:
            remove_placement_group(self._group)


class RaySupervisor:
    """Starts a worker again whose actor has died; see `WorkerKeeper`.

    Args:
        workers: by name; they have started.
        section: `ray` of the system config. Where no worker of a kind has started for its `start_timeout_s`, the run
            ends; else those that have not are waited for, as long as it takes the cluster to have room for them.
        run: is told of those that go and come back.
        limit: one that dies more often than it allows ends the run.
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
        """How often each worker was started again."""
        return +Counter({worker.name: worker.lives for worker in self._workers.values()})

    def start(self) -> None:
        """Begin to watch."""
        self._thread.start()
        for worker in self._workers.values():
            self._watch(worker)

    def _watch(self, worker: _Worker) -> None:
        tell = partial(self._tell_loss, worker, worker.life)
        when_done(worker.actor.watch.remote(), tell, tell)

    def _tell_loss(self, worker: _Worker, life: int, reason: object) -> None:
        self._lost.put((worker, life, reason))

    def lost(self, kind: str, name: str, error: Exception) -> bool:
        """The coordinator has lost a worker. True: it will be started again, or its death will end the run.

        One that hangs is killed. An actor that is starting is the next life of the worker that was lost.
        """
        with self._lock:
            worker = self._workers.get(name)
            if worker is None or self._is_closed:
                return False
            if worker.place is not None and not isinstance(error, WorkerLetGo):
                ray.kill(worker.actor)
            return True

    def _supervise(self) -> None:
        try:
            while True:
                timeout_s = max(0.0, min(self._due.values()) - monotonic()) if self._due else None
                try:
                    news = self._lost.get(timeout=timeout_s)
                except queue.Empty:
                    self._deal_with_late()
                    continue
                if news is None:
                    return
                worker, life, reason = news
                if life == worker.life:
                    self._replace(worker, WorkerDied(worker.name, None, str(reason)))
        except Exception as e:
            self._run.deal_with_error(e)

    def _deal_with_late(self) -> None:
        late = [self._workers[name] for name, due in self._due.items() if due <= monotonic()]
        for worker in late:
            del self._due[worker.name]
            if not any(other.place is not None for other in self._workers.values() if other.kind == worker.kind):
                self._run.deal_with_error(_lack(self._workers.values(), self._section))

    def _replace(self, worker: _Worker, error: WorkerDied) -> None:
        with self._lock:
            if self._is_closed:
                return
            goes_on = self._limit.take(worker.name)
            if goes_on:
                worker.start()
        if not goes_on:
            self._run.deal_with_error(error)
        self._run.deal_with_worker_gone(worker.kind, worker.name, error)
        if goes_on:
            life, self._due[worker.name] = worker.life, monotonic() + self._section["start_timeout_s"]
            back, lost = partial(self._come_back, worker, life), partial(self._tell_loss, worker, life)
            when_done(worker.actor.place.remote(), back, lost)

    def _come_back(self, worker: _Worker, life: int, place: dict[str, Any]) -> None:
        with self._lock:
            if self._is_closed or life != worker.life:
                return
            worker.place = place
        self._watch(worker)
        address = worker.kind, worker.name, place["host"], life
        joining = partial(self._run.deal_with_worker_back, *address)
        threading.Thread(target=joining, name=f"join_{worker.name}", daemon=True).start()

    def close(self) -> None:
        """Bring nobody back any more. Idempotent."""
        with self._lock:
            self._is_closed = True
        self._lost.put(None)
        if self._thread is not threading.current_thread():
            self._thread.join(_JOIN_S)


def _lack(workers: Iterable[_Worker], section: Mapping[str, Any]) -> TimeoutError:
    """Says what the workers that have not started want, and what there is."""
    late = {worker.name: bundle(section, worker.kind) for worker in workers if worker.place is None}
    whole: Mapping[str, float] = ray.cluster_resources()  # type: ignore[no-untyped-call]
    resources = {key: amount for key, amount in whole.items() if ":" not in key}
    return TimeoutError(
        f"{', '.join(late)} could not be started within {section['start_timeout_s']:g} s: wanted are {late}, "
        f"the cluster has {resources}; see system_config.ray.learner and .collector"
    )


def _make_worker(kind: str, section: Mapping[str, Any], seed: int, folder: str | None, is_quiet: bool) -> Any:
    """In the actor's process: make the worker and start it.

    Args:
        folder: where the driver runs; here, too, if that is possible, so that the experiment's folder lies there.
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
