"""DingEnvWrapper: any env and a list of wrappers as one `BaseEnv`."""

from __future__ import annotations

import copy
import pickle
import warnings

import cloudpickle
import gymnasium
import numpy as np
import pytest
from easydict import EasyDict
from gymnasium import spaces

from ding.envs import BaseEnv, DingEnvWrapper, EnvWrapper, FrameStackWrapper, GymnasiumEnv
from ding.envs.gym_env import env as gym_env
from ding.utils.config_helper import ConfigError
from tests.envs.toys import FourValueToy, Toy, ToyBaseEnv


@pytest.fixture
def registered():
    """gymnasium ids of toys; the list of those that were made."""
    made = []

    def make(**kwargs):
        made.append(Toy(**kwargs))
        return made[-1]

    gymnasium.register("DingToy-v1", entry_point=make, max_episode_steps=3)
    yield made
    del gymnasium.registry["DingToy-v1"]


def seeds_of(seed, env_index, episodes):
    return [int(np.random.SeedSequence([seed, env_index, k]).generate_state(1)[0]) for k in episodes]


def until_done(env, action=0):
    timestep = None
    while timestep is None or not timestep.done:
        timestep = env.step(action)
    return timestep


@pytest.mark.parametrize("make", [lambda: gymnasium.make("CartPole-v1"), lambda: None])
def test_cartpole_returns_arrays_floats_and_bools(make):
    env = DingEnvWrapper(make(), {"env_id": "CartPole-v1"})
    assert isinstance(env, BaseEnv)
    env.seed(0)
    obs = env.reset()
    assert (type(obs), obs.shape, obs.dtype) == (np.ndarray, (4,), np.float32)
    timestep = env.step(np.array([1]))
    assert (timestep.obs.dtype, timestep.reward.dtype, timestep.reward.tolist()) == (np.float32, np.float32, [1.0])
    assert (timestep.done, timestep.info) == (False, {"terminated": False, "truncated": False})
    timestep = until_done(env, 1)
    assert timestep.done is True
    assert (timestep.info["terminated"], timestep.info["truncated"]) == (True, False)
    value = timestep.info["eval_episode_return"]
    assert (value.dtype, value.shape) == (np.float32, (1,))
    assert value[0] > 5
    env.close()


def test_episodes_are_those_of_the_env_type_gymnasium():
    ours = DingEnvWrapper(gymnasium.make("CartPole-v1", max_episode_steps=12))
    theirs = GymnasiumEnv({"env_id": "CartPole-v1", "max_episode_steps": 12})
    for env in (ours, theirs):
        env.seed_episodes(3, 4)
    for episode in range(4):
        np.testing.assert_array_equal(ours.reset(), theirs.reset())
        done = False
        while not done:
            mine, other = ours.step(episode % 2), theirs.step(episode % 2)
            np.testing.assert_array_equal(mine.obs, other.obs)
            done = mine.done
            flags = [(t.done, t.info["terminated"], t.info["truncated"]) for t in (mine, other)]
            assert flags[0] == flags[1]


def test_an_env_by_id_is_made_at_the_first_reset(registered):
    env = DingEnvWrapper(cfg={"env_id": "DingToy-v1"})
    assert registered == []
    env.reset()
    assert len(registered) == 1
    assert env.action_space == spaces.Discrete(3)
    assert len(registered) == 1


@pytest.mark.differs(
    "a gymnasium env that `DingEnvWrapper` makes by its id has no `reward_range`, and its spaces are unknown before "
    "the first reset",
    "the reward space is unbounded unless given; all spaces are known at once",
)
def test_spaces_of_an_env_by_id_are_known_before_the_first_reset(registered):
    env = DingEnvWrapper(cfg={"env_id": "DingToy-v1", "env_wrapper": ["frame_stack"]})
    assert env.observation_space == spaces.Box(-10, 10, (4, 2), np.float32)
    assert env.action_space == spaces.Discrete(3)
    assert env.reward_space == spaces.Box(-np.inf, np.inf, (1,), np.float32)
    assert [toy.closed for toy in registered] == [1]


def test_an_instance_is_wrapped_at_once_and_is_stepped_itself():
    toy = Toy()
    env = DingEnvWrapper(toy)
    assert env.observation_space == toy.observation_space
    env.reset()
    env.step(2)
    assert toy.actions == [2]
    env.close()
    assert toy.closed == 1


