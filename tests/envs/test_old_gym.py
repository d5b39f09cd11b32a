"""Envs, wrappers and spaces of gym 0.25, where the user has it installed."""

import copy
import warnings

import gymnasium
import numpy as np
import pytest
from easydict import EasyDict

from ding.entry.serial_entry import run_serial
from ding.envs import (
    BaseEnv,
    BaseEnvTimestep,
    DingEnvWrapper,
    EnvWrapper,
    FrameStackWrapper,
    ObsPlusPrevActRewWrapper,
)
from ding.envs.gym_env import env as gym_env
from ding.example.cartpole_dqn import create_config, main_config
from ding.policy.policy_factory import PolicyFactory
from tests.envs.toys import until_done
from tests.fakes import ScriptedPolicy
from tests.own_folder import own_folder as own_folder
from tests.programs import printed

pytestmark = [
    pytest.mark.oldgym,
    # gym warns of itself whenever it makes or steps an env.
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:.*WARN"),
]


@pytest.fixture
def gym():
    import gym

    return gym


@pytest.fixture
def toys(gym):
    """The class of a small env and the id `OnlyOld-v3` for it, which gymnasium does not have; a list of those made."""
    made = []

    class OldToy(gym.Env):
        metadata = {"render_modes": ["rgb_array"], "render_fps": 30}
        observation_space = gym.spaces.Box(-9.0, 9.0, (2,), np.float64)
        action_space = gym.spaces.Discrete(3)
        reward_range = (-1.0, 2.0)

        def __init__(self, render_mode=None):
            self.render_mode, self.seeds, self.actions, self.count = render_mode, [], [], 0
            made.append(self)

        def seed(self, seed=None):
            self.seeds.append(seed)

        def reset(self):
            self.count = 0
            return np.zeros(2)

        def step(self, action):
            self.actions.append(action)
            self.count += 1
            return np.full(2, self.count), 2.0, self.count >= 9, {}

        def render(self):
            return [np.full((4, 4, 3), self.count, np.uint8)]

    gym.register("OnlyOld-v3", entry_point=OldToy, max_episode_steps=3)
    yield made, OldToy
    del gym.envs.registration.registry["OnlyOld-v3"]


def flags(timestep):
    return timestep.done, timestep.info["terminated"], timestep.info["truncated"]


@pytest.mark.parametrize("new_step_api", [False, True])
def test_cartpole_of_gym_returns_arrays_floats_and_bools(gym, new_step_api):
    env = DingEnvWrapper(gym.make("CartPole-v1", new_step_api=new_step_api))
    env.seed(0)
    obs = env.reset()
    assert (type(obs), obs.dtype, obs.shape) == (np.ndarray, np.float32, (4,))
    timestep = env.step(env.random_action())
    assert (timestep.reward.dtype, timestep.reward.tolist(), flags(timestep)) == (np.float32, [1.0], (False,) * 3)
    timestep = until_done(env, np.array([1]))
    assert flags(timestep) == (True, True, False)
    assert timestep.info["eval_episode_return"][0] > 5
    assert isinstance(env.reward_space, gymnasium.spaces.Box)
    env.close()


@pytest.mark.parametrize("new_step_api", [False, True])
def test_a_time_limit_of_gym_is_told_apart_from_an_end(gym, new_step_api):
    env = DingEnvWrapper(gym.make("Pendulum-v1", max_episode_steps=3, new_step_api=new_step_api))
    for _ in range(2):
        env.reset()
        assert flags(until_done(env, np.zeros(1))) == (True, False, True)


def test_an_id_that_gymnasium_does_not_have_is_made_by_gym(toys):
    made, cls = toys
    env = DingEnvWrapper(cfg={"env_id": "OnlyOld-v3"})
    assert env.observation_space.dtype == np.float32
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        env.seed(1)
        env.reset()
        timesteps = [env.step(0) for _ in range(3)]
    assert isinstance(env._env.unwrapped, cls)
    assert [flags(timestep) for timestep in timesteps] == [(False,) * 3, (False,) * 3, (True, False, True)]
    assert timesteps[-1].info["eval_episode_return"].tolist() == [6.0]
    assert timesteps[-1].obs.dtype == np.float32
    assert env.reward_space.low.tolist() + env.reward_space.high.tolist() == [-1.0, 2.0]
    assert gym_env({"env_id": "OnlyOld-v3"}).reset().tolist() == [0, 0]


