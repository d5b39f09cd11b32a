"""Names, places and values of a user's config, checked when it is compiled."""

import copy
import os

import pytest
from easydict import EasyDict
from torch import nn

from ding.config import compile_config, compile_config_parallel
from ding.config.utils import (
    parallel_test_create_config,
    parallel_test_main_config,
    parallel_test_system_config,
)
from ding.envs import BaseEnv, DingEnvWrapper
from ding.policy import DQNPolicy, Policy, PPOPolicy
from ding.utils.config_helper import ConfigError
from ding.utils.default_helper import one_time_warning
from ding.utils.registry_factory import MODEL_REGISTRY
from tests.config.fakes import FakeEnv, FakeManager, FakePolicy


@pytest.fixture(autouse=True)
def fresh(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    one_time_warning.cache_clear()


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


# Misspelt names.


@pytest.mark.parametrize(
    ("path", "meant"),
    [
        ("policy.learn.learning_rte", "policy.learn.learning_rate"),
        ("policy.nsteps", "policy.nstep"),
        ("policy.other.eps.ende", "policy.other.eps.end"),
        ("policy.other.eps.edn", "policy.other.eps.end"),
        ("policy.other.ep", "policy.other.eps"),
        ("policy.cudda", "policy.cuda"),
        ("policy.lern", "policy.learn"),
        ("policy.collect.n_samples", "policy.collect.n_sample"),
        ("policy.collect.n_episodes", "policy.collect.n_episode"),
        ("policy.random_colect_size", "policy.random_collect_size"),
        ("policy.model.obs_shapes", "policy.model.obs_shape"),
        ("policy.model.duelling", "policy.model.dueling"),
        ("policy.model.head_layer_nums", "policy.model.head_layer_num"),
        ("env.stop_valu", "env.stop_value"),
        ("env.n_evaluator_episodes", "env.n_evaluator_episode"),
        ("env.env_di", "env.env_id"),
        ("env.max_episode_step", "env.max_episode_steps"),
        ("policy.model.typ", "policy.model.type"),
        ("exp_nam", "exp_name"),
        ("polcy", "policy"),
    ],
)
def test_a_misspelt_key_is_named_with_the_one_that_is_meant(path, meant):
    assert refusal(path).startswith(f"unknown config key '{path}'; did you mean '{meant}'?")


def test_the_message_says_where_a_key_of_ones_own_goes():
    assert "add it to `config` of the policy's class" in refusal("policy.learn.learning_rate2")
    assert "add it to `config_keys` of the env's class" in refusal("env.stop_values")
    assert "add it to the constructor of the model" in refusal("policy.model.noises")


def test_settings_that_only_rules_name_are_known():
    create = create_cfg("ppo_command")
    main = EasyDict(env=main_cfg().env, policy={"learn": {"lr_scheduler": {"epoch_num": 3, "min_lr_lambda": 0.1}}})
    assert compiled(main, create).policy.learn.lr_scheduler.epoch_num == 3
    main.policy.learn.lr_scheduler.epoch_nums = main.policy.learn.lr_scheduler.pop("epoch_num")
    with pytest.raises(ConfigError, match=r"'policy.learn.lr_scheduler.epoch_nums'; did you mean '.*epoch_num'"):
        compiled(main, create)


def test_without_auto_names_are_checked_too():
    with pytest.raises(ConfigError, match=r"'policy.learn.batch_sizes'; did you mean 'policy.learn.batch_size'"):
        compile_config(EasyDict(policy={"learn": {"batch_sizes": 2}}), policy=FakePolicy, save_cfg=False)


def test_a_parallel_config_is_checked_in_the_same_way():
    given = parallel_test_create_config, parallel_test_system_config
    for path, text in (
        ("policy.learn.learning_rte", "did you mean 'policy.learn.learning_rate'"),
        ("policy.collector_num", "belongs to 'policy.collect.collector.collector_num'"),
        ("policy.learn.batch_size", "batch_size = 1.0 is not allowed"),
        ("env.import_names", "main_config.env.import_names = 1.0 is not allowed"),
        ("exp_name", "exp_name = 1.0 is not allowed"),
    ):
        with pytest.raises(ConfigError, match=text):
            compile_config_parallel(with_value(copy.deepcopy(parallel_test_main_config), path, 1.0), *given)
    with pytest.raises(ConfigError, match="seed = None is not allowed"):
        compile_config_parallel(parallel_test_main_config, *given, seed=None)
    assert os.listdir() == []


# Names in the wrong section.


@pytest.mark.parametrize(
    ("path", "places"),
    [
        ("policy.learning_rate", "'policy.learn.learning_rate'"),
        ("policy.eval.eval_freq", "'policy.eval.evaluator.eval_freq'"),
        ("policy.eval_freq", "'policy.eval.evaluator.eval_freq'"),
        ("policy.learn.n_sample", "'policy.collect.n_sample'"),
        ("policy.learn.cuda", "'policy.cuda'"),
        ("policy.collect.discount_factor", "'policy.discount_factor'"),
        ("policy.other.decay", "'policy.other.eps.decay'"),
        ("policy.other.replay_buffer_size", "'policy.other.replay_buffer.replay_buffer_size'"),
        ("policy.learn.replay_buffer_size", "'policy.other.replay_buffer.replay_buffer_size'"),
        ("policy.obs_shape", "'policy.model.obs_shape'"),
        ("policy.save_ckpt_after_iter", "'policy.learn.learner.hook.save_ckpt_after_iter'"),
        ("policy.collect.collector.n_sample", "'policy.collect.n_sample'"),
        ("policy.other.replay_buffer.batch_size", "'policy.learn.batch_size'"),
        ("policy.model.learning_rate", "'policy.learn.learning_rate'"),
        ("policy.stop_value", "'env.stop_value'"),
        ("policy.collect.collector_env_num", "'env.collector_env_num'"),
        ("env.step_timeout", "'env.manager.step_timeout'"),
        ("env.manager.stop_value", "'env.stop_value'"),
        ("env.manager.env_id", "'env.env_id'"),
        ("policy.step_timeout", "'env.manager.step_timeout'"),
        ("policy.model.eval_freq", "'policy.eval.evaluator.eval_freq'"),
    ],
)
def test_a_key_in_the_wrong_section_is_sent_to_the_right_one(path, places):
    assert refusal(path) == f"config key '{path}' has no effect; it belongs to {places}"


def test_a_key_in_the_wrong_section_may_repeat_what_the_right_one_says(caplog):
    main = with_value(main_cfg(), "policy.discount_factor", 0.9)
    policy = compiled(with_value(main, "policy.collect.discount_factor", 0.9)).policy
    assert policy.discount_factor == policy.collect.discount_factor == 0.9
    assert caplog.messages == [
        "config key policy.collect.discount_factor is unknown; it has an effect only if your code reads it"
    ]
    with pytest.raises(ConfigError, match="it belongs to 'policy.discount_factor'"):
        compiled(with_value(main, "policy.collect.discount_factor", 0.8))


def test_a_key_with_several_places_names_them_all():
    create = create_cfg(replay_buffer={"type": "deque"})
    assert refusal("policy.learn.priority_IS_weight", create=create).endswith(
        "it belongs to 'policy.priority_IS_weight' or 'policy.other.replay_buffer.priority_IS_weight'"
    )


# What is right, or may be.


def test_the_keys_that_entries_workers_and_data_sets_read_pass(caplog):
    compiled()
    assert caplog.messages == []


@pytest.mark.parametrize("policy", ["dqn_command", "ppo_command"])
def test_a_compiled_config_passes_as_a_users(caplog, policy):
    main = main_cfg()
    if policy == "ppo_command":
        del main.policy.model.dueling
        main.policy.pop("nstep")
        main.policy.other.pop("eps")
        main.policy.other.eps = {"type": "exp"}
    create = create_cfg(policy)
    first = compiled(main, create)
    assert compiled(first, create) == first and caplog.messages == []


@pytest.mark.parametrize("cls", [DQNPolicy, PPOPolicy])
def test_all_defaults_of_a_policy_pass_as_a_users(caplog, cls):
    env = main_cfg().env
    policy = cls.default_config()
    compiled(EasyDict(env=env, policy=policy), create_cfg(f"{policy.type}_command"))
    assert caplog.messages == []


def test_other_keys_of_a_policy_warn_once(caplog):
    main = main_cfg()
    for path in ("policy.my_key", "policy.learn.my_section.learning_rate", "policy.other.eps.my_key"):
        with_value(main, path, 1)
    for _ in range(2):
        compiled(main)
    text = "config key {} is unknown; it has an effect only if your code reads it"
    keys = ["policy.my_key", "policy.learn.my_section", "policy.other.eps.my_key"]
    assert caplog.messages == [text.format(key) for key in keys]


def test_other_keys_of_env_model_and_the_top_pass(caplog):
    main = main_cfg()
    for path in (
        "env.seq",
        "env.fps",
        "env.time",
        "env.map_name",
        "env.n_sample",
        "env.obs_shape",
        "policy.model.anything",
        "bco.alpha",
        "mine",
        "eval",
    ):
        with_value(main, path, 1)
    assert compiled(main).env.fps == 1 and caplog.messages == []


def test_short_names_of_other_meaning_are_not_misspelt(caplog):
    main = main_cfg()
    others = ("policy.other.eps.epoch", "policy.eval.mode", "policy.other.seconds", "policy.collect.seq", "policy.alp")
    for path in (*others, "policy.learn.learning_rate_xy", "policy.learn.alpha", "policy.other.fps"):
        with_value(main, path, 1)
    with pytest.raises(ConfigError, match=r"'policy.other.fps'; did you mean 'policy.other.eps'"):
        compiled(main)
    del main.policy.other["fps"]
    compiled(main)
    assert len(caplog.messages) == 7


class OutsideEnv(BaseEnv):
    """An env that says nothing of its keys."""


def test_an_env_that_does_not_say_what_it_reads_may_read_keys_of_its_manager(caplog):
    main = with_value(main_cfg(), "env.step_timeout", 3)
    for _ in range(2):
        compiled(main, env=OutsideEnv)
    assert caplog.messages == [
        "config key 'env.step_timeout' has no effect; it belongs to 'env.manager.step_timeout', unless the env reads it"
    ]


@pytest.mark.parametrize("attribute", ["config", "config_keys"])
def test_keys_that_an_env_class_lists_are_its_own(caplog, attribute):
    keys = ("stop_values", "step_timeout")
    env = type("OwnEnv", (OutsideEnv,), {attribute: keys if attribute == "config_keys" else dict.fromkeys(keys, 1)})
    main = with_value(with_value(main_cfg(), "env.stop_values", 1), "env.step_timeout", 1)
    assert compiled(main, env=env).env.stop_values == 1 and caplog.messages == []
    with pytest.raises(ConfigError, match=r"'env.stop_valuess'; did you mean 'env.stop_values'"):
        compiled(with_value(main, "env.stop_valuess", 1), env=env)
    with pytest.raises(ConfigError, match=r"'env.reset_timeout' has no effect; it belongs to 'env.manager"):
        compiled(with_value(main_cfg(), "env.reset_timeout", 1), env=env)


def test_an_env_with_a_default_config_says_what_it_reads():
    class OwnEnv(OutsideEnv):
        @classmethod
        def default_config(cls):
            return EasyDict(length=3)

    with pytest.raises(ConfigError, match=r"'env.step_timeout' has no effect"):
        compiled(with_value(main_cfg(), "env.step_timeout", 3), env=OwnEnv)


def test_keys_of_wrapped_envs_are_known():
    with pytest.raises(ConfigError, match=r"'env.env_wrappers'; did you mean 'env.env_wrapper'"):
        compiled(with_value(main_cfg(), "env.env_wrappers", []), env=DingEnvWrapper)
    compiled(with_value(main_cfg(), "env.env_wrapper", []), env=DingEnvWrapper)


def test_keys_of_an_envs_default_config_are_known():
    main = EasyDict(env={"lenght": 3}, policy={})
    given = {"policy": FakePolicy, "env": FakeEnv, "env_manager": FakeManager, "save_cfg": False}
    with pytest.raises(ConfigError, match=r"'env.lenght'; did you mean 'env.length'"):
        compile_config(main, **given)
    with pytest.raises(ConfigError, match=r"'env.max_retry' has no effect; it belongs to 'env.manager.max_retry'"):
        compile_config(EasyDict(env={"max_retry": 3}, policy={}), **given)


def test_a_policy_of_ones_own_is_known_by_its_config(caplog):
    class MyPolicy(FakePolicy):
        config = {**FakePolicy.config, "learn": {"learning_rate_q": 1, "learning_rate_p": 1}, "stop_value": 3}

        def default_model(self):
            raise NotImplementedError

    main = EasyDict(policy={"learn": {"learning_rate_q": 2, "learning_rate_p": 3}, "stop_value": 4, "model": {"x": 1}})
    cfg = compile_config(main, policy=MyPolicy, save_cfg=False)
    assert cfg.policy.learn.learning_rate_p == 3 and caplog.messages == []
    main.policy.learn = {"learning_rate_qq": 1}
    with pytest.raises(ConfigError, match=r"did you mean 'policy.learn.learning_rate_q'"):
        compile_config(main, policy=MyPolicy, save_cfg=False)


class OpenModel(nn.Module):
    def __init__(self, width, **others):
        super().__init__()


class ClosedModel(nn.Module):
    def __init__(self, width):
        super().__init__()


@pytest.fixture
def models():
    MODEL_REGISTRY.update(config_open=OpenModel, config_closed=ClosedModel)
    yield
    for name in ("config_open", "config_closed"):
        del MODEL_REGISTRY[name]


def model_of(kind, **arguments):
    main = main_cfg()
    main.policy.model = EasyDict(type=kind, **arguments)
    return compiled(main, create=create_cfg()).policy.model


def test_a_model_that_takes_any_argument_takes_names_of_the_policy_too(models):
    assert model_of("config_open", learning_rate=1).learning_rate == 1
    with pytest.raises(ConfigError, match=r"'policy.model.learning_rate' .* belongs to 'policy.learn.learning_rate'"):
        model_of("config_closed", learning_rate=1)


def test_a_default_model_that_depends_on_the_config_is_known():
    main = EasyDict(env=main_cfg().env, policy={"model": {"critic_head_hidden_sizes": 32}})
    with pytest.raises(ConfigError, match=r"did you mean 'policy.model.critic_head_hidden_size'"):
        compiled(main, create_cfg("ppo_command"))
    main.policy.update(multi_agent=True, model={"agent_nums": 3})
    with pytest.raises(ConfigError, match=r"did you mean 'policy.model.agent_num'"):
        compiled(main, create_cfg("ppo_command"))


def test_a_default_model_that_cannot_be_told_yet_is_left_alone():
    class MyPolicy(FakePolicy):
        def default_model(self):
            return self._kind, []

    class Unfinished(Policy):
        config = {}

    for policy in (MyPolicy, Unfinished):
        main = EasyDict(policy={"model": {"anything": 2}})
        assert compile_config(main, policy=policy, save_cfg=False).policy.model.anything == 2


def test_a_section_of_a_worker_that_is_not_known_may_hold_anything(caplog):
    main = EasyDict(policy={"collect": {"collector": {"n_sample": 3}}})
    compile_config(main, policy=FakePolicy, save_cfg=False)
    assert caplog.messages == []


def test_the_arguments_of_a_model_are_known(models):
    for kind in ("config_open", "config_closed"):
        with pytest.raises(ConfigError, match=r"'policy.model.widht'; did you mean 'policy.model.width'"):
            model_of(kind, widht=1)


def test_a_model_that_cannot_be_found_yet_is_left_alone():
    assert model_of("config_absent", learning_rate=1).learning_rate == 1
    assert model_of("dqn", import_names=["config_absent_module"], learning_rate=1).learning_rate == 1


def test_defaults_alone_do_not_tell_what_a_model_takes():
    class MyPolicy(FakePolicy):
        config = {**FakePolicy.config, "model": {"action_space": "discrete", "v_min": -10}}

    main = EasyDict(policy={"model": {"action_shape": 2, "v_max": 10}})
    assert compile_config(main, policy=MyPolicy, save_cfg=False).policy.model == {
        "action_space": "discrete",
        "v_min": -10,
        "action_shape": 2,
        "v_max": 10,
    }


# Values.


@pytest.mark.parametrize("path", ["policy.learn.batch_size", "policy.batch_size"])
@pytest.mark.parametrize(("value", "end"), [(64.0, "; write 64"), ("64", ""), (True, ""), (0, ""), (0.5, "")])
def test_a_batch_size_is_an_int(path, value, end):
    assert refusal(path, value) == f"{path} = {value!r} is not allowed; it must be an int of 1 or more{end}"


@pytest.mark.parametrize(
    "path",
    [
        "policy.n_sample",
        "policy.collect.n_sample",
        "policy.n_episode",
        "policy.collect.n_episode",
        "policy.learn.update_per_collect",
        "policy.random_collect_size",
        "env.collector_env_num",
        "env.evaluator_env_num",
        "env.n_evaluator_episode",
    ],
)
def test_counts_are_ints_or_not_set(path):
    assert refusal(path, 8.0).startswith(f"{path} = 8.0 is not allowed; it must be an int of")
    compiled(with_value(main_cfg(), path, None))


def test_sizes_that_are_read_as_numbers_may_be_integral_floats():
    main = with_value(main_cfg(), "policy.other.replay_buffer.replay_buffer_size", 1e4)
    assert compiled(with_value(main, "policy.other.eps.decay", 1e4)).policy.other.eps.decay == 1e4


def test_a_buffer_smaller_than_a_batch_is_refused():
    path = "policy.other.replay_buffer.replay_buffer_size"
    text = f"{path} = 63 is not allowed; it must be at least policy.learn.batch_size = 64"
    assert refusal(path, 63).startswith(text)
    compiled(with_value(main_cfg(), path, 64))
    whole = with_value(with_value(main_cfg(), path, 63), "policy.batch_size", 63)
    compiled(whole)  # this batch size counts


def test_a_policy_that_is_on_policy_has_no_buffer_to_fill():
    main = EasyDict(env=main_cfg().env, policy={"learn": {"batch_size": 64}})
    with_value(main, "policy.other.replay_buffer.replay_buffer_size", 63)
    compiled(main, create_cfg("ppo_command"))


def test_without_a_buffer_class_its_section_is_not_compared():
    main = EasyDict(policy={"learn": {"batch_size": 501}})
    assert compile_config(main, policy=FakePolicy, save_cfg=False).policy.other.replay_buffer.replay_buffer_size == 500


@pytest.mark.parametrize("seed", [None, "0", 0.0, -1, True, 2**32])
def test_a_seed_is_an_int_that_generators_take(seed):
    with pytest.raises(ConfigError) as e:
        compiled(seed=seed)
    assert str(e.value) == f"seed = {seed!r} is not allowed; it must be an int in [0, 4294967295], such as seed=0"
    assert compiled(seed=2**32 - 1).seed == 2**32 - 1


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("env", "main_config.env"),
        ("policy.model", "main_config.policy.model"),
        ("policy.other.replay_buffer", "main_config.policy.other.replay_buffer"),
    ],
)
def test_import_names_are_a_list(path, name):
    assert refusal(f"{path}.import_names", "os.path") == (
        f"{name}.import_names = 'os.path' is not allowed; it must be a list of module names; write "
        f"{name}.import_names = ['os.path']"
    )
    assert refusal(f"{path}.import_names", 3).endswith("it must be a list of module names")


