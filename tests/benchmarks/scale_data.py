"""Samples of many workers: what a transport carries, and whether many collectors slow down the learner.

The workers are those of the package, with collectors that make samples without an env, and a learner whose policy does
nothing. The coordinator's side runs in this process: the messages of its tasks, and its replay buffers.

`push`: samples a second from 8 collectors in 2 processes that send as fast as they can, and the processor time of all
processes for a sample. Every collector sends the same chunks of `--chunk` samples, with the same compressor. Over HTTP
a chunk is encoded once and becomes a file, in memory (/dev/shm) if possible, so that no disk is measured; its samples
are not decoded here, for a learner decodes only those it draws. Over Ray an actor holds the samples, and gets all
chunks of a message in one call.
`learn`: batches of 32 a second that a learner gets, which waits 3 ms for each as for a GPU, while 50 collectors send 5
chunks a second each, against 2 of them.

Transports and numbers of collectors are measured in turn, several times. The best rates of `push` count, and the
medians of `learn`.

`python -m tests.benchmarks.scale_data [push|learn] [--transport flask_fs local ray] [--chunk 64] [--frames]`
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import logging
import multiprocessing
import os
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

import numpy as np
import psutil
import torch
from easydict import EasyDict

from ding.utils.data.samples import Column, Kind, Samples, Table
from ding.utils.registry_factory import (
    PARALLEL_COLLECTOR_REGISTRY,
    POLICY_REGISTRY,
    TRANSPORT_REGISTRY,
)
from ding.worker.collector.comm.base_comm_collector import create_comm_collector
from ding.worker.collector.task_collector import SampleSender
from ding.worker.coordinator.buffer_set import BufferSet
from ding.worker.coordinator.comm_coordinator import TaskRun
from ding.worker.coordinator.worker_table import Worker
from ding.worker.learner.base_learner import BaseLearner
from ding.worker.learner.comm.base_comm_learner import create_comm_learner
from ding.worker.transport.local_transport import LocalTransport
from ding.worker.transport.transport import COLLECTOR, LEARNER, connect, get_transport
from tests.benchmarks.harness import Report
from tests.worker.learner.fakes import FakePolicy

BATCH, THINK_S = 32, 0.003
PUSHERS, MANY, FEW, RATE = 8, 50, 2, 5.0
ROUNDS, WARM_S, MEASURE_S = 3, 2.0, 4.0
CAPACITY, CAPACITY_OF_FRAMES = 100_000, 1000
MEMORY = "/dev/shm"
GOALS = {"push": 1.0, "learn": {"flask_fs": 0.8, "local": 0.8, "ray": 0.95}}


def samples(size: int, frames: bool) -> Samples:
    """A chunk of transitions as of CartPole, or of stacked frames."""
    rng = np.random.default_rng(0)
    obs = rng.normal(size=(size + 1, 4)).astype(np.float32)
    if frames:
        obs = rng.integers(0, 256, (size + 1, 4, 84, 84), np.uint8)
    return Samples(
        Table(
            {
                "obs": Column(Kind.TENSOR, obs[:-1]),
                "next_obs": Column(Kind.TENSOR, obs[1:]),
                "action": Column(Kind.TENSOR, np.zeros(size, np.int64)),
                "reward": Column(Kind.TENSOR, np.ones((size, 1), np.float32)),
                "done": Column(Kind.BOOL, np.zeros(size, np.bool_)),
            }
        )
    )


@PARALLEL_COLLECTOR_REGISTRY.register("stub")
class StubCollector:
    """Sends the same chunk `rate` times a second; 0 for as often as it can."""

    silence_s = 0.0
    get_policy_update_info: Any
    send_stepdata: Any
    send_metadata: Any

    def __init__(self, cfg: EasyDict) -> None:
        self._cfg, self._stopping = cfg, threading.Event()

    def start(self) -> None:
        cfg, rate = self._cfg, self._cfg.rate
        chunk = samples(cfg.chunk, cfg.frames)
        sender = SampleSender(cfg.prefix, self.send_stepdata, self.send_metadata, "lz4", cfg.chunk, 0.0)
        begin, count = time.monotonic(), 0
        while not self._stopping.is_set():
            sender.add(chunk, 0, 0)
            sender.send({"cur_step": sender.sent, "cur_episode": 0})
            count += 1
            if rate:
                self._stopping.wait(max(0.0, begin + count / rate - time.monotonic()))

    def progress(self) -> dict[str, Any]:
        return {}

    def get_finish_info(self) -> dict[str, Any]:
        return {}

    def close(self) -> None:
        self._stopping.set()


@POLICY_REGISTRY.register("stub_learn")
class StubPolicy(FakePolicy):
    """Accepts batches."""

    def __init__(self, cfg: Any, enable_field: list[str]) -> None:
        super().__init__(names=("total_loss",))
        self.learn_mode, self.state = self, {"model": {"weight": torch.zeros(1)}}
        self.attributes["batch_size"] = BATCH

    def forward(self, data: Any, **kwargs: Any) -> dict[str, float]:
        time.sleep(THINK_S)
        return {"total_loss": 0.0}


class CountedBuffers(BufferSet):
    """Counts the batches that learners have read."""

    batches = 0

    def trained(self, task_id: str, count: int) -> None:
        super().trained(task_id, count)
        self.batches += count


class Side:
    """Receives the messages of tasks: the coordinator's replay buffers, and counters."""

    normalization: dict[str, Any] = {}

    def __init__(self, buffers: CountedBuffers) -> None:
        self.buffers = buffers
        self.samples = self.messages = 0
        self._lock = threading.Lock()

    def _count(self, **counts: int) -> None:
        with self._lock:
            self.messages += 1
            for name, count in counts.items():
                setattr(self, name, getattr(self, name) + count)

    @property
    def batches(self) -> int:
        return self.buffers.batches

    def deal_with_collector_send_data(self, task_id: str, buffer_id: str, data_id: str, data: Any) -> None:
        self._count(samples=self.buffers.push(buffer_id, data))

    def deal_with_collector_progress(self, task_id: str, progress: Any) -> None:
        """Nothing to count."""

    def is_collector_task_useless(self, task_id: str) -> bool:
        return False

    def deal_with_learner_get_data(self, task_id: str, buffer_id: str, batch_size: int, cur_learner_iter: int) -> Any:
        return self.buffers.sample(task_id, buffer_id, batch_size, cur_learner_iter)

    def deal_with_learner_send_info(self, task_id: str, buffer_id: str, info: Any) -> None:
        """Nothing to count."""

    def deal_with_learner_judge_finish(self, task_id: str, info: Any) -> bool:
        return False


