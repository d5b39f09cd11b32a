"""What every policy has: modes, attributes, configuration, the model and its gradients."""

import importlib
import random

import pytest
import torch
from easydict import EasyDict

import ding.policy
from ding.model.template.q_learning import DQN
from ding.policy.base_policy import CommandModePolicy, Policy, create_policy, get_policy_cls
from ding.policy.command_mode_policy_instance import DQNCommandModePolicy
from ding.policy.dqn import DQNPolicy
from ding.policy.settings import check_settings
from ding.utils.config_helper import ConfigError
from ding.utils.registry_factory import POLICY_REGISTRY
from tests.policy.learning import model_of
from tests.policy.samples import make_config

STATE_FIELDS = ("get_attribute", "set_attribute", "state_dict", "load_state_dict")


class OrderedPolicy(CommandModePolicy):
    """Notes in which order its fields are set up."""

    config = {"type": "ordered", "learn": {"batch_size": 3}, "collect": {"n_sample": 5}, "strange": [1]}

    def _create_model(self, cfg, model=None):
        return torch.nn.Linear(1, 1)

    def _note(self, field):
        self.__dict__.setdefault("order", []).append(field)

    def _init_learn(self):
        self._note("learn")

    def _init_collect(self):
        self._note("collect")

    def _init_eval(self):
        self._note("eval")

    def _init_command(self):
        self._note("command")

    def _forward_learn(self, data):
        return {}

    def _forward_collect(self, data):
        return {}

    def _forward_eval(self, data):
        return {}

    def _process_transition(self, obs, policy_output, timestep):
        return {}

    def _get_train_sample(self, transitions):
        return transitions

    def _get_setting_learn(self, command_info):
        return {}

    def _get_setting_collect(self, command_info):
        return {}

    def _get_setting_eval(self, command_info):
        return {}


def test_mode_tuples_have_the_documented_fields():
    policy = DQNCommandModePolicy(make_config())
    assert policy.learn_mode._fields == ("forward", "reset", "info", "monitor_vars", *STATE_FIELDS)
    assert policy.collect_mode._fields == ("forward", "process_transition", "get_train_sample", "reset", *STATE_FIELDS)
    assert policy.eval_mode._fields == ("forward", "reset", *STATE_FIELDS)
    assert policy.command_mode._fields == ("get_setting_learn", "get_setting_collect", "get_setting_eval")
    assert isinstance(policy.learn_mode, Policy.learn_function)
    assert isinstance(policy.command_mode, CommandModePolicy.command_function)


@pytest.mark.differs(
    "sets up a policy's modes in an order that changes with the hash seed",
    "sets them up in one order",
)
def test_fields_are_set_up_in_one_order_whatever_asks_for_them():
    cfg = OrderedPolicy.default_config()
    fields = ["learn", "collect", "eval", "command"]
    assert OrderedPolicy(cfg).order == fields
    for seed in range(5):
        shuffled = random.Random(seed).sample(fields, 4)
        assert OrderedPolicy(cfg, enable_field=shuffled).order == fields
    assert OrderedPolicy(cfg, enable_field=["eval", "collect"]).order == ["collect", "eval"]


def test_an_unknown_field_is_refused():
    with pytest.raises(AssertionError):
        DQNPolicy(make_config(), enable_field=["learn", "command"])


def test_a_command_only_policy_has_no_model():
    cfg = make_config()
    policy = DQNCommandModePolicy(cfg, enable_field=["command"])
    assert not hasattr(policy, "_model")
    assert "type" not in cfg.model
    assert (policy._cuda, policy._rank, policy._device) == (False, 0, "cpu")
    assert policy.command_mode.get_setting_collect({"envstep": 0}) == {"eps": pytest.approx(0.95)}
    assert policy.command_mode.get_setting_collect({"envstep": 10**9}) == {"eps": pytest.approx(0.1)}
    assert policy.command_mode.get_setting_learn({}) == policy.command_mode.get_setting_eval({}) == {}


def test_a_linear_schedule_is_read_from_the_config():
    cfg = make_config(other__eps={"type": "linear", "start": 1.0, "end": 0.0, "decay": 10})
    policy = DQNCommandModePolicy(cfg, enable_field=["command"])
    assert policy.command_mode.get_setting_collect({"envstep": 5}) == {"eps": 0.5}


def test_attributes_are_answered_by_method_then_by_name():
    cfg = make_config()
    mode = DQNPolicy(cfg).collect_mode
    assert mode.get_attribute("cfg") is cfg
    names = ("batch_size", "device", "priority", "on_policy", "cuda", "rank", "n_sample", "n_episode", "unroll_len")
    assert [mode.get_attribute(name) for name in names] == [64, "cpu", False, False, False, 0, 8, None, 1]
    mode.set_attribute("strange", 5)
    assert mode.get_attribute("strange") == 5
    with pytest.raises(NotImplementedError):
        mode.get_attribute("nowhere")


def test_top_level_sizes_win_over_their_sections():
    mode = DQNPolicy(make_config(batch_size=7, n_sample=9, n_episode=2)).collect_mode
    assert [mode.get_attribute(name) for name in ("batch_size", "n_sample", "n_episode")] == [7, 9, 2]


def test_default_config_merges_the_bases_and_is_independent():
    cfg = OrderedPolicy.default_config()
    assert cfg.cfg_type == "OrderedPolicyDict"
    assert (cfg.on_policy, cfg.learn.resume_training, cfg.learn.batch_size) == (False, False, 3)
    cfg.strange.append(2)
    cfg.learn.batch_size = 99
    again = OrderedPolicy.default_config()
    assert (again.strange, again.learn.batch_size) == ([1], 3)