def test_gym_is_left_out_on_request_and_for_what_gymnasium_has(toys):
    with pytest.raises(gymnasium.error.NameNotFound):
        DingEnvWrapper(cfg={"env_id": "OnlyOld-v3"}, is_gymnasium=True).reset()
    env = DingEnvWrapper(cfg={"env_id": "CartPole-v1"})
    env.reset()
    assert isinstance(env._env.unwrapped, gymnasium.Env)


@pytest.mark.differs(
    "always imports gym 0.25, which excludes numpy 2",
    "imports gym only where it is needed",
)
def test_gym_is_not_imported_where_it_is_not_needed():
    program = (
        "import sys\nfrom ding.envs import DingEnvWrapper, FrameStackWrapper\nimport ding.worker, ding.entry\n"
        "env = DingEnvWrapper(cfg={'env_id': 'CartPole-v1', 'env_wrapper': ['frame_stack', lambda env: env]})\n"
        "env.reset(); env.step(env.random_action())\nprint('gym' in sys.modules)"
    )
    assert printed("-c", program) == "False\n"


def test_spaces_of_gym_are_understood(gym, toys):
    spaces = gym.spaces
    toy = toys[1]()
    toy.observation_space = spaces.Dict(a=spaces.Box(0, 1, (1,), np.float64), b=spaces.Tuple([spaces.Discrete(2)]))
    toy.reset = lambda: {"a": np.ones(1), "b": (1,)}
    toy.action_space = spaces.Dict(
        a=spaces.Box(0, 10, (1,), np.float32), b=spaces.MultiDiscrete([2, 3]), c=spaces.Tuple([spaces.MultiBinary(2)])
    )
    env = DingEnvWrapper(toy, {"act_scale": True})
    obs = env.reset()
    assert (obs["a"].dtype, obs["b"][0].dtype) == (np.float32, np.int64)
    assert env.observation_space["a"].dtype == np.float32
    assert isinstance(env.observation_space, gymnasium.spaces.Dict)
    assert env.action_space["a"].high.tolist() == [1.0]
    env.step({**env.random_action(), "a": np.array([0.5])})
    assert toy.actions[0]["a"].tolist() == [7.5]
    with pytest.raises(ValueError, match="outside of the action space"):
        env.step({**env.random_action(), "b": np.array([2, 0])})


def test_a_clone_has_an_env_of_its_own(gym):
    env = DingEnvWrapper(gym.make("CartPole-v1", max_episode_steps=7))
    env.seed(0)
    env.reset()
    env.step(0)
    other = env.clone()
    assert other._env.unwrapped is not env._env.unwrapped
    other.seed(0)
    other.reset()
    for k in range(6):
        assert not other.step(k % 2).done
    assert flags(other.step(0)) == (True, False, True)
    env.close()
    assert env.reset().shape == (4,)


def wrappers_of_a_user(gym):
    """Wrappers as one writes them for gym 0.25, and some of its own."""

    class Half(gym.Wrapper):
        def __init__(self, env):
            super().__init__(env)

        def reset(self):
            return self.env.reset()

        def step(self, action):
            obs, reward, done, info = self.env.step(action)
            return obs, reward / 2, done, info

    class Negative(gym.RewardWrapper):
        def reward(self, reward):
            return -reward

    return [Half, lambda env: Half(env), Negative, lambda env: gym.wrappers.TransformReward(env, lambda r: r + 1)]


@pytest.mark.parametrize("index", range(4))
@pytest.mark.parametrize("under", [[], [EnvWrapper]])
@pytest.mark.parametrize("over", [[], [FrameStackWrapper]])
@pytest.mark.parametrize("library", ["gym", "gymnasium"])
def test_wrappers_written_for_gym_stand_under_and_over_ours_on_envs_of_both(gym, toys, index, under, over, library):
    inner = toys[1]() if library == "gym" else gymnasium.make("CartPole-v1", max_episode_steps=3)
    env = DingEnvWrapper(inner, {"env_wrapper": [*under, wrappers_of_a_user(gym)[index], *over]})
    env.seed(0)
    assert env.reset().shape[0] == (4 if over else inner.observation_space.shape[0])
    base = 2.0 if library == "gym" else 1.0
    timestep = env.step(0)
    assert timestep.reward.tolist() == [[base / 2, base / 2, -base, base + 1][index]]
    assert flags(timestep) == (False, False, False)
    timestep = until_done(env)
    assert flags(timestep) == ((True, True, False) if library == "gym" else (True, False, True))


