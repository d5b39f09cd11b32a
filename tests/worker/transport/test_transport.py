"""Which transport a config chooses, and what each is made of."""

import pytest
from easydict import EasyDict

from ding.config.read import put
from ding.utils.config_helper import ConfigError, check_config
from ding.utils.registry_factory import COMM_LEARNER_REGISTRY, TRANSPORT_REGISTRY
from ding.worker.collector.comm import create_comm_collector
from ding.worker.learner.comm import FlaskFileSystemLearner, create_comm_learner
from ding.worker.transport.imports import check_task, named_imports
from ding.worker.transport.transport import Launch, choose_transport, get_transport, transport_name


def system(learner=None, collector=None, **keys):
    types = {"comm_learner": learner, "comm_collector": collector}
    return {**{key: {"type": type_name} for key, type_name in types.items() if type_name is not None}, **keys}


@pytest.fixture
def own_transport():
    @TRANSPORT_REGISTRY.register("pigeons")
    class Pigeons(type(get_transport("local"))):
        name = "pigeons"

    yield Pigeons
    del TRANSPORT_REGISTRY["pigeons"]


@pytest.mark.parametrize(
    ("given", "chosen"),
    [
        (system(), "flask_fs"),
        (system("flask_fs", "flask_fs"), "flask_fs"),
        (system("local", "local"), "local"),
        (system(transport="local"), "local"),
        (system("flask_fs", "flask_fs", transport="local"), "local"),
        (system("local", "local", transport="local"), "local"),
        (system("nobody_knows_it", "flask_fs"), "flask_fs"),
    ],
)
def test_one_word_chooses_the_transport_of_all_roles(given, chosen):
    assert choose_transport(given).name == chosen


def test_a_transport_of_a_module_that_the_config_names_is_chosen(import_folder):
    (import_folder / "owls.py").write_text(
        "from ding.utils.registry_factory import TRANSPORT_REGISTRY\n"
        "from ding.worker.transport.local_transport import LocalTransport\n"
        "@TRANSPORT_REGISTRY.register('owls')\n"
        "class Owls(LocalTransport):\n"
        "    pass\n"
    )
    try:
        assert choose_transport({"transport": "owls", "comm_learner": {"import_names": ["owls"]}}).name == "owls"
    finally:
        del TRANSPORT_REGISTRY["owls"]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (system("local", "flask_fs"), "comm_learner.type is for 'local', comm_collector.type is for 'flask_fs'"),
        (system("flask_fs", "local"), "comm_learner.type is for 'flask_fs', comm_collector.type is for 'local'"),
        (system("local"), "comm_learner.type is for 'local', comm_collector.type is for 'flask_fs'"),
        (
            system("local", "local", transport="flask_fs"),
            "transport is for 'flask_fs', comm_learner.type is for 'local'",
        ),
        (system(transport="owls"), "transport = 'owls' is not allowed; it must be one of 'flask_fs', 'local'"),
        (system(transport=3), "transport = 3 is not allowed"),
    ],
)
def test_keys_that_contradict_are_refused(given, message):
    with pytest.raises(ConfigError, match=message):
        choose_transport(given)


def test_a_comm_learner_of_an_own_type_tells_its_transport():
    COMM_LEARNER_REGISTRY.register("my_local", type("Mine", (FlaskFileSystemLearner,), {"transport": "local"}))
    try:
        assert choose_transport(system("my_local", "local")).name == "local"
        with pytest.raises(ConfigError):
            choose_transport(system("my_local", "flask_fs"))
    finally:
        del COMM_LEARNER_REGISTRY["my_local"]


def test_a_transport_may_be_registered_by_others(own_transport):
    assert isinstance(get_transport("pigeons"), own_transport)
    assert choose_transport(system("pigeons", "pigeons")).name == "pigeons"
    check_config({"transport": "pigeons"}, "section", {"transport": transport_name})


def test_workers_run_in_what_their_transport_says():
    assert [get_transport(name).launch for name in ("flask_fs", "local")] == [
        Launch.PROCESS,
        Launch.THREAD,
    ]


