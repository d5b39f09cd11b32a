"""Compiling the config of a parallel training."""

import contextlib
import copy
import os
import re
import socket
import sys

import pytest
from easydict import EasyDict

from ding.config import compile_config_parallel, read_config_directly
from ding.config.utils import (
    parallel_test_create_config,
    parallel_test_main_config,
    parallel_test_system_config,
    parallel_transform,
    parallel_transform_k8s,
    parallel_transform_slurm,
    set_host_port,
    set_system_cfg,
)
from ding.utils.config_helper import ConfigError
from ding.utils.registry_factory import TRANSPORT_REGISTRY
from ding.worker import Coordinator, create_comm_collector, create_comm_learner
from tests.config import fakes  # noqa: F401 - registers the fakes


@pytest.fixture(autouse=True)
def folder(tmp_path):
    return tmp_path


def main(**changes):
    policy = {"learn": {"batch_size": 4, "learner": {"learner_num": 1}}, "collect": {"collector": {"collector_num": 2}}}
    env = {"stop_value": 5, "evaluator_env_num": 3, "n_evaluator_episode": 7}
    return EasyDict({"exp_name": "exp", "env": env, "policy": policy, **changes})


def create(**changes):
    types = {
        "env": {"type": "config_fake_env", "import_names": ["tests.config.fakes"]},
        "env_manager": {"type": "config_fake_manager"},
        "policy": {"type": "config_fake"},
        "commander": {"type": "naive"},
    }
    return EasyDict({**types, **changes})


def compiled(system=None, **kwargs):
    return compile_config_parallel(
        kwargs.pop("main", main()), kwargs.pop("create", create()), EasyDict(system or {}), **kwargs
    )


# The main section.


def test_the_main_section_is_that_of_classes_create_config_and_user():
    cfg = compiled(seed=3).main
    assert cfg.exp_name == "exp" and cfg.keys() == {"exp_name", "env", "policy"}
    assert cfg.env == {
        "length": 7,
        "manager": {
            "episode_num": 3,
            "max_retry": 1,
            "type": "config_fake_manager",
            "cfg_type": "FakeManagerDict",
        },
        "cfg_type": "FakeEnvDict",
        "type": "config_fake_env",
        "import_names": ["tests.config.fakes"],
        "stop_value": 5,
        "n_evaluator_episode": 7,
        "evaluator_env_num": 3,
        "collector_episode_num": 1,
        "evaluator_episode_num": 3,
    }
    policy = cfg.policy
    assert (policy.type, policy.cuda, policy.learn.batch_size) == ("config_fake", False, 4)
    learner, collector = policy.learn.learner, policy.collect.collector
    assert (learner.type, learner.cfg_type, learner.learner_num) == ("base", "BaseLearnerDict", 1)
    assert (collector.type, collector.cfg_type) == ("zergling", "ZerglingParallelCollectorDict")
    assert (collector.collector_num, collector.compressor) == (2, "lz4")
    commander = policy.other.commander
    assert (commander.type, commander.cfg_type) == ("naive", "NaiveCommanderDict")
    buffer = policy.other.replay_buffer
    assert (buffer.type, buffer.replay_buffer_size) == ("advanced", 500)


def test_the_evaluator_section_gets_the_goal_and_the_number_of_episodes():
    assert compiled().main.policy.eval.evaluator == {"stop_value": 5, "n_episode": 9}


def test_episode_numbers_of_the_user_stay():
    env = {"evaluator_env_num": 2, "evaluator_episode_num": 4, "collector_episode_num": 6}
    cfg = compiled(main=main(env=env)).main
    assert (cfg.env.evaluator_episode_num, cfg.env.collector_episode_num) == (4, 6)
    assert cfg.policy.eval.evaluator.n_episode == 8


@pytest.mark.differs(
    "changes the configs given to `compile_config_parallel`, gives evaluators no stop value, and saves into the "
    "working directory",
    "works on copies, and saves into the experiment's folder",
)
def test_the_arguments_are_not_changed():
    given = main(), create(), EasyDict(coordinator={"collector_task_timeout": 9}, path_data="d")
    before = copy.deepcopy(given)
    compile_config_parallel(*given)
    assert given == before


