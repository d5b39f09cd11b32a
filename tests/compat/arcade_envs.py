"""An env package in the manner of an arcade game: frames, wrappers, and the calls of earlier releases."""

import copy

import gymnasium
import numpy as np
from gymnasium import spaces

from ding.envs import (
    BaseEnv,
    BaseEnvTimestep,
    ClipRewardWrapper,
    EpisodicLifeWrapper,
    EvalEpisodeReturnEnv,
    FireResetWrapper,
    FrameStackWrapper,
    MaxAndSkipWrapper,
    NoopResetWrapper,
    ScaledFloatFrameWrapper,
)
from ding.torch_utils import to_ndarray
from ding.utils import ENV_REGISTRY

MEANINGS = ["NOOP", "FIRE", "RIGHT"]


class Emulator:
    """The machine: knows how many lives are left."""

    def __init__(self) -> None:
        self.left = 3

    def lives(self) -> int:
        return self.left


class ArcadeGame(gymnasium.Env):
    """A paddle below a falling ball, in frames [H, W, 3]; three balls. A caught ball is worth 5."""

    metadata = {"render_modes": ["rgb_array"]}

    def __init__(self, size: int = 8) -> None:
        self.size = size
        self.observation_space = spaces.Box(0, 255, (size, size, 3), np.uint8)
        self.action_space = spaces.Discrete(len(MEANINGS))
        self.ale = Emulator()

    def get_action_meanings(self) -> list[str]:
        return MEANINGS

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.ale.left, self._paddle = 3, 0
        self._drop()
        return self._frame(), {}

    def _drop(self) -> None:
        self._ball = [0, int(self.np_random.integers(self.size))]

    def step(self, action):
        self._paddle = (self._paddle + (action == 2)) % self.size
        self._ball[0] += 1
        reward = 0.0
        if self._ball[0] == self.size - 1:
            caught = self._ball[1] == self._paddle
            reward = 5.0 * caught
            self.ale.left -= not caught
            self._drop()
        return self._frame(), reward, self.ale.left == 0, False, {}

    def _frame(self) -> np.ndarray:
        frame = np.zeros((self.size, self.size, 3), np.uint8)
        frame[self._ball[0], self._ball[1]] = 255
        frame[self.size - 1, self._paddle] = 128
        return frame

    def render(self):
        return self._frame()


class GrayFrameWrapper(gymnasium.ObservationWrapper):
    """Frames [H, W] in shades of gray, a wrapper of the program itself."""

    def __init__(self, env: gymnasium.Env) -> None:
        super().__init__(env)
        self.observation_space = spaces.Box(0, 255, env.observation_space.shape[:2], np.uint8)

    def observation(self, observation: np.ndarray) -> np.ndarray:
        return observation.mean(-1).astype(np.uint8)


def wrap_game(env: gymnasium.Env, is_train: bool, frame_stack: int) -> gymnasium.Env:
    """Apply the usual wrappers of arcade games: one life an episode and clipped rewards only for training."""
    env = NoopResetWrapper(GrayFrameWrapper(env), noop_max=3)
    env = MaxAndSkipWrapper(env, skip=2)
    if is_train:
        env = EpisodicLifeWrapper(env)
    if "FIRE" in env.unwrapped.get_action_meanings():
        env = FireResetWrapper(env)
    env = ScaledFloatFrameWrapper(env)
    if is_train:
        env = ClipRewardWrapper(env)
    env = FrameStackWrapper(env, frame_stack)
    return EvalEpisodeReturnEnv(env)


@ENV_REGISTRY.register("compat_arcade")
class ArcadeEnv(BaseEnv):
    """The game as an env of the package, with the wrappers above."""

    def __init__(self, cfg: dict) -> None:
        self._cfg = cfg
        self._init_flag = False

    def reset(self) -> np.ndarray:
        if not self._init_flag:
            self._env = wrap_game(ArcadeGame(), self._cfg.is_train, self._cfg.frame_stack)
            self._env.observation_space.dtype = np.float32
            self._observation_space = self._env.observation_space
            self._action_space = self._env.action_space
            self._reward_space = spaces.Box(-1, 1, (1,), np.float32)
            self._init_flag = True
        if hasattr(self, "_seed"):
            self._env.seed(self._seed + (100 * np.random.randint(1, 1000) if self._dynamic_seed else 0))
        return to_ndarray(self._env.reset())

    def step(self, action: np.ndarray) -> BaseEnvTimestep:
        assert isinstance(action, np.ndarray), type(action)
        obs, reward, done, info = self._env.step(action.item())
        return BaseEnvTimestep(to_ndarray(obs), to_ndarray([reward]), done, info)

    def seed(self, seed: int, dynamic_seed: bool = True) -> None:
        self._seed, self._dynamic_seed = seed, dynamic_seed
        np.random.seed(self._seed)

    def close(self) -> None:
        if self._init_flag:
            self._env.close()
        self._init_flag = False

    def random_action(self) -> np.ndarray:
        return to_ndarray(self.action_space.sample(), dtype=np.int64)

    @property
    def observation_space(self):
        return self._observation_space

    @property
    def action_space(self):
        return self._action_space

    @property
    def reward_space(self):
        return self._reward_space

    def __repr__(self) -> str:
        return f"Arcade Env({self._cfg.env_id})"

    @staticmethod
    def create_collector_env_cfg(cfg: dict) -> list[dict]:
        return _copies(cfg, cfg.collector_env_num, is_train=True)

    @staticmethod
    def create_evaluator_env_cfg(cfg: dict) -> list[dict]:
        return _copies(cfg, cfg.evaluator_env_num, is_train=False)


def _copies(cfg: dict, count: int, is_train: bool) -> list[dict]:
    copies = [copy.deepcopy(cfg) for _ in range(count)]
    for one in copies:
        one.is_train = is_train
    return copies
