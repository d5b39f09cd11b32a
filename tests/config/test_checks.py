"""Values of a user's config, checked when it is compiled."""

import copy
import os

import pytest
from easydict import EasyDict
from torch import nn

from ding.config import compile_config, compile_config_parallel
from ding.config.topics import MAIN_SETTINGS, KnownKeys
from ding.config.utils import (
    SYSTEM_SETTINGS,
    parallel_test_create_config,
    parallel_test_main_config,
    parallel_test_system_config,
)
from ding.envs import BaseEnv, DingEnvWrapper
from ding.envs.env.gymnasium_env import GymnasiumEnv
from ding.envs.env.pettingzoo_env import PettingZooEnv
from ding.utils.config_helper import NO_DEFAULT, ConfigError, Configurable, settings_of
from ding.utils.default_helper import Scheduler
from ding.utils.registry_factory import MODEL_REGISTRY, POLICY_REGISTRY, registries
from ding.worker.adapter import LearnerAggregator
from ding.worker.collector.comm.comm_collector import CommCollector
from ding.worker.coordinator.base_serial_commander import BaseSerialCommander
from ding.worker.coordinator.coordinator import Coordinator
from ding.worker.learner.comm.comm_learner import CommLearner
from ding.worker.transport.ray.ray_settings import RAY_SETTINGS
from tests.config.fakes import FakePolicy


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


# Keys of a user's config that nothing reads: warnings, and errors where the config is strict.


def strict_error(main, **kwargs):
    """Returns the lines of the error, without the advice at its end."""
    with pytest.raises(ConfigError) as e:
        compiled(main, strict_config=True, **kwargs)
    return [line for line in str(e.value).split("\n") if not line.startswith("To use your own keys, ")]


# What is meant by an unknown key. Both modes say the same.

MISSPELT = [
    ("policy.learn.learning_rte", "policy.learn.learning_rate"),
    ("policy.other.eps.ende", "policy.other.eps.end"),
    ("policy.lern", "policy.learn"),
    ("policy.collect.n_samples", "policy.collect.n_sample"),
    ("policy.learning_rte", "policy.learn.learning_rate"),
    ("policy.learn.learner.hook.save_ckpt_after_iters", "policy.learn.learner.hook.save_ckpt_after_iter"),
    ("policy.eval.evaluator.eval_frequ", "policy.eval.evaluator.eval_freq"),
    ("env.manager.max_retrys", "env.manager.max_retry"),
    ("env.stop_valu", "env.stop_value"),
    ("polcy", "policy"),
]
MISPLACED = [
    ("policy.learning_rate", "policy.learn.learning_rate"),
    ("policy.eval.eval_freq", "policy.eval.evaluator.eval_freq"),
    ("policy.learn.n_sample", "policy.collect.n_sample"),
    ("policy.other.decay", "policy.other.eps.decay"),
    ("policy.other.replay_buffer_size", "policy.other.replay_buffer.replay_buffer_size"),
    ("policy.stop_value", "env.stop_value"),
    ("policy.collect.collector_env_num", "env.collector_env_num"),
    ("policy.step_timeout", "env.manager.step_timeout"),
]
RENAMED = [
    ("policy.learn.lr", "policy.learn.learning_rate"),
    ("lr", "policy.learn.learning_rate"),
    ("policy.gamma", "policy.discount_factor"),
    ("policy.buffer_size", "policy.other.replay_buffer.replay_buffer_size"),
    ("policy.hidden_sizes", "policy.model.net_arch"),
    ("policy.learn.tau", "policy.learn.target_theta"),
    (
        "policy.learn.target_update_interval",
        "policy.learn.target_update_freq, which counts training iterations",
    ),
    ("policy.train_freq", "policy.collect.n_sample, which counts the steps of all envs together"),
    ("env.reward_threshold", "env.stop_value"),
]
ALL = [
    *[(path, f"did you mean {meant}?") for path, meant in MISSPELT],
    *[(path, f"it takes effect as {meant}") for path, meant in MISPLACED],
    *[(path, f"use {meant}") for path, meant in RENAMED],
]


