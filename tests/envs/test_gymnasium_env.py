"""GymnasiumEnv: gymnasium's environments behind our conventions."""

from __future__ import annotations

import sys
import types
import warnings

import gymnasium
import numpy as np
import pytest
from easydict import EasyDict
from gymnasium import spaces

from ding.envs import GymnasiumEnv
from ding.envs.env.gymnasium_env import resolve_id
from ding.utils.config_helper import ConfigError
from ding.utils.registry_factory import ENV_REGISTRY

MADE: list[ProbeEnv] = []


class ProbeEnv(gymnasium.Env):
    """Records what it is given; observations are sampled from its space, episodes end where `script` says."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 30}

    def __init__(self, obs_space=None, act_space=None, script=((1.0, False, False),), render_mode=None):
        self.observation_space = obs_space or spaces.Box(-1, 1, (2,), np.float64)
        self.action_space = act_space or spaces.Discrete(3)
        self.script, self.render_mode = script, render_mode
        self.seeds, self.options, self.actions, self.closed = [], [], [], 0
        MADE.append(self)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.seeds.append(seed)
        self.options.append(options)
        self.count = 0
        return self.observation_space.sample(), {}

    def step(self, action):
        self.actions.append(action)
        reward, terminated, truncated = self.script[min(self.count, len(self.script) - 1)]
        self.count += 1
        return self.observation_space.sample(), reward, terminated, truncated, {"own": self.count}

    def render(self):
        return np.full((4, 4, 3), self.count, np.uint8)

    def close(self):
        self.closed += 1


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


def test_it_is_the_env_type_gymnasium():
    assert ENV_REGISTRY.get("gymnasium") is GymnasiumEnv


def test_cartpole_returns_arrays_floats_and_bools():
    env = GymnasiumEnv(EasyDict(env_id="CartPole-v1"))
    env.seed(0)
    obs = env.reset()
    assert isinstance(obs, np.ndarray)
    assert (obs.shape, obs.dtype) == ((4,), np.float32)
    steps = 0
    timestep = None
    while timestep is None or not timestep.done:
        timestep = env.step(np.array([1]))
        steps += 1
        assert (timestep.obs.dtype, timestep.obs.shape) == (np.float32, (4,))
        assert (timestep.reward.dtype, timestep.reward.tolist()) == (np.float32, [1.0])
        assert type(timestep.done) is bool
        assert type(timestep.info["terminated"]) is bool
        assert type(timestep.info["truncated"]) is bool
        assert ("eval_episode_return" in timestep.info) == timestep.done
    assert timestep.info == {"terminated": True, "truncated": False, "eval_episode_return": float(steps)}
    assert type(timestep.info["eval_episode_return"]) is float
    env.close()


def test_the_episode_return_begins_anew_with_each_episode():
    env = probe(script=((1.5, False, False), (np.float32(2), np.bool_(True), False)))
    for _ in range(2):
        assert "eval_episode_return" not in env.step(0).info
        timestep = env.step(0)
        assert timestep.info == {"own": 2, "terminated": True, "truncated": False, "eval_episode_return": 3.5}
        assert type(timestep.info["terminated"]) is bool
        env.reset()


def test_a_time_limit_truncates_and_does_not_terminate():
    env = probe(max_episode_steps=2)
    assert not env.step(0).done
    timestep = env.step(0)
    assert timestep.done
    assert (timestep.info["terminated"], timestep.info["truncated"]) == (False, True)


def test_a_time_limit_can_be_given_for_an_id():
    env = GymnasiumEnv({"env_id": "CartPole-v1", "max_episode_steps": 1})
    env.reset()
    assert env.step(0).info["truncated"]
    env.close()


@pytest.mark.parametrize("reward", [3, np.float64(3), np.int32(3), np.array(3.0), np.array([3.0])])
def test_any_number_is_a_reward(reward):
    timestep = probe(script=((reward, True, False),)).step(0)
    assert (timestep.reward.dtype, timestep.reward.shape, timestep.reward[0]) == (np.float32, (1,), 3)
    assert type(timestep.info["eval_episode_return"]) is float


@pytest.mark.parametrize("reward", [np.zeros(2), None, "1"])
def test_a_reward_that_is_no_number_is_refused(reward):
    with pytest.raises(ValueError, match="must be one number"):
        probe(script=((reward, False, False),)).step(0)


@pytest.mark.parametrize(
    "action", [1, np.array([1]), np.array(1), np.int32(1), np.int64(1), np.array([[1]]), [1], True]
)
def test_discrete_actions_reach_the_env_as_integers(action, made):
    probe().step(action)
    assert made[-1].actions == [1]
    assert type(made[-1].actions[0]) in (int, np.int64)


@pytest.mark.parametrize("action", [1.0, "1", None, np.array([1, 2]), np.array([1.0])])
def test_an_action_of_the_wrong_kind_names_the_action_space(action):
    with pytest.raises(TypeError, match=r"Discrete\(3\)"):
        probe().step(action)


@pytest.mark.parametrize("action", [-1, 3, np.array([3])])
def test_an_action_out_of_range_names_the_action_space(action):
    with pytest.raises(ValueError, match=r"Discrete\(3\)"):
        probe().step(action)


def test_discrete_spaces_may_start_anywhere(made):
    env = probe(act_space=spaces.Discrete(2, start=-1))
    env.step(-1)
    assert made[-1].actions == [-1]
    with pytest.raises(ValueError, match=r"outside .* policies count from 0, so wrap .* action \+ -1, Discrete\(2\)\)"):
        env.step(1)


@pytest.mark.parametrize("action", [np.array([0.5]), 0.5, [0.5], np.float32(0.5)])
def test_box_actions_reach_the_env_in_its_dtype_and_shape(action, made):
    probe(act_space=spaces.Box(-2, 2, (1,), np.float32)).step(action)
    sent = made[-1].actions[0]
    assert (sent.dtype, sent.tolist()) == (np.float32, [0.5])


@pytest.mark.parametrize(("action", "error"), [(np.zeros(3), ValueError), ("left", TypeError), (None, TypeError)])
def test_box_actions_of_another_shape_or_kind_are_refused(action, error):
    with pytest.raises(error, match="action space Box|action space is Box"):
        probe(act_space=spaces.Box(-2, 2, (2,), np.float32)).step(action)


def test_real_actions_for_an_integer_box_are_refused():
    env = probe(act_space=spaces.Box(0, 9, (1,), np.uint8))
    env.step(np.array([3]))
    with pytest.raises(TypeError, match="Box"):
        env.step(np.array([3.0]))


def test_scaled_actions_are_clipped_and_mapped_onto_the_bounds(made):
    low, high = np.array([-2, 0], np.float32), np.array([2, 10], np.float32)
    env = probe(act_space=spaces.Box(low, high), act_scale=True)
    env.step(np.array([0.5, -7.0]))
    assert made[-1].actions[0].tolist() == [1.0, 0.0]
    assert env.action_space == spaces.Box(-1, 1, (2,), np.float32)
    assert np.abs(env.random_action()).max() <= 1


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


@pytest.mark.parametrize(
    "space", [spaces.Box(-np.inf, np.inf, (1,)), spaces.Discrete(3), spaces.Box(0, 9, (1,), np.int64)]
)
def test_act_bins_needs_real_valued_actions_with_bounds(space):
    with pytest.raises(ValueError, match="act_bins needs a real-valued action space with finite bounds; this one is"):
        probe(act_space=space, act_bins=5)


def test_scaling_needs_finite_bounds(made):
    env = GymnasiumEnv({"env": lambda: ProbeEnv(act_space=spaces.Box(-np.inf, np.inf, (1,))), "act_scale": True})
    with pytest.raises(ValueError, match="finite bounds"):
        env.reset()
    assert made[-1].closed == 1


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


def test_actions_for_other_spaces_pass_as_they_are(made):
    probe(act_space=spaces.Text(3)).step("abc")
    assert made[-1].actions == ["abc"]


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


def test_bounds_beyond_float32_become_infinite():
    huge = spaces.Box(-1e300, 1e300, (1,), np.float64)
    assert GymnasiumEnv({"env": lambda: ProbeEnv(huge)}).observation_space == spaces.Box(-np.inf, np.inf, (1,))


def test_spaces_are_known_before_the_first_reset_and_the_env_they_came_from_is_closed(made):
    env = GymnasiumEnv({"env": ProbeEnv})
    assert env.action_space == spaces.Discrete(3)
    assert env.observation_space.dtype == np.float32
    assert len(made) == 1
    assert made[0].closed == 1
    env.reset()
    assert len(made) == 2
    assert made[1].closed == 0


@pytest.mark.differs("reading `reward_range` of a gymnasium env fails", "the reward space is unbounded unless given")
def test_the_reward_space_is_unbounded_unless_the_env_tells():
    assert probe().reward_space == spaces.Box(-np.inf, np.inf, (1,), np.float32)

    class Ranged(ProbeEnv):
        reward_range = (-1.0, 2.0)

    class Told(ProbeEnv):
        reward_space = spaces.Box(0, 1, (1,), np.float32)

    assert GymnasiumEnv({"env": Ranged}).reward_space == spaces.Box(-1, 2, (1,), np.float32)
    assert GymnasiumEnv({"env": Told}).reward_space is Told.reward_space


def test_random_actions_are_arrays_that_step_takes():
    env = probe()
    action = env.random_action()
    assert (action.dtype, action.shape) == (np.int64, (1,))
    env.step(action)
    env = probe(act_space=spaces.Tuple([spaces.Dict(a=spaces.Discrete(2)), spaces.Box(-1, 1, (2,))]))
    first, second = env.random_action()
    assert (first["a"].shape, second.shape) == ((1,), (2,))


def seeds_of(seed, env_index, episodes):
    return [int(np.random.SeedSequence([seed, env_index, k]).generate_state(1)[0]) for k in episodes]


@pytest.mark.parametrize(("seed", "first"), [(3, 0), (3, 2**32 - 50), (2**33, 0)])
def test_the_seeds_of_many_episodes_are_those_of_each(seed, first, made):
    env = GymnasiumEnv({"env": ProbeEnv})
    env.seed_episodes(seed, 5, first)
    for _ in range(150):
        env.reset()
    assert made[0].seeds == seeds_of(seed, 5, range(first, first + 150))


def test_each_episode_has_a_seed_of_its_own(made):
    env = GymnasiumEnv({"env": ProbeEnv})
    env.seed_episodes(3, 5)
    for _ in range(3):
        env.reset()
    env.seed(4, dynamic_seed=False)
    env.reset()
    env.seed_episodes(3, 5, 2)
    env.reset()
    assert made[0].seeds == [*seeds_of(3, 5, range(3)), *seeds_of(4, 0, [0]), *seeds_of(3, 5, [2])]


@pytest.mark.parametrize("own", [{}, {"act_scale": True}, {"act_bins": 99}])
def test_seeding_decides_random_actions_too(own):
    def draw():
        env = probe(act_space=spaces.Box(-2, 2, (1,)), **own)
        env.seed(1)
        env.reset()
        return [float(env.random_action()[0]) for _ in range(5)]

    assert draw() == draw()


def test_seeds_are_kept_over_close(made):
    env = GymnasiumEnv({"env": ProbeEnv})
    env.seed(1)
    env.reset()
    env.close()
    env.reset()
    assert made[0].seeds + made[1].seeds == seeds_of(1, 0, range(2))


@pytest.mark.differs("seeding an env reseeds numpy's global generator", "the library's own env leaves it alone")
def test_seeding_leaves_numpy_alone_and_an_unseeded_env_is_reset_without_seed(made):
    np.random.seed(7)
    expected = np.random.RandomState(7).rand()
    env = GymnasiumEnv({"env": ProbeEnv})
    env.reset()
    env.seed(0)
    env.reset()
    assert made[0].seeds[0] is None
    assert np.random.rand() == expected


@pytest.mark.parametrize("args", [(-1, 0), (0, -1), (0, 0, -1)])
def test_negative_seeds_are_refused(args):
    with pytest.raises(ValueError, match=">= 0"):
        GymnasiumEnv({"env": ProbeEnv}).seed_episodes(*args)


def test_reset_hands_options_on(made):
    env = GymnasiumEnv({"env": ProbeEnv})
    env.reset(options={"level": 2})
    env.reset()
    assert made[0].options == [{"level": 2}, None]


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


def test_env_configs_with_an_instance_get_a_copy_each():
    cfg = EasyDict(env=gymnasium.make("CartPole-v1"), collector_env_num=2)
    first, second = (GymnasiumEnv(c) for c in GymnasiumEnv.create_collector_env_cfg(cfg))
    first.seed(0)
    second.seed(0)
    assert first.reset().tolist() == second.reset().tolist()
    first.step(0)
    assert first.step(0).obs.tolist() != second.step(0).obs.tolist()


def test_wrappers_are_applied_from_the_innermost_with_their_arguments():
    class Add(gymnasium.RewardWrapper):
        def __init__(self, env, value=1):
            super().__init__(env)
            self.value = value

        def reward(self, reward):
            return (reward + self.value) * 10

    env = probe(wrappers=[Add, (Add, {"value": 5}), "gymnasium.wrappers:FlattenObservation"])
    assert env.step(0).reward.tolist() == [250.0]


def test_an_env_is_closed_when_a_wrapper_fails(made):
    def fail(env):
        raise OSError("no display")

    with pytest.raises(OSError, match="no display"):
        GymnasiumEnv({"env": ProbeEnv, "wrappers": [fail]}).reset()
    assert made[0].closed == 1


def test_kwargs_go_to_make():
    env = GymnasiumEnv(EasyDict(env_id="FrozenLake-v1", kwargs={"is_slippery": False}))
    env.seed(0)
    assert env.reset().tolist() == 0
    assert [int(env.step(2).obs) for _ in range(2)] == [1, 2]
    env.close()


@pytest.mark.parametrize(
    ("cfg", "match"),
    [
        (None, "one of env_id and env"),
        ({}, "one of env_id and env"),
        ({"env_id": "CartPole-v1", "env": ProbeEnv}, "one of env_id and env"),
        ({"env_id": 3}, "env_id = 3"),
        ({"env": ProbeEnv, "kwargs": {"a": 1}}, "no meaning with env"),
        (
            {"env": ProbeEnv, "wrappers": ["flatten"]},
            "env.wrappers = 'flatten' is not allowed; it",
        ),
        (
            {"env": ProbeEnv, "wrappers": ["gymnasium.wrappers:Flat"]},
            "is not allowed: .* has no 'Flat'",
        ),
        ({"env": ProbeEnv, "wrappers": [(1, {})]}, "must be a callable, its name module:name, or a pair"),
        ({"env": ProbeEnv, "max_episode_steps": 0}, "max_episode_steps"),
        ({"env": ProbeEnv, "act_scale": "yes"}, "act_scale"),
        ({"env": ProbeEnv, "act_bins": 1}, "act_bins"),
    ],
)
def test_configs_are_checked_at_construction(cfg, match):
    with pytest.raises(ConfigError, match=match):
        GymnasiumEnv(cfg)


def test_keys_of_others_in_the_env_section_are_left_alone(made):
    GymnasiumEnv(EasyDict(env=ProbeEnv, env_ids=3, stop_value=195, manager={}))


def test_something_that_is_no_gymnasium_env_is_refused():
    with pytest.raises(TypeError, match=r"not a gymnasium\.Env"):
        GymnasiumEnv({"env": lambda: 3}).reset()


def test_repr_names_the_env():
    assert repr(GymnasiumEnv({"env_id": "CartPole-v0"})) == "GymnasiumEnv(CartPole-v0)"
    assert repr(GymnasiumEnv({"env": ProbeEnv})) == "GymnasiumEnv(ProbeEnv)"
    assert repr(GymnasiumEnv({"env": ProbeEnv()})) == "GymnasiumEnv(ProbeEnv)"


@pytest.mark.differs("`CartPole-v0` is created unchanged, with a warning", "v1 with the limit of 200")
def test_a_deprecated_id_becomes_its_successor_with_the_old_step_limit():
    assert resolve_id("CartPole-v0") == ("CartPole-v1", 200)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        env = GymnasiumEnv({"env_id": "CartPole-v0"})
        env.reset()
    assert env._env.spec.max_episode_steps == 200
    env.close()


def test_an_id_gymnasium_has_dropped_becomes_its_successor():
    assert resolve_id("Pendulum-v0") == ("Pendulum-v1", None)


def test_ids_that_are_current_or_differ_in_more_than_the_limit_are_left_alone(monkeypatch):
    assert resolve_id("CartPole-v1") == ("CartPole-v1", None)
    assert resolve_id("MountainCar-v0") == ("MountainCar-v0", None)
    specs = {f"Mine-v{v}": types.SimpleNamespace(id=f"Mine-v{v}", entry_point=f"m:E{v}", kwargs={}) for v in (0, 1)}
    monkeypatch.setattr(gymnasium, "registry", specs)
    assert resolve_id("Mine-v0") == ("Mine-v0", None)


def test_render_returns_the_image_of_an_env_made_for_it():
    env = probe(render_mode="rgb_array")
    env.step(0)
    assert env.render("rgb_array").tolist() == np.full((4, 4, 3), 1).tolist()


def test_render_says_what_to_set():
    with pytest.raises(RuntimeError, match="render_mode = 'rgb_array'"):
        probe().render("rgb_array")
    with pytest.raises(RuntimeError, match="reset it first"):
        GymnasiumEnv({"env": ProbeEnv}).render()


def test_recording_without_its_packages_names_them_all(monkeypatch):
    monkeypatch.setitem(sys.modules, "moviepy", None)
    monkeypatch.setitem(sys.modules, "pygame", None)
    with pytest.raises(ImportError, match="pip install moviepy pygame"):
        GymnasiumEnv({"env": ProbeEnv}).enable_save_replay("./video")


@pytest.fixture
def clips(monkeypatch):
    """A stand-in for moviepy; the list of (number of frames, file) it was asked to write."""
    written = []

    class Clip:
        def __init__(self, frames, fps):
            self.frames = list(frames)

        def write_videofile(self, path, logger=None):
            written.append((len(self.frames), path))

    package = types.ModuleType("moviepy")
    clip_module = types.ModuleType("moviepy.video.io.ImageSequenceClip")
    package.ImageSequenceClip = clip_module.ImageSequenceClip = Clip
    for name in ("moviepy", "moviepy.video", "moviepy.video.io"):
        monkeypatch.setitem(sys.modules, name, package)
    monkeypatch.setitem(sys.modules, "moviepy.video.io.ImageSequenceClip", clip_module)
    return written


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


def test_recording_may_be_switched_on_between_episodes(clips, tmp_path, made):
    env = probe(render_mode="rgb_array", max_episode_steps=1)
    env.enable_save_replay(str(tmp_path))
    env.reset()
    env.step(0)
    env.close()
    assert len(made) == 2
    assert made[0].closed == 1
    assert len(clips) == 1


def test_recording_needs_an_env_made_for_images(clips, tmp_path):
    env = GymnasiumEnv({"env": ProbeEnv})
    env.enable_save_replay(str(tmp_path))
    with pytest.raises(ValueError, match="rgb_array"):
        env.reset()


@pytest.mark.parametrize("limit", [None, 7])
def test_episodes_are_those_of_gymnasium_with_its_time_limit(limit):
    ours = GymnasiumEnv({"env_id": "CartPole-v1", "max_episode_steps": limit})
    theirs = gymnasium.make("CartPole-v1", max_episode_steps=limit)
    ours.seed(0)
    for episode in range(5):
        seed = int(np.random.SeedSequence([0, 0, episode]).generate_state(1)[0])
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


def test_a_time_limit_under_a_wrapper_counts_the_steps_of_the_env_it_wraps():
    class Twice(gymnasium.Wrapper):
        def step(self, action):
            self.env.step(action)
            return self.env.step(action)

    env = GymnasiumEnv({"env_id": "CartPole-v1", "max_episode_steps": 4, "wrappers": [Twice]})
    env.seed(0)
    env.reset()
    assert [env.step(k % 2).info["truncated"] for k in range(2)] == [False, True]
    env.close()


class Screen(gymnasium.Env):
    """Shows images with their channels last."""

    observation_space = gymnasium.spaces.Box(0, 255, (6, 5, 3), np.uint8)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.arange(90, dtype=np.uint8).reshape(6, 5, 3), {}

    def step(self, action):
        return self.reset()[0], 1.0, True, False, {}


def test_images_are_shown_with_their_channels_first():
    env = GymnasiumEnv({"env": Screen, "wrappers": ["ding.envs.env.gymnasium_spaces:channels_first"]})
    env.seed(0)
    obs = env.reset()
    assert env.observation_space == gymnasium.spaces.Box(0, 255, (3, 6, 5), np.uint8)
    assert obs.dtype == np.uint8 and obs.flags.c_contiguous
    assert np.array_equal(obs[1], np.arange(1, 90, 3).reshape(6, 5))


def test_ids_of_namespaces_are_registered_when_they_are_used():
    pytest.importorskip("minatar")
    env = GymnasiumEnv({"env_id": "MinAtar/Breakout-v1"})
    env.seed(0)
    assert env.reset().shape == (10, 10, 4)


def test_a_namespace_whose_package_is_missing_says_which(monkeypatch):
    monkeypatch.setitem(sys.modules, "ale_py", None)
    with pytest.raises(ImportError, match="the env 'ALE/Pong-v5' needs a package .* pip install ale-py"):
        GymnasiumEnv({"env_id": "ALE/Pong-v5"}).reset()
