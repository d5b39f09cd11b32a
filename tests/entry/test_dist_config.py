"""The config file for roles that are started one by one: who listens where, and how roles find their section."""

import os
import pickle

import pytest

from ding.entry.dist_config import check_shared_folders, read_dist_config, section_of
from ding.entry.dist_entry import dist_prepare_config
from ding.utils.config_helper import ConfigError
from tests.entry.dist_fakes import prepare, write_config


def system_of(*args, **kwargs):
    return read_dist_config(prepare(*args, **kwargs)).system


def places(system):
    """Who listens where."""
    names = ["coordinator", *(name for name in system if name[-1].isdigit() and "aggregator" not in name)]
    return {name: (system[name].host, system[name].port) for name in names}


def test_the_config_is_written_beside_its_source_and_is_no_pickle():
    path = prepare(seed=3)
    assert path == "config.py.pkl" and os.path.exists(path)
    with open(path, "rb") as f, pytest.raises(pickle.UnpicklingError):
        pickle.load(f)
    cfg = read_dist_config(path)
    assert (cfg.seed, cfg.main.exp_name, cfg.system.collector1.seed) == (3, "exp", 4)
    assert cfg.main.policy.type == "failing_dqn_command"


def test_a_pickle_is_not_read():
    with open("old.pkl", "wb") as f:
        pickle.dump({"main": {}, "system": {}}, f)
    with pytest.raises(ConfigError, match="pickles are not read"):
        read_dist_config("old.pkl")


def test_a_config_with_a_function_is_refused():
    write_config()
    with open("config.py", "a") as f:
        f.write("main_config.policy.reward_shaping = lambda x: x\n")
    with pytest.raises(TypeError, match="function"):
        dist_prepare_config("config.py", 0, "local")
    assert not os.path.exists("config.py.pkl")


def test_without_hosts_and_ports_everybody_is_on_this_machine_at_a_port_of_its_own():
    system = system_of()
    assert places(system) == {
        "coordinator": ("127.0.0.1", 22273),
        "learner0": ("127.0.0.1", 22271),
        "collector0": ("127.0.0.1", 22270),
        "collector1": ("127.0.0.1", 22272),
    }
    assert system.coordinator.learner == {"learner0": ["learner0", "127.0.0.1", 22271]}
    assert system.coordinator.collector.collector1 == ["collector1", "127.0.0.1", 22272]


def test_one_port_counts_up_on_each_host():
    hosts = {"coordinator_host": "10.0.0.1", "learner_host": "10.0.0.2", "collector_host": ["10.0.0.1", "10.0.0.2"]}
    ports = {"coordinator_port": 5000, "learner_port": 5000, "collector_port": 5000}
    assert places(system_of(places={**hosts, **ports})) == {
        "coordinator": ("10.0.0.1", 5000),
        "learner0": ("10.0.0.2", 5000),
        "collector0": ("10.0.0.1", 5001),
        "collector1": ("10.0.0.2", 5001),
    }


def test_listed_ports_are_given_as_they_are():
    system = system_of(places={"learner_port": [6000], "collector_port": [6002, 6001]})
    assert [system[name].port for name in ("learner0", "collector0", "collector1")] == [6000, 6002, 6001]


def test_the_arguments_win_over_what_the_config_says_of_the_coordinator():
    own = {"coordinator": {"host": "10.0.0.7", "port": 7000}}
    assert places(system_of(own))["coordinator"] == ("10.0.0.7", 7000)
    given = {"coordinator_host": "10.0.0.8", "coordinator_port": 7001}
    assert places(system_of(own, places=given))["coordinator"] == ("10.0.0.8", 7001)


def test_two_roles_at_one_port_are_refused():
    with pytest.raises(ConfigError, match=r"collector0 and collector1 would both listen at 127.0.0.1:6000"):
        prepare(places={"collector_port": [6000, 6000]})


def test_port_0_is_refused_because_others_must_know_it():
    with pytest.raises(ConfigError, match=r"port 0 of collector1 is not allowed"):
        prepare(places={"collector_port": [6000, 0]})


def test_a_learner_of_several_ranks_has_a_port_for_each_and_an_aggregator_before_them():
    system = system_of({"learner_gpu_num": 2}, places={"learner_host": "10.0.0.2", "learner_port": 6000})
    assert (system.learner0.port, system.learner0.multi_gpu, system.learner0.aggregator) == ([6000, 6001], True, True)
    aggregator = system.learner_aggregator0
    assert aggregator.slave == {"host": "10.0.0.2", "port": 22272}
    assert aggregator.master == {"host": "10.0.0.2", "port": 22273}
    assert aggregator.learner == {"0": ["0", "10.0.0.2", 6000], "1": ["1", "10.0.0.2", 6001]}
    assert system.coordinator.learner == {"learner0": ["learner0", "10.0.0.2", 22272]}


def test_on_kubernetes_workers_are_found_later():
    system = system_of(platform="k8s", places={"learner_port": 6000})
    assert (system.coordinator.host, system.coordinator.port) == ("0.0.0.0", 22273)
    assert (system.learner.port, system.collector.port, system.coordinator.learner) == (6000, 22270, {})
    assert "mark" not in system.dist


def test_budgets_and_name_may_be_given():
    cfg = read_dist_config(prepare(places={"exp_name": "other", "max_train_iter": 50, "max_env_step": 700}))
    assert cfg.main.exp_name == "other" and os.path.basename(os.path.dirname(cfg.system.learner0.path_data)) == "other"
    assert (cfg.main.policy.learn.learner.train_iterations, cfg.system.coordinator.max_env_step) == (50, 700)


def test_budgets_of_the_config_that_are_smaller_stay():
    own = {"coordinator": {"max_env_step": 300}}
    limits = {"max_train_iter": 50, "max_env_step": 700}
    cfg = read_dist_config(prepare(own, places=limits, policy__learn__learner={"train_iterations": 20}))
    assert (cfg.main.policy.learn.learner.train_iterations, cfg.system.coordinator.max_env_step) == (20, 300)


def test_how_long_workers_wait_for_a_coordinator_is_in_the_config():
    assert system_of({"dist": {"coordinator_lost_s": 5}}).dist.coordinator_lost_s == 5
    with pytest.raises(ConfigError, match="must be a number"):
        prepare({"dist": {"coordinator_lost_s": -1}})


def test_a_folder_that_is_not_the_shared_one_is_refused(tmp_path):
    cfg = read_dist_config(prepare())
    check_shared_folders(cfg, cfg.system.learner0)
    other = {**cfg.system.learner0, "path_policy": str(tmp_path)}
    with pytest.raises(ConfigError, match="path_policy = .* is not the folder for which the config was prepared"):
        check_shared_folders(cfg, other)


def test_a_role_is_found_by_its_name_or_by_being_the_only_one():
    cfg = read_dist_config(prepare())
    assert section_of(cfg, "learner", None)[0] == "learner0"
    name, section = section_of(cfg, "collector", "collector1")
    assert (name, section) == ("collector1", cfg.system.collector1)
    with pytest.raises(ConfigError, match="use one of these names: collector0, collector1"):
        section_of(cfg, "collector", None)
    with pytest.raises(ConfigError, match="there is no collector named 'learner0'"):
        section_of(cfg, "collector", "learner0")
    with pytest.raises(ConfigError, match="use one of these names: none"):
        section_of(cfg, "learner_aggregator", None)