# The system section.


def test_workers_have_seeds_that_are_allowed_even_with_the_largest_seed():
    system = compiled(seed=2**32 - 1).system
    assert [system[f"collector{i}"].seed for i in range(2)] == [2**32 - 1, 0]


@pytest.mark.differs("gives all collectors one seed, and never seeds their envs", "gives each worker its own seed")
def test_the_system_section_is_complete(folder):
    ports = {"coordinator_port": 5, "learner_port": 6, "collector_port": [7, 8]}
    cfg = compiled({"coordinator": {"collector_task_timeout": 9}}, seed=3, **ports)
    data, policy = str(folder / "exp" / "data"), str(folder / "exp" / "policy")
    worker = {
        "type": "flask_fs",
        "host": "127.0.0.1",
        "path_data": data,
        "path_policy": policy,
        "trust_pickle": False,
        "task_import_names": ["tests.config.fakes"],
        "exp_name": "exp",
    }
    assert cfg.seed == 3 and cfg.keys() == {"main", "system", "seed"}
    assert cfg.system == {
        "coordinator": {
            **Coordinator.default_config(),
            "collector_task_timeout": 9,
            "host": "127.0.0.1",
            "port": 5,
            "transport": "flask_fs",
            "path_data": data,
            "learner": {"learner0": ["learner0", "127.0.0.1", 6]},
            "collector": {"collector0": ["collector0", "127.0.0.1", 7], "collector1": ["collector1", "127.0.0.1", 8]},
        },
        "learner0": {**worker, "port": 6, "multi_gpu": False, "gpu_num": 1, "aggregator": False, "seed": 3},
        "collector0": {**worker, "port": 7, "seed": 3},
        "collector1": {**worker, "port": 8, "seed": 4},
    }
    assert cfg.main.policy.other.commander.path_policy == policy


def test_the_types_of_the_comm_classes_come_from_the_create_config():
    types = {"comm_learner": {"type": "local"}, "comm_collector": {"type": "local", "import_names": ["tests"]}}
    system = compiled(create=create(**types)).system
    assert system.learner0.type == system.collector0.type == "local" and system.collector1.import_names == ["tests"]


def test_several_gpus_make_a_learner_of_several_processes():
    learner = compiled({"learner_gpu_num": 2, "trust_pickle": True}).system.learner0
    assert (learner.multi_gpu, learner.gpu_num, learner.trust_pickle) == (True, 2, True)


def test_hosts_and_ports_may_be_given():
    changed = main()
    changed.policy.learn.learner.learner_num = 2
    system = compiled(
        main=changed,
        coordinator_host="c",
        learner_host=["l0", "l1"],
        collector_host="w",
        coordinator_port=1,
        learner_port=2,
        collector_port=[3, 4],
    ).system
    assert (system.coordinator.host, system.coordinator.port) == ("c", 1)
    assert system.coordinator.learner == {"learner0": ["learner0", "l0", 2], "learner1": ["learner1", "l1", 2]}
    assert system.coordinator.collector == {"collector0": ["collector0", "w", 3], "collector1": ["collector1", "w", 4]}


@pytest.mark.differs(
    "gives two roles the same port at times, binds it later, and ignores the arguments for hosts and ports",
    "gives each its own port, and uses the arguments",
)
def test_every_role_gets_a_free_port_of_its_own():
    changed = main()
    changed.policy.collect.collector.collector_num = 20
    system = compiled(main=changed, save_cfg=False).system
    told = {**system.coordinator.learner, **system.coordinator.collector}
    assert told == {name: [name, "127.0.0.1", system[name].port] for name in system if name != "coordinator"}
    ports = [system.coordinator.port, *(port for _, _, port in told.values())]
    assert len(set(ports)) == 22 and all(1024 <= port <= 65535 for port in ports)
    with contextlib.ExitStack() as stack:
        for port in ports:  # raises where it is taken
            stack.enter_context(socket.socket()).bind(("127.0.0.1", port))


