"""Roles that are started one by one: here all in one process, each as if it were alone in its own."""

import logging
import os
import sys
import threading

import pytest
import torch

from ding.entry import dist_entry
from ding.entry.dist_config import port_from
from ding.entry.dist_entry import (
    dist_launch_collector,
    dist_launch_coordinator,
    dist_launch_learner,
    dist_launch_learner_aggregator,
    dist_launch_spawn_learner,
)
from ding.entry.worker_process import THREADS, be_worker
from ding.utils.config_helper import ConfigError
from ding.worker.adapter.learner_aggregator import LearnerAggregator
from ding.worker.transport.http_transport import HttpConnector
from ding.worker.transport.transport import TaskFailed
from tests.entry.dist_fakes import free_ports, prepare

DEADLINE_S = 60


@pytest.fixture(autouse=True)
def _alone():
    """In a folder of its own, with what a role sets for its process put back."""
    threads, interval = torch.get_num_threads(), sys.getswitchinterval()
    before = set(threading.enumerate())
    levels = {name: logging.getLogger(name).level for name in ("werkzeug",)}
    sys.setswitchinterval(1e-4)
    yield
    torch.set_num_threads(threads)
    sys.setswitchinterval(interval)
    for name, level in levels.items():
        logging.getLogger(name).setLevel(level)
    logging.getLogger("coordinator_logger").disabled = False
    assert set(threading.enumerate()) <= before


def prepare_free(system=None, **kwargs):
    """A config whose roles listen at ports that are free."""
    ports = free_ports(4)
    places = {"coordinator_port": ports[0], "learner_port": ports[1], "collector_port": ports[2:]}
    return prepare(
        {"dist": {"coordinator_lost_s": 0}, **(system or {})}, places={**places, **kwargs.pop("places", {})}, **kwargs
    )


def connect(worker):
    """A connector, and a client to the worker whose coordinator it is."""
    connector = HttpConnector("127.0.0.1", 0)
    connector.start()
    client = connector.client(worker.name, "127.0.0.1", worker.port)
    client.connect(timeout_s=10)
    assert "gpu" in client.run({"name": "resource"}, timeout_s=10)
    return connector


def workers_of(path):
    return (
        dist_launch_learner(path),
        dist_launch_collector(path, name="collector0"),
        dist_launch_collector(path, name="collector1"),
    )


# A run.


def test_roles_that_are_started_one_by_one_train_and_end():
    path = prepare_free(places={"max_train_iter": 5})
    learner, *collectors = workers_of(path)
    coordinator = dist_launch_coordinator(path, enable_total_log=True)
    assert coordinator.wait(DEADLINE_S)
    assert coordinator.coordinator.progress().train_iter == 5
    for worker in (learner, *collectors):
        worker.wait()
        worker.close()
    assert os.listdir("exp/ckpt")
    with open("exp/log/coordinator_logger.txt") as f:
        assert "coordinator is started" in f.read()


def test_what_fails_in_a_worker_is_raised_where_the_coordinator_is_waited_for():
    path = prepare_free(policy__fail_in="learn", policy__fail_at=1)
    workers = workers_of(path)
    with pytest.raises(TaskFailed, match="ZeroDivisionError: the policy was told to fail in learn"):
        dist_launch_coordinator(path).wait(DEADLINE_S)
    for worker in workers:
        worker.close()


# The end of a worker.


@pytest.mark.differs("never ends a worker that was started by hand", "ends it when its coordinator stays away")
def test_a_worker_ends_when_its_coordinator_has_gone():
    with dist_launch_learner(prepare_free()) as learner:
        connect(learner).close()
        learner.wait()


def test_a_worker_to_which_no_coordinator_comes_says_so_in_the_end():
    path = prepare_free({"dist": {"coordinator_wait_s": 0}})
    with (
        dist_launch_learner(path) as learner,
        pytest.raises(TimeoutError, match="no coordinator has connected to learner0"),
    ):
        learner.wait()


# Where roles listen.


@pytest.mark.parametrize(
    ("argument", "variable", "expected"),
    [(1, "2", 1), (None, "2", 2), (None, None, 3), (None, "", 3), (None, "tcp://10.0.0.1:80", 3), (None, "²", 3)],
)
def test_the_argument_wins_over_the_environment_and_that_over_the_config(monkeypatch, argument, variable, expected):
    if variable is not None:
        monkeypatch.setenv("LEARNER_PORT", variable)
    assert port_from(argument, "LEARNER_PORT", 3) == expected


def test_each_role_reads_its_own_variable(monkeypatch):
    path = prepare_free()
    first, second, third = free_ports(3)
    monkeypatch.setenv("LEARNER_PORT", str(first))
    monkeypatch.setenv("COLLECTOR_PORT", str(second))
    monkeypatch.setenv("COORDINATOR_PORT", str(third))
    with dist_launch_learner(path) as learner, dist_launch_collector(path, name="collector0") as collector:
        assert (learner.port, collector.port) == (first, second)
    assert dist_entry.read_coordinator_config(path).system.coordinator.port == third