def test_random_actions_of_an_instance_are_the_same_each_time_without_a_seed():
    draws = [[int(env.random_action()[0]) for _ in range(20)] for env in (DingEnvWrapper(Toy()), DingEnvWrapper(Toy()))]
    assert draws[0] == draws[1]


def test_the_reward_space_is_unbounded_unless_a_wrapper_or_the_env_tells():
    unbounded = spaces.Box(-np.inf, np.inf, (1,), np.float32)
    assert DingEnvWrapper(Toy()).reward_space == unbounded
    assert DingEnvWrapper(cfg={"env_id": "CartPole-v1"}, is_gymnasium=True).reward_space == unbounded
    clipped = DingEnvWrapper(Toy(), {"env_wrapper": ["clip_reward"]})
    assert clipped.reward_space == spaces.Box(-1, 1, (1,), np.float32)
    assert DingEnvWrapper(FourValueToy()).reward_space == spaces.Box(0, 1, (1,), np.float32)


def test_a_dropped_id_becomes_its_successor_with_the_old_step_limit():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        env = DingEnvWrapper(cfg=EasyDict(env_id="CartPole-v0"))
        env.reset()
    assert env._env.unwrapped.spec.id == "CartPole-v1"
    assert env._env.spec.max_episode_steps == 200
    assert repr(env) == "DI-engine Env(CartPole-v0), generated by DingEnvWrapper"
    env.close()


def test_the_name_is_that_of_the_config_or_of_the_env():
    assert (
        repr(DingEnvWrapper(gymnasium.make("CartPole-v1"))) == "DI-engine Env(CartPole-v1), generated by DingEnvWrapper"
    )
    assert repr(DingEnvWrapper(Toy(), {"env_id": "Mine"})) == "DI-engine Env(Mine), generated by DingEnvWrapper"
    assert repr(DingEnvWrapper(Toy())) == "DI-engine Env(None), generated by DingEnvWrapper"


@pytest.mark.differs("the observation space of the wrapped env is changed in place", "it stays")
def test_float64_becomes_float32_and_the_envs_own_space_stays():
    space = spaces.Box(-1, 1, (2,), np.float64)
    env = DingEnvWrapper(Toy(observation_space=space, observe=lambda e, s: np.array([0.1, 0.2])))
    assert env.observation_space == spaces.Box(-1, 1, (2,), np.float32)
    assert space.dtype == np.float64
    assert (env.reset().dtype, env.step(0).obs.dtype) == (np.float32, np.float32)


@pytest.mark.parametrize(
    ("space", "obs", "dtype"),
    [
        (spaces.Box(0, 9, (2,), np.float32), np.array([1, 2], np.uint8), np.float32),
        (spaces.Box(0, 9, (2,), np.float32), [1, 2], np.float32),
        (spaces.Box(0, 9, (2,), np.float64), np.array([1, 2]), np.float32),
        (spaces.Box(0, 9, (2,), np.uint8), np.array([1, 2], np.uint8), np.uint8),
        (spaces.Box(0, 9, (2,), np.int64), np.array([1.0, 2.0]), np.float32),
        (spaces.Discrete(3), 2, np.int64),
    ],
)
def test_observations_are_arrays_of_float32_where_the_space_is(space, obs, dtype):
    env = DingEnvWrapper(Toy(observation_space=space, observe=lambda e, s: obs))
    for got in (env.reset(), env.step(0).obs):
        assert (type(got), got.dtype, got.tolist()) == (np.ndarray, dtype, np.asarray(obs).tolist())


def test_observations_in_dicts_and_tuples_are_arrays_in_the_form_of_their_spaces():
    unit = spaces.Box(0, 9, (1,), np.float64)
    space = spaces.Dict(a=unit, b=spaces.Discrete(2), c=spaces.Tuple([unit, unit]))
    given = {"a": 1, "b": 1, "c": (np.array(2.0), [3]), "d": "more"}
    obs = DingEnvWrapper(Toy(observation_space=space, observe=lambda e, s: given)).reset()
    assert (obs["a"].dtype, obs["a"].tolist(), obs["b"].dtype, obs["b"].shape) == (np.float32, [1.0], np.int64, ())
    assert [(part.dtype, part.tolist()) for part in obs["c"]] == [(np.float32, [2.0]), (np.float32, [3.0])]
    assert obs["d"] == "more"


