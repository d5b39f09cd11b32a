"""DingEnvWrapper: any env and a list of wrappers as one `BaseEnv`."""

import contextlib
import copy

import gymnasium
import numpy as np
import pytest
from easydict import EasyDict
from gymnasium import spaces

from ding.entry.serial_entry import run_serial
from ding.envs import BaseEnvManager, DingEnvWrapper, EnvWrapper, FrameStackWrapper, get_default_wrappers
from ding.envs.gym_env import env as gym_env
from ding.example.cartpole_dqn import create_config, main_config
from ding.policy.policy_factory import PolicyFactory
from ding.utils.config_helper import ConfigError
from ding.worker.collector.sample_serial_collector import SampleSerialCollector
from tests.envs.toys import FourValueToy, Toy, seeds_of, until_done
from tests.fakes import FakeWriter, ScriptedPolicy
from tests.own_folder import own_folder as own_folder


def test_an_env_by_id_is_made_at_the_first_reset(registered):
    env = DingEnvWrapper(cfg={"env_id": "DingToy-v1"})
    assert registered == []
    env.reset()
    assert len(registered) == 1
    assert env.action_space == spaces.Discrete(3)
    assert len(registered) == 1


def test_an_instance_is_wrapped_at_once_and_is_stepped_itself():
    toy = Toy()
    env = DingEnvWrapper(toy)
    assert env.observation_space == toy.observation_space
    env.reset()
    env.step(2)
    assert toy.actions == [2]
    env.close()
    assert toy.closed == 1


def test_the_reward_space_is_unbounded_unless_a_wrapper_or_the_env_tells():
    unbounded = spaces.Box(-np.inf, np.inf, (1,), np.float32)
    assert DingEnvWrapper(Toy()).reward_space == unbounded
    assert DingEnvWrapper(cfg={"env_id": "CartPole-v1"}, is_gymnasium=True).reward_space == unbounded
    clipped = DingEnvWrapper(Toy(), {"env_wrapper": ["clip_reward"]})
    assert clipped.reward_space == spaces.Box(-1, 1, (1,), np.float32)
    assert DingEnvWrapper(FourValueToy()).reward_space == spaces.Box(0, 1, (1,), np.float32)


