"""Parts of an environment that tell their shape and values."""

from __future__ import annotations

import pytest

from ding.envs import BaseEnvInfo
from ding.envs.common import EnvElement, EnvElementRunner
from ding.envs.common.env_element import EnvElementInfo
from ding.envs.common.env_element_runner import EnvElementRunner as FromModule


class Speed(EnvElement):
    _name = "Speed"

    def _init(self, limit, unit="m/s"):
        self._shape, self._value = (1,), {"min": 0, "max": limit}
        self.unit = unit

    def _details(self):
        return f"up to {self._value['max']} {self.unit}"


class SpeedRunner(EnvElementRunner):
    def _init(self, limit):
        self._core = Speed(limit)

    def get(self, engine):
        return min(engine["speed"], self._core._value["max"])

    def reset(self):
        self.was_reset = True


def test_an_element_tells_its_shape_and_values():
    speed = Speed(3, unit="km/h")
    assert speed.info == EnvElementInfo(shape=(1,), value={"min": 0, "max": 3})
    assert repr(speed) == "Speed: up to 3 km/h"


def test_processors_of_an_element_are_part_of_its_info():
    class Scaled(Speed):
        def _init(self, limit):
            super()._init(limit)
            self._to_agent_processor = lambda value: value / limit

    info = Scaled(4).info
    assert info.to_agent_processor(2) == 0.5
    assert info.from_agent_processor is None


class Shapeless(Speed):
    def _init(self):
        self._shape = (1,)


class Coreless(SpeedRunner):
    def _init(self):
        """It forgets its element."""


@pytest.mark.parametrize(("cls", "names"), [(Shapeless, "_shape and _value"), (Coreless, "_core")])
def test_what_its_init_must_set_is_named(cls, names):
    with pytest.raises(AssertionError, match=rf"{cls.__name__}\._init must set {names}"):
        cls()


def test_an_element_must_say_how_it_is_made():
    with pytest.raises(TypeError):
        EnvElement()


def test_a_runner_reads_its_element_from_an_engine():
    runner = SpeedRunner(3)
    runner.reset()
    assert runner.get({"speed": 5}) == 3
    assert runner.info == Speed(3).info
    assert repr(runner) == "Speed: up to 3 m/s"
    assert FromModule is EnvElementRunner


def test_an_env_info_is_made_of_elements():
    info = BaseEnvInfo(agent_num=1, obs_space=Speed(1).info, act_space=None, rew_space=None)
    assert (info.agent_num, info.obs_space.shape, info.use_wrappers) == (1, (1,), None)
