"""The section `ray` of a system config, and what follows from `transport = 'ray'`."""

import os
import pathlib
import subprocess
import sys

import pytest

from ding.config import compile_config_parallel
from ding.utils.config_helper import ConfigError
from ding.worker.transport.ray.ray_settings import actor_options, bundle, ray_section
from ding.worker.transport.transport import Launch, get_transport
from tests.entry.parallel_fakes import triple

ROOT = pathlib.Path(__file__).resolve().parents[4]


def test_the_section_is_complete_and_keeps_what_was_given():
    section = ray_section({"learner": {"num_gpus": 1}, "address": "auto", "collector": {"memory": 2**30}})
    assert section["address"] == "auto" and section["placement"] is None and section["runtime_env"] == {}
    assert actor_options(section, "learner") == {"num_cpus": 1, "num_gpus": 1}
    assert actor_options(section, "collector") == {"num_cpus": 1, "memory": 2**30}
    assert bundle(section, "learner") == {"CPU": 1, "GPU": 1} and bundle(section, "collector") == {
        "CPU": 1,
        "memory": 2**30,
    }


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ({"placement": "TIGHT"}, "placement = 'TIGHT' is not allowed"),
        ({"learner": {"num_cpus": -1}}, "learner.num_cpus = -1 is not allowed"),
        ({"object_store_memory": 1000}, "object_store_memory = 1000 is not allowed"),
    ],
)
def test_a_wrong_section_is_refused(section, message):
    with pytest.raises(ConfigError, match=message):
        ray_section(section)


@pytest.mark.parametrize("how", ["transport", "types", "platform"])
def test_one_word_makes_all_roles_those_of_ray(how):
    main, create, system = triple(
        "ray" if how == "types" else "flask_fs", system={"path_data": "d", "path_policy": "p"}
    )
    create.policy.type = "failing_dqn_command"
    if how == "transport":
        system.transport = "ray"
    cfg = compile_config_parallel(
        main, create, system, save_cfg=False, platform="ray" if how == "platform" else "local"
    )
    assert [cfg.system[name].type for name in ("learner0", "collector0", "collector1")] == ["ray"] * 3
    assert cfg.system.coordinator.transport == "ray"
    assert cfg.system.ray == ray_section({})


def test_without_the_package_ray_it_is_said_how_to_get_it():
    code = (
        "import sys; sys.modules['ray'] = None\n"
        "from ding.worker.transport.transport import choose_transport\n"
        "choose_transport({'transport': 'ray'})\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], env=dict(os.environ, PYTHONPATH=str(ROOT)), capture_output=True
    )
    assert "the transport 'ray' needs the package ray: pip install 'ding-worker[ray]'" in result.stderr.decode()


def test_workers_of_ray_are_actors():
    assert get_transport("ray").launch is Launch.ACTOR