@pytest.mark.parametrize("env_id", ["CartPole-v1", "Pendulum-v1"])
def test_observations_with_the_previous_action_are_in_their_space_but_for_the_first_action(env_id):
    env = DingEnvWrapper(cfg={"env_id": env_id, "env_wrapper": "obs_plus_prev_action_reward"})
    first = env.reset()
    shapes = {key: space.shape for key, space in env.observation_space.spaces.items()}
    assert {key: value.shape for key, value in first.items()} == shapes
    assert (first["prev_action"] == -1).all()
    obs = env.step(env.random_action()).obs
    assert env.observation_space.contains({**obs, "prev_action": env.action_space.sample()})
    assert {key: value.shape for key, value in obs.items()} == shapes


@pytest.mark.differs(
    "`DingEnvWrapper` takes int and int64 actions only",
    "every kind of integer; a wrong action is an error that shows the action space",
)
@pytest.mark.parametrize(
    "action", [1, np.int64(1), np.int32(1), np.array(1), np.array([1]), np.array([1], np.int32), True]
)
def test_every_kind_of_integer_is_a_discrete_action(action):
    toy = Toy()
    env = DingEnvWrapper(toy)
    env.reset()
    env.step(action)
    assert toy.actions[0] == 1
    assert toy.action_space.contains(toy.actions[0])


@pytest.mark.parametrize(
    ("action", "error"),
    [
        (1.0, TypeError),
        (np.array([1.0]), TypeError),
        ("left", TypeError),
        (None, TypeError),
        (np.array([0, 1]), TypeError),
        ({"a": 1}, TypeError),
        (3, ValueError),
        (-1, ValueError),
    ],
)
def test_a_wrong_action_is_named_with_the_action_space(action, error):
    env = DingEnvWrapper(Toy())
    env.reset()
    with pytest.raises(error) as caught:
        env.step(action)
    assert repr(action) in str(caught.value)
    assert "Discrete(3)" in str(caught.value)


@pytest.mark.parametrize("action", ["up", np.array([0, 1]), [[0.1], [0.2]]])
def test_a_wrong_real_valued_action_is_named_with_the_action_space(action):
    env = DingEnvWrapper(Toy(action_space=spaces.Box(-2, 2, (1,), np.float32)))
    env.reset()
    with pytest.raises((TypeError, ValueError), match=r"Box\(-2"):
        env.step(action)


def test_real_valued_actions_are_scaled_from_one_and_clipped():
    toy = Toy(action_space=spaces.Box(0, 10, (2,), np.float32))
    env = DingEnvWrapper(toy, {"act_scale": True})
    env.reset()
    env.step(np.array([-2.0, 0.5]))
    assert toy.actions[0].tolist() == [0.0, 7.5]
    assert env.action_space == spaces.Box(-1, 1, (2,), np.float32)
    assert all(abs(value) <= 1 for value in env.random_action())


def test_scaling_actions_needs_bounds():
    with pytest.raises(ValueError, match="finite bounds"):
        DingEnvWrapper(Toy(action_space=spaces.Box(-np.inf, np.inf, (1,), np.float32)), {"act_scale": True})


def test_a_hybrid_action_is_scaled_in_its_real_part():
    pair = spaces.Tuple([spaces.Discrete(3), spaces.Box(-2, 2, (2,), np.float32)])
    toy = Toy(action_space=pair)
    env = DingEnvWrapper(toy, {"env_wrapper": "gym_hybrid_default", "act_scale": True})
    env.reset()
    action = env.random_action()
    assert {key: value.dtype for key, value in action.items()} == {
        "type": np.int64, "mask": np.int64, "args": np.float32,
    }  # fmt: skip
    env.step({**action, "args": np.array([1.0, -0.5])})
    assert toy.actions[0][1].tolist() == [2.0, -1.0]


