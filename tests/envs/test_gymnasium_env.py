"""GymnasiumEnv: gymnasium's environments behind our conventions."""

from __future__ import annotations

from inspect import signature

import gymnasium
import numpy as np
import pytest
from easydict import EasyDict
from gymnasium import spaces

from ding.envs import GymnasiumEnv
from ding.envs.common.gym_compat import bounds_of
from ding.envs.env.gymnasium_env import GymnasiumSource
from ding.utils.config_helper import ConfigError
from ding.utils.data.nested import plain
from tests.envs.toys import Toy, seeds_of

MADE: list[ProbeEnv] = []


class ProbeEnv(Toy):
    """Its observations are sampled from its space, and those that are made are remembered."""

    def __init__(self, obs_space=None, act_space=None, length=9, render_mode=None):
        shown = obs_space or spaces.Box(-1, 1, (2,), np.float64)
        super().__init__(length, (1.0,), lambda *_: shown.sample(), shown, act_space, render_mode=render_mode)
        MADE.append(self)


@pytest.fixture(autouse=True)
def made():
    MADE.clear()
    return MADE


def probe(**kwargs):
    """A GymnasiumEnv over a new ProbeEnv, reset."""
    keys = {key: kwargs.pop(key) for key in ("wrappers", "max_episode_steps", "act_scale", "act_bins") if key in kwargs}
    env = GymnasiumEnv({"env": lambda: ProbeEnv(**kwargs), **keys})
    env.reset()
    return env


@pytest.mark.differs(
    "passes actions, which the policy counts from 0, to a space that does not start at 0, so that some are never taken",
    "adds the `start` of the space",
)
@pytest.mark.parametrize(
    ("space", "own", "actions", "sent"),
    [
        (spaces.Discrete(2, start=-1), spaces.Discrete(2), [0, 1, np.array([1])], [-1, 0, 0]),
        (
            spaces.MultiDiscrete([2, 3], start=[5, 1]),
            spaces.MultiDiscrete([2, 3]),
            [[0, 0], np.array([1, 2])],
            [[5, 1], [6, 3]],
        ),
        (
            spaces.MultiDiscrete([2, 3], start=[5, 1], dtype=np.int16),
            spaces.MultiDiscrete([2, 3], dtype=np.int16),
            [[0, 0], np.array([1, 2])],
            [[5, 1], [6, 3]],
        ),
        (
            spaces.Dict(a=spaces.Discrete(2, start=3), b=spaces.MultiBinary(1)),
            spaces.Dict(a=spaces.Discrete(2), b=spaces.MultiBinary(1)),
            [{"a": 1, "b": [1]}],
            [{"a": 4, "b": [1]}],
        ),
    ],
)
def test_choices_count_from_0_wherever_the_space_starts(space, own, actions, sent, made):
    env = probe(act_space=space)
    assert env.action_space == own
    for action in actions:
        env.step(action)
    assert [plain(action) for action in made[-1].actions] == sent
    assert all(space.contains(action) for action in made[-1].actions)
    env.seed(0)
    env.reset()
    samples = [env.random_action() for _ in range(20)]
    assert all(own.contains(np.squeeze(sample)) for sample in samples if not isinstance(sample, dict))
    for sample in samples:
        env.step(sample)
    env.seed(0)
    env.reset()
    assert [plain(env.random_action()) for _ in range(20)] == plain(samples)


@pytest.mark.skipif("dtype" not in signature(spaces.Discrete).parameters, reason="gymnasium's choices are int64")
@pytest.mark.parametrize("dtype", [np.int8, np.int32])
@pytest.mark.parametrize("start", [0, 28])
def test_choices_reach_the_env_in_the_type_of_its_space(start, dtype, made):
    space = spaces.Discrete(100, start=start, dtype=dtype)
    env = probe(act_space=space)
    for action in (0, 99, np.array([99]), np.array([99], np.uint8)):
        env.step(action)
        assert space.contains(made[-1].actions[-1])
    assert [int(action) for action in made[-1].actions] == [start, *[start + 99] * 3]
    assert bounds_of(space) == (start, start + 99)


@pytest.mark.parametrize("action", [np.array([0.5]), 0.5, [0.5], np.float32(0.5)])
def test_box_actions_reach_the_env_in_its_dtype_and_shape(action, made):
    probe(act_space=spaces.Box(-2, 2, (1,), np.float32)).step(action)
    sent = made[-1].actions[0]
    assert (sent.dtype, sent.tolist()) == (np.float32, [0.5])