# ---- workers by transport


def make_worker(kind: str, transport: str, folder: str, index: int) -> Any:
    cfg = EasyDict(type=transport, host="127.0.0.1", port=0, path_data=f"{folder}/data", path_policy=f"{folder}/policy")
    worker = create_comm_collector(cfg) if kind == COLLECTOR else create_comm_learner(cfg)
    worker.start()
    return worker


def serve_processes(connection: Connection, kind: str, transport: str, folder: str, count: int) -> None:
    """Workers in a process of their own, until the connection ends."""
    torch.set_num_threads(1)
    os.chdir(folder)
    workers = [make_worker(kind, transport, folder, index) for index in range(count)]
    connection.send([worker.port for worker in workers])
    with contextlib.suppress(EOFError):
        connection.recv()
    os._exit(0)


@contextlib.contextmanager
def clients_over_network(kind: str, transport: str, folder: str, counts: list[int]) -> Iterator[list[Any]]:
    """Links to workers in as many processes as there are `counts`."""
    connector = get_transport(transport).connector({"host": "127.0.0.1", "port": 0})
    connector.start()
    context = multiprocessing.get_context("spawn")
    connections, ports = [], []
    for count in counts:
        ours, theirs = context.Pipe()
        process = context.Process(target=serve_processes, args=(theirs, kind, transport, folder, count), daemon=True)
        process.start()
        theirs.close()
        connections.append(ours)
    for connection in connections:
        ports += connection.recv()
    try:
        with ThreadPoolExecutor(16) as pool:
            yield list(pool.map(lambda port: connect(connector, f"{kind}{port}", "127.0.0.1", port, 60.0)[0], ports))
    finally:
        connector.close()
        for connection in connections:
            connection.close()


@contextlib.contextmanager
def clients_in_process(kind: str, transport: str, folder: str, counts: list[int]) -> Iterator[list[Any]]:
    connector = get_transport(transport).connector({})
    workers = [make_worker(kind, transport, folder, index) for index in range(sum(counts))]
    try:
        yield [connect(connector, f"{kind}{worker.port}", "", worker.port, 60.0)[0] for worker in workers]
    finally:
        connector.close()
        for worker in workers:
            worker.close()


class ActorLink:
    """The part of a client to a worker in an actor that tasks need."""

    def __init__(self, host: Any, index: int) -> None:
        self._host, self._index = host, index

    def run(self, task: Any, timeout_s: float) -> Any:
        import ray

        return ray.get(self._host.serve.remote(self._index, dict(task)), timeout=timeout_s)


