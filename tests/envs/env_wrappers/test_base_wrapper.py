"""The base of the wrappers, and what lies between them and envs of other interfaces."""

import copy
import pickle

import gymnasium
import pytest

from ding.envs import DemoEnv, EnvWrapper, GymToGymnasiumWrapper
from ding.envs.env_wrappers.base_wrapper import ObservationWrapper
from tests.envs.toys import FourValueToy, Toy, ToyBaseEnv, play


def test_a_gymnasium_env_speaks_as_gym_did():
    env = EnvWrapper(Toy(length=2))
    assert env.reset().tolist() == [0, 0]
    obs, reward, done, info = env.step(1)
    assert (obs.tolist(), reward, done) == ([0, 1], 1.0, False)
    assert info == {"count": 1, "terminated": False, "truncated": False}
    *_, done, info = env.step(1)
    assert done is True
    assert info == {"count": 2, "terminated": True, "truncated": False}


def test_a_truncation_is_told_in_both_ways():
    *_, done, info = play(EnvWrapper(Toy(length=1, truncates=True)), 1)[0]
    assert done is True
    assert info == {"count": 1, "terminated": False, "truncated": True, "TimeLimit.truncated": True}


def test_an_env_of_four_values_is_taken_as_it_is_and_tells_its_ends():
    env = EnvWrapper(FourValueToy(length=2))
    assert env.reset().tolist() == [0]
    assert env.step(0)[2:] == (False, {"terminated": False, "truncated": False})
    assert env.step(0)[2:] == (True, {"terminated": True, "truncated": False})
    *_, done, info = play(EnvWrapper(FourValueToy(length=1, truncates=True)), 1)[0]
    assert done
    assert info == {"TimeLimit.truncated": True, "terminated": False, "truncated": True}


def test_a_base_env_is_not_adapted():
    inner = DemoEnv({})
    env = EnvWrapper(inner)
    assert env.env is inner
    env.reset()
    assert type(env.step(1)).__name__ == "BaseEnvTimestep"
    assert env.unwrapped is inner


def test_public_attributes_are_those_of_the_env_and_private_ones_are_refused():
    toy = Toy()
    env = EnvWrapper(EnvWrapper(toy))
    assert env.ale is toy.ale
    assert env.action_space is toy.action_space
    assert env.observation_space is toy.observation_space
    assert env.unwrapped is toy
    with pytest.raises(AttributeError):
        env._kept  # noqa: B018
    with pytest.raises(AttributeError):
        env.lives_left  # noqa: B018


def test_a_wrapper_can_be_copied_and_pickled():
    env = EnvWrapper(gymnasium.make("CartPole-v1"))
    env.reset(seed=0)
    for other in (copy.deepcopy(env), pickle.loads(pickle.dumps(env))):
        assert other.unwrapped is not env.unwrapped
        assert other.step(1)[0].tolist() == copy.deepcopy(env).step(1)[0].tolist()


def test_close_and_render_reach_the_env():
    toy = Toy(render_mode="rgb_array")
    env = EnvWrapper(EnvWrapper(toy))
    env.reset()
    env.step(0)
    assert env.render("rgb_array").max() == 1
    assert env.render().max() == 1
    env.close()
    assert toy.closed == 1


def test_a_seed_is_for_the_next_reset_and_later_ones_go_on():
    toy = Toy()
    env = GymToGymnasiumWrapper(toy)
    env.reset()
    env.seed(5)
    env.reset()
    env.reset()
    env.reset(seed=6, options={"level": 1})
    assert toy.seeds == [None, 5, None, 6]
    assert toy.options == [None, None, None, {"level": 1}]


def test_a_seed_reaches_the_env_through_any_wrapper_and_any_reset():
    toy = Toy()
    EnvWrapper(EnvWrapper(toy)).reset(seed=3)
    assert toy.seeds == [3]
    plain = FourValueToy()
    env = EnvWrapper(plain)
    env.seed(4)
    env.reset()
    env.reset()
    assert plain.seeds == [4]
    base = ToyBaseEnv({})
    EnvWrapper(base).seed(5, False)
    assert base.seeds == [(5, False)]


def test_an_env_that_cannot_be_seeded_says_so():
    class Bare:
        def reset(self):
            return 0

        def step(self, action):
            return 0, 0.0, False, {}

    env = EnvWrapper(Bare())
    env.seed(1)
    with pytest.raises(TypeError):
        env.reset()


@pytest.mark.parametrize("env", [FourValueToy(), DemoEnv({}), 3])
def test_gym_to_gymnasium_wraps_gymnasium_envs_only(env):
    with pytest.raises(AssertionError):
        GymToGymnasiumWrapper(env)


def test_an_observation_wrapper_changes_observations_of_reset_and_step():
    class Negative(ObservationWrapper):
        def observation(self, observation):
            return -observation

    env = Negative(Toy())
    assert env.reset().tolist() == [0, 0]
    assert env.step(0)[0].tolist() == [0, -1]
    with pytest.raises(NotImplementedError):
        ObservationWrapper(Toy()).reset()