def test_port_0_may_be_given_for_roles_that_report_theirs():
    system = compiled(coordinator_port=0, learner_port=0, collector_port=[0, 7]).system
    assert [system[name].port for name in system] == [0, 0, 0, 7]


def test_one_word_in_the_system_config_changes_the_transport_of_all_roles():
    cfg = compiled({"transport": "local"})
    roles = [cfg.system[name].type for name in ("learner0", "collector0", "collector1")]
    assert roles == ["local"] * 3 and cfg.system.coordinator.transport == "local"


@pytest.mark.parametrize("by_types", [False, True])
def test_a_transport_of_the_users_own_is_found_by_the_modules_of_the_comm_sections(import_folder, by_types):
    (import_folder / "owls.py").write_text(
        "from ding.utils.registry_factory import TRANSPORT_REGISTRY\n"
        "from ding.worker.transport.local_transport import LocalTransport\n"
        "@TRANSPORT_REGISTRY.register('owls')\n"
        "class Owls(LocalTransport):\n"
        "    name = 'owls'\n"
    )
    section = {"import_names": ["owls"], **({"type": "owls"} if by_types else {})}
    sections = {"comm_learner": section, "comm_collector": section}
    try:
        cfg = compiled(create=create(**sections)) if by_types else compiled({"transport": "owls", **sections})
        roles = [cfg.system[name].type for name in ("learner0", "collector0", "collector1")]
        assert roles == ["owls"] * 3 and cfg.system.coordinator.transport == "owls"
    finally:
        sys.modules.pop("owls", None)
        TRANSPORT_REGISTRY.pop("owls", None)


@pytest.mark.parametrize(("kind", "name"), [("learner", "learner0"), ("collector", "collector1")])
def test_a_coordinator_refuses_workers_with_port_0_at_once(folder, kind, name):
    given = parallel_test_main_config, parallel_test_create_config, parallel_test_system_config
    cfg = compile_config_parallel(*given, save_cfg=False)
    cfg.system.coordinator[kind][name][2] = 0
    with pytest.raises(ConfigError, match=f"system.coordinator.{kind}.{name} has port 0, where it cannot be reached"):
        Coordinator(cfg)


def test_a_host_in_the_system_config_stays():
    system = compiled({"coordinator": {"host": "here", "port": 5}}, coordinator_host="c").system
    assert (system.coordinator.host, system.coordinator.port) == ("here", 5)


def test_workers_can_be_made_of_their_sections():
    cfg = compiled(seed=1)
    for make, name in ((create_comm_learner, "learner0"), (create_comm_collector, "collector1")):
        make(cfg.system[name]).close()


@pytest.mark.parametrize(
    "system", [{"path_data": "x", "path_policy": "/y"}, {"path_data": "./x/", "path_policy": "/y/"}]
)
def test_folders_become_absolute(folder, system):
    learner = compiled(system).system.learner0
    assert (learner.path_data, learner.path_policy) == (str(folder / "x"), "/y")


def test_folders_of_an_experiment_move_along_when_it_gets_another_name(folder):
    (folder / "exp").mkdir()
    cfg = compiled({"path_data": "./exp/samples"})
    assert re.fullmatch(r"exp_\d{6}_\d{6}", cfg.main.exp_name)
    assert cfg.system.learner0.path_data == str(folder / cfg.main.exp_name / "samples")
    assert cfg.system.learner0.path_policy == str(folder / cfg.main.exp_name / "policy")


# What is written.


def test_the_config_is_saved_in_the_folder_of_the_experiment(folder):
    cfg = compiled(save_path="all.py")
    assert sorted(os.listdir("exp")) == ["all.json", "all.py"] and os.listdir(folder) == ["exp"]
    assert read_config_directly("exp/all.py")["exp_config"] == cfg


def test_nothing_is_written_without_save_cfg(folder):
    unnamed = main()
    del unnamed["exp_name"]
    assert compiled(main=unnamed, save_cfg=False).main.exp_name == "default_experiment"
    assert os.listdir(folder) == []


