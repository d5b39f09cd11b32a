"""What `GymnasiumEnv` and `DingEnvWrapper` make of an env of gymnasium alike."""

import warnings

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from ding.envs import BaseEnv, DingEnvWrapper, GymnasiumEnv
from ding.utils.config_helper import ConfigError
from tests.envs.toys import Toy, seeds_of

KINDS = {
    "gymnasium": lambda make, cfg: GymnasiumEnv({"env": make, **cfg}),
    "ding": lambda make, cfg: DingEnvWrapper(make(), cfg),
}


def ding_by_id(cfg):
    return DingEnvWrapper(cfg=cfg)


def ding_of_instance(cfg):
    return DingEnvWrapper(gymnasium.make(cfg["env_id"], max_episode_steps=cfg.get("max_episode_steps")), cfg)


@pytest.fixture(params=KINDS)
def over(request):
    """Returns an env over a toy, and the list of the toys that it makes."""

    def over(cfg=(), **toy):
        made = []

        def make():
            made.append(Toy(**toy))
            return made[-1]

        return KINDS[request.param](make, dict(cfg)), made

    return over


@pytest.fixture(params=[GymnasiumEnv, ding_by_id], ids=["gymnasium", "ding"])
def by_id(request):
    return request.param


def begun(over, cfg=(), **toy):
    env, made = over(cfg, **toy)
    env.reset()
    return env, made[-1]


def returned(timestep):
    return np.asarray(timestep.info["eval_episode_return"]).reshape(-1).tolist()


@pytest.mark.parametrize("make", [GymnasiumEnv, ding_by_id, ding_of_instance])
def test_cartpole_returns_arrays_floats_and_bools(make):
    env = make({"env_id": "CartPole-v1"})
    assert isinstance(env, BaseEnv)
    env.seed(0)
    obs, steps, timestep = env.reset(), 0, None
    assert (type(obs), obs.shape, obs.dtype) == (np.ndarray, (4,), np.float32)
    while timestep is None or not timestep.done:
        timestep = env.step(np.array([1]))
        steps += 1
        assert (timestep.obs.dtype, timestep.obs.shape) == (np.float32, (4,))
        assert (timestep.reward.dtype, timestep.reward.tolist()) == (np.float32, [1.0])
        assert {type(value) for value in (timestep.done, timestep.info["terminated"])} == {bool}
        assert ("eval_episode_return" in timestep.info) == timestep.done
    assert (timestep.info["terminated"], timestep.info["truncated"]) == (True, False)
    assert returned(timestep) == [steps] and steps > 5
    value = timestep.info["eval_episode_return"]
    assert type(value) is float if type(env) is GymnasiumEnv else (value.dtype, value.shape) == (np.float32, (1,))
    env.close()


@pytest.mark.parametrize("limit", [None, 12])
@pytest.mark.parametrize("make", [GymnasiumEnv, ding_of_instance])
def test_episodes_are_those_of_gymnasium_with_its_time_limit(make, limit):
    ours = make({"env_id": "CartPole-v1", "max_episode_steps": limit})
    theirs = gymnasium.make("CartPole-v1", max_episode_steps=limit)
    ours.seed_episodes(3, 4)
    for episode, seed in enumerate(seeds_of(3, 4, range(5))):
        np.testing.assert_array_equal(ours.reset(), theirs.reset(seed=seed)[0])
        done = False
        while not done:
            obs, reward, terminated, truncated, _ = theirs.step(episode % 2)
            timestep = ours.step(episode % 2)
            np.testing.assert_array_equal(timestep.obs, obs)
            assert timestep.reward.tolist() == [reward]
            assert (timestep.info["terminated"], timestep.info["truncated"]) == (terminated, truncated)
            done = terminated or truncated
        assert timestep.done
    ours.close()
    theirs.close()


@pytest.mark.parametrize("truncates", [False, True])
def test_the_episode_return_begins_anew_and_a_time_limit_is_told_apart_from_an_end(over, truncates):
    env, _ = begun(over, length=2, rewards=(1.5, np.float32(2)), truncates=truncates)
    for _ in range(2):
        assert "eval_episode_return" not in env.step(0).info
        timestep = env.step(0)
        assert (timestep.done, returned(timestep), timestep.info["count"]) == (True, [3.5], 2)
        assert (timestep.info["terminated"], timestep.info["truncated"]) == (not truncates, truncates)
        env.reset()


@pytest.mark.parametrize("reward", [np.zeros(2), None, "1"])
def test_a_reward_that_is_no_number_is_refused(over, reward):
    env, _ = begun(over, {"env_wrapper": []}, rewards=(reward,))
    with pytest.raises(ValueError, match="must be one number"):
        env.step(0)


@pytest.mark.parametrize(
    "action", [1, np.int32(1), np.int64(1), np.array(1), np.array([1]), np.array([1], np.int32), [1], [[1]], True]
)
def test_every_kind_of_integer_is_a_discrete_action(over, action):
    env, toy = begun(over)
    env.step(action)
    assert toy.actions == [1] and type(toy.actions[0]) in (int, np.int64)


@pytest.mark.parametrize(
    ("action", "error"),
    [
        *((action, TypeError) for action in (1.0, "1", None, np.array([1, 2]), np.array([1.0]), {"a": 1})),
        *((action, ValueError) for action in (-1, 3, np.array([3]))),
    ],
)
def test_a_wrong_action_is_named_with_the_action_space(over, action, error):
    with pytest.raises(error) as caught:
        begun(over)[0].step(action)
    assert repr(action) in str(caught.value) and "Discrete(3)" in str(caught.value)