@pytest.mark.differs(
    "ignores misspelt keys, keys in the wrong section, and keys that nothing reads",
    "warns, and names the key that is meant; raises with `strict_config=True`, as in `ding train`",
)
@pytest.mark.parametrize(("path", "hint"), ALL)
def test_an_unknown_key_warns_of_what_is_meant_and_is_an_error_if_strict(caplog, path, hint):
    main = with_value(main_cfg(), path, 17)
    for _ in range(2):
        compiled(main)
    assert caplog.messages == [f"ding does not read the config key {path}; {hint}"]
    assert strict_error(main) == [f"ding does not read the config key {path} = 17; {hint}"]


def test_a_name_of_another_library_is_resolved_by_what_the_policy_reads():
    def meant(policy, name):
        known = KnownKeys()
        known.add_class("policy", POLICY_REGISTRY.get(policy))
        (key,) = known.find_unknown({"policy": {name: 0.5}})
        return key.targets

    assert meant("dqn", "gamma") == ["policy.discount_factor"]
    assert meant("sac", "gamma") == ["policy.learn.discount_factor"]
    assert meant("ppo", "gamma") == ["policy.collect.discount_factor"]
    assert meant("acer", "gamma") == ["policy.learn.discount_factor"]  # that of `collect` has no effect
    assert meant("a2c", "gradient_steps") == []
    assert meant("ddpg", "lr") == ["policy.learn.learning_rate_actor", "policy.learn.learning_rate_critic"]
    assert meant("fqf", "lr") == ["policy.learn.learning_rate_quantile"]
    assert meant("ppo", "ent_coef") == ["policy.learn.entropy_weight"]
    assert meant("sac", "ent_coef") == ["policy.learn.alpha"]
    assert meant("ppo", "clip_range") == ["policy.learn.clip_ratio"]
    assert meant("ppo", "n_epochs") == ["policy.learn.epoch_per_collect"]
    assert meant("dqn", "clip_range") == []


def test_a_value_that_is_in_effect_anyway_is_not_warned_of(caplog):
    main = with_value(main_cfg(), "policy.discount_factor", 0.9)
    main = with_value(main, "policy.collect.discount_factor", 0.9)
    main = with_value(main, "policy.learn.nstep", main.policy.nstep)
    compiled(with_value(main, "policy.learn.lr", main.policy.learn.learning_rate))
    assert caplog.messages == []
    assert len(strict_error(main)) == 3
    compiled(with_value(main, "policy.learn.nstep", 17))
    assert caplog.messages == ["ding does not read the config key policy.learn.nstep; it takes effect as policy.nstep"]


def test_a_key_that_may_be_the_users_own_warns_once(caplog):
    main = main_cfg()
    for path in ("policy.my_key", "policy.kappa", "policy.learn.my_section.learning_rate", "env.fps"):
        with_value(main, path, 1)
    for _ in range(2):
        assert compiled(main).policy.kappa == 1
    keys = ["env.fps", "policy.learn.my_section", "policy.my_key", "policy.kappa"]
    assert [message.partition("config key ")[2].partition(";")[0] for message in caplog.messages] == keys


# Classes from outside.


class OutsideEnv(BaseEnv):
    """An env that says nothing of its keys."""


class ListingEnv(OutsideEnv):
    config_keys = ("stop_values", "step_timeout")


class ConfiguredEnv(OutsideEnv):
    config = {"stop_values": 1, "step_timeout": 1}


@pytest.mark.parametrize("env", [ListingEnv, ConfiguredEnv])
def test_keys_that_an_env_class_lists_are_its_own(caplog, env):
    main = with_value(with_value(main_cfg(), "env.stop_values", 1), "env.step_timeout", 1)
    del main.env["env_id"]
    assert compiled(main, env=env, strict_config=True).env.stop_values == 1
    compiled(with_value(main, "env.fps", 1), env=env)
    compiled(main, env=env, strict_config=True)
    assert caplog.messages == []