def test_act_bins_makes_real_valued_actions_a_choice_among_values(made):
    space = spaces.Box(np.array([[-1, 0], [2, -4]], np.float32), np.array([[1, 8], [2, 4]], np.float32))
    env = probe(act_space=space, act_bins=5, act_scale=True)
    assert env.action_space == spaces.MultiDiscrete([5, 5, 5, 5])
    env.step(np.array([0, 1, 2, 4]))
    (received,) = made[-1].actions
    assert received.dtype == np.float32 and received.tolist() == [[-1, 2], [2, 4]]
    assert env.action_space.contains(env.random_action())
    with pytest.raises(ValueError, match=r"outside of the action space MultiDiscrete\(\[5 5 5 5\]\)"):
        env.step(np.array([0, 1, 2, 5]))


def test_composite_actions_are_converted_member_by_member(made):
    inner = {"a": spaces.Discrete(2), "b": spaces.Box(-2, 2, (1,)), "c": spaces.MultiDiscrete([2, 3])}
    env = probe(act_space=spaces.Tuple([spaces.Dict(inner), spaces.MultiBinary(2)]), act_scale=True)
    env.step(({"a": np.array([1]), "b": np.array([0.5]), "c": [1, 2]}, np.array([0, 1])))
    parts, bits = made[-1].actions[0]
    assert (parts["a"], parts["b"].tolist(), parts["c"].tolist(), bits.tolist()) == (1, [1.0], [1, 2], [0, 1])
    assert env.action_space[0]["b"] == spaces.Box(-1, 1, (1,))
    for bad in [({"a": 0}, [0, 1]), ({"a": 0, "b": 0.0, "c": [2, 0]}, [0, 1]), None]:
        with pytest.raises(ValueError, match="action space"):
            env.step(bad)


def test_float64_becomes_float32_and_other_dtypes_stay():
    space = spaces.Dict(
        a=spaces.Box(-1, 1, (2,), np.float64),
        b=spaces.Box(0, 255, (2,), np.uint8),
        c=spaces.Tuple([spaces.Discrete(3), spaces.Box(-2, 2, (1,), np.float64)]),
        d=spaces.Text(3),
    )
    env = GymnasiumEnv({"env": lambda: ProbeEnv(obs_space=space)})
    for obs in (env.reset(), env.step(0).obs):
        assert (obs["a"].dtype, obs["b"].dtype) == (np.float32, np.uint8)
        assert type(obs["c"]) is tuple
        assert (obs["c"][0].dtype, obs["c"][0].shape, obs["c"][1].dtype) == (np.int64, (), np.float32)
        assert isinstance(obs["d"], str)
    assert env.observation_space["a"] == spaces.Box(-1, 1, (2,), np.float32)
    assert env.observation_space["b"] is space["b"]
    assert env.observation_space["c"][1] == spaces.Box(-2, 2, (1,), np.float32)
    assert space["a"].dtype == np.float64


def test_spaces_are_known_before_the_first_reset_and_the_env_they_came_from_is_closed(made):
    env = GymnasiumEnv({"env": ProbeEnv})
    assert env.action_space == spaces.Discrete(3)
    assert env.observation_space.dtype == np.float32
    assert len(made) == 1
    assert made[0].closed == 1
    env.reset()
    assert len(made) == 2
    assert made[1].closed == 0


def test_seeds_are_kept_over_close(made):
    env = GymnasiumEnv({"env": ProbeEnv})
    env.seed(1)
    env.reset()
    env.close()
    env.reset()
    assert made[0].seeds + made[1].seeds == seeds_of(1, 0, range(2))


def test_close_may_be_repeated_and_a_reset_opens_anew(made):
    env = probe()
    env.close()
    env.close()
    assert made[0].closed == 1
    with pytest.raises(RuntimeError, match="before reset"):
        env.step(0)
    env.reset()
    assert not env.step(0).done


def test_an_instance_is_stepped_itself_and_is_not_closed_for_its_spaces(made):
    inner = ProbeEnv()
    env = GymnasiumEnv(EasyDict(env=inner))
    assert env.action_space == spaces.Discrete(3)
    assert inner.closed == 0
    env.reset()
    env.step(2)
    env.close()
    assert (made, inner.actions, inner.closed) == ([inner], [2], 1)


def test_wrappers_are_applied_from_the_innermost_with_their_arguments():
    class Add(gymnasium.RewardWrapper):
        def __init__(self, env, value=1):
            super().__init__(env)
            self.value = value

        def reward(self, reward):
            return (reward + self.value) * 10

    env = probe(wrappers=[Add, (Add, {"value": 5}), "gymnasium.wrappers:FlattenObservation"])
    assert env.step(0).reward.tolist() == [250.0]