def test_a_tree_of_arrays_is_an_action_of_a_dict():
    class Tree:
        def json(self):
            return {"type": np.array(1), "mask": np.array([1, 1]), "args": np.array([0.5, 0.5])}

    toy = Toy(action_space=spaces.Tuple([spaces.Discrete(3), spaces.Box(-2, 2, (2,), np.float32)]))
    env = DingEnvWrapper(toy, {"env_wrapper": "gym_hybrid_default"})
    env.reset()
    env.step(Tree())
    assert (toy.actions[0][0], toy.actions[0][1].tolist()) == (1, [0.5, 0.5])
    with pytest.raises(ValueError, match="must be a dict with the keys"):
        env.step({"type": 1})


def test_rewards_are_clipped_from_below_only():
    env = DingEnvWrapper(Toy(length=3, rewards=(-11, -3, 20.5)), {"rew_clip": True})
    env.reset()
    steps = [env.step(0) for _ in range(3)]
    assert [step.reward.tolist() for step in steps] == [[-10.0], [-3.0], [20.5]]
    assert steps[-1].info["eval_episode_return"].tolist() == [6.5]


@pytest.mark.parametrize("reward", [2, np.float64(2), np.float32(2), np.array([2.0]), np.array(2)])
def test_a_reward_is_any_one_number(reward):
    env = DingEnvWrapper(Toy(length=1, rewards=(reward,)))
    env.reset()
    timestep = env.step(0)
    assert (timestep.reward.dtype, timestep.reward.tolist()) == (np.float32, [2.0])
    assert timestep.info["eval_episode_return"].tolist() == [2.0]


@pytest.mark.differs(
    "an `env_wrapper` list without `eval_episode_return` fails in the collector",
    "the return is still reported",
)
def test_the_return_is_told_also_without_the_wrapper_that_does_so():
    env = DingEnvWrapper(Toy(length=2), {"env_wrapper": []})
    for _ in range(2):
        env.reset()
        assert "eval_episode_return" not in env.step(0).info
        value = env.step(0).info["eval_episode_return"]
        assert (value.dtype, value.tolist()) == (np.float32, [2.0])


def test_a_time_limit_is_told_apart_from_an_end(registered):
    env = DingEnvWrapper(cfg={"env_id": "DingToy-v1"})
    for _ in range(2):
        env.reset()
        info = until_done(env).info
        assert (info["terminated"], info["truncated"], info["count"]) == (False, True, 3)


def test_an_end_that_a_wrapper_makes_is_a_true_end_and_one_that_it_hides_is_none():
    class Early(EnvWrapper):
        def step(self, action):
            obs, reward, done, info = self.env.step(action)
            return obs, reward, not done, info

    env = DingEnvWrapper(Toy(length=2), {"env_wrapper": [Early]})
    env.reset()
    first, second = env.step(0), env.step(0)
    assert (first.done, first.info["terminated"], first.info["truncated"]) == (True, True, False)
    assert (second.done, second.info["terminated"], second.info["truncated"]) == (False, False, False)


def test_wrappers_are_given_by_preset_by_config_or_as_functions():
    def stack(env):
        return FrameStackWrapper(env, 2)

    cfg = {"env_wrapper": [{"type": "frame_stack", "kwargs": {"n_frames": 3}}, stack, "eval_episode_return"]}
    env = DingEnvWrapper(Toy(), EasyDict(cfg))
    assert env.reset().shape == (2, 3, 2)
    assert DingEnvWrapper(Toy(), {"env_wrapper": "frame_stack"}).reset().shape == (4, 2)
    flat = DingEnvWrapper(Toy(), {"env_wrapper": [gymnasium.wrappers.FlattenObservation, stack]})
    assert flat.reset().shape == (2, 2)


def test_an_instance_may_be_wrapped_already():
    env = DingEnvWrapper(FrameStackWrapper(Toy(length=2)))
    assert env.reset().shape == (4, 2)
    assert until_done(env).info["eval_episode_return"].tolist() == [2.0]


@pytest.mark.parametrize("make", [FourValueToy, lambda: ToyBaseEnv({})])
def test_an_instance_may_have_another_interface(make):
    inner = make()
    inner.reset()
    env = DingEnvWrapper(inner)
    env.seed(1)
    assert env.reset().tolist() == [0.0]
    assert inner.seeds[-1] in (seeds_of(1, 0, [0])[0], (seeds_of(1, 0, [0])[0], True))
    info = until_done(env).info
    assert (info["terminated"], info["truncated"], info["eval_episode_return"].tolist()) == (True, False, [2.0])


