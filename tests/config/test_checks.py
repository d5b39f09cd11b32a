"""Values of a user's config, checked when it is compiled."""

import os

import pytest
from easydict import EasyDict

from ding.config import compile_config
from ding.config.topics import MAIN_SETTINGS
from ding.config.utils import SYSTEM_SETTINGS
from ding.envs import DingEnvWrapper
from ding.envs.env.gymnasium_env import GymnasiumEnv
from ding.envs.env.pettingzoo_env import PettingZooEnv
from ding.utils.config_helper import NO_DEFAULT, ConfigError, Configurable, settings_of
from ding.utils.default_helper import Scheduler
from ding.utils.registry_factory import registries
from ding.worker.adapter import LearnerAggregator
from ding.worker.collector.comm.comm_collector import CommCollector
from ding.worker.coordinator.base_serial_commander import BaseSerialCommander
from ding.worker.coordinator.coordinator import Coordinator
from ding.worker.learner.comm.comm_learner import CommLearner
from ding.worker.transport.ray.ray_settings import RAY_SETTINGS


def main_cfg():
    return EasyDict(
        exp_name="exp",
        env={
            "env_id": "CartPole-v1",
            "collector_env_num": 8,
            "evaluator_env_num": 5,
            "n_evaluator_episode": 5,
            "stop_value": 195,
        },
        policy={
            "cuda": False,
            "load_path": "./exp/ckpt/ckpt_best.pth.tar",
            "random_collect_size": 80,
            "model": {"obs_shape": 4, "action_shape": 2, "encoder_hidden_size_list": [128, 64], "dueling": True},
            "nstep": 3,
            "learn": {"update_per_collect": 5, "batch_size": 64, "learning_rate": 0.001, "learner": {"load_path": "p"}},
            "collect": {"n_sample": 8, "env_num": 8, "traj_len_inf": True, "collector": {"collect_print_freq": 10}},
            "eval": {"env_num": 5, "evaluator": {"eval_freq": 40, "n_episode": 5, "stop_value": 1}},
            "other": {
                "eps": {"type": "exp", "start": 0.95, "end": 0.1, "decay": 10000},
                "replay_buffer": {"replay_buffer_size": 20000},
            },
        },
    )


def create_cfg(policy="dqn_command", **changes):
    types = {"env": {"type": "gymnasium"}, "env_manager": {"type": "base"}, "policy": {"type": policy}}
    return EasyDict({**types, **changes})


def with_value(cfg, path, value):
    *sections, key = path.split(".")
    section = cfg
    for name in sections:
        section = section.setdefault(name, EasyDict())
    section[key] = value
    return cfg


def compiled(main=None, create=None, **kwargs):
    given = {"auto": True, "create_cfg": create or create_cfg(), "save_cfg": False, **kwargs}
    return compile_config(main_cfg() if main is None else main, **given)


def refusal(path, value=1, **kwargs):
    with pytest.raises(ConfigError) as e:
        compiled(with_value(main_cfg(), path, value), **kwargs)
    return str(e.value)


# Values.


@pytest.mark.differs(
    "accepts counts that are floats, batches larger than the buffer, seeds of None, empty names and the like, and "
    "fails when they are used",
    "refuses bad values when the config is compiled, and says what is allowed",
)
@pytest.mark.parametrize("path", ["policy.learn.batch_size", "policy.batch_size"])
@pytest.mark.parametrize("value", [64.0, "64", True, 0, 0.5])
def test_a_batch_size_is_an_int(path, value):
    assert refusal(path, value) == f"{path} = {value!r} is not allowed; it must be an int of 1 or more"


def test_sizes_that_are_read_as_numbers_may_be_integral_floats():
    main = with_value(main_cfg(), "policy.other.replay_buffer.replay_buffer_size", 1e4)
    assert compiled(with_value(main, "policy.other.eps.decay", 1e4)).policy.other.eps.decay == 1e4