@pytest.mark.parametrize("create", [create_comm_collector, create_comm_learner])
def test_a_transport_of_ones_own_needs_no_workers_of_its_own(own_transport, create):
    worker = create(EasyDict(type="pigeons", path_data="own/data", path_policy="own/policy"))
    try:
        assert isinstance(worker._transport, own_transport)
    finally:
        worker.close()


# What a task may have a worker do.


@pytest.mark.parametrize(
    "task",
    [
        {"cfg": {"import_names": ["evil"]}},
        {"cfg": [{"deep": {"import_names": "evil"}}]},
        {"import_names": ["ding.envs", "dingevil", "evil"]},
        {"env": {"env_id": "evil:Name"}},
        {"env": {"kwargs": {"id": "evil:space/Name-v0"}}},
        {"collector_cfg": {"env": {"env_name": "evil:Name"}}},
        {"policy": {"env_name": "evil:Name"}},
        {"env": {"games": [{"family": "evil.deep:space/Name"}]}},
        {"env": {"game": "evil-module:3D"}},
        {"env": [{"games": ["evil:space/Name-v0"]}]},
        {"policy": {"learn": {"lr_scheduler": "evil:function"}}},
        {"env": {"kwargs": {"cost": {"__reference__": "evil:cost", "args": []}}}},
        {"policy": {"model": [{"activation": {"__reference__": "evil:Act"}}]}},
    ],
)
def test_modules_that_are_not_allowed_are_refused_wherever_they_are_named(task):
    with pytest.raises(PermissionError):
        check_task(task, {"import_names": ["good"]})


def test_modules_of_the_workers_own_config_and_of_this_package_are_allowed():
    task = {
        "env": {"import_names": ["good", "ding.envs.x"]},
        "policy": {"import_names": "better"},
        "import_names": None,
    }
    check_task(task, {"import_names": ["good"], "task_import_names": ["better"]})


def test_env_ids_may_name_modules_that_the_workers_own_config_names():
    no_ids = {"device": "cuda:0", "note": "a: b-v1", "url": "http://host:80/x", "place": "host:", "time": "12:30:01"}
    task = {"env": {"env_id": "good.envs:Name-v0", **no_ids}, "policy": {"tag": "any:thing"}}
    assert list(named_imports(task)) == ["good.envs"]
    check_task(task, {"task_import_names": ["good.envs"]})


@pytest.mark.parametrize("task", [{"trust_pickle": True}, {"hook": [{"ext_args": {"trust_pickle": 1}}]}])
def test_only_the_workers_own_config_can_have_pickles_trusted(task):
    with pytest.raises(PermissionError, match="trust_pickle"):
        check_task(task, {})
    check_task(task, {"trust_pickle": True})
    check_task({"trust_pickle": False}, {})


@pytest.mark.parametrize(
    "env", ["my_envs:Corridor", ["my_envs:Corridor", {"size": 3}], "ding.utils.file_helper:read_file"]
)
@pytest.mark.parametrize("path", ["env.env", "env.wrappers", "policy.model.type"])
def test_what_a_task_has_called_by_name_is_named_by_the_workers_own_config_word_by_word(env, path):
    task = {"collector_cfg": {}}
    put(task["collector_cfg"], path, [env] if path == "env.wrappers" else env)
    for allowed in ([], ["my_envs"], ["ding.utils.file_helper"], ["my_envs", "my_envs:Other"]):
        with pytest.raises(PermissionError):
            check_task(task, {"task_import_names": allowed})
    named = list(named_imports(task))
    check_task(task, {"task_import_names": named})


def test_env_ids_that_are_modules_are_named_by_the_workers_own_config():
    task = {"collector_cfg": {"env": {"env_id": "pettingzoo.butterfly.pistonball_v6"}}}
    with pytest.raises(PermissionError):
        check_task(task, {})
    check_task(task, {"task_import_names": list(named_imports(task))})
    check_task({"collector_cfg": {"env": {"env_id": "CartPole-v1"}}}, {})