def test_kwargs_go_to_make():
    env = GymnasiumEnv(EasyDict(env_id="FrozenLake-v1", kwargs={"is_slippery": False}))
    env.seed(0)
    assert env.reset().tolist() == 0
    assert [int(env.step(2).obs) for _ in range(2)] == [1, 2]
    env.close()


@pytest.mark.parametrize("env", [ProbeEnv, (ProbeEnv, {"render_mode": "human"})])
def test_kwargs_are_arguments_of_a_class_or_function(env):
    source = GymnasiumSource.from_config({"env": env, "kwargs": {"length": 5, "render_mode": "rgb_array"}})
    made = source.make()
    assert source.name == "ProbeEnv" and made.length == 5 and made.render_mode == "rgb_array"


@pytest.mark.parametrize(
    ("cfg", "match"),
    [
        (None, "one of env_id and env"),
        ({}, "one of env_id and env"),
        ({"env_id": "CartPole-v1", "env": ProbeEnv}, "one of env_id and env"),
        ({"env_id": 3}, "env_id = 3"),
        ({"env": ProbeEnv(), "kwargs": {"a": 1}}, "must be a callable"),
        (
            {"env": ProbeEnv, "wrappers": ["flatten"]},
            "env.wrappers = 'flatten'",
        ),
        (
            {"env": ProbeEnv, "wrappers": ["gymnasium.wrappers:Flat"]},
            "is not allowed: .* has no 'Flat'",
        ),
        ({"env": ProbeEnv, "wrappers": [(1, {})]}, "must be a callable"),
        ({"env": ProbeEnv, "max_episode_steps": 0}, "max_episode_steps"),
        ({"env": ProbeEnv, "act_scale": "yes"}, "act_scale"),
        ({"env": ProbeEnv, "act_bins": 1}, "act_bins"),
    ],
)
def test_configs_are_checked_at_construction(cfg, match):
    with pytest.raises(ConfigError, match=match):
        GymnasiumEnv(cfg)


def test_something_that_is_no_gymnasium_env_is_refused():
    with pytest.raises(TypeError):
        GymnasiumEnv({"env": lambda: 3}).reset()


def test_every_episode_is_recorded_under_a_name_of_its_own(clips, tmp_path):
    envs = [GymnasiumEnv({"env": lambda: ProbeEnv(render_mode="rgb_array"), "max_episode_steps": 2}) for _ in range(2)]
    for env in envs:
        env.enable_save_replay(str(tmp_path))
        for _ in range(2):
            env.reset()
            env.step(0)
            env.step(0)
        env.close()
    assert [frames for frames, _ in clips] == [3] * 4
    assert len({path for _, path in clips}) == 4
    assert all(path.startswith(str(tmp_path / "rl-video-")) for _, path in clips)


class Screen(gymnasium.Env):
    """Shows images with their channels last."""

    observation_space = gymnasium.spaces.Box(0, 255, (6, 5, 3), np.uint8)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.arange(90, dtype=np.uint8).reshape(6, 5, 3), {}

    def step(self, action):
        return self.reset()[0], 1.0, True, False, {}


@pytest.mark.parametrize(
    "settings", [{"wrappers": ["ding.envs.env.gymnasium_spaces:channels_first"]}, {"channels_first": True}]
)
def test_images_are_shown_with_their_channels_first(settings):
    env = GymnasiumEnv({"env": Screen, **settings})
    env.seed(0)
    obs = env.reset()
    assert env.observation_space == gymnasium.spaces.Box(0, 255, (3, 6, 5), np.uint8)
    assert obs.dtype == np.uint8 and obs.flags.c_contiguous
    assert np.array_equal(obs[1], np.arange(1, 90, 3).reshape(6, 5))


def test_entries_of_dict_observations_are_in_the_order_of_their_names_however_they_were_given():
    class Unsorted(gymnasium.Env):
        inner = spaces.Dict(y=spaces.Discrete(2), x=spaces.Discrete(2))
        observation_space = spaces.Dict(place=spaces.Box(0, 1, (2,), np.float32), goal=inner)
        action_space = spaces.Discrete(2)

    assert [*Unsorted.observation_space] == ["place", "goal"]
    space = GymnasiumEnv({"env": Unsorted}).observation_space
    assert [*space] == ["goal", "place"] and [*space["goal"]] == ["x", "y"]
