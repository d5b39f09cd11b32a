"""Networks that mistreat what coordinators and workers tell each other, and books of what gets through."""

import contextlib
import random
import threading
from collections import Counter
from typing import Any

from ding.worker import Coordinator
from tests.interaction.fakes import Proxy

FAULTS = {"lose": 0.06, "reply": 0.06, "half": 0.06, "double": 0.1, "delay": 0.1}
MOST_DELAY_S = 0.02


class ChaosProxy(Proxy):
    """Does something to two of five messages, but for those that a server sends to itself; what, follows from the seed.

    Attributes:
        faults: how often each was done.
    """

    def __init__(self, port, seed):
        super().__init__(port)
        self._random, self.faults = random.Random(seed), Counter()

    def _action(self, line):
        if "/ping" in line or "/shutdown" in line:
            return "pass"
        action = self._random.choices([*FAULTS, "pass"], [*FAULTS.values(), 1 - sum(FAULTS.values())])[0]
        self.faults[action] += 1
        if action == "delay":
            threading.Event().wait(self._random.random() * MOST_DELAY_S)
        return action


class Network:
    """Proxies, each with another seed, before workers. Whoever makes one closes it."""

    def __init__(self, seed):
        self._seed = seed
        self._proxies, self._stack = [], contextlib.ExitStack()

    def reach(self, port):
        """The port of a proxy for `port`."""
        self._seed += 1
        self._proxies.append(self._stack.enter_context(ChaosProxy(port, self._seed)))
        return self._proxies[-1].port

    @property
    def faults(self):
        """How often each was done to a message."""
        return sum((proxy.faults for proxy in self._proxies), Counter())

    def close(self):
        self._stack.close()


class Books:
    """Keeps count of what reaches the coordinators of this process, and of what collectors say of it."""

    def __init__(self, monkeypatch):
        self._pushed: Counter[str] = Counter()
        self._rows: Counter[tuple[str, int]] = Counter()
        self._finished: dict[str, Any] = {}
        self._told_end: set[str] = set()
        for name in ("send_data", "judge_finish", "finish_task"):
            original = getattr(Coordinator, f"deal_with_collector_{name}")
            replacement = getattr(self, f"_make_{name}")(original)
            monkeypatch.setattr(Coordinator, f"deal_with_collector_{name}", replacement)

    def _make_send_data(self, original):
        def send_data(coordinator, task_id, buffer_id, data_id, data):
            self._pushed[task_id] += len(data)
            self._rows.update((row["data_id"], row["data_index"]) for row in data)
            original(coordinator, task_id, buffer_id, data_id, data)

        return send_data

    def _make_judge_finish(self, original):
        def judge(coordinator, task_id, data):
            if original(coordinator, task_id, data):
                self._told_end.add(task_id)  # others end because nobody needs their samples any more
            return task_id in self._told_end

        return judge

    def _make_finish_task(self, original):
        def finish(coordinator, task_id, finished_task):
            assert task_id not in self._finished
            self._finished[task_id] = finished_task
            original(coordinator, task_id, finished_task)

        return finish

    def check(self, samples):
        """Each sample has come once, and from each task all that it has collected; `samples` were counted.

        Those that come after the end of the run are not counted.
        """
        assert set(self._rows.values()) == {1} and 0 < samples <= sum(self._pushed.values())
        collected = {
            task_id: info["sample_count"]
            for task_id, info in self._finished.items()
            if task_id in self._told_end and not info["eval_flag"]
        }
        pushed = {task_id: self._pushed[task_id] for task_id in collected}
        assert len(collected) > 0 and pushed == collected, (pushed, self._finished)
