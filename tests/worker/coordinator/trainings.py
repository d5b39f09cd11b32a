"""Whole trainings with learner, collectors and coordinator of this package, all in this process."""

import sys
import threading
from typing import Any

import torch
from easydict import EasyDict

from ding.config import compile_config_parallel
from ding.worker import Coordinator, create_comm_collector
from ding.worker.learner.comm import create_comm_learner

DEADLINE_S = 60.0
WORKER_TYPES = {"local": "local", "http": "flask_fs"}


class Trainer:
    """Trains until the run is over. Whoever makes one closes it."""

    def __init__(self) -> None:
        self._made: list[Any] = []
        self.workers: list[Any] = []
        self._threads, self._interval = torch.get_num_threads(), sys.getswitchinterval()
        # The roles share one interpreter: who computes in torch must not wait long for those who run Python code.
        torch.set_num_threads(1)
        sys.setswitchinterval(1e-4)

    def reach(self, port: int) -> int:
        """The port where the coordinator finds a worker that takes tasks at `port`."""
        return port

    def train(self, *args: Any, **kwargs: Any) -> Coordinator:
        """The coordinator, closed, of a training; see `begin`."""
        coordinator = self.begin(*args, **kwargs)
        assert coordinator.wait(DEADLINE_S)
        coordinator.close()
        return coordinator

    def begin(
        self, main: Any, create: Any, transport: str = "local", own: dict[str, Any] | None = None, **changes: Any
    ) -> Coordinator:
        """The coordinator of a training by these configs, where `a__b=1` changes `main.a.b`, and `own` its section."""
        main = EasyDict(main)
        for path, value in changes.items():
            *sections, key = path.split("__")
            section = main
            for name in sections:
                section = section[name]
            section[key] = value
        workers = {f"comm_{kind}": {"type": WORKER_TYPES[transport]} for kind in ("learner", "collector")}
        system = {"coordinator": own or {}, "path_data": "data", "path_policy": "policy"}
        cfg = compile_config_parallel(main, {**create, **workers}, system, seed=0, save_cfg=False)
        for kind, make in (("learner", create_comm_learner), ("collector", create_comm_collector)):
            for name in cfg.system.coordinator[kind]:
                self._made.append(make(cfg.system[name]))
                self._made[-1].start()
                self.workers.append(self._made[-1])
                cfg.system.coordinator[kind][name][2] = self.reach(self._made[-1].port)
        coordinator = Coordinator(cfg)
        self._made.append(coordinator)
        coordinator.start()
        return coordinator

    def close(self) -> None:
        """End everything, and see that no thread is left."""
        for part in reversed(self._made):
            part.close()
        torch.set_num_threads(self._threads)
        sys.setswitchinterval(self._interval)
        prefixes = ("coordinator", "collector", "learner", "local_worker")
        assert [thread.name for thread in threading.enumerate() if thread.name.startswith(prefixes)] == []
