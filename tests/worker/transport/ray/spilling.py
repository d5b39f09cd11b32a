"""Pushes many frames through a small object store: `python -m tests.worker.transport.ray.spilling` prints what spilled.

A process of its own: Ray is given the folder for objects that do not fit into its object store.
"""

import json
import logging
import os
import sys
import tempfile
import time

import numpy as np
import ray

from ding.utils.data.samples import Column, Kind, Samples, Table
from ding.worker.collector.comm.collector_session import CollectorQueue, ShardSession
from ding.worker.collector.task_collector import SampleSender
from ding.worker.coordinator.buffer_set import ShardedBufferSet
from ding.worker.learner.comm.shard_source import ShardedReplay
from ding.worker.transport.ray.ray_transport import close_shard, find_shards, shard_opener
from ding.worker.transport.ray.shard import Split
from ding.worker.transport.stores import MemoryPolicyStore

STORE_BYTES = 80 * 2**20  # the least that Ray takes
COLLECTORS, CHUNKS, CHUNK = 8, 24, 64
PUSH_BYTES, DEADLINE_S = 16 * 2**20, 300.0


class Collector:
    """Pushes chunks of frames that do not compress, as fast as it can."""

    def push(self, where, number):
        queue = CollectorQueue(4096)
        session = ShardSession(find_shards(where), MemoryPolicyStore("none"), queue, PUSH_BYTES, DEADLINE_S)
        sender = SampleSender(f"env_{number}", session.send_stepdata, session.send_metadata, "lz4", CHUNK, 0.0)
        obs = np.random.default_rng(number).integers(0, 256, (CHUNK, 4, 84, 84), np.uint8)
        for _ in range(CHUNKS):
            sender.add(Samples(Table({"obs": Column(Kind.TENSOR, obs)})), env_id=0, collect_iter=0)
            sender.send({"cur_step": sender.sent, "cur_episode": 0})
        session.send_metadata({"collector_done": True, "cur_episode": 0, "cur_sample": sender.sent, "cur_step": 0})
        (report,), _ = queue.take(0)
        session.close()
        return report["pushed"]


class Spilled:
    """The files of spilled objects in a folder, also those that are deleted again."""

    def __init__(self, folder):
        self._folder, self.names = folder, set()

    def look(self):
        self.names.update(name for _, _, names in os.walk(self._folder) for name in names)
        return len(self.names)


def push_and_draw(folder, spilled):
    """Returns how many samples were pushed, and how many batches were drawn meanwhile."""
    buffers = ShardedBufferSet(folder, logging.getLogger("spilling"), 2, shard_opener("spilling"), close_shard)
    buffers.open("buffer", {"type": "advanced", "replay_buffer_size": 1024})
    where, batches = buffers.where("buffer"), 0
    replay = ShardedReplay(find_shards(where), Split(**where["split"]), DEADLINE_S)
    collectors = [ray.remote(num_cpus=0)(Collector).remote() for _ in range(COLLECTORS)]
    pushes = [collector.push.remote(where, number) for number, collector in enumerate(collectors)]
    while len(ray.wait(pushes, num_returns=len(pushes), timeout=0)[0]) < len(pushes):
        batches += len(replay.batches(8, 32, 0))
        spilled.look()
    pushed = sum(ray.get(pushes, timeout=DEADLINE_S))
    buffers.close()
    return pushed, batches


def spill_others(spilled):
    """Put twice as much as the store holds, and wait until Ray spills; returns the number of files.

    Before the samples: it shows that spilling is seen, and the processes that spill have started. Until they have,
    which takes long on a busy machine, Ray puts what does not fit into other files.
    """
    held, deadline = [ray.put(np.zeros(STORE_BYTES // 4, np.uint8)) for _ in range(8)], time.monotonic() + DEADLINE_S
    while not spilled.look() and time.monotonic() < deadline:
        time.sleep(0.1)  # nothing reports it
    del held
    return spilled.look()


def main():
    with tempfile.TemporaryDirectory(prefix="ding_spill_", ignore_cleanup_errors=True) as folder:
        os.environ.update(RAY_AUTH_MODE="disabled", RAY_USAGE_STATS_ENABLED="0", RAY_TMPDIR=folder)
        os.environ.update(RAY_worker_niceness="0")  # as in the cluster of a run: workers yield to no other process
        os.mkdir(f"{folder}/spilled")
        spilled = Spilled(f"{folder}/spilled")
        ray.init(
            "local",
            num_cpus=2,
            object_store_memory=STORE_BYTES,
            object_spilling_directory=f"{folder}/spilled",
            include_dashboard=False,
            log_to_driver=False,
            namespace="spilling",
        )
        seen = {"spilled_by_others": spill_others(spilled)}
        seen.update(zip(("pushed", "batches"), push_and_draw(folder, spilled), strict=True))
        seen["spilled_by_samples"] = spilled.look() - seen["spilled_by_others"]
        ray.shutdown()
    sys.stdout.write(json.dumps(seen) + "\n")


if __name__ == "__main__":
    sys.exit(main())