def test_a_buffer_smaller_than_a_batch_is_refused():
    path = "policy.other.replay_buffer.replay_buffer_size"
    assert "at least policy.learn.batch_size = 64" in refusal(path, 63)
    compiled(with_value(main_cfg(), path, 64))
    whole = with_value(with_value(main_cfg(), path, 63), "policy.batch_size", 63)
    compiled(whole)  # this batch size counts


@pytest.mark.parametrize("seed", [None, "0", 0.0, -1, True, 2**32])
def test_a_seed_is_an_int_that_generators_take(seed):
    with pytest.raises(ConfigError, match="seed = .* is not allowed"):
        compiled(seed=seed)
    assert compiled(seed=2**32 - 1).seed == 2**32 - 1


@pytest.mark.parametrize("path", ["env", "policy.model", "policy.other.replay_buffer"])
def test_import_names_are_a_list(path):
    assert refusal(f"{path}.import_names", "os.path").startswith(f"main_config.{path}.import_names = 'os.path'")


@pytest.mark.parametrize("name", ["", 3, None])
def test_the_name_of_an_experiment_is_that_of_a_folder(name):
    assert refusal("exp_name", name, save_cfg=True).startswith(f"exp_name = {name!r} is not allowed")
    assert os.listdir() == []


def test_a_policy_type_that_is_misspelt_is_named_with_the_nearest():
    for kind in ("dqnn", "dqnn_command"):
        with pytest.raises(KeyError, match="did you mean 'dqn'"):
            compiled(create=create_cfg(kind))


# Keys.


@pytest.mark.parametrize("key", [3, (1, 2), "items", "get"])
def test_a_key_that_cannot_be_an_attribute_is_refused(key):
    main = {"policy": {"learn": {"stages": [{"first": {key: 1}}]}}}
    with pytest.raises(ConfigError, match="in main_config.policy.learn.stages.first is not allowed"):
        compiled(main)


@pytest.mark.parametrize("path", ["policy.model", "policy.other.replay_buffer", "policy.other.commander"])
def test_a_section_that_something_else_replaces_is_refused(path):
    assert refusal(path, [1]).startswith(f"{path} = [1] is not allowed; it must be a dict")


# Each class that reads a config has one table: every key has a meaning, every default is allowed.


KINDS = (
    *("learner", "serial_collector", "parallel_collector", "serial_evaluator", "buffer", "env_manager", "commander"),
    *("league", "comm_learner", "comm_collector"),
)
REGISTERED = {
    cls
    for kind in KINDS
    for cls in (registries[kind].get(name) for name in list(registries[kind]))
    if cls.__module__.startswith("ding.")
}
OTHERS = (DingEnvWrapper, GymnasiumEnv, PettingZooEnv, Scheduler, LearnerAggregator, CommCollector, CommLearner)
CLASSES = sorted({*REGISTERED, *OTHERS, Coordinator, BaseSerialCommander}, key=lambda cls: cls.__name__)
TABLES = [
    *[pytest.param(settings_of(cls), id=cls.__name__) for cls in CLASSES],
    *[pytest.param(table, id=name) for name, table in (("main", MAIN_SETTINGS), ("system", SYSTEM_SETTINGS))],
    pytest.param(RAY_SETTINGS, id="ray"),
]
# Keys that every section may have.
UNIVERSAL = ("type", "import_names")


@pytest.mark.parametrize("table", TABLES)
def test_each_key_has_a_meaning_and_each_default_is_allowed(table):
    keys = [path for path in table if path not in UNIVERSAL]
    assert [path for path in keys if not table[path].doc.endswith(".")] == []
    with_rules = [path for path in keys if table[path].rule is not None and table[path].default is not NO_DEFAULT]
    assert [path for path in with_rules if table[path].rule(table[path].default) is not None] == []


@pytest.mark.parametrize("cls", [cls for cls in CLASSES if issubclass(cls, Configurable)], ids=lambda cls: cls.__name__)
def test_the_default_config_is_that_of_the_table(cls):
    defaults = cls.default_config()
    assert defaults.pop("cfg_type") == f"{cls.__name__}Dict"
    assert defaults == settings_of(cls).config()