def test_the_config_of_a_command_policy_is_that_of_its_algorithm():
    cfg = DQNCommandModePolicy.default_config()
    assert (cfg.cfg_type, cfg.type) == ("DQNCommandModePolicyDict", "dqn")
    cfg.cfg_type = "DQNPolicyDict"
    assert cfg == DQNPolicy.default_config()


def test_a_missing_model_type_is_written_into_the_config():
    cfg = make_config()
    DQNPolicy(cfg, enable_field=["eval"])
    assert cfg.model.type == "dqn"
    assert cfg.model.import_names == ["ding.model.template.q_learning"]


def test_a_given_model_is_used_as_it_is():
    model = DQN(4, 2)
    assert model_of(DQNPolicy(make_config(), model=model, enable_field=["eval"])) is model
    with pytest.raises(RuntimeError):
        DQNPolicy(make_config(), model="dqn")


@pytest.mark.parametrize("mode", ["collect_mode", "eval_mode"])
@pytest.mark.parametrize(("state", "word"), [(None, "NoneType"), ({"last_iter": 3}, "last_iter")])
def test_a_state_without_a_model_is_refused_with_what_it_has(mode, state, word):
    policy = DQNPolicy(make_config())
    with pytest.raises(ValueError, match=word):
        getattr(policy, mode).load_state_dict(state)


def test_policies_are_found_by_their_registered_names():
    cfg = make_config(type="dqn_command")
    assert get_policy_cls(cfg) is DQNCommandModePolicy
    policy = create_policy(cfg, enable_field=["eval"])
    assert type(policy) is DQNCommandModePolicy
    assert policy.cfg is cfg


@pytest.mark.differs("accepts wrong policy settings and fails later", "refuses them in the constructor")
@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("nstep", 0),
        ("learn__learning_rate", float("nan")),
        ("collect__n_sample", 0),
        ("other__eps__start", 1.5),
    ],
)
def test_a_wrong_setting_is_refused_at_construction(key, value):
    with pytest.raises(ConfigError, match=key.replace("__", r"\.")):
        DQNCommandModePolicy(make_config(**{key: value}))


def test_unknown_keys_belong_to_the_user():
    DQNCommandModePolicy(make_config(nsteps=0, learn__batchsize="many"), enable_field=["command"])


@pytest.mark.parametrize("name", ["sqn", "r2d2", "acer", "impala", "dqfd", "discrete_sac"])
def test_several_actions_a_step_are_refused_by_policies_that_have_one(name):
    cfg = POLICY_REGISTRY.get(name).default_config()
    cfg.model.update(obs_shape=4, action_shape=[3, 2])
    cfg.collect.env_num = 1
    with pytest.raises(ConfigError):
        create_policy(cfg, enable_field=["collect"])


@pytest.mark.parametrize(
    "name",
    ["C51", "Rainbow", "QRDQN", "IQN", "FQF", "MDQN", "SQL", "SQN", "BDQ", "DDPG", "TD3", "TD3_BC", "CQL",
     "Discrete_SAC", "ACER", "IMPALA"],
)  # fmt: skip
def test_a_policy_is_found_in_the_module_of_its_own_that_configs_name(name):
    module = f"ding.policy.{name.lower()}"
    get_policy_cls(EasyDict(type="dqn", import_names=[module]))
    name = {"Rainbow": "RainbowDQN"}.get(name, name).replace("_", "") + "Policy"
    assert getattr(importlib.import_module(module), name) is getattr(ding.policy, name)


def test_a_gpu_may_be_named_and_must_exist(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    placed = []
    monkeypatch.setattr(torch.nn.Module, "to", lambda self, device: placed.append(device))
    for cuda in (True, "cuda:0", "cuda:1"):
        DQNPolicy(make_config(cuda=cuda), enable_field=["eval"])
    assert placed == ["cuda:0", "cuda:0", "cuda:1"]
    with pytest.raises(ConfigError):
        DQNPolicy(make_config(cuda="cuda:2"), enable_field=["eval"])
    with pytest.raises(ConfigError):
        DQNPolicy(make_config(cuda="cuda:1", multi_gpu=True), enable_field=["learn"])
    with pytest.raises(ConfigError):
        DQNPolicy(make_config(cuda="gpu"), enable_field=["eval"])


# The tables of settings of all policies: each key has a meaning, each default passes its own check.


NAMES = sorted(
    name for name, cls in POLICY_REGISTRY.items() if issubclass(cls, Policy) and cls.__module__.startswith("ding.")
)


@pytest.mark.parametrize("name", NAMES)
def test_the_defaults_are_those_of_the_table_and_pass_its_check(name):
    policy = POLICY_REGISTRY.get(name)
    default = policy.default_config()
    check_settings(default, name, policy.settings)
    assert default == {**policy.settings.config(), "cfg_type": f"{policy.__name__}Dict"}


def test_a_user_class_with_a_config_keeps_the_defaults_and_checks_of_its_base():
    class Mine(DQNPolicy):
        config = dict(learn=dict(batch_size=8, mine=1))  # noqa: C408, RUF012 as users write it

    assert Mine.default_config().learn == {**DQNPolicy.default_config().learn, "batch_size": 8, "mine": 1}
    cfg = Mine.default_config()
    cfg.learn.batch_size = 0
    with pytest.raises(ConfigError):
        Mine(cfg, enable_field=[])
