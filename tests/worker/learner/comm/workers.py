"""Comm learners at work, a policy that does what a task says, and a coordinator's side to drive them."""

from __future__ import annotations

import threading
from typing import Any

import torch

from ding.utils.registry_factory import POLICY_REGISTRY
from ding.worker.learner import BaseLearner
from ding.worker.learner.comm import create_comm_learner
from ding.worker.transport.chunk import encode_chunk, pack_batches
from tests.worker.collector.parallel_fakes import Gate, join_threads
from tests.worker.transport import sites

GATES: dict[str, Gate] = {}
POLICIES: list[TaskPolicy] = []


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


def entry(name: str, index: int, **changes: Any) -> dict[str, Any]:
    ids = {"data_id": name, "data_index": index, "replay_buffer_idx": index, "replay_unique_id": f"{name}_{index}"}
    return {**ids, "compressor": "lz4", "IS": 1.0, **changes}


class Driver(sites.Driver):
    """What a coordinator says to a learner."""

    # What replies to `learn` have told since the last `infos`.
    told: tuple[list[dict[str, Any]], int] = ([], 0)

    def start(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        self.told = [], 0
        return self.run("learner_start_task", task_info=task_info(*args, **kwargs))

    def ask(self) -> dict[str, Any]:
        return self.run("learner_get_data_task")

    def learn(self, *batches: list[dict[str, Any]]) -> dict[str, Any]:
        reply = self.run("learner_learn_task", **pack_batches(batches))
        infos, done = self.told
        self.told = infos + reply["infos"], done + reply["batches_done"]
        return reply

    def close(self) -> dict[str, Any]:
        return self.run("learner_close_task")

    def infos(self, count: int) -> tuple[list[dict[str, Any]], int]:
        """So many infos since the last call (or up to the last one), and the batches done with them."""
        (infos, done), self.told = self.told, ([], 0)
        while len(infos) < count and not (infos and infos[-1]["learner_done"]):
            reply = self.ask()
            infos += reply["infos"]
            done += reply["batches_done"]
        return infos, done

    def coming_failure(self) -> dict[str, Any]:
        """The result of the first request that fails."""

        def ask() -> None:
            while True:
                self.ask()

        return self.failure(ask)


class Site(sites.Site):
    """Learners, and clients to them."""

    create = staticmethod(create_comm_learner)
    driver = Driver
    defaults = {"read_timeout_s": 0.1}
    _chunks = 0

    def batch(self, *values: float) -> list[dict[str, Any]]:
        """Buffer entries of samples with these observations, in a chunk of their own."""
        self._chunks += 1
        name = f"env_uid_{self._chunks}"
        self.samples.write(name, encode_chunk([{"obs": torch.tensor(value)} for value in values], "lz4"))
        return [entry(name, index) for index in range(len(values))]


def forget_fakes() -> None:
    """Let whoever waits at a gate go on, and forget all fakes."""
    for gate in GATES.values():
        gate.open()
    join_threads("learner_start")  # what a test left hanging would save its checkpoint in another test's folder
    GATES.clear()
    POLICIES.clear()