def test_a_port_that_is_taken_is_an_error():
    path = prepare_free()
    with dist_launch_learner(path), pytest.raises(OSError, match="cannot listen at"):
        dist_launch_learner(path)


def test_off_loopback_a_token_is_needed():
    path = prepare_free(places={"learner_host": "0.0.0.0"})
    with pytest.raises(PermissionError, match="which needs a token"):
        dist_launch_learner(path)


def test_workers_of_the_type_local_are_refused():
    path = prepare_free(comm="local")
    with pytest.raises(ConfigError, match="set comm_collector to 'flask_fs'"):
        dist_launch_collector(path, name="collector0")


def test_a_shared_folder_that_is_not_there_is_told_of_before_anything_starts():
    path = prepare_free()
    for name in os.listdir("exp/data"):
        os.remove(os.path.join("exp/data", name))
    for launch in (dist_launch_learner, dist_launch_coordinator):
        with pytest.raises(ConfigError, match="path_data = .*Mount the shared folder at the same path"):
            launch(path)


# What a worker's process is like.


def test_a_collector_computes_with_one_thread_and_a_learner_with_those_there_are(monkeypatch):
    set_to = []
    monkeypatch.setattr(torch, "set_num_threads", set_to.append)
    be_worker({}, None, THREADS["learner"])
    assert set_to == []
    be_worker({}, None, THREADS["collector"])
    be_worker({"torch_threads": 4}, None, THREADS["learner"])
    assert set_to == [1, 4]


def test_a_worker_takes_the_seed_of_its_section_unless_another_is_given():
    def draw(seed):
        be_worker({"seed": 5}, seed)
        return torch.rand(1).item()

    assert draw(None) == draw(5) != draw(6)


def test_collectors_that_are_given_the_same_seed_make_seeds_of_their_own_of_it():
    def seeds(path, seed):
        names = ("collector0", "collector1")
        workers = [dist_launch_collector(path, seed, name=name) for name in names]
        drawn = [(dist_launch_collector(path, seed, 0, name).close(), torch.rand(1).item())[1] for name in names]
        for worker in workers:
            worker.close()
        return [worker.worker._cfg.seed for worker in workers], drawn

    path = prepare_free()
    assert seeds(path, None)[0] == [0, 1]
    own, drawn = seeds(path, 7)
    assert len({*own, 7}) == 3 and len(set(drawn)) == 2
    assert seeds(path, 7) == (own, drawn) and seeds(path, 8)[0] != own


@pytest.mark.parametrize("is_quiet", [True, False])
def test_servers_log_errors_only_where_that_is_asked_for(is_quiet):
    logging.getLogger("werkzeug").setLevel(logging.INFO)
    with dist_launch_learner(prepare_free(), disable_flask_log=is_quiet):
        assert logging.getLogger("werkzeug").level == (logging.ERROR if is_quiet else logging.INFO)


# Several ranks.


def test_an_aggregator_without_a_config_waits_for_learners_at_the_next_port(monkeypatch):
    first, second, _, _ = free_ports(4)
    monkeypatch.setenv("AGGREGATOR_PORT", str(first))
    with dist_launch_learner_aggregator(aggregator_host="127.0.0.1") as aggregator:
        assert (aggregator.name, aggregator.port) == ("learner_aggregator", first)
        assert aggregator.worker._cfg.master == {"host": "127.0.0.1", "port": second}
        connect(aggregator).close()


def test_an_aggregator_without_a_config_listens_everywhere_which_needs_a_token():
    with pytest.raises(PermissionError, match="which needs a token"):
        dist_launch_learner_aggregator()


def test_an_aggregator_of_the_config_connects_its_learners(monkeypatch):
    ports = free_ports(8)
    places = {"coordinator_port": ports[0], "learner_port": ports[1], "collector_port": ports[3:5]}
    path = prepare({"learner_gpu_num": 2}, places=places)
    made = []
    monkeypatch.setattr(LearnerAggregator, "start", lambda self: made.append(self))
    with dist_launch_learner_aggregator(path, aggregator_host="127.0.0.3", aggregator_port=ports[5]):
        [aggregator] = made
        assert aggregator._cfg.slave == {"host": "127.0.0.3", "port": ports[5]}
        assert list(aggregator._cfg.learner.values()) == [[str(r), "127.0.0.1", ports[1 + r]] for r in range(2)]


def test_the_ranks_of_a_learner_are_started_by_the_command_line(monkeypatch):
    asked = []
    monkeypatch.setattr(dist_entry, "spawn_ranks", asked.append)
    dist_launch_spawn_learner("a.pkl")
    dist_launch_spawn_learner("a.pkl", 3, 6000, "learner1", disable_flask_log=False)
    base = ["-m", "dist", "-M", "learner", "-c", "a.pkl", "--disable-flask-log"]
    assert asked == [[*base, "True"], [*base, "False", "-s", "3", "-lp", "6000", "--module-name", "learner1"]]
