"""Deterministic envs and policies that a collector task can name, and a place to send to."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import torch
from easydict import EasyDict

from ding.utils.registry_factory import ENV_REGISTRY, POLICY_REGISTRY
from ding.worker.collector import ZerglingParallelCollector, task_collector
from ding.worker.transport.chunk import decode_chunk
from tests.fakes import CountingEnv, ScriptedPolicy

DEADLINE_S = 60  # for what happens at once
UNTIL_NOTIFIED_S = 3600  # longer than a thread is joined: a wait that no notification ends makes its test fail
GATES: dict[str, Gate] = {}
POLICIES: list[TaskPolicy] = []
ENVS: list[TaskEnv] = []


class Gate:
    """Somebody waits here until another opens it."""

    def __init__(self) -> None:
        self.reached, self.opened = threading.Event(), threading.Event()

    def arrive_and_wait(self) -> None:
        self.reached.set()
        assert self.opened.wait(DEADLINE_S)

    def open(self) -> None:
        self.opened.set()


@ENV_REGISTRY.register("counting_task")
class TaskEnv(CountingEnv):
    """A `CountingEnv` by config.

    `lengths` are those of the episodes, by env. At [env, episode, step] = `raise_at`, `abnormal_at` and `wait_at`
    something happens; the last waits for `GATES[cfg["gate"]]`.
    """

    observation_space = action_space = reward_space = None

    def __init__(self, cfg: dict[str, Any]) -> None:
        self.cfg = cfg
        super().__init__(cfg["env_id"], cfg["lengths"][cfg["env_id"]], reuse=True, mark=self._mark)
        self.seeds: list[int] = []
        self.closed = 0
        ENVS.append(self)

    @staticmethod
    def create_collector_env_cfg(cfg):
        return [{**cfg, "env_id": env_id} for env_id in range(cfg.pop("collector_env_num"))]

    @staticmethod
    def create_evaluator_env_cfg(cfg):
        return [{**cfg, "env_id": env_id} for env_id in range(cfg.pop("evaluator_env_num"))]

    def _mark(self, *place: int) -> dict[str, Any]:
        if list(place) == self.cfg.get("raise_at"):
            raise ZeroDivisionError(f"env {place[0]} was told to fail")
        if list(place) == self.cfg.get("wait_at"):
            GATES[self.cfg["gate"]].arrive_and_wait()
        return {"abnormal": True} if list(place) == self.cfg.get("abnormal_at") else {}

    def seed(self, seed):
        self.seeds.append(seed)

    def close(self):
        self.closed += 1


class TaskMode(ScriptedPolicy):
    """A mode that also takes weights; its log has `forward` and `load <iter of the weights>`."""

    def __init__(self, cfg: Any) -> None:
        super().__init__(n_sample=cfg.get("n_sample"), batched=cfg.get("batched", True))
        self.attributes["n_episode"] = cfg.get("n_episode")
        self.cfg = cfg
        self.log: list[Any] = []
        self.model = {"weight": torch.zeros(2)}

    def _actions(self, obs, kwargs):
        if len(self.seen) == self.cfg.get("fail_at"):
            raise ArithmeticError("the policy was told to fail")
        self.log.append("forward")
        return super()._actions(obs, kwargs)

    def load_state_dict(self, state):
        assert state.keys() == {"model"}
        self.model = state["model"]
        self.log.append(f"load {float(self.model['weight'][0]):g}")

    def state_dict(self):
        return {"model": self.model}


@POLICY_REGISTRY.register("scripted_task")
class TaskPolicy:
    """A policy whose modes are `TaskMode`s."""

    def __init__(self, cfg: Any, enable_field: list[str]) -> None:
        self.fields = enable_field
        self.collect_mode = self.eval_mode = TaskMode(cfg)
        POLICIES.append(self)


def collector_cfg(lengths=(3, 2), episodes=1, is_eval=False, n_sample=2, env={}, policy={}, **changes) -> EasyDict:
    """The `collector_cfg` of a task over `TaskEnv`s."""
    count = "evaluator_env_num" if is_eval else "collector_env_num"
    manager = {"type": "base", "episode_num": episodes, "max_retry": 1}
    return EasyDict(
        {
            "type": "zergling",
            "exp_name": "exp",
            "eval_flag": is_eval,
            "env": {
                "type": "counting_task",
                "lengths": list(lengths),
                count: len(lengths),
                "manager": manager,
                **env,
            },
            "policy": {"type": "scripted_task", "n_sample": n_sample, **policy},
            "collect_setting": {"eps": 0.5},
            "policy_update_path": "policy",
            "chunk_size": 1000,
            "flush_interval_s": 1000,
            **changes,
        }
    )


def weights(iteration: int) -> dict[str, Any]:
    return {"model": {"weight": torch.full((2,), float(iteration))}, "iter": iteration}


class Sent:
    """What a collector was given to send with, and what it sent, in order."""

    def __init__(self, *states: Any) -> None:
        self.states = list(states or [weights(0)])
        self.events: list[tuple[str, Any]] = []
        self.chunks: dict[str, list[Any]] = {}
        self.asked: list[str] = []
        self.compressor = "lz4"

    def get_policy_update_info(self, path):
        self.asked.append(path)
        if not self.states:
            return None
        state = self.states.pop(0)
        if isinstance(state, Exception):
            raise state
        return state

    def send_stepdata(self, path, data):
        self.chunks[path] = decode_chunk(data, self.compressor)
        self.events.append(("data", path))

    def send_metadata(self, metadata):
        self.events.append(("rows", metadata) if isinstance(metadata, list) else ("info", metadata))

    def of(self, kind: str) -> list[Any]:
        return [content for what, content in self.events if what == kind]

    @property
    def rows(self) -> list[dict[str, Any]]:
        return [row for rows in self.of("rows") for row in rows]

    def attach(self, collector: Any) -> Any:
        for name in ("get_policy_update_info", "send_stepdata", "send_metadata"):
            setattr(collector, name, getattr(self, name))
        return collector


def in_thread(act: Callable[..., Any], *args: Any) -> Callable[[], Any]:
    """Run `act(*args)` in a thread; calling what is returned waits for its result, or the exception it raised."""
    outcome: list[Any] = []

    def run() -> None:
        try:
            outcome.append(act(*args))
        except Exception as e:
            outcome.append(e)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()

    def join() -> Any:
        thread.join(DEADLINE_S)
        assert not thread.is_alive()
        return outcome[0]

    return join


def join_threads(*names: str) -> None:
    """Wait for the threads of these names to end."""
    for thread in threading.enumerate():
        if thread.name in names:
            thread.join(DEADLINE_S)
            assert not thread.is_alive()


def forget_fakes() -> None:
    """Let whoever waits at a gate go on, and forget all fakes."""
    for gate in GATES.values():
        gate.open()
    for fakes in (ENVS, POLICIES, GATES):
        fakes.clear()


def listed(sample: dict[str, Any]) -> dict[str, Any]:
    """A sample with lists in place of tensors."""
    return {key: value.tolist() if isinstance(value, torch.Tensor) else value for key, value in sample.items()}


class ScriptedWatch:
    """Has the weights of iteration `first`, then `later[k]` after round k.

    Attributes:
        looks: how often it was told to look for newer ones.
    """

    def __init__(self, first: int, *later: Any) -> None:
        self.looks = 0
        self._first, self.later = first, list(later)
        self.calls: list[Any] = []

    def first(self, timeout_s):
        self.calls.append(("first", timeout_s))
        return weights(self._first)

    def start(self):
        self.calls.append("start")

    def look(self):
        self.looks += 1

    def take(self):
        return self.later.pop(0) if self.later else None

    def close(self):
        self.calls.append("close")


def use_watches(monkeypatch: Any, **watches: Any) -> None:
    """Have the collectors that are made from now on ask these for their weights, by path."""
    monkeypatch.setattr(task_collector, "PolicyWatch", lambda fetch, interval_s: watches[fetch.args[0]])


def make(sent: Sent | None = None, collector_type: Any = ZerglingParallelCollector, **cfg: Any) -> Any:
    """A Zergling collector that sends to `sent`."""
    return (sent or Sent()).attach(collector_type(collector_cfg(**cfg)))


def play(sent: Sent | None = None, **cfg: Any) -> Any:
    """A collector that has played its task."""
    collector = make(sent, **cfg)
    collector.start()
    return collector
