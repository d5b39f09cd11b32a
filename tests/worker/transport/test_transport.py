"""Which transport a config chooses, and what each is made of."""

import pytest
from easydict import EasyDict

from ding.utils.config_helper import ConfigError, check_config
from ding.utils.registry_factory import COMM_LEARNER_REGISTRY, TRANSPORT_REGISTRY
from ding.worker.collector.comm import create_comm_collector
from ding.worker.learner.comm import FlaskFileSystemLearner, create_comm_learner
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


def test_a_transport_of_a_module_that_the_config_names_is_chosen(tmp_path, monkeypatch):
    (tmp_path / "owls.py").write_text(
        "from ding.utils.registry_factory import TRANSPORT_REGISTRY\n"
        "from ding.worker.transport.local_transport import LocalTransport\n"
        "@TRANSPORT_REGISTRY.register('owls')\n"
        "class Owls(LocalTransport):\n"
        "    name = 'owls'\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
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
