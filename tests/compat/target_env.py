"""An env in the manner of a board game: dict observations with a mask of the legal actions."""

import copy

import numpy as np
from easydict import EasyDict
from gymnasium import spaces

from ding.envs import BaseEnv, BaseEnvTimestep
from ding.utils import ENV_REGISTRY


@ENV_REGISTRY.register("compat_target")
class TargetEnv(BaseEnv):
    """Reach a number in episodes of `max_length` steps; the reward is 1 for the action that the observation names."""

    config = dict(env_id="Target-v0", max_length=6, action_num=3, replay_path=None)

    @classmethod
    def default_config(cls) -> EasyDict:
        cfg = EasyDict(copy.deepcopy(cls.config))
        cfg.cfg_type = cls.__name__ + "Dict"
        return cfg

    def __init__(self, cfg: dict) -> None:
        self._cfg = cfg
        self._init_flag = False
        self._replay_path = None
        self._observation_space = spaces.Box(0, 1, (cfg.action_num,), np.float32)
        self._action_space = spaces.Discrete(cfg.action_num)
        self._reward_space = spaces.Box(0, 1, (1,), np.float32)

    def seed(self, seed: int, dynamic_seed: bool = True) -> None:
        self._seed, self._dynamic_seed = seed, dynamic_seed
        np.random.seed(self._seed)

    def reset(self):
        if not self._init_flag:
            self._rng = np.random.RandomState(0)
            self._init_flag = True
        if hasattr(self, "_seed") and self._dynamic_seed:
            self._rng.seed(self._seed + np.random.randint(100))
        elif hasattr(self, "_seed"):
            self._rng.seed(self._seed)
        self._steps, self._eval_episode_return = 0, 0.0
        return self._obs()

    def _obs(self):
        self._legal = np.ones(self._cfg.action_num, np.int8)
        self._legal[self._rng.randint(self._cfg.action_num)] = 0
        self._target = int(self._rng.choice(np.nonzero(self._legal)[0]))
        observation = np.eye(self._cfg.action_num, dtype=np.float32)[self._target]
        return {"observation": observation, "action_mask": self._legal, "to_play": -1, "timestep": self._steps}

    def step(self, action):
        assert self._legal[action] == 1, "an illegal action"
        reward = float(action == self._target)
        self._steps += 1
        self._eval_episode_return += reward
        done = self._steps == self._cfg.max_length
        info = {"eval_episode_return": self._eval_episode_return, "length": self._steps} if done else {}
        return BaseEnvTimestep(self._obs(), reward, done, info)

    def close(self) -> None:
        self._init_flag = False

    def enable_save_replay(self, replay_path=None) -> None:
        self._replay_path = replay_path or "./video"

    def random_action(self):
        return int(np.random.choice(np.nonzero(self._legal)[0]))

    @property
    def observation_space(self):
        return self._observation_space

    @property
    def action_space(self):
        return self._action_space

    @property
    def reward_space(self):
        return self._reward_space

    @staticmethod
    def create_collector_env_cfg(cfg: dict) -> list[dict]:
        cfg = copy.deepcopy(cfg)
        collector_env_num = cfg.pop("collector_env_num")
        cfg.is_collector = True
        return [cfg for _ in range(collector_env_num)]

    @staticmethod
    def create_evaluator_env_cfg(cfg: dict) -> list[dict]:
        cfg = copy.deepcopy(cfg)
        evaluator_env_num = cfg.pop("evaluator_env_num")
        cfg.is_collector = False
        return [cfg for _ in range(evaluator_env_num)]

    def __repr__(self) -> str:
        return f"Target Env({self._cfg.env_name})"  # a typo: there is no such key