def test_real_valued_actions_are_scaled_from_one_and_clipped(over):
    low, high = np.array([-2, 0], np.float32), np.array([2, 10], np.float32)
    env, toy = begun(over, {"act_scale": True}, action_space=spaces.Box(low, high))
    env.step(np.array([0.5, -7.0]))
    assert toy.actions[0].tolist() == [1.0, 0.0]
    assert env.action_space == spaces.Box(-1, 1, (2,), np.float32)
    assert np.abs(env.random_action()).max() <= 1


@pytest.mark.parametrize(("low", "high", "dtype"), [(-4.6, 2.7, np.float32), (-0.2, 0.1, np.float64)])
def test_scaled_actions_are_members_of_the_action_space(over, low, high, dtype):
    space = spaces.Box(low, high, (2,), dtype)
    env, toy = begun(over, {"act_scale": True}, action_space=space)
    env.step(np.array([1.0, -1.0], np.float32))
    assert space.contains(toy.actions[0])
    np.testing.assert_allclose(toy.actions[0], [high, low], rtol=1e-6)


_LARGEST = np.finfo(np.float32).max


@pytest.mark.parametrize(
    ("low", "high"), [(-np.inf, np.inf), (0, np.inf), (-_LARGEST, _LARGEST), (0, _LARGEST), (-2e38, 2e38)]
)
def test_scaling_actions_needs_bounds(over, low, high):
    with pytest.raises(ConfigError, match="act_scale = True needs .* finite bounds"):
        begun(over, {"act_scale": True}, action_space=spaces.Box(low, high, (1,), np.float32))


def test_float64_becomes_float32_and_the_envs_own_space_stays(over):
    space = spaces.Box(-1, 1, (2,), np.float64)
    env, _ = over(observation_space=space, observe=lambda episode, step: np.array([0.1, 0.2]))
    assert env.observation_space == spaces.Box(-1, 1, (2,), np.float32) and space.dtype == np.float64
    assert (env.reset().dtype, env.step(0).obs.dtype) == (np.float32, np.float32)


@pytest.mark.differs(
    "fails on the missing `reward_range` of a gymnasium env, whose spaces are unknown before the first reset",
    "knows the spaces at once; rewards are unbounded unless given",
)
def test_the_reward_space_is_unbounded_unless_the_env_tells(over, monkeypatch):
    assert over()[0].reward_space == spaces.Box(-np.inf, np.inf, (1,), np.float32)
    monkeypatch.setattr(Toy, "reward_range", (-1.0, 2.0), raising=False)
    assert over()[0].reward_space == spaces.Box(-1, 2, (1,), np.float32)
    own = spaces.Box(0, 1, (1,), np.float32)
    monkeypatch.setattr(Toy, "reward_space", own, raising=False)
    assert over()[0].reward_space is own


@pytest.mark.guarantees("randomness")
def test_each_episode_has_a_seed_of_its_own(over):
    env, made = over()
    env.seed_episodes(3, 5)
    for _ in range(3):
        env.reset()
    env.seed(4, dynamic_seed=False)
    env.reset()
    env.reset()
    env.seed_episodes(3, 5, 2)
    env.reset()
    assert made[-1].seeds == [*seeds_of(3, 5, range(3)), *seeds_of(4, 0, range(2)), *seeds_of(3, 5, [2])]


@pytest.mark.differs("reseeds numpy's global generator when an env is seeded", "does not touch it")
@pytest.mark.parametrize("own", [{}, {"act_scale": True}, {"act_bins": 99}])
def test_a_seed_decides_random_actions_too_and_leaves_numpy_alone(over, own):
    def draw():
        env, toy = begun(over, own, action_space=spaces.Box(-2, 2, (1,)))
        env.seed(1)
        env.reset()
        assert toy.seeds == [None, *seeds_of(1, 0, [0])]
        return [float(env.random_action()[0]) for _ in range(5)]

    np.random.seed(7)
    assert draw() == draw()
    assert np.random.rand() == np.random.RandomState(7).rand()


def test_options_go_to_the_reset_of_the_env(over):
    env, made = over({"env_wrapper": ["frame_stack"]})
    env.reset(options={"level": 3})
    env.reset()
    assert made[-1].options == [{"level": 3}, None]


def test_step_before_reset_says_so(over):
    with pytest.raises(RuntimeError, match="before reset"):
        over()[0].step(0)


@pytest.mark.differs("makes `CartPole-v0` with a warning", "makes v1 with the limit of 200 steps")
def test_a_deprecated_id_becomes_its_successor_with_the_old_step_limit(by_id):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        env = by_id({"env_id": "CartPole-v0"})
        env.reset()
    assert env._env.unwrapped.spec.id == "CartPole-v1" and env._env.spec.max_episode_steps == 200
    assert "(CartPole-v0)" in repr(env)
    env.close()


def test_render_returns_the_image_of_an_env_made_for_it_or_says_what_to_set(over):
    env, _ = begun(over, render_mode="rgb_array")
    env.step(0)
    assert env.render("rgb_array").tolist() == np.full((4, 4, 3), 1).tolist()
    with pytest.raises(RuntimeError, match="render_mode ?= ?'rgb_array'"):
        begun(over)[0].render("rgb_array")


def test_render_before_reset_says_so(by_id):
    with pytest.raises(RuntimeError, match=r"reset it first|render before reset\(\)"):
        by_id({"env_id": "CartPole-v1"}).render()
