"""A Ray for the tests of a module, and workers of a simple make."""

import json
import os
import threading
from pathlib import Path

from ding.worker.transport.local_transport import LocalWorkerServer
from ding.worker.transport.ray.cluster import RayCluster
from ding.worker.transport.ray.ray_settings import ray_section
from ding.worker.transport.transport import WorkerLost

PATIENCE_S = 120.0


def started(**section):
    """A small Ray of the tests' own, started."""
    cluster = RayCluster(ray_section({"object_store_memory": 150 * 2**20, **section}), num_cpus=8)
    cluster.start()
    return cluster


class Echo:
    """A worker that answers a task with what it says, or does as it says."""

    def __init__(self, folder):
        self._folder = Path(folder)
        self._server = LocalWorkerServer(self._serve)
        self._go_on = threading.Event()
        self._server.start()

    @property
    def port(self):
        return self._server.port

    def _serve(self, task):
        if task["name"] == "fail":
            raise ZeroDivisionError("as it was told")
        if task["name"] == "lose":
            raise WorkerLost("another rank has gone")
        if task["name"] == "hang":
            (self._folder / "hangs").write_text("")
            self._go_on.wait()
        if task["name"] == "die":
            os._exit(3)
        return {"said": task.get("say")}

    def deal_with_lost_coordinator(self):
        (self._folder / "lost").write_text("")

    def close(self):
        (self._folder / "closed").write_text(json.dumps("closed"))
        self._go_on.set()
        self._server.close()
