"""Comm learners at work, a policy that does what a task says, and a coordinator's side to drive them."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import torch
from easydict import EasyDict

from ding.utils.registry_factory import POLICY_REGISTRY
from ding.worker.learner import BaseLearner
from ding.worker.learner.comm import create_comm_learner
from ding.worker.transport.chunk import encode_chunk, pack_batches
from ding.worker.transport.transport import TaskFailed

DEADLINE_S = 20  # for what happens at once
GATES: dict[str, Gate] = {}
POLICIES: list[TaskPolicy] = []


class Gate:
    """Somebody waits here until another opens it."""

    def __init__(self) -> None:
        self.reached, self.opened = threading.Event(), threading.Event()

    def arrive_and_wait(self) -> None:
        self.reached.set()
        assert self.opened.wait(DEADLINE_S)


@POLICY_REGISTRY.register("scripted_learn")
class TaskPolicy:
    """Takes batches of two; its weights are the number of batches it has seen.

    `raise_at` and `wait_at` number a batch at which something happens, the latter at `GATES[cfg["gate"]]`; `results` is
    how many results each batch has; `with_priority` has it return priorities.
    """

    def __init__(self, cfg: Any, enable_field: list[str]) -> None:
        assert enable_field == ["learn"]
        self.cfg, self.batches, self.thread_names = cfg, [], set()
        self.seen_before = 0.0
        self.learn_mode = self
        POLICIES.append(self)

    def forward(self, data: Any) -> Any:
        number = len(self.batches)
        if number == self.cfg.get("wait_at"):
            GATES[self.cfg["gate"]].arrive_and_wait()
        if number == self.cfg.get("raise_at"):
            raise ZeroDivisionError("the policy was told to fail")
        self.batches.append(data)
        self.thread_names.add(threading.current_thread().name)
        results = [{"total_loss": float(number)} for _ in range(self.cfg.get("results", 1))]
        if self.cfg.get("with_priority"):
            results[-1]["priority"] = torch.tensor([number + 0.5, number + 0.25])
        return results

    def seen(self) -> list[list[float]]:
        """What was in each batch."""
        return [[item["obs"].item() for item in batch] for batch in self.batches]

    def monitor_vars(self) -> list[str]:
        return ["total_loss"]

    def info(self) -> str:
        return "scripted"

    def state_dict(self) -> dict[str, Any]:
        return {"model": {"seen": torch.tensor(self.seen_before + len(self.batches))}, "optimizer": {}}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.seen_before = state["model"]["seen"].item() - len(self.batches)

    def get_attribute(self, name: str) -> Any:
        return {"batch_size": 2, "device": "cpu"}[name]


def learner_cfg(**changes: Any) -> dict[str, Any]:
    hook = {"save_ckpt_after_run": True}
    cfg = {**BaseLearner.default_config(), "type": "base", "hook": hook, "exp_name": "exp", "log_policy": False}
    return {**cfg, **changes}


def task_info(task_id: str = "task", policy: dict[str, Any] | None = None, **changes: Any) -> dict[str, Any]:
    """A learner task as a commander makes it; `learner` in `changes` goes into the learner's config."""
    learner = learner_cfg(**changes.pop("learner", {}))
    ids = {"task_id": task_id, "policy_id": f"policy_{task_id}", "buffer_id": f"buffer_{task_id}"}
    return {**ids, "learner_cfg": learner, "policy": {"type": "scripted_learn", **(policy or {})}, **changes}


class Site:
    """Workers, and clients to them.

    Attributes:
        samples, policies: the stores that the workers use.
    """

    def __init__(self, kind: str, connector: Any, samples: Any, policies: Any) -> None:
        self.kind, self.connector, self.samples, self.policies = kind, connector, samples, policies
        self.workers: list[Any] = []
        self._chunks = 0

    def cfg(self, **changes: Any) -> EasyDict:
        paths = {"path_data": self.samples.root, "path_policy": self.policies.root}
        return EasyDict({"type": self.kind, "host": "127.0.0.1", "port": 0, "read_timeout_s": 0.1, **paths, **changes})

    def worker(self, **changes: Any) -> Any:
        worker = create_comm_learner(self.cfg(**changes))
        worker.start()
        self.workers.append(worker)
        return worker

    def client(self, worker: Any) -> Any:
        client = self.connector.client(f"learner{worker.port}", "127.0.0.1", worker.port)
        client.connect(DEADLINE_S)
        return client

    def pair(self, **changes: Any) -> tuple[Any, Driver]:
        worker = self.worker(**changes)
        return worker, Driver(self.client(worker))

    def batch(self, *values: float) -> list[dict[str, Any]]:
        """Buffer entries of samples with these observations, in a chunk of their own."""
        self._chunks += 1
        name = f"env_uid_{self._chunks}"
        self.samples.write(name, encode_chunk([{"obs": torch.tensor(value)} for value in values], "lz4"))
        return [entry(name, index) for index in range(len(values))]

    def close(self) -> None:
        for worker in self.workers:
            worker.close()
        self.connector.close()


def entry(name: str, index: int, **changes: Any) -> dict[str, Any]:
    ids = {"data_id": name, "data_index": index, "replay_buffer_idx": index, "replay_unique_id": f"{name}_{index}"}
    return {**ids, "compressor": "lz4", "IS": 1.0, **changes}


class Driver:
    """What a coordinator says over a client."""

    def __init__(self, client: Any) -> None:
        self.client = client

    def run(self, name: str, **content: Any) -> dict[str, Any]:
        reply: dict[str, Any] = self.client.run({"name": name, **content}, DEADLINE_S)
        return reply

    def start(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        return self.run("learner_start_task", task_info=task_info(*args, **kwargs))

    def demand(self) -> dict[str, Any]:
        return self.run("learner_get_data_task", batched=True)

    def learn(self, *batches: list[dict[str, Any]]) -> dict[str, Any]:
        return self.run("learner_learn_task", batched=True, **pack_batches(batches))

    def close(self) -> dict[str, Any]:
        return self.run("learner_close_task")

    def infos(self, count: int) -> tuple[list[dict[str, Any]], int]:
        """So many infos (or up to the last one), and the batches done with them."""
        infos, done = [], 0
        while len(infos) < count and not (infos and infos[-1]["learner_done"]):
            reply = self.demand()
            infos += reply["infos"]
            done += reply["batches_done"]
        return infos, done

    def failure(self, act: Any, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """The result of a task that fails."""
        with pytest.raises(TaskFailed) as failed:
            act(*args, **kwargs)
        return failed.value.result

    def coming_failure(self) -> dict[str, Any]:
        """The result of the first request for a demand that fails."""

        def ask() -> None:
            while True:
                self.demand()

        return self.failure(ask)