def test_each_episode_has_a_seed_of_its_own():
    toy = Toy()
    env = DingEnvWrapper(toy)
    env.seed_episodes(3, 5)
    for _ in range(3):
        env.reset()
    env.seed(4, dynamic_seed=False)
    env.reset()
    env.reset()
    env.seed_episodes(3, 5, 2)
    env.reset()
    assert toy.seeds == [*seeds_of(3, 5, range(3)), *seeds_of(4, 0, range(2)), *seeds_of(3, 5, [2])]


def test_a_seed_decides_random_actions_too_and_leaves_numpy_alone():
    def draw():
        env = DingEnvWrapper(cfg={"env_id": "Pendulum-v1", "act_scale": True})
        env.seed(1)
        env.reset()
        return [float(env.random_action()[0]) for _ in range(5)]

    np.random.seed(7)
    assert draw() == draw()
    assert np.random.rand() == np.random.RandomState(7).rand()


def test_an_env_that_cannot_be_seeded_is_left_alone_on_request():
    class Deaf:
        observation_space, action_space = spaces.Box(-1, 1, (1,)), spaces.Discrete(2)

        def reset(self):
            return np.zeros(1)

        def step(self, action):
            return np.zeros(1), 0.0, False, {}

    env = DingEnvWrapper(Deaf())
    env.seed(0)
    with pytest.raises(AttributeError, match="seed_api=False"):
        env.reset()
    env = DingEnvWrapper(Deaf(), seed_api=False)
    env.seed(0)
    assert env.reset().tolist() == [0.0]
    toy = Toy()
    env = DingEnvWrapper(toy, seed_api=False)
    env.seed(0)
    env.reset()
    assert toy.seeds == [None]


def test_options_go_to_the_reset_of_the_env():
    toy = Toy()
    env = DingEnvWrapper(toy, {"env_wrapper": ["frame_stack"]})
    env.reset(options={"level": 3})
    env.reset()
    assert toy.options == [{"level": 3}, None]


def test_step_before_reset_says_so():
    for env in (DingEnvWrapper(Toy()), DingEnvWrapper(cfg={"env_id": "CartPole-v1"})):
        with pytest.raises(RuntimeError, match="before reset"):
            env.step(0)


@pytest.mark.differs(
    "a closed `DingEnvWrapper` fails at the next reset with AttributeError, and errors of `close` are swallowed",
    "the env is recreated, or the error says why not; errors of `close` reach the caller",
)
def test_a_reset_after_close_makes_the_env_anew_and_goes_on_with_the_seeds(registered):
    for env in (DingEnvWrapper(cfg={"env_id": "DingToy-v1"}), DingEnvWrapper(gymnasium.make("DingToy-v1"))):
        registered.clear()
        env.seed(2)
        env.reset()
        env.close()
        env.close()
        with pytest.raises(RuntimeError, match="before reset"):
            env.step(0)
        env.reset()
        assert not env.step(0).done
        assert registered[-1].seeds == seeds_of(2, 0, [1])
        env.close()
        assert registered[-1].closed == 1


def test_an_instance_without_a_spec_cannot_be_reset_after_close_and_says_what_to_do():
    env = DingEnvWrapper(Toy())
    env.close()
    with pytest.raises(RuntimeError, match=r"cannot be made anew without a spec; give DingEnvWrapper cfg\.env_id"):
        env.reset()


def test_an_error_of_close_is_not_hidden(monkeypatch):
    toy = Toy()
    env = DingEnvWrapper(toy)

    def fail():
        raise OSError("no display")

    monkeypatch.setattr(toy, "close", fail)
    with pytest.raises(OSError, match="no display"):
        env.close()
    env.close()


def test_an_env_is_closed_when_a_wrapper_fails(registered):
    def fail(env):
        raise OSError("no model")

    with pytest.raises(OSError, match="no model"):
        DingEnvWrapper(cfg={"env_id": "DingToy-v1", "env_wrapper": [fail]}).reset()
    assert registered[0].closed == 1
    toy = Toy()
    with pytest.raises(OSError, match="no model"):
        DingEnvWrapper(toy, {"env_wrapper": [fail]})
    assert toy.closed == 0