# The platforms.


def test_on_kubernetes_roles_have_the_documented_ports():
    system = compiled(platform="k8s", learner_port=9).system
    assert (system.coordinator.host, system.coordinator.port) == ("0.0.0.0", 22273)
    assert system.coordinator.learner == system.coordinator.collector == {}
    assert (system.learner0.host, system.learner0.port) == ("auto", 9)
    assert (system.collector1.host, system.collector1.port) == ("auto", 22270)
    assert system.learner == {**system.learner0, "host": "0.0.0.0"}
    assert system.collector == {**system.collector0, "host": "0.0.0.0"}


def test_the_default_port_of_a_learner_on_kubernetes():
    cfg = EasyDict(main=main(), system={"path_data": "d", "path_policy": "p"}, seed=0)
    assert parallel_transform_k8s(cfg).system.learner0.port == 22271 and "learner0" not in cfg.system


@pytest.mark.differs(
    "ends in an AttributeError in `parallel_transform_slurm` without nodes",
    "does not support Slurm, and says what to do instead",
)
def test_slurm_is_a_clear_error():
    with pytest.raises(NotImplementedError, match="use platform 'local'"):
        compiled(platform="slurm")
    with pytest.raises(NotImplementedError):
        parallel_transform_slurm({}, learner_node="node")


def test_transforming_leaves_its_argument_alone():
    cfg = EasyDict(main=main(), system={"path_data": "d", "path_policy": "p"}, seed=2)
    before = copy.deepcopy(cfg)
    result = parallel_transform(cfg, learner_host="l")
    assert cfg == before and result.system.learner0.host == "l"
    assert set_host_port(EasyDict(main=main(), system=set_system_cfg(cfg))).system.collector1.seed == 3


# Errors.


def no_workers(where):
    changed = main()
    section, kind, key = where.split(".")
    changed.policy[section][kind][key] = 0
    return {"main": changed}


@pytest.mark.parametrize(
    ("given", "error", "text"),
    [
        ({"system": {"communication_mode": "manual"}}, ConfigError, "communication_mode = 'manual'"),
        ({"system": {"learner_gpu_num": "many"}}, ConfigError, "learner_gpu_num = 'many'"),
        (no_workers("learn.learner.learner_num"), ConfigError, "policy.learn.learner.learner_num = 0"),
        (no_workers("collect.collector.collector_num"), ConfigError, "policy.collect.collector.collector_num = 0"),
        *(
            ({"create": create(**{entry: {"type": "no_such"}})}, KeyError, f"create_config.{entry}")
            for entry in ("collector", "commander", "learner", "policy")
        ),
        (
            {"create": create(comm_collector={"type": "flask_fs", "import_names": ["no_such"]})},
            ModuleNotFoundError,
            "import_names has 'no_such'",
        ),
        ({"learner_host": 7}, TypeError, "learner_host = 7 is not allowed; it must be str"),
        ({"collector_port": "x"}, TypeError, "collector_port = 'x' is not allowed; it must be int"),
        ({"collector_host": ["one"]}, ConfigError, "a value for each of the 2 workers"),
        ({"platform": "moon"}, KeyError, "not support platform type: 'moon'"),
    ],
)
def test_what_is_not_allowed_is_named(given, error, text):
    with pytest.raises(error, match=text):
        compiled(**given)
    assert os.listdir() == [] or "system" not in given


# The small experiment.


def test_the_small_experiment_compiles(folder):
    given = parallel_test_main_config, parallel_test_create_config, parallel_test_system_config
    before = copy.deepcopy(given)
    cfg = compile_config_parallel(*given)
    assert given == before and cfg.main.policy.type == "dqn_command"
    assert cfg.system.coordinator.path_data == cfg.system.learner0.path_data == str(folder)
    assert list(cfg.system) == ["coordinator", "learner0", "collector0", "collector1"]
    assert cfg.main.policy.other.commander.type == "naive"
    coordinator = Coordinator(cfg)
    coordinator.close()