class Host:
    """Workers in an actor."""

    def __init__(self, kind: str, folder: str, count: int) -> None:
        import tests.benchmarks.scale_data  # noqa: F401  # it registers the workers; here, this class is all there is

        torch.set_num_threads(1)
        os.chdir(folder)
        self._workers = [make_worker(kind, "bench_ray", folder, index) for index in range(count)]

    def serve(self, index: int, task: dict[str, Any]) -> Any:
        return self._workers[index].serve(task)


@contextlib.contextmanager
def clients_of_actors(kind: str, transport: str, folder: str, counts: list[int]) -> Iterator[list[Any]]:
    import ray

    actor = ray.remote(Host)
    hosts = [
        actor.options(num_cpus=0, max_concurrency=count + 2).remote(kind, folder, count)
        for count in counts
    ]  # fmt: skip
    try:
        yield [ActorLink(host, index) for host, count in zip(hosts, counts, strict=True) for index in range(count)]
    finally:
        for host in hosts:
            ray.kill(host)


@TRANSPORT_REGISTRY.register("bench_ray")
class ActorTransport(LocalTransport):
    """Actors keep the samples; tasks come by calls of this process."""

    name = "bench_ray"

    def sample_store(self, root: str) -> Any:
        from ding.worker.transport.ray.stores import RaySampleStore

        return RaySampleStore(root)


CLIENTS: dict[str, Callable[..., Any]] = {
    "flask_fs": clients_over_network,
    "local": clients_in_process,
    "bench_ray": clients_of_actors,
}


# ---- what is measured


class Rate(NamedTuple):
    """How fast a counter grows.

    Attributes:
        cpu_us: processor time of all processes for each count.
        cores: which processes have kept how many cores busy.
    """

    per_second: float
    cpu_us: float
    cores: str


class Run:
    """A coordinator's side with collectors, and perhaps a learner."""

    def __init__(self, transport: str, capacity: int = CAPACITY) -> None:
        self.transport = {"ray": "bench_ray"}.get(transport, transport)
        self._capacity = capacity
        self._opened = contextlib.ExitStack()
        self._ending = threading.Event()
        self._threads: list[threading.Thread] = []

    def __enter__(self) -> Run:
        opened = self._opened
        place = MEMORY if os.path.isdir(MEMORY) else None
        self._folder = opened.enter_context(tempfile.TemporaryDirectory(dir=place, ignore_cleanup_errors=True))
        opened.callback(os.chdir, os.getcwd())
        os.chdir(self._folder)
        root = f"{self._folder}/data"
        if self.transport == "bench_ray":
            from ding.worker.transport.ray.stores import start_sample_server

            self._server = start_sample_server(root, {})
        buffers = CountedBuffers("exp", get_transport(self.transport).sample_store(root), logging.getLogger("bench"))
        opened.callback(buffers.close)
        buffers.open("buffer", {"type": "advanced", "replay_buffer_size": self._capacity})
        self.side = Side(buffers)
        return self

    def add(self, kind: str, counts: list[int], task: Callable[[int], dict[str, Any]]) -> None:
        """Start workers in as many processes as there are `counts`, each with its task."""
        clients = self._opened.enter_context(CLIENTS[self.transport](kind, self.transport, self._folder, counts))
        for number, client in enumerate(clients):
            info = {"task_id": f"{kind}{number}", "buffer_id": "buffer", **task(number)}
            worker = Worker(kind, f"{kind}{number}", client, {})
            run: Any = TaskRun(worker, info, self.side, 60.0, self._ending.is_set)
            run.start()
            self._threads.append(threading.Thread(target=run.run, daemon=True))
            self._threads[-1].start()

    def rate(self, name: str) -> Rate:
        """How fast a counter of the side grows."""
        time.sleep(WARM_S)
        begin, count, busy = time.monotonic(), getattr(self.side, name), processor_s()
        time.sleep(MEASURE_S)
        took, gained = time.monotonic() - begin, getattr(self.side, name) - count
        cores: dict[str, float] = {}
        for pid, (what, now) in processor_s().items():
            cores[what] = cores.get(what, 0.0) + (now - busy.get(pid, (what, 0.0))[1]) / took
        line = ", ".join(f"{what} {share:.2f}" for what, share in cores.items() if share >= 0.01)
        return Rate(gained / took, 1e6 * sum(cores.values()) * took / max(1, gained), line)

    def __exit__(self, *args: Any) -> None:
        self._ending.set()
        for thread in self._threads:
            thread.join(5.0)
        self._opened.close()


def processor_s() -> dict[int, tuple[str, float]]:
    """Processor time so far of this process and all that it has started, by id, with their names."""
    own = psutil.Process()
    used = {own.pid: ("coordinator", sum(own.cpu_times()[:2]))}
    for process in own.children(recursive=True):
        with contextlib.suppress(psutil.Error):
            # Ray adds the method that runs to the name of an actor.
            used[process.pid] = process.name().partition(".")[0], sum(process.cpu_times()[:2])
    return used


