"""A training over a network that delays, loses and doubles messages, in both directions."""

import contextlib
import random
import threading
from collections import Counter
from functools import partial

import pytest

import ding.worker.transport.http_transport as http_transport
from ding.interaction import Master
from ding.worker import Coordinator
from tests.interaction.fakes import Proxy, free_port
from tests.worker.coordinator.test_training import CREATE, MAIN
from tests.worker.coordinator.trainings import Trainer

FAULTS = {"lose": 0.04, "reply": 0.04, "half": 0.02, "double": 0.1, "delay": 0.1}
MOST_DELAY_S = 0.02


class ChaosProxy(Proxy):
    """Does something to every fourth message; what, follows from the seed."""

    def __init__(self, port, seed, **kwargs):
        super().__init__(port, **kwargs)
        self._random, self.faults = random.Random(seed), Counter()

    def _action(self, line):
        if "/ping" in line or "/shutdown" in line:  # what a master tells itself
            return "pass"
        action = self._random.choices([*FAULTS, "pass"], [*FAULTS.values(), 1 - sum(FAULTS.values())])[0]
        self.faults[action] += 1
        if action == "delay":
            threading.Event().wait(self._random.random() * MOST_DELAY_S)
        return action


class BadTrainer(Trainer):
    """All messages to workers pass through a proxy of their own."""

    def __init__(self, seed):
        super().__init__()
        self.proxies, self._seed, self._stack = [], seed, contextlib.ExitStack()

    def add_proxy(self, port, **kwargs):
        self._seed += 1
        self.proxies.append(self._stack.enter_context(ChaosProxy(port, self._seed, **kwargs)))
        return self.proxies[-1].port

    def reach(self, port):
        return self.add_proxy(port)

    def close(self):
        super().close()
        self._stack.close()


@pytest.mark.parametrize(
    "seed", [0, pytest.param(100, marks=pytest.mark.slow), pytest.param(200, marks=pytest.mark.slow)]
)
def test_a_bad_network_changes_neither_counts_nor_the_end(seed, monkeypatch):
    pushed, rows, finished, told_end = Counter(), Counter(), {}, set()
    judge_finish = Coordinator.deal_with_collector_judge_finish
    deal_with_data = Coordinator.deal_with_collector_send_data
    deal_with_end = Coordinator.deal_with_collector_finish_task

    def send_data(coordinator, task_id, buffer_id, data_id, data):
        pushed[task_id] += len(data)
        rows.update((row["data_id"], row["data_index"]) for row in data)
        deal_with_data(coordinator, task_id, buffer_id, data_id, data)

    def judge(coordinator, task_id, data):
        if judge_finish(coordinator, task_id, data):
            told_end.add(task_id)  # others end because nobody needs their samples any more
        return task_id in told_end

    def finish(coordinator, task_id, finished_task):
        assert task_id not in finished
        finished[task_id] = finished_task
        deal_with_end(coordinator, task_id, finished_task)

    monkeypatch.setattr(Coordinator, "deal_with_collector_send_data", send_data)
    monkeypatch.setattr(Coordinator, "deal_with_collector_judge_finish", judge)
    monkeypatch.setattr(Coordinator, "deal_with_collector_finish_task", finish)
    monkeypatch.setenv("DING_HOSTS", "127.0.0.1")  # under the ports of the proxies
    trainer, port = BadTrainer(seed), free_port()
    address = f"http://127.0.0.1:{trainer.add_proxy(port, prefix='/bad')}/bad/"
    monkeypatch.setattr(http_transport, "Master", partial(_master, port, address))
    try:
        coordinator = trainer.train(MAIN, CREATE, "http", policy__learn__learner={"train_iterations": 60})
    finally:
        trainer.close()
    assert coordinator.failure is None and coordinator.progress().train_iter == 60
    assert set(rows.values()) == {1}  # no sample came twice
    collected = {
        task_id: info["sample_count"]
        for task_id, info in finished.items()
        if task_id in told_end and not info["eval_flag"]
    }
    assert len(collected) > 0 and {task_id: pushed[task_id] for task_id in collected} == collected
    faults = sum((proxy.faults for proxy in trainer.proxies), Counter())
    assert all(faults[fault] > 0 for fault in FAULTS)


def _master(port, address, host, _, **kwargs):
    return Master(host, port, my_address=address, **kwargs)
