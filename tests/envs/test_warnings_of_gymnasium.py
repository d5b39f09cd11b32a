"""What gymnasium warns of is shown once for each env, however many of it are made."""

import threading
import warnings

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete

from ding.envs.env import gymnasium_env
from ding.envs.env.gymnasium_env import GymnasiumSource, without_warnings


class Wide(gymnasium.Env):
    """Its bounds are float64, which gymnasium warns of."""

    action_space = Discrete(2)

    def __init__(self):
        self.observation_space = Box(np.zeros(2), np.ones(2), dtype=np.float32)


def warned(make):
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        make()
    return [str(warning.message) for warning in found]


@pytest.fixture
def none_made(monkeypatch):
    monkeypatch.setattr(gymnasium_env, "_made", set())


def test_the_first_env_of_a_kind_warns_and_the_others_do_not(none_made):
    source = GymnasiumSource.from_config({"env": Wide})
    first = warned(source.make)
    assert len(first) == 2 and all("precision lowered" in message for message in first)
    assert warned(source.make) == warned(GymnasiumSource.from_config({"env": Wide}).make) == []
    assert gymnasium.logger.min_level == gymnasium.logger.WARN
    assert len(warned(Wide)) == 2


def test_what_an_env_warns_of_itself_is_always_shown(none_made):
    def make():
        warnings.warn("mind the gap", stacklevel=1)
        return Wide()

    source = GymnasiumSource.from_config({"env": make})
    assert len(warned(source.make)) == 3 and warned(source.make) == ["mind the gap"]


class Untold(gymnasium.Env):
    """Nothing but what an env needs may be asked of it."""

    observation_space = action_space = Discrete(2)

    @property
    def spec(self):
        raise RuntimeError("no spec yet")


def test_an_env_that_cannot_say_what_it_is_is_made(none_made):
    env = Untold()
    assert GymnasiumSource.from_config({"env": env}).make() is env
    assert gymnasium_env._made == set()


def test_blocks_of_several_threads_leave_the_level_as_it_was():
    inside, first_ended = threading.Event(), threading.Event()

    def hold():
        with without_warnings():
            inside.set()
            first_ended.wait(10)

    thread = threading.Thread(target=hold)
    with without_warnings():
        thread.start()
        assert inside.wait(10)
    assert warned(Wide) == []  # the other block goes on
    first_ended.set()
    thread.join(10)
    assert len(warned(Wide)) == 2 and gymnasium.logger.min_level == gymnasium.logger.WARN


def test_an_env_that_cannot_be_made_leaves_the_level_as_it_was(none_made):
    def refuse():
        raise OSError("no screen")

    gymnasium_env._made.add(refuse.__qualname__)
    with pytest.raises(OSError, match="no screen"):
        GymnasiumSource.from_config({"env": refuse}).make()
    assert gymnasium.logger.min_level == gymnasium.logger.WARN


def test_envpool_warns_of_nothing():
    envpool = pytest.importorskip("envpool")
    from ding.envs import PoolEnvManager

    assert warned(lambda: envpool.make_spec("CartPole-v1").gymnasium_observation_space) != []

    def launch():
        with PoolEnvManager({"env_id": "CartPole-v1", "env_num": 2}) as manager:
            manager.launch()

    assert warned(launch) == []
