"""A Ray for the tests of a module, and workers of a simple make."""

import json
from pathlib import Path

from ding.worker.transport.local_transport import LocalWorkerServer
from ding.worker.transport.ray.cluster import RayCluster
from ding.worker.transport.ray.ray_settings import ray_section
from tests.worker.transport.client_contract import Worker

PATIENCE_S = 120.0


def started(**section):
    """A small Ray of the tests' own, started."""
    cluster = RayCluster(ray_section({"object_store_memory": 150 * 2**20, **section}), num_cpus=8)
    cluster.start()
    return cluster


class Echo(Worker):
    """A `Worker` for an actor; a file tells that it hangs."""

    def __init__(self, folder):
        super().__init__()
        self._folder = Path(folder)
        self._server = LocalWorkerServer(self.serve)
        self._server.start()

    @property
    def port(self):
        return self._server.port

    def do_hang(self, task):
        (self._folder / "hangs").write_text("")
        self.go.wait()

    def deal_with_lost_coordinator(self):
        (self._folder / "lost").write_text("")

    def close(self):
        (self._folder / "closed").write_text(json.dumps("closed"))
        self.go.set()
        self._server.close()
