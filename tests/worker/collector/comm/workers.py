"""Comm collectors at work, and a coordinator's side to drive them."""

from __future__ import annotations

from typing import Any

import pytest
from easydict import EasyDict

from ding.worker.collector import create_comm_collector
from ding.worker.learner.comm.chunk_source import ChunkReader
from ding.worker.transport.chunk import from_text
from ding.worker.transport.transport import TaskFailed
from tests.worker.collector.parallel_fakes import DEADLINE_S, collector_cfg, weights


class Site:
    """Workers, and clients to them.

    Attributes:
        samples, policies: the stores that the workers use.
    """

    def __init__(self, kind: str, connector: Any, samples: Any, policies: Any) -> None:
        self.kind, self.connector, self.samples, self.policies = kind, connector, samples, policies
        self.workers: list[Any] = []
        self.reader = ChunkReader(samples)

    def cfg(self, **changes: Any) -> EasyDict:
        paths = {"path_data": self.samples.root, "path_policy": self.policies.root}
        return EasyDict({"type": self.kind, "host": "127.0.0.1", "port": 0, **paths, **changes})

    def worker(self, **changes: Any) -> Any:
        worker = create_comm_collector(self.cfg(**changes))
        worker.start()
        self.workers.append(worker)
        return worker

    def client(self, worker: Any, name: str = "collector0") -> Any:
        client = self.connector.client(name, "127.0.0.1", worker.port)
        client.connect(DEADLINE_S)
        return client

    def pair(self, **changes: Any) -> tuple[Any, Driver]:
        worker = self.worker(**changes)
        return worker, Driver(self.client(worker))

    def close(self) -> None:
        self.connector.close()
        for worker in self.workers:
            worker.close()

    def write_weights(self, iteration: int = 0) -> None:
        self.policies.write("policy", weights(iteration))


class Driver:
    """What a coordinator says over a client."""

    def __init__(self, client: Any) -> None:
        self.client = client

    def run(self, name: str, **content: Any) -> dict[str, Any]:
        reply: dict[str, Any] = self.client.run({"name": name, **content}, DEADLINE_S)
        return reply

    def start(self, task_id: str = "task", **cfg: Any) -> dict[str, Any]:
        info = {"task_id": task_id, "buffer_id": "buffer", "collector_cfg": collector_cfg(**cfg)}
        return self.run("collector_start_task", task_info=info)

    def data(self) -> dict[str, Any]:
        return self.run("collector_data_task", batched=True)

    def one(self) -> dict[str, Any]:
        return self.run("collector_data_task")

    def close(self) -> dict[str, Any]:
        return self.run("collector_close_task")

    def all(self) -> tuple[list[Any], list[Any]]:
        """All rows and infos, until an info says the end."""
        rows, infos = [], []
        while not any(info["collector_done"] for info in infos):
            reply = self.data()
            rows += from_text(reply["samples"])
            infos += reply["infos"]
        return rows, infos

    def failure(self, act: Any, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """The result of a task that fails."""
        with pytest.raises(TaskFailed) as failed:
            act(*args, **kwargs)
        return failed.value.result
