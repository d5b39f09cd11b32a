"""Learners that do as they are told, an aggregator in front of them, and a coordinator's side to drive it."""

from __future__ import annotations

import queue
import threading
from typing import Any

from easydict import EasyDict

from ding.interaction import Slave
from ding.worker import LearnerAggregator
from ding.worker.transport.chunk import pack_batches, unpack_batches
from ding.worker.transport.http_transport import HttpConnector
from ding.worker.transport.local_transport import LocalConnector, LocalWorkerServer
from tests.worker.transport import sites
from tests.worker.transport.sites import DEADLINE_S


class _SlaveServer(Slave):
    def __init__(self, serve: Any) -> None:
        super().__init__("127.0.0.1", 0)
        self._serve = serve

    def _process_task(self, task: dict[str, Any]) -> Any:
        return self._serve(task)


class Learner:
    """Takes one batch at a time.

    Attributes:
        tasks: what it was asked.
        answers: name of a task -> what is answered instead; an exception is raised, a function called.
    """

    def __init__(self, name: str, kind: str = "local", batch_size: int = 2) -> None:
        self.name, self.batch_size = name, batch_size
        self.tasks: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        self.log: list[str] = []
        self.answers: dict[str, Any] = {}
        self.server: Any = LocalWorkerServer(self.serve) if kind == "local" else _SlaveServer(self.serve)
        self.server.start()

    @property
    def address(self) -> tuple[str, str, int]:
        return self.name, "127.0.0.1", self.server.port

    def serve(self, task: dict[str, Any]) -> Any:
        self.tasks.put(task)
        self.log.append(task["name"])
        answer = self.answers.get(task["name"], getattr(self, task["name"]))
        if isinstance(answer, BaseException):
            raise answer
        return answer(task) if callable(answer) else answer

    def expect(self, name: str) -> dict[str, Any]:
        """The next task of this name; others are passed over."""
        while (task := self.tasks.get(timeout=DEADLINE_S))["name"] != name:
            continue
        return task

    def resource(self, task: Any) -> dict[str, Any]:
        return {"gpu": 1}

    def learner_start_task(self, task: Any) -> dict[str, Any]:
        return {"message": "learner task has started"}

    def learner_get_data_task(self, task: Any) -> dict[str, Any]:
        return self._demand(1)

    def learner_learn_task(self, task: Any) -> dict[str, Any]:
        (batch,) = unpack_batches(task)
        priority_info = {"priority": [row["x"] for row in batch]}
        info = {"learner_step": 7, "priority_info": priority_info, "learner_done": False}
        return {**self._demand(0), "infos": [info], "batches_done": 1}

    def _demand(self, batch_num: int) -> dict[str, Any]:
        demand = {"batch_size": self.batch_size, "cur_learner_iter": 1, "batch_num": batch_num}
        return {**demand, "infos": [], "batches_done": 0, "task_id": "t", "buffer_id": "b"}

    def learner_close_task(self, task: Any) -> dict[str, Any]:
        return {"task_id": "t", "buffer_id": "b"}

    def close(self) -> None:
        self.server.close()


class BatchLearner(Learner):
    """Takes batches, and tells of as many of them as the test has put into `trained`.

    Attributes:
        room: how many batches it wants.
        batches: the samples of each batch that it was given.
        trained, read: so many more batches are trained, or read, at the next message.
        is_done: the next message brings its last info.
        ends_with: so many batches more are trained before it ends and tells so; None if it tells nothing.
    """

    def __init__(self, name: str, room: int = 8, **kwargs: Any) -> None:
        self.room, self.batches = room, []  # type: ignore[var-annotated]
        self.trained = self.read = self.step = 0
        self.is_done = self.has_ended = False
        self.ends_with: int | None = 0
        super().__init__(name, **kwargs)

    def resource(self, task: Any) -> dict[str, Any]:
        return {"gpu": 1}

    def learner_get_data_task(self, task: Any) -> dict[str, Any]:
        return {**self._demand(self.room), "cur_learner_iter": self.step, **self._told()}

    def learner_learn_task(self, task: Any) -> dict[str, Any]:
        batches = unpack_batches(task)
        self.batches += [[row["x"] for row in batch] for batch in batches]
        return {**self._demand(self.room - len(batches)), "cur_learner_iter": self.step, **self._told()}

    def learner_close_task(self, task: Any) -> dict[str, Any]:
        self.trained += self.ends_with or 0
        self.is_done = self.ends_with is not None and not self.has_ended
        return self._told()

    def _told(self) -> dict[str, Any]:
        infos = [
            {"learner_step": self.step + i, "priority_info": {"priority": [self.name]}, "learner_done": False}
            for i in range(self.trained)
        ]
        self.step += len(infos)
        if self.is_done:
            self.has_ended = True
            infos.append({"learner_step": self.step, "priority_info": {}, "learner_done": True})
        done, self.trained, self.read, self.is_done = self.read, 0, 0, False
        return {"infos": infos, "batches_done": done, "task_id": "t", "buffer_id": "b"}


class Stage:
    """Learners, an aggregator and a client to it, all over one kind of transport."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.connector: Any = LocalConnector() if kind == "local" else HttpConnector("127.0.0.1", 0)
        self.connector.start()
        self.learners: list[Learner] = []
        self.aggregators: list[LearnerAggregator] = []

    def learner(self, cls: type[Learner] = Learner, **kwargs: Any) -> Any:
        self.learners.append(cls(f"L{len(self.learners)}", kind=self.kind, **kwargs))
        return self.learners[-1]

    def make(self, *learners: Learner, **cfg: Any) -> LearnerAggregator:
        ends = {end: {"host": "127.0.0.1", "port": 0} for end in ("master", "slave")}
        own = {**ends, "transport": self.kind, "learner": {learner.name: learner.address for learner in learners}}
        self.aggregators.append(LearnerAggregator(EasyDict({**own, **cfg})))
        return self.aggregators[-1]

    def client(self, aggregator: LearnerAggregator) -> Any:
        client = self.connector.client(f"aggregator{len(self.aggregators)}", "127.0.0.1", aggregator.port)
        client.connect(DEADLINE_S)
        return client

    def pair(self, *learners: Learner, **cfg: Any) -> tuple[LearnerAggregator, Driver]:
        aggregator = self.make(*learners, **cfg)
        aggregator.start()
        return aggregator, Driver(self.client(aggregator))

    def join(self, aggregator: LearnerAggregator, learner: Learner) -> None:
        """Connect a learner to an aggregator that runs, as an operator does."""
        aggregator._group.join(*learner.address, DEADLINE_S)

    def leave(self, aggregator: LearnerAggregator, name: str) -> None:
        aggregator._group.leave(name)

    def close(self) -> None:
        for aggregator in self.aggregators:
            aggregator.close()
        self.connector.close()
        for learner in self.learners:
            learner.close()


class Driver(sites.Driver):
    """What a coordinator says to learners that count as one."""

    def start(self, **info: Any) -> dict[str, Any]:
        return self.run("learner_start_task", task_info={"task_id": "t", "buffer_id": "b", **info})

    def ask(self) -> dict[str, Any]:
        return self.run("learner_get_data_task")

    def learn(self, *batches: list[float]) -> dict[str, Any]:
        rows = [[{"x": x, "data_id": "chunk"} for x in batch] for batch in batches]
        return self.run("learner_learn_task", **pack_batches(rows))

    def close(self) -> dict[str, Any]:
        return self.run("learner_close_task")


def own_threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith(("aggregator", "period_sync"))]