@pytest.mark.parametrize(
    "make",
    [
        lambda: None,
        lambda: gymnasium.make("CartPole-v1", max_episode_steps=7),
        lambda: gymnasium.wrappers.FlattenObservation(gymnasium.make("CartPole-v1")),
        Toy,
        lambda: FrameStackWrapper(gymnasium.make("CartPole-v1")),
        lambda: FourValueToy(5),
    ],
)
def test_a_clone_has_an_env_of_its_own(make):
    env = DingEnvWrapper(make(), {"env_id": "CartPole-v1"})
    env.seed(0)
    env.reset()
    other = env.clone("evaluator")
    other.seed(0)
    first = env._env.unwrapped
    other_obs = other.reset()
    assert other._env.unwrapped is not first
    assert type(other._env.unwrapped) is type(first)
    env.step(1)
    other.step(1)
    env.step(1)
    assert other.step(1).obs.tolist() != env.step(1).obs.tolist()
    assert other_obs.shape == env.observation_space.shape
    assert other.action_space == env.action_space


def test_a_clone_keeps_what_the_env_was_made_with():
    env = DingEnvWrapper(
        gymnasium.make("CartPole-v1", max_episode_steps=7, sutton_barto_reward=True), {"rew_clip": True}
    )
    other = env.clone()
    other.reset()
    timestep = None
    steps = 0
    while timestep is None or not timestep.done:
        timestep = other.step(steps % 2)
        steps += 1
    assert (steps, timestep.reward.tolist(), timestep.info["truncated"]) == (7, [0.0], True)
    assert other._cfg == env._cfg


def test_a_clone_has_the_wrappers_of_its_own_caller():
    env = DingEnvWrapper(gymnasium.make("CartPole-v1"), {"env_wrapper": [lambda env: FrameStackWrapper(env, 2)]})
    assert env.clone().reset().shape == (2, 4)
    with pytest.raises(AssertionError, match="'learner'"):
        env.clone("learner")


@pytest.mark.differs(
    "`DingEnvWrapper.clone` shares one env between the copies where copying fails",
    "recreated from the id or spec, else copied; an error where neither is possible",
)
def test_an_env_of_which_there_cannot_be_two_is_not_cloned():
    class Single(Toy):
        def __deepcopy__(self, memo):
            raise NotImplementedError("there is one")

    class Sharing(Toy):
        def __deepcopy__(self, memo):
            return self

    with pytest.raises(RuntimeError, match=r"(?s)cannot be cloned.*there is one.*env_fn"):
        DingEnvWrapper(Single()).clone()
    with pytest.raises(RuntimeError, match="shares a layer"):
        DingEnvWrapper(Sharing()).clone()


def test_an_instance_that_is_closed_is_cloned_by_its_spec_only():
    env = DingEnvWrapper(gymnasium.make("CartPole-v1"))
    env.close()
    assert env.clone().reset().shape == (4,)
    env = DingEnvWrapper(Toy())
    env.close()
    with pytest.raises(RuntimeError, match="cannot be made anew"):
        env.clone()


def test_an_instance_with_a_wrapper_that_its_spec_does_not_tell_is_copied(registered):
    class Mine(gymnasium.Wrapper):
        pass

    inner = Mine(gymnasium.make("DingToy-v1"))
    inner.unwrapped.length = 2
    other = DingEnvWrapper(inner).clone()
    assert isinstance(other._env.env.env, Mine)
    assert other._env.unwrapped.length == 2
    assert other._env.unwrapped is not inner.unwrapped


def test_an_env_whose_spec_makes_another_class_is_copied_and_the_other_closed(registered):
    inner = Toy()
    inner.spec = gymnasium.spec("DingToy-v1")
    env = DingEnvWrapper(inner)
    assert type(env.clone()._env.env.env) is Toy
    assert [toy.closed for toy in registered] == [1]


@pytest.mark.parametrize("dump", [pickle.dumps, cloudpickle.dumps])
def test_an_env_can_be_pickled_in_the_middle_of_an_episode(dump):
    env = DingEnvWrapper(gymnasium.make("CartPole-v1"), {"act_scale": True})
    env.seed(0)
    env.reset()
    env.step(0)
    twin = pickle.loads(dump(env))
    np.testing.assert_array_equal(twin.step(1).obs, env.step(1).obs)
    np.testing.assert_array_equal(twin.reset(), env.reset())
    copied = copy.deepcopy(env)
    np.testing.assert_array_equal(copied.step(1).obs, env.step(1).obs)
    unopened = pickle.loads(dump(DingEnvWrapper(cfg={"env_id": "CartPole-v1"})))
    assert unopened.reset().shape == (4,)


