"""Which library an env or space belongs to, with a stand-in for the old gym where that is not installed."""

from __future__ import annotations

import importlib.util
import sys
import types

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from ding.envs import BaseEnvManager, DingEnvWrapper
from ding.envs.common.gym_compat import (
    gym_that_knows,
    is_gym_env,
    is_gymnasium_env,
    layers,
    library_of,
    spaces_like,
    takes_seed,
)
from tests.envs.toys import FourValueToy, Toy


@pytest.fixture
def gym(monkeypatch):
    """A stand-in for gym: one env class, registered as OnlyOld-v3, and spaces of its own."""
    module = types.ModuleType("gym")
    module.Env = type("Env", (), {})
    module.error = types.SimpleNamespace(Error=type("Error", (Exception,), {}))
    module.spaces = types.ModuleType("gym.spaces")
    for name in ("Discrete", "Box", "Dict", "Tuple", "MultiDiscrete", "MultiBinary"):
        setattr(module.spaces, name, type(name, (getattr(spaces, name),), {"__module__": "gym.spaces"}))

    class OldEnv(FourValueToy, module.Env):
        def __init__(self, render_mode=None):
            super().__init__(length=2)
            self.render_mode = render_mode
            self.spec = types.SimpleNamespace(id="OnlyOld-v3")
            self.action_space = module.spaces.Discrete(2)
            self.observation_space = module.spaces.Box(-9, 9, (1,), np.float64)

    def spec(env_id):
        if env_id != "OnlyOld-v3":
            raise module.error.Error(f"no {env_id}")

    def make(spec, **kwargs):
        kwargs.pop("disable_env_checker", None)
        return OldEnv(**kwargs)

    module.spec, module.make = spec, make
    monkeypatch.setitem(sys.modules, "gym", module)
    return module


def test_envs_belong_to_the_library_of_their_class(gym):
    old = gym.make("OnlyOld-v3")
    assert (library_of(type(old)), library_of(Toy), library_of(FourValueToy)) == (gym, gymnasium, None)
    assert (is_gym_env(old), is_gymnasium_env(old)) == (True, False)
    assert (is_gym_env(Toy()), is_gymnasium_env(Toy())) == (False, True)


@pytest.mark.differs(
    "an env of gym or gymnasium that nothing adapts fails with an AttributeError in the manager",
    "an error says what to do",
)
def test_an_env_of_gym_that_nothing_adapts_is_refused_with_what_to_do(gym):
    with pytest.raises(TypeError, match="which is no BaseEnv: .*reward_space.* put it into a Ding"):
        BaseEnvManager([lambda: gym.make("OnlyOld-v3")], {})
    manager = BaseEnvManager([lambda: DingEnvWrapper(gym.make("OnlyOld-v3"))], {})
    manager.launch()
    assert manager.step({0: np.array([1])})[0].reward.shape == (1,)
    manager.close()


def test_spaces_belong_to_the_library_of_their_class(gym):
    assert spaces_like(gym.spaces.Discrete(2)) is gym.spaces
    assert spaces_like(spaces.Discrete(2)) is spaces
    assert spaces_like(None) is spaces


def test_an_env_that_only_gym_has_is_made_by_it(gym):
    env = DingEnvWrapper(cfg={"env_id": "OnlyOld-v3"})
    assert env.observation_space == gym.spaces.Box(-9, 9, (1,), np.float32)
    env.seed(0)
    assert env.reset().dtype == np.float32
    assert isinstance(env._env.unwrapped, gym.Env) or is_gym_env(env._env.env.env)
    assert type(env.reward_space) is gym.spaces.Box
    assert gym_that_knows("Other-v0") is None


def test_an_env_of_gym_is_cloned_by_its_spec(gym):
    env = DingEnvWrapper(gym.make("OnlyOld-v3"))
    other = env.clone()
    assert other._env.env.env is not env._env.env.env
    assert is_gym_env(other._env.env.env)


def test_a_function_written_for_gym_gets_its_env_as_it_is(gym):
    seen = []
    inner = gym.make("OnlyOld-v3")
    DingEnvWrapper(inner, {"env_wrapper": [lambda env: seen.append(env) or env]})
    assert seen == [inner]


def test_without_gym_no_env_is_looked_for_there(monkeypatch):
    monkeypatch.delitem(sys.modules, "gym", raising=False)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert gym_that_knows("CartPole-v1") is None


def test_a_package_that_is_gym_by_name_only_is_no_library(monkeypatch):
    monkeypatch.setitem(sys.modules, "gym", types.ModuleType("gym"))
    assert library_of(FourValueToy) is None


def test_the_layers_of_an_env_are_told_from_the_outermost():
    toy = Toy()
    outer = gymnasium.wrappers.TimeLimit(toy, 3)
    assert list(layers(outer)) == [outer, toy]
    assert takes_seed(outer)
    assert not takes_seed(FourValueToy())