def test_a_policy_from_outside_may_read_any_key_that_is_not_similar_to_one_that_it_lists(caplog):
    class MyPolicy(FakePolicy):
        config = {**FakePolicy.config, "learn": {"learning_rate_q": 1, "learning_rate_p": 1}, "stop_value": 3}

    main = EasyDict(policy={"learn": {"learning_rate_q": 2, "learning_rate_p": 3}, "stop_value": 4, "model": {"x": 1}})
    given = {"policy": MyPolicy, "save_cfg": False}
    assert compile_config(main, **given, strict_config=True).policy.learn.learning_rate_p == 3
    main.policy.update(mcts={"simulations": 50}, game_segment_length=200)
    compile_config(main, **given)
    assert caplog.messages == []
    main.policy.learn.learning_rate_qq = 1
    with pytest.raises(ConfigError, match="learning_rate_qq = 1; did you mean policy.learn.learning_rate_q"):
        compile_config(main, **given, strict_config=True)


class OpenModel(nn.Module):
    def __init__(self, hidden_sizes, **others):
        super().__init__()


@pytest.fixture
def own_model():
    MODEL_REGISTRY["config_open"] = OpenModel
    yield
    del MODEL_REGISTRY["config_open"]


def test_the_arguments_of_a_model_are_left_to_its_constructor(caplog, own_model):
    main = main_cfg()
    main.policy.model = EasyDict(type="config_open", hidden_sizes=[3], learning_rate=1, anything=2)
    assert compiled(main, strict_config=True).policy.model.hidden_sizes == [3]
    compiled(with_value(main_cfg(), "policy.model.anything", 1), strict_config=True)
    assert caplog.messages == []


# Where keys come from.


def test_the_create_config_is_checked_under_its_own_name(caplog):
    create = create_cfg(env={"type": "gymnasium", "import_name": ["ding.envs"], "mine": 1})
    create.policy.lr = 3
    compiled(create=create)
    create.replay_bufer = {"type": "naive"}
    lines = strict_error(main_cfg(), create=create)
    assert [line.partition("config key ")[2].partition(" = ")[0] for line in lines] == [
        "create_config.replay_bufer",
        "create_config.env.import_name",
        "create_config.env.mine",
        "create_config.policy.lr",
    ]
    assert len(caplog.messages) == 3 and "create_config.env.import_names?" in caplog.text


def test_a_parallel_config_is_checked_in_the_same_way(caplog):
    main = copy.deepcopy(parallel_test_main_config)
    given = parallel_test_create_config, parallel_test_system_config
    compile_config_parallel(main, *given, save_cfg=False, strict_config=True)
    for path in ("policy.learn.learning_rte", "policy.collector_num", "policy.kappa"):
        with_value(main, path, 17)
    assert compile_config_parallel(main, *given, save_cfg=False).main.policy.kappa == 17
    assert len(caplog.messages) == 3 and "policy.learn.learning_rate?" in caplog.messages[0]
    with pytest.raises(ConfigError, match=r"learning_rte = 17.*\n.*collector_num = 17.*\n.*kappa = 17"):
        compile_config_parallel(main, *given, strict_config=True)
    assert os.listdir() == []


def test_the_system_config_is_checked_too(caplog):
    given = parallel_test_main_config, parallel_test_create_config, {**parallel_test_system_config, "path_date": "x"}
    compile_config_parallel(*given, save_cfg=False)
    assert len(caplog.messages) == 1 and "system_config.path_data?" in caplog.text
    with pytest.raises(ConfigError, match="system_config.path_data?"):
        compile_config_parallel(*given, save_cfg=False, strict_config=True)


def test_values_of_a_parallel_config_are_checked_too():
    given = parallel_test_create_config, parallel_test_system_config
    for path in ("policy.learn.batch_size", "env.import_names", "exp_name"):
        with pytest.raises(ConfigError, match=f"{path} = 1.0"):
            compile_config_parallel(with_value(copy.deepcopy(parallel_test_main_config), path, 1.0), *given)
    with pytest.raises(ConfigError, match="seed = None"):
        compile_config_parallel(parallel_test_main_config, *given, seed=None)
    assert os.listdir() == []
