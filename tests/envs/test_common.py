"""Which library an env or space belongs to, with a stand-in for the old gym where that is not installed."""

import types

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces

from ding.envs import BaseEnvManager, DingEnvWrapper, common
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


# Scaling of actions and the small encoders.


def test_affine_transform_maps_the_unit_interval_onto_the_bounds_after_clipping():
    data = np.array([-3.0, -1.0, 0.0, 0.5, 2.0], np.float32)
    out = common.affine_transform(data, min_val=np.float32(-2), max_val=np.float32(6))
    assert out.tolist() == [-2, -2, 2, 4, 6]
    assert out.dtype == np.float32
    assert data[0] == -3


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("convert", [np.asarray, torch.from_numpy])
def test_affine_transform_reaches_the_bounds_exactly_and_does_not_leave_them(dtype, convert):
    tenths = [dtype(number / 10) for number in range(-20, 21)]
    pairs = [(low, high) for low in tenths for high in tenths if low < high]
    low, high = (convert(np.array(bound, dtype)) for bound in zip(*pairs, strict=True))
    for number in (-1, -0.999, 0, 0.999, 1):
        scaled = common.affine_transform(convert(np.full(len(pairs), number, dtype)), min_val=low, max_val=high)
        assert scaled.dtype == low.dtype
        assert (low <= scaled).all() and (scaled <= high).all()
        if abs(number) == 1:
            assert (scaled == (low if number < 0 else high)).all()


def test_affine_transform_without_clipping_and_with_alpha():
    assert common.affine_transform(np.array([2.0]), action_clip=False, alpha=3, beta=1).tolist() == [7]
    assert common.affine_transform(np.array([2.0]), alpha=3).tolist() == [3]
    assert common.affine_transform(torch.tensor([-2.0]), alpha=3).tolist() == [-3]


def test_one_hot_codes():
    assert common.num_first_one_hot(torch.tensor([2, 0]), 3).tolist() == [[0, 1], [0, 0], [1, 0]]
    assert common.sqrt_one_hot(torch.tensor([0, 3, 9]), 9).argmax(-1).tolist() == [0, 1, 3]
    assert common.sqrt_one_hot(torch.tensor([0]), 9).shape == (1, 4)
    assert common.div_one_hot(torch.tensor([0, 5, 10]), 10, 4).tolist() == [[1, 0, 0], [0, 1, 0], [0, 0, 1]]
    assert common.clip_one_hot(torch.tensor([-1, 1, 9]), 3).argmax(-1).tolist() == [0, 1, 2]
    assert common.clip_one_hot(torch.tensor([1]), 3).dtype == torch.float32


def test_div_func_divides_and_adds_an_axis():
    assert common.div_func(torch.tensor([2, 4]), 4).tolist() == [[0.5], [1.0]]


def test_reordered_codes():
    v = torch.tensor([7, 5])
    assert common.reorder_one_hot(v, {5: 0, 7: 2}, 3).argmax(-1).tolist() == [2, 0]
    assert common.reorder_one_hot(v, {0: 1, 1: 0}, 3, transform={7: 0, 5: 1}).argmax(-1).tolist() == [1, 0]
    assert common.reorder_one_hot_array(torch.tensor([1, 0]), np.array([2, 1]), 3).argmax(-1).tolist() == [1, 2]
    assert common.reorder_one_hot_array(torch.tensor([0]), [2, 1], 3, transform=[1]).argmax(-1).tolist() == [1]
    assert common.reorder_boolean_vector(v, {5: 0, 7: 2}, 4).tolist() == [1, 0, 1, 0]
    assert common.reorder_boolean_vector(v, {0: 3}, 4, transform={7: 0, 5: 0}).tolist() == [0, 0, 0, 1]


def test_reordering_refuses_what_it_does_not_know():
    with pytest.raises(KeyError):
        common.reorder_boolean_vector(torch.tensor([9]), {5: 0}, 4)
    with pytest.raises(AssertionError):
        common.reorder_one_hot(torch.zeros(1, 1), {0: 0}, 1)
    with pytest.raises(KeyError):
        common.reorder_one_hot(torch.tensor([9]), {5: 0}, 4)


def test_binary_code_has_the_highest_bit_first():
    assert common.batch_binary_encode(torch.tensor([6, 1]), 4).tolist() == [[0, 1, 1, 0], [0, 0, 0, 1]]


def test_position_vector_alternates_sine_and_cosine():
    out = common.get_postion_vector([1.0] * 32)
    assert out.shape == (64,)
    assert out[:2].tolist() == pytest.approx([np.sin(1), np.cos(1)])
    assert out[2:4].tolist() == pytest.approx([np.sin(10000 ** (-1 / 32)), np.cos(10000 ** (-1 / 32))])


def test_frames_are_written_as_gif(put_module):
    calls = []
    fake = types.SimpleNamespace(mimsave=lambda path, frames, fps: calls.append((path, frames, fps)))
    put_module("imageio", fake)
    common.save_frames_as_gif(("a", "b"), "x.gif")
    assert calls == [("x.gif", ["a", "b"], 20)]
