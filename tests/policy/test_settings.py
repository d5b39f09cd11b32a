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
