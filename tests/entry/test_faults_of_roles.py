"""A training whose roles are started one by one, and whose coordinator is killed in the middle."""

import os
import pickle
import signal
import subprocess
import sys
from pathlib import Path
from threading import Event
from time import monotonic

import pytest

from ding.worker.coordinator.state_file import STATE_FILE, RunIdentity, read_state
from tests.entry.dist_fakes import first_line, free_ports, prepare

ROOT = Path(__file__).resolve().parents[2]
DEADLINE_S = 120
ITERATIONS = 1000


class Roles:
    """Processes by the name of their role; whoever makes it closes it."""

    def __init__(self, packed):
        self._packed, self.processes = packed, []

    def start(self, role, *options):
        process = subprocess.Popen(
            [sys.executable, "-m", "ding.entry.cli", "-m", "dist", "-M", role, "-c", self._packed, *options],
            env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"},
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip
        self.processes.append(process)
        return process

    def close(self):
        for process in self.processes:
            if process.poll() is None:
                process.kill()
            process.wait()
            process.stdout.close()


@pytest.fixture
def roles(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    coordinator, learner, *collectors = free_ports(4)
    roles = Roles(
        prepare(
            system={"coordinator": {"state_interval_s": 0.2, "resume": True}, "dist": {"coordinator_lost_s": 15}},
            places={"coordinator_port": coordinator, "learner_port": learner, "collector_port": collectors},
            policy__learn__learner__train_iterations=ITERATIONS,
            policy__other__replay_buffer__replay_buffer_size=2000,
        )
    )
    yield roles
    roles.close()


def wait_for_state(process, is_enough):
    """The first state in the file that is good enough."""
    deadline = monotonic() + DEADLINE_S
    while monotonic() < deadline:
        assert process.poll() is None, process.stdout.read()
        if os.path.exists(os.path.join("exp", STATE_FILE)):
            state = read_state(os.path.join("exp", STATE_FILE), RunIdentity("exp", 0))
            if is_enough(state):
                return state
        Event().wait(0.02)
    raise AssertionError("no state was good enough")


@pytest.mark.slow
def test_a_coordinator_that_was_killed_and_started_again_goes_on_with_its_workers_and_ends_the_run(roles):
    workers = [roles.start("learner")]
    workers += [roles.start("collector", "--module-name", f"collector{i}") for i in range(2)]
    for process in workers:
        assert "takes tasks at port" in first_line(process, DEADLINE_S)
    first = roles.start("coordinator")
    wait_for_state(first, lambda state: state["run"]["train_iter"] >= 150 and state["commander"]["evaluations"])
    first.send_signal(signal.SIGKILL)
    assert first.wait(DEADLINE_S) == -signal.SIGKILL
    killed = read_state(os.path.join("exp", STATE_FILE), RunIdentity("exp", 0))
    before = killed["run"]
    assert 150 <= before["train_iter"] < ITERATIONS and all(process.poll() is None for process in workers)

    second = roles.start("coordinator")
    run = wait_for_state(second, lambda state: state["run"]["history"]["seconds"] > before["history"]["seconds"] + 1)
    for counter in ("samples", "env_steps", "train_iter", "best_return"):
        assert run["run"][counter] >= before[counter]
    assert run["run"]["history"]["started_at"] == before["history"]["started_at"]
    assert run["learner_tasks"] == killed["learner_tasks"] != []
    output = second.communicate(timeout=DEADLINE_S)[0]
    assert second.returncode == 0, output

    with open(os.path.join("exp", "result.pkl"), "rb") as f:
        result = pickle.load(f)
    assert result["train_iter"] >= ITERATIONS and result["env_step"] >= before["env_steps"]
    for process in workers:
        assert process.wait(DEADLINE_S) == 0
    assert not os.path.exists(os.path.join("exp", STATE_FILE))
    assert [name for name in os.listdir(os.path.join("exp", "data")) if not name.startswith(".")] == []