def test_import_names_of_the_create_config_are_a_list():
    create = create_cfg(env={"type": "gymnasium", "import_names": "ding.envs"})
    with pytest.raises(ConfigError, match=r"write create_config.env.import_names = \['ding.envs'\]"):
        compiled(create=create)
    compiled(create=create_cfg(env={"type": "gymnasium", "import_names": ("ding.envs",)}))


def test_import_names_are_spelt_so():
    create = create_cfg(env={"type": "gymnasium", "import_name": ["ding.envs"]})
    with pytest.raises(
        ConfigError, match=r"'create_config.env.import_name'; did you mean 'create_config.env.import_names'"
    ):
        compiled(create=create)


@pytest.mark.parametrize("name", ["", 3, None])
def test_the_name_of_an_experiment_is_that_of_a_folder(name):
    text = f"exp_name = {name!r} is not allowed; it must be a folder name; leave it out for the default"
    assert refusal("exp_name", name, save_cfg=True) == text
    assert os.listdir() == []


def test_a_policy_type_that_is_misspelt_is_named_with_the_nearest():
    for kind in ("dqnn", "dqnn_command"):
        with pytest.raises(KeyError, match=r"create_config.policy: unknown type 'dqnn.*'; did you mean 'dqn'\?"):
            compiled(create=create_cfg(kind))