def test_counts_are_taken_out_of_the_config_and_each_env_has_a_copy():
    cfg = EasyDict(collector_env_num=2, evaluator_env_num=1, manager={"a": 1})
    first, second = DingEnvWrapper.create_collector_env_cfg(cfg)
    (third,) = DingEnvWrapper.create_evaluator_env_cfg({"evaluator_env_num": 1, "manager": {"a": 1}})
    assert (first.is_train, second.is_train, third.is_train) == (True, True, False)
    assert "collector_env_num" not in cfg
    first.manager.a = 2
    assert (second.manager.a, cfg.manager.a) == (1, 1)
    with pytest.raises(KeyError, match="collector_env_num"):
        DingEnvWrapper.create_collector_env_cfg(cfg)


@pytest.mark.parametrize(
    ("cfg", "match"),
    [
        ({}, "give an environment, or its id"),
        ({"env_id": 3}, "env_id = 3"),
        ({"env_id": "CartPole-v1", "act_scale": "yes"}, "act_scale"),
        ({"env_id": "CartPole-v1", "rew_clip": 1}, "rew_clip"),
        ({"env_id": "CartPole-v1", "env_wrapper": None}, "env_wrapper"),
    ],
)
def test_configs_are_checked_at_construction(cfg, match):
    with pytest.raises(ConfigError, match=match):
        DingEnvWrapper(cfg=cfg)


def test_other_keys_and_the_callers_config_are_left_alone():
    cfg = EasyDict(stop_value=195, manager={}, env_ids=3)
    DingEnvWrapper(Toy(), cfg)
    assert cfg == EasyDict(stop_value=195, manager={}, env_ids=3)


@pytest.mark.parametrize("wrappers", ["default", []])
def test_a_caller_is_a_collector_or_an_evaluator(wrappers):
    with pytest.raises(AssertionError, match="caller = 'learner'"):
        DingEnvWrapper(Toy(), {"env_wrapper": wrappers}, caller="learner")


def test_an_unknown_preset_is_refused_at_construction():
    with pytest.raises(NotImplementedError, match="not supported env_wrapper_name: 'atarri'"):
        DingEnvWrapper(cfg={"env_id": "CartPole-v1", "env_wrapper": "atarri"})


def test_an_unknown_id_is_gymnasiums_error():
    with pytest.raises(gymnasium.error.NameNotFound, match="NoSuchEnv"):
        DingEnvWrapper(cfg={"env_id": "NoSuchEnv-v1"}).reset()


def test_render_returns_the_image_of_an_env_made_for_it():
    env = DingEnvWrapper(Toy(render_mode="rgb_array"))
    env.reset()
    env.step(0)
    assert env.render("rgb_array").max() == 1
    silent = DingEnvWrapper(Toy())
    with pytest.raises(RuntimeError, match="render_mode='rgb_array'"):
        silent.render()
    with pytest.raises(RuntimeError, match=r"render before reset\(\)"):
        DingEnvWrapper(cfg={"env_id": "CartPole-v1"}).render()


def test_gym_env_makes_an_env_by_id_with_arguments(registered):
    env = gym_env(EasyDict(env_id="DingToy-v1"), length=2)
    env.reset()
    assert until_done(env).info["count"] == 2
    env = gym_env({"env_id": "CartPole-v0"}, max_episode_steps=5)
    assert env._env.spec.max_episode_steps == 5
    assert gym_env({"env_id": "CartPole-v0"})._env.spec.max_episode_steps == 200


@pytest.mark.differs("mountain car cannot be made, for a missing import", "`MountainCar-v0` by its id")
def test_mountain_car_is_played_to_its_step_limit():
    env = DingEnvWrapper(cfg={"env_id": "MountainCar-v0"})
    env.seed(0)
    env.reset()
    info = until_done(env, 1).info
    assert (info["truncated"], info["eval_episode_return"].tolist()) == (True, [-200.0])