def test_gymnasiums_wrappers_stand_on_envs_of_gym(toys):
    class Twice(gymnasium.RewardWrapper):
        def reward(self, reward):
            return 2 * reward

    env = DingEnvWrapper(toys[1](), {"env_wrapper": [Twice, "frame_stack"]})
    env.seed(0)
    assert env.reset().shape == (4, 2)
    assert env.step(0).reward.tolist() == [4.0]
    assert flags(until_done(env)) == (True, True, False)


class OldStyleCartPole(BaseEnv):
    """A `BaseEnv` as the original's examples have them, over gym."""

    def __init__(self, cfg):
        self._cfg = cfg
        self._is_open = False

    def seed(self, seed, dynamic_seed=True):
        self._seed = seed

    def reset(self):
        import gym

        if not self._is_open:
            self._env = ObsPlusPrevActRewWrapper(gym.make("CartPole-v0"))
            self.observation_space, self.action_space = self._env.observation_space, self._env.action_space
            self.reward_space = gym.spaces.Box(*self._env.reward_range, (1,), np.float32)
            self._is_open = True
        self._env.seed(self._seed)
        self._total = 0.0
        return self._env.reset()

    def step(self, action):
        obs, reward, done, info = self._env.step(int(action[0]))
        self._total += reward
        if done:
            info["eval_episode_return"] = self._total
        return BaseEnvTimestep(obs, np.array([reward], np.float32), done, info)

    def close(self):
        if self._is_open:
            self._env.close()

    def __repr__(self):
        return "OldStyleCartPole"


def test_a_base_env_of_the_old_style_runs_unchanged(gym):
    env = OldStyleCartPole({})
    env.seed(0)
    first = env.reset()
    assert (first["prev_action"], first["prev_reward_extrinsic"]) == (-1, 0)
    obs = env.step(np.array([1])).obs
    assert (obs["prev_action"], obs["prev_reward_extrinsic"]) == (1, 1.0)
    np.testing.assert_array_equal(env.reset()["obs"], first["obs"])
    assert until_done(env, np.array([0])).info["eval_episode_return"] > 5


def test_the_random_policy_acts_in_spaces_of_gym(gym):
    spaces = gym.spaces

    def draw(space):
        policy = PolicyFactory.get_random_policy(ScriptedPolicy(), action_space=space)
        return policy.forward({0: None})[0]["action"]

    discrete = draw(spaces.Discrete(3))
    assert (discrete.shape, spaces.Discrete(3).contains(discrete.item())) == ((1,), True)
    box = draw(spaces.Box(-2, 2, (3,), np.float32))
    assert spaces.Box(-2, 2, (3,), np.float32).contains(box.numpy())
    assert [part.shape for part in draw(spaces.MultiDiscrete([2, 3]))] == [(1,), (1,)]
    assert draw(spaces.Dict(a=spaces.Box(0, 1, (2,)), b=spaces.Box(0, 1, (2,)))).shape == (2, 2)
    env = DingEnvWrapper(gym.make("Pendulum-v1"))
    env.reset()
    env.step(draw(env.action_space).numpy())


def test_the_serial_pipeline_trains_on_gym(gym):
    main, create = copy.deepcopy(main_config), copy.deepcopy(create_config)
    main.exp_name = "exp"
    main.env.update(collector_env_num=2, evaluator_env_num=2, n_evaluator_episode=2)
    main.env.pop("type")
    create.pop("env")
    main.policy.learn.update(update_per_collect=2, batch_size=16)
    main.policy.collect.n_sample = 16
    main.policy.random_collect_size = 32
    cfg = EasyDict(copy.deepcopy(main.env))
    setting = [
        lambda cfg: DingEnvWrapper(gym.make("CartPole-v0"), cfg),
        DingEnvWrapper.create_collector_env_cfg(cfg),
        DingEnvWrapper.create_evaluator_env_cfg(cfg),
    ]
    run = run_serial((main, create), seed=0, env_setting=setting, max_train_iter=4)
    assert run.learner.train_iter == 4
    assert len(run.eval_info["eval_episode_return"]) == 2