@pytest.mark.parametrize(
    ("space", "obs", "dtype"),
    [
        (spaces.Box(0, 9, (2,), np.float32), np.array([1, 2], np.uint8), np.float32),
        (spaces.Box(0, 9, (2,), np.float32), [1, 2], np.float32),
        (spaces.Box(0, 9, (2,), np.float64), np.array([1, 2]), np.float32),
        (spaces.Box(0, 9, (2,), np.uint8), np.array([1, 2], np.uint8), np.uint8),
        (spaces.Box(0, 9, (2,), np.int64), np.array([1.0, 2.0]), np.int64),
        (spaces.Box(0, 9, (2,), np.int64), np.array([1.5, 2.0]), np.float32),
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


def test_rewards_are_clipped_from_below_only():
    env = DingEnvWrapper(Toy(length=3, rewards=(-11, -3, 20.5)), {"rew_clip": True})
    env.reset()
    steps = [env.step(0) for _ in range(3)]
    assert [step.reward.tolist() for step in steps] == [[-10.0], [-3.0], [20.5]]
    assert steps[-1].info["eval_episode_return"].tolist() == [6.5]


@pytest.mark.differs(
    "fails in the collector if `env_wrapper` lacks `eval_episode_return`",
    "reports the return anyway",
)
def test_the_return_is_told_also_without_the_wrapper_that_does_so():
    env = DingEnvWrapper(Toy(length=2), {"env_wrapper": []})
    for _ in range(2):
        env.reset()
        assert "eval_episode_return" not in env.step(0).info
        value = env.step(0).info["eval_episode_return"]
        assert (value.dtype, value.tolist()) == (np.float32, [2.0])


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
    with pytest.raises(RuntimeError, match=r"cannot be made anew by a spec; give cfg\.env_id"):
        env.reset()


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


def test_a_clone_has_the_wrappers_of_its_own_caller():
    env = DingEnvWrapper(gymnasium.make("CartPole-v1"), {"env_wrapper": [lambda env: FrameStackWrapper(env, 2)]})
    assert env.clone().reset().shape == (2, 4)
    with pytest.raises(AssertionError):
        env.clone("learner")


@pytest.mark.differs(
    "shares one env between copies of `DingEnvWrapper.clone` where copying fails",
    "makes another from the id or spec, or raises an error",
)
def test_an_env_of_which_there_cannot_be_two_is_not_cloned():
    class Single(Toy):
        def __deepcopy__(self, memo):
            raise NotImplementedError("there is one")

    with pytest.raises(NotImplementedError):
        DingEnvWrapper(Single()).clone()


def test_counts_are_taken_out_of_the_config_and_each_env_has_a_copy():
    cfg = EasyDict(collector_env_num=2, evaluator_env_num=1, manager={"a": 1})
    first, second = DingEnvWrapper.create_collector_env_cfg(cfg)
    (third,) = DingEnvWrapper.create_evaluator_env_cfg({"evaluator_env_num": 1, "manager": {"a": 1}})
    assert (first.is_train, second.is_train, third.is_train) == (True, True, False)
    assert "collector_env_num" not in cfg
    first.manager.a = 2
    assert (second.manager.a, cfg.manager.a) == (1, 1)
    with pytest.raises(KeyError):
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


def test_gym_env_makes_an_env_by_id_with_arguments(registered):
    env = gym_env(EasyDict(env_id="DingToy-v1"), length=2)
    env.reset()
    assert until_done(env).info["count"] == 2
    env = gym_env({"env_id": "CartPole-v0"}, max_episode_steps=5)
    assert env._env.spec.max_episode_steps == 5
    assert gym_env({"env_id": "CartPole-v0"})._env.spec.max_episode_steps == 200


@pytest.mark.differs("cannot make mountain car, because of a missing import", "makes it by its id, `MountainCar-v0`")
def test_mountain_car_is_played_to_its_step_limit():
    env = DingEnvWrapper(cfg={"env_id": "MountainCar-v0"})
    env.seed(0)
    env.reset()
    info = until_done(env, 1).info
    assert (info["truncated"], info["eval_episode_return"].tolist()) == (True, [-200.0])


# DingEnvWrapper under env managers, in other processes, and in training.


def short_configs(**env):
    """The example's pair of configs for a few iterations, without an env type."""
    main, create = copy.deepcopy(main_config), copy.deepcopy(create_config)
    main.exp_name = "exp"
    main.env.update(collector_env_num=2, evaluator_env_num=2, n_evaluator_episode=2, **env)
    main.env.pop("type")
    main.policy.learn.update(update_per_collect=2, batch_size=16)
    main.policy.collect.n_sample = 16
    main.policy.random_collect_size = 32
    create.pop("env")
    return main, create


def make_env(cfg):
    return DingEnvWrapper(gymnasium.make("CartPole-v1"), cfg)


def make_env_by_id(cfg):
    return DingEnvWrapper(cfg=cfg)


@pytest.mark.parametrize("env_fn", [make_env, make_env_by_id])
def test_an_env_given_by_hand_trains_through_the_serial_pipeline(env_fn):
    main, create = short_configs()
    cfg = EasyDict(copy.deepcopy(main.env))
    setting = [env_fn, DingEnvWrapper.create_collector_env_cfg(cfg), DingEnvWrapper.create_evaluator_env_cfg(cfg)]
    run = run_serial((main, create), seed=0, env_setting=setting, max_train_iter=6)
    assert run.learner.train_iter == 6
    assert run.collector.envstep > 48
    assert len(run.eval_info["eval_episode_return"]) == 2
    assert all(np.ravel(value) > 5 for value in run.eval_info["eval_episode_return"])


@pytest.mark.parametrize("truncates", [False, True])
def test_samples_tell_a_time_limit_from_an_end(truncates):
    manager = BaseEnvManager([lambda: DingEnvWrapper(Toy(length=3, truncates=truncates))], {})
    policy = PolicyFactory.get_random_policy(ScriptedPolicy(n_sample=6), action_space=manager.action_space)
    config = SampleSerialCollector.default_config()
    with contextlib.closing(SampleSerialCollector(config, manager, policy, FakeWriter(), "exp")) as collector:
        rows = collector.collect(6)
    assert [row["done"] for row in rows] == [False, False, True] * 2
    assert [row["terminated"] for row in rows] == [False, False, not truncates] * 2
    assert [row["truncated"] for row in rows] == [False, False, truncates] * 2


def test_the_documented_way_to_make_a_manager_works():
    n = 3
    manager = BaseEnvManager(
        env_fn=[lambda: DingEnvWrapper(gymnasium.make("CartPole-v1")) for _ in range(n)],
        cfg=BaseEnvManager.default_config(),
    )
    manager.seed(0)
    manager.launch()
    assert {env_id: obs.shape for env_id, obs in manager.ready_obs.items()} == dict.fromkeys(range(n), (4,))
    for _ in range(30):
        timesteps = manager.step({env_id: np.array([1]) for env_id in manager.ready_obs})
    assert set(timesteps) == {0, 1, 2}
    assert manager.random_action().keys() == {0, 1, 2}
    manager.close()
    manager.launch()
    assert len(manager.ready_obs) == n
    manager.close()


@pytest.mark.parametrize("env_id", ["CartPole-v1", "Pendulum-v1"])
@pytest.mark.parametrize("act_scale", [False, True])
def test_the_random_policy_acts_in_the_space_that_step_takes(env_id, act_scale):
    env = DingEnvWrapper(cfg={"env_id": env_id, "act_scale": act_scale})
    env.reset()
    policy = PolicyFactory.get_random_policy(ScriptedPolicy(), action_space=env.action_space)
    for _ in range(5):
        action = policy.forward({0: None})[0]["action"].numpy()
        assert env.action_space.contains(action if action.dtype.kind == "f" else action.item())
        env.step(action)


# The lists of wrappers that configs call by one name.


def types_of(*args):
    return [entry["type"] for entry in get_default_wrappers(*args)]


@pytest.mark.parametrize("name", ["default", "mujoco_default"])
def test_the_default_tells_the_return_of_an_episode(name):
    assert get_default_wrappers(name) == [{"type": "eval_episode_return"}]


ATARI = ["noop_reset", "max_and_skip", "episodic_life", "warp_frame", "scaled_float_frame", "frame_stack"]


def test_atari_games_are_wrapped_for_collecting_and_evaluating():
    collect = types_of("atari_default", "BreakoutNoFrameskip-v4")
    assert collect == [*ATARI[:5], "clip_reward", "frame_stack", "eval_episode_return"]
    assert types_of("atari_default", "BreakoutNoFrameskip-v4", "evaluator") == [*ATARI, "eval_episode_return"]
    kwargs = {
        entry["type"]: entry["kwargs"] for entry in get_default_wrappers("atari_default", "Enduro") if "kwargs" in entry
    }
    assert kwargs == {"noop_reset": {"noop_max": 30}, "max_and_skip": {"skip": 4}, "frame_stack": {"n_frames": 4}}


@pytest.mark.parametrize("game", ["PongNoFrameskip-v4", "Qbert-v0", "SpaceInvaders-v4", "MontezumaRevenge-v4"])
def test_games_that_begin_with_fire_begin_so(game):
    assert types_of("atari_default", game)[3] == "fire_reset"


def test_hybrid_actions_come_as_dicts():
    assert types_of("gym_hybrid_default") == ["gym_hybrid_dict_action", "eval_episode_return"]


def test_a_registered_wrapper_is_a_preset_of_its_own():
    assert types_of("reward_in_obs") == ["reward_in_obs", "eval_episode_return"]
    assert types_of("eval_episode_return") == ["eval_episode_return"]


def test_the_caller_is_checked_for_every_preset():
    with pytest.raises(AssertionError):
        get_default_wrappers("default", caller="actor")


def test_an_unknown_name_is_refused_with_those_there_are():
    with pytest.raises(NotImplementedError):
        get_default_wrappers("atari")


def test_atari_needs_the_name_of_the_game():
    with pytest.raises(ValueError, match="env_id"):
        get_default_wrappers("atari_default")


# Videos of a DingEnvWrapper's episodes.


def play_episodes(env, count):
    for _ in range(count):
        env.reset()
        while not env.step(0).done:
            pass


def recorders(env):
    """How many layers of the env record."""
    layer, count = env._env, 0
    while layer is not None:
        count += type(layer).__name__ == "RecordVideo"
        layer = getattr(layer, "env", None)
    return count


@pytest.mark.parametrize(
    "make",
    [
        lambda: DingEnvWrapper(cfg={"env_id": "DingVideo-v1"}),
        lambda: DingEnvWrapper(gymnasium.make("DingVideo-v1")),
        lambda: DingEnvWrapper(gymnasium.make("DingVideo-v1", render_mode="rgb_array")),
        lambda: DingEnvWrapper(Toy(length=2, render_mode="rgb_array")),
        lambda: DingEnvWrapper(FrameStackWrapper(Toy(length=2, render_mode="rgb_array"))),
    ],
)
def test_each_episode_is_recorded_once_whoever_made_the_env(make, clips, registered, tmp_path):
    env = make()
    env.enable_save_replay(str(tmp_path))
    play_episodes(env, 2)
    assert recorders(env) == 1
    env.close()
    assert [frames for frames, _ in clips] == [3] * 2
    assert len({path for _, path in clips}) == 2
    assert all(path.startswith(str(tmp_path / "rl-video-")) for _, path in clips)


def test_an_instance_that_renders_nothing_is_exchanged_and_closed(clips, registered, tmp_path):
    env = DingEnvWrapper(gymnasium.make("DingVideo-v1"))
    env.enable_save_replay(str(tmp_path))
    play_episodes(env, 1)
    assert [(toy.render_mode, toy.closed) for toy in registered] == [(None, 1), ("rgb_array", 0)]
    env.close()


def test_an_instance_that_renders_is_recorded_itself(clips, tmp_path):
    toy = Toy(length=2, render_mode="rgb_array")
    env = DingEnvWrapper(toy)
    play_episodes(env, 1)
    env.enable_save_replay(str(tmp_path))
    play_episodes(env, 1)
    assert (len(toy.actions), toy.closed) == (4, 0)
    env.close()
    assert len(clips) == 1


def test_recording_sees_every_frame_under_wrappers_that_skip(clips, tmp_path):
    env = DingEnvWrapper(Toy(length=6, render_mode="rgb_array"), {"env_wrapper": ["max_and_skip"]})
    env.enable_save_replay(str(tmp_path))
    play_episodes(env, 1)
    env.close()
    assert [frames for frames, _ in clips] == [7]


def test_the_default_folder_is_video(clips, registered, tmp_path):
    env = DingEnvWrapper(cfg={"env_id": "DingVideo-v1"})
    env.enable_save_replay()
    play_episodes(env, 1)
    env.close()
    assert clips[0][1].startswith(str(tmp_path / "video"))
