"""Trainings whose roles are started one by one, and of which one is killed, stopped or interrupted in the middle."""

import os
import pickle
import signal
from pathlib import Path
from threading import Event
from time import monotonic

import pytest

from ding.entry.dist_entry import read_coordinator_config
from ding.utils.state_folder import StateFolder
from tests.entry.dist_fakes import Roles, free_ports, prepare, wait_until_serving
from tests.entry.faults import DEADLINE_S, NOTICED_S, Observed, newest_state, one_thread

pytestmark = pytest.mark.slow

ITERATIONS = 1000
LOST_S = 15


def start_workers(roles):
    """The learner and two collectors, when they take tasks."""
    workers = {"learner0": roles.start("learner")}
    workers.update({name: roles.start("collector", "--module-name", name) for name in ("collector0", "collector1")})
    wait_until_serving(workers.values(), DEADLINE_S)
    return workers


@pytest.fixture
def prepare_roles():
    """Makes `Roles` of a config with these changes."""
    made = []

    def prepare_roles(**changes):
        coordinator, learner, *collectors = free_ports(4)
        system = {"coordinator": {"state_interval_s": 0.2, "resume": True}, "dist": {"coordinator_lost_s": LOST_S}}
        places = {"coordinator_port": coordinator, "learner_port": learner, "collector_port": collectors}
        made.append(Roles(prepare(system, places=places, **changes)))
        return made[-1]

    yield prepare_roles
    for roles in made:
        roles.close()


def wait_for_state(process, is_enough):
    """The first state in the file that is good enough."""
    deadline = monotonic() + DEADLINE_S
    while monotonic() < deadline:
        assert process.poll() is None, process.stdout.read()
        state = newest_state()
        if state is not None and is_enough(state):
            return state
        Event().wait(0.02)
    raise AssertionError("no state was good enough")


@pytest.mark.differs(
    "saves nothing of a coordinator: its `state_dict` is empty",
    "saves buffers, counters and tasks with `state_interval_s`; one that is started again continues",
)
def test_a_coordinator_that_was_killed_and_started_again_goes_on_with_its_workers_and_ends_the_run(prepare_roles):
    roles = prepare_roles(
        policy__learn__learner__train_iterations=ITERATIONS, policy__other__replay_buffer__replay_buffer_size=2000
    )
    workers = start_workers(roles).values()
    first = roles.start("coordinator")
    wait_for_state(first, lambda state: state["run"]["train_iter"] >= 150 and state["commander"]["evaluator_info"])
    first.send_signal(signal.SIGKILL)
    assert first.wait(DEADLINE_S) == -signal.SIGKILL
    killed = newest_state()
    before = killed["run"]
    assert 150 <= before["train_iter"] < ITERATIONS and all(process.poll() is None for process in workers)

    second = roles.start("coordinator")
    run = wait_for_state(second, lambda state: state["run"]["seconds"] > before["seconds"] + 1)
    for counter in ("samples", "env_steps", "train_iter", "best_return"):
        assert run["run"][counter] >= before[counter]
    assert run["run"]["started_at"] == before["started_at"]
    assert run["learner_tasks"] == killed["learner_tasks"] != []
    output = second.communicate(timeout=DEADLINE_S)[0]
    assert second.returncode == 0, output

    with open(os.path.join("exp", "result.pkl"), "rb") as f:
        result = pickle.load(f)
    assert result["train_iter"] >= ITERATIONS and result["env_step"] >= before["env_steps"]
    for process in workers:
        assert process.wait(DEADLINE_S) == 0
    assert StateFolder("exp/run_state").read() is None
    assert [name for name in os.listdir(os.path.join("exp", "data")) if not name.startswith(".")] == []


def test_workers_whose_coordinator_was_killed_and_stays_away_end_their_tasks_and_then_themselves(prepare_roles):
    roles = prepare_roles()
    workers = start_workers(roles)
    coordinator = roles.start("coordinator")
    wait_for_state(coordinator, lambda state: state["run"]["train_iter"] >= 50)
    coordinator.kill()
    killed = monotonic()
    for name, process in workers.items():
        output = process.communicate(timeout=DEADLINE_S)[0]
        assert process.returncode == 0 and output.endswith(f"{name} ends: its coordinator is gone.\n")
        assert LOST_S < monotonic() - killed < LOST_S + 2 * NOTICED_S
    # The learner has ended its task as it should.
    assert (
        max(int(path.name.split(".")[0].removeprefix("iteration_")) for path in Path("exp/ckpt").glob("iteration_*"))
        >= 50
    )


def test_a_collector_that_was_stopped_for_too_long_does_not_act_on_its_old_task_when_it_goes_on(prepare_roles):
    roles = prepare_roles(env__lengths=[3000, 5000], env__collector_episode_num=1, env__stop_value=10**9)
    workers = start_workers(roles)
    seen = {}

    def damage(run):
        name = run.wait_for_training()
        seen.update(name=name, task=run.collecting()[name], stopped=monotonic())
        workers[name].send_signal(signal.SIGSTOP)
        run.wait_for(lambda: run.gone[name])
        known = len(run.samples)
        run.wait_for(lambda: len(run.samples) > known + 200)  # the others go on
        seen["continued"] = monotonic()
        workers[name].send_signal(signal.SIGCONT)
        run.wait_for(lambda: run.collecting().get(name) in run.senders)  # it works again, for another task
        seen["new_task"] = run.collecting()[name]
        known = len(run.samples)
        run.wait_for(lambda: len(run.samples) > known + 200)
        run.stop()

    with one_thread():
        run = type("Run", (Observed,), {"damage": damage})(read_coordinator_config(roles.packed), monotonic())
        run.train(monotonic() + DEADLINE_S)
    assert run.errors == []
    assert run.gone[seen["name"]][0] - seen["stopped"] < NOTICED_S
    assert seen["new_task"] != seen["task"] and run.senders[seen["task"]] < seen["continued"]
    assert run.is_whole()
    for process in workers.values():
        assert process.wait(DEADLINE_S) == 0
    # Nothing of what it had collected and not told of is left.
    assert [name for name in os.listdir("exp/data") if not name.startswith(".")] == []


@pytest.mark.guarantees("signals")
@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_each_role_with_status_130(signum, prepare_roles):
    roles = prepare_roles()
    workers = start_workers(roles)
    coordinator = roles.start("coordinator")
    wait_for_state(coordinator, lambda state: state["run"]["train_iter"] >= 50)
    began = monotonic()
    for process in (coordinator, *workers.values()):
        process.send_signal(signum)
        output = process.communicate(timeout=DEADLINE_S)[0]
        assert process.returncode == 130, output
    assert monotonic() - began < 4 * NOTICED_S
