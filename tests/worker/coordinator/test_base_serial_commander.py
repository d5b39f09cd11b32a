"""The commander of a serial pipeline."""

from types import SimpleNamespace

import pytest
from easydict import EasyDict

from ding.worker.coordinator.base_serial_commander import BaseSerialCommander


class EchoPolicy:
    def get_setting_collect(self, info):
        return {"seen": info}


def commander(policy=None, cfg=None):
    learner = SimpleNamespace(learn_info={"learner_step": 3, "priority_info": {}, "learner_done": False})
    return BaseSerialCommander(cfg or EasyDict(), learner, SimpleNamespace(envstep=640), None, None, policy)


def test_the_default_config_is_its_type_alone():
    assert BaseSerialCommander.default_config() == {"cfg_type": "BaseSerialCommanderDict"}


def test_step_gives_what_the_policy_makes_of_learn_info_and_env_step():
    own = commander(EchoPolicy(), BaseSerialCommander.default_config())
    assert own.step() == {
        "seen": {"learner_step": 3, "priority_info": {}, "learner_done": False, "envstep": 640},
    }
    assert "envstep" not in own._learner.learn_info


def test_the_policy_may_come_later():
    own = commander()
    assert own.policy is None
    with pytest.raises(AssertionError, match="no policy"):
        own.step()
    own.policy = EchoPolicy()
    assert own.step()["seen"]["envstep"] == 640