def collector_task(rate: float, chunk: int, frames: bool) -> Callable[[int], dict[str, Any]]:
    cfg = {"type": "stub", "rate": rate, "eval_flag": False, "chunk": chunk, "frames": frames}
    return lambda number: {"collector_cfg": {**cfg, "prefix": f"env_{number}"}}


def learner_task(number: int) -> dict[str, Any]:
    hook = {"log_show_after_iter": 10**9, "save_ckpt_after_iter": 10**9, "save_ckpt_after_run": False}
    cfg = {**BaseLearner.default_config(), "type": "base", "hook": hook, "exp_name": "exp", "log_policy": False}
    cfg["train_iterations"] = 10**9
    return {"policy_id": "policy", "learner_cfg": cfg, "policy": {"type": "stub_learn"}}


def measure_push(transport: str, chunk: int, frames: bool) -> Rate:
    with Run(transport, CAPACITY_OF_FRAMES if frames else CAPACITY) as run:
        run.add(COLLECTOR, [PUSHERS // 2, PUSHERS // 2], collector_task(0.0, chunk, frames))
        rate = run.rate("samples")
        line = f"# push, {transport}: {rate.per_second:.0f} samples/s, {rate.cpu_us:.2f} CPU seconds for 1e6 samples"
        print(f"{line}; busy cores: {rate.cores}", flush=True)
        return rate


def measure_learn(transport: str, collectors: int, chunk: int, frames: bool) -> Rate:
    with Run(transport, CAPACITY_OF_FRAMES if frames else CAPACITY) as run:
        run.add(COLLECTOR, [collectors], collector_task(RATE, chunk, frames))
        run.add(LEARNER, [1], learner_task)
        rate = run.rate("batches")
        line = f"# learn, {transport}, {collectors} collectors: {rate.per_second:.0f} batches/s"
        print(f"{line}; {run.side.messages} messages; busy cores: {rate.cores}", flush=True)
        return rate


def report_push(report: Report, rates: dict[str, list[Rate]]) -> None:
    best = {name: max(rate.per_second for rate in rounds) for name, rounds in rates.items()}
    least = {name: min(rate.cpu_us for rate in rounds) for name, rounds in rates.items()}
    for name in rates:
        if name == "flask_fs":
            continue
        goal = GOALS["push"] if name == "ray" else 1.0
        what, peer = f"samples of {PUSHERS} collectors, {name}", "flask_fs"
        report.line(what, "samples/s", best[name], peer, best.get(peer), at_least=goal)
        what = f"processor time of a sample, {name}"
        report.line(what, "us", least[name], peer, least.get(peer), at_most=round(1 / goal, 3))


@contextlib.contextmanager
def cluster(transports: list[str]) -> Iterator[None]:
    if "ray" not in transports:
        yield
        return
    from ding.worker.transport.ray.cluster import RayCluster
    from ding.worker.transport.ray.ray_settings import ray_section

    own = RayCluster(ray_section({"address": "local", "object_store_memory": 200 * 2**20}), num_cpus=8)
    own.start()
    try:
        yield
    finally:
        own.close()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", nargs="?", choices=["push", "learn"], help="both by default")
    parser.add_argument("--transport", nargs="+", choices=["flask_fs", "local", "ray"], default=["flask_fs", "ray"])
    parser.add_argument("--chunk", type=int, default=64, help="samples of a chunk")
    parser.add_argument("--frames", action="store_true", help="observations of 84 x 84 x 4 bytes in place of 4 numbers")
    args = parser.parse_args()
    what, sizes = (args.what,) if args.what else ("push", "learn"), (args.chunk, args.frames)
    report = Report()
    with cluster(args.transport):
        if "push" in what:
            rates: dict[str, list[Rate]] = {transport: [] for transport in args.transport}
            for _, transport in itertools.product(range(ROUNDS), args.transport):
                rates[transport].append(measure_push(transport, *sizes))
            report_push(report, rates)
        for transport in args.transport if "learn" in what else ():
            pairs = [[measure_learn(transport, count, *sizes) for count in (FEW, MANY)] for _ in range(ROUNDS)]
            few, many = (statistics.median(rate.per_second for rate in rates) for rates in zip(*pairs, strict=True))
            name, goal = f"batches of a learner with {MANY} collectors, {transport}", GOALS["learn"][transport]
            report.line(name, "batches/s", many, f"{FEW} collectors", few, at_least=goal)
    return report.exit_status()


if __name__ == "__main__":
    sys.exit(main())
