"""Comm collectors at work, and a coordinator's side to drive them."""

from __future__ import annotations

from typing import Any

from ding.utils.data.plain_columns import from_plain
from ding.worker.collector import create_comm_collector
from ding.worker.learner.comm.chunk_source import ChunkReader
from tests.worker.collector.parallel_fakes import collector_cfg, weights
from tests.worker.collector.parallel_fakes import forget_fakes as forget_fakes
from tests.worker.transport import sites


class Driver(sites.Driver):
    """What a coordinator says to a collector."""

    def start(self, task_id: str = "task", **cfg: Any) -> dict[str, Any]:
        info = {"task_id": task_id, "buffer_id": "buffer", "collector_cfg": collector_cfg(**cfg)}
        return self.run("collector_start_task", task_info=info)

    def ask(self) -> dict[str, Any]:
        return self.run("collector_data_task")

    def close(self) -> dict[str, Any]:
        return self.run("collector_close_task")

    def all(self) -> tuple[list[Any], list[Any]]:
        """All rows and infos, until an info says the end."""
        rows, infos = [], []
        while not any(info["collector_done"] for info in infos):
            reply = self.ask()
            rows += from_plain(reply["samples"])
            infos += reply["infos"]
        return rows, infos


class Site(sites.Site):
    """Collectors, and clients to them."""

    create = staticmethod(create_comm_collector)
    driver = Driver

    def __init__(self, kind: str, folder: Any) -> None:
        super().__init__(kind, folder)
        self.reader = ChunkReader(self.samples)

    def write_weights(self, iteration: int = 0) -> None:
        self.policies.write("policy", weights(iteration))
