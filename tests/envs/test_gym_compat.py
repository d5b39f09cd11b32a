"""Which library an env or space belongs to, with a stand-in for the old gym where that is not installed."""

from __future__ import annotations

import types

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from ding.envs import BaseEnvManager, DingEnvWrapper
from ding.envs.common.gym_compat import (
    gym_that_knows,
    gymnasium_space,
    is_gymnasium_env,
    library_of,
)
from tests.envs.toys import FourValueToy, Toy


@pytest.fixture
def gym(put_module):
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
    put_module("gym", module)
    return module


def test_envs_belong_to_the_library_of_their_class(gym):
    old = gym.make("OnlyOld-v3")
    assert (library_of(type(old)), library_of(Toy), library_of(FourValueToy)) == (gym, gymnasium, None)
    assert (is_gymnasium_env(old), is_gymnasium_env(Toy())) == (False, True)


def test_an_env_of_gym_that_nothing_adapts_is_refused_with_what_to_do(gym):
    with pytest.raises(TypeError, match="which is no BaseEnv: .*reward_space.* put it into a Ding"):
        BaseEnvManager([lambda: gym.make("OnlyOld-v3")], {})
    manager = BaseEnvManager([lambda: DingEnvWrapper(gym.make("OnlyOld-v3"))], {})
    manager.launch()
    assert manager.step({0: np.array([1])})[0].reward.shape == (1,)
    manager.close()


def test_spaces_of_gym_become_those_of_gymnasium_and_others_stay(gym):
    def members(library):
        box, choices = library.Box(-1, np.arange(3.0), (3,), np.float64), library.Discrete(4, start=2)
        return {"a": box, "b": library.Tuple([choices, library.MultiDiscrete([2, 3]), library.MultiBinary(5)])}

    made, own = gymnasium_space(gym.spaces.Dict(members(gym.spaces))), spaces.Dict(members(spaces))
    assert made == own and type(made) is spaces.Dict and type(made["b"][0]) is spaces.Discrete
    assert gymnasium_space(own) is own and gymnasium_space(None) is None


def test_an_env_that_only_gym_has_is_made_by_it(gym):
    env = DingEnvWrapper(cfg={"env_id": "OnlyOld-v3"})
    assert env.observation_space == spaces.Box(-9, 9, (1,), np.float32)
    env.seed(0)
    assert env.reset().dtype == np.float32
    assert isinstance(env._env.unwrapped, gym.Env)
    assert type(env.observation_space) is type(env.reward_space) is spaces.Box
    assert gym_that_knows("Other-v0") is None


def test_an_env_of_gym_is_cloned_by_its_spec(gym):
    env = DingEnvWrapper(gym.make("OnlyOld-v3"))
    other = env.clone()
    assert other._env.unwrapped is not env._env.unwrapped
    assert isinstance(other._env.unwrapped, gym.Env)


def test_a_function_written_for_gym_gets_its_env_as_it_is(gym):
    seen = []
    inner = gym.make("OnlyOld-v3")
    DingEnvWrapper(inner, {"env_wrapper": [lambda env: seen.append(env) or env]})
    assert seen == [inner]
