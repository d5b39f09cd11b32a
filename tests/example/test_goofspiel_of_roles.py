"""The two-player example role by role, with ranks behind an aggregator and collectors that an operator brings."""

import contextlib
import json
import pickle
import urllib.request
from pathlib import Path
from threading import Event
from time import monotonic

import pytest

from ding.entry.dist_entry import dist_prepare_config
from tests.entry.dist_fakes import Roles, free_ports, wait_until_serving
from tests.worker.coordinator.operators import operator as operator

DEADLINE_S = 240
CONFIG = """
import copy
from ding.example import goofspiel_parallel as example

main_config, create_config = copy.deepcopy(example.main_config), example.create_config
main_config.exp_name = "duels"
main_config.env.stop_value = 0.4
main_config.policy.multi_gpu = True
main_config.policy.collect.collector.collector_num = 1
system_config = dict(
    learner_gpu_num=2,
    coordinator=dict(operator_server=dict(system_addr="http://127.0.0.1:{operator}", sync_period_s=0.1)),
    dist=dict(coordinator_lost_s=1),
)
"""


def wait_for_status(process, port, is_there):
    """Ask the coordinator how the run stands until something is there."""
    deadline = monotonic() + DEADLINE_S
    while monotonic() < deadline:
        assert process.poll() is None, process.stdout.read()
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/status", timeout=20) as reply:
                status = json.load(reply)
        except OSError:  # it has only begun
            status = None
        if status is not None and is_there(status):
            return
        Event().wait(0.1)
    raise AssertionError("it was not there in time")


@pytest.fixture
def started(operator, tmp_path, monkeypatch):
    """Starts everybody; returns the coordinator, the others, and the ports of the coordinator and of a collector that
    the coordinator does not know of."""
    monkeypatch.chdir(tmp_path)
    Path("config.py").write_text(CONFIG.format(operator=operator.port))
    coordinator_port, collector_port, joining_port, meeting_port, *learner_ports = free_ports(7)
    ports = {"coordinator_port": coordinator_port, "learner_port": learner_ports[0], "collector_port": collector_port}
    with contextlib.closing(Roles(dist_prepare_config("config.py", 0, "local", **ports))) as roles:
        learners = roles.start("spawn_learner", LOCAL_WORLD_SIZE="2", MASTER_PORT=str(meeting_port))
        workers = [
            roles.start("learner_aggregator"),
            roles.start("collector"),
            roles.start("collector", "-clp", joining_port),
        ]
        wait_until_serving(workers, DEADLINE_S)
        yield roles.start("coordinator"), [learners, *workers], coordinator_port, joining_port


@pytest.mark.slow
def test_two_ranks_behind_an_aggregator_learn_from_collectors_that_come_and_go(started, operator):
    coordinator, others, coordinator_port, joining_port = started

    def is_busy(status):
        return any(
            worker["address"] == f"127.0.0.1:{joining_port}" and worker["state"] == "busy"
            for worker in status["workers"]
        )

    wait_for_status(coordinator, coordinator_port, lambda status: status["progress"]["train_iter"] > 0)
    operator.listed = {"collectors": [f"127.0.0.1:{joining_port}"], "learners": []}
    wait_for_status(coordinator, coordinator_port, is_busy)
    operator.listed = {"collectors": [], "learners": []}
    wait_for_status(coordinator, coordinator_port, lambda status: not is_busy(status))

    for process in (coordinator, *others):
        output = process.communicate(timeout=DEADLINE_S)[0]
        assert process.returncode == 0, output
    with open("duels/result.pkl", "rb") as f:
        result = pickle.load(f)
    assert result["stop"] and result["eval_value"] >= 0.4
