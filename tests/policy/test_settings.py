"""The tables of settings of all policies: each key has a meaning, each default passes its own check."""

import pytest

from ding.policy.base_policy import Policy
from ding.policy.dqn import DQNPolicy
from ding.policy.settings import check_settings
from ding.utils.config_helper import ConfigError
from ding.utils.registry_factory import POLICY_REGISTRY

NAMES = sorted(
    name for name, cls in POLICY_REGISTRY.items() if issubclass(cls, Policy) and cls.__module__.startswith("ding.")
)


@pytest.mark.parametrize("name", NAMES)
def test_each_key_has_a_meaning(name):
    assert [path for path, setting in POLICY_REGISTRY.get(name).settings.items() if not setting.doc] == []


@pytest.mark.parametrize("name", NAMES)
def test_the_defaults_are_those_of_the_table_and_pass_its_check(name):
    policy = POLICY_REGISTRY.get(name)
    default = policy.default_config()
    check_settings(default, name, policy.settings)
    assert default == {**policy.settings.config(), "cfg_type": f"{policy.__name__}Dict"}


WRONG = [
    *[("ddpg", key, value) for key, value in [("action_space", "discrete"), ("learn.actor_update_freq", 0)]],
    *[("ddpg", key, value) for key, value in [("learn.noise", 1), ("collect.noise_sigma", -1)]],
    *[("sac", key, value) for key, value in [("learn.alpha", -1), ("learn.target_theta", 2), ("learn.auto_alpha", 1)]],
    *[("sac", key, value) for key, value in [("learn.target_entropy", "auto"), ("model.action_space", "regression")]],
    *[("impala", key, value) for key, value in [("unroll_len", 1), ("learn.optim", "sgd"), ("action_space", "hybrid")]],
    ("ppg_offpolicy", "priority", True),
    *[("d4pg", key, value) for key, value in [("nstep", 0), ("model.n_atom", 1), ("action_space", "hybrid")]],
    *[("cql", key, value) for key, value in [("learn.num_actions", 0), ("learn.min_q_weight", -1)]],
    *[("iql", key, value) for key, value in [("learn.tau", 1.5), ("learn.beta", 0), ("model.action_space", "hybrid")]],
    *[("bc", key, value) for key, value in [("learn.optimizer", "sgd"), ("loss_type", "huber")]],
    *[("c51", "model.n_atom", 1), ("iqn", "learn.kappa", 0), ("mdqn", "nstep", 3), ("sql", "learn.alpha", 0)],
    *[("sqn", "learn.alpha", 0), ("pg", "learn.ignore_done", True), ("ppo_pg", "learn.ignore_done", True)],
]


@pytest.mark.parametrize(("name", "key", "value"), WRONG)
def test_a_value_that_cannot_work_is_refused(name, key, value):
    assert POLICY_REGISTRY.get(name).settings[key].rule(value) is not None


def test_a_user_class_with_a_config_keeps_the_defaults_and_checks_of_its_base():
    class Mine(DQNPolicy):
        config = dict(learn=dict(batch_size=8, mine=1))  # noqa: C408, RUF012 as users write it

    assert Mine.default_config().learn == {**DQNPolicy.default_config().learn, "batch_size": 8, "mine": 1}
    cfg = Mine.default_config()
    cfg.learn.batch_size = 0
    with pytest.raises(ConfigError, match="batch_size"):
        Mine(cfg, enable_field=[])
