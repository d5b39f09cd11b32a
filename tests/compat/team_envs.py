"""Envs with several agents that share one reward, in one env of the package."""

import copy

import numpy as np
from gymnasium import spaces

from ding.envs import BaseEnv, BaseEnvTimestep
from ding.utils import ENV_REGISTRY


@ENV_REGISTRY.register("compat_team")
class TeamEnv(BaseEnv):
    """`n_agent` agents each see a light, red or green, and may switch only the green ones; the reward is their share.

    Observations are dicts with an axis of agents: `agent_state` [A, 2], `global_state` [A, 2 * A + 1] and `action_mask`
    [A, 2].
    """

    def __init__(self, cfg: dict) -> None:
        self._cfg = cfg
        self._num = cfg.n_agent
        self._launched = False

    def seed(self, seed: int, dynamic_seed: bool = True) -> None:
        self._seed, self._dynamic_seed = seed, dynamic_seed

    def reset(self) -> dict[str, np.ndarray]:
        if not self._launched:
            self._rng = np.random.RandomState(self._seed if hasattr(self, "_seed") else 0)
            self._observation_space = spaces.Dict(
                agent_state=spaces.Box(0, 1, (self._num, 2), np.float32),
                global_state=spaces.Box(0, 10, (self._num, 2 * self._num + 1), np.float32),
                action_mask=spaces.Box(0, 1, (self._num, 2), np.float32),
            )
            self._action_space = spaces.MultiDiscrete([2] * self._num)
            self._reward_space = spaces.Box(0, 1, (1,), np.float32)
            self._launched = True
        self._steps, self._eval_episode_return = 0, np.zeros(1, np.float32)
        return self._obs()

    def _obs(self) -> dict[str, np.ndarray]:
        self._green = self._rng.randint(0, 2, self._num)
        lights = np.eye(2, dtype=np.float32)[self._green]
        everything = np.append(lights.reshape(-1), self._steps).astype(np.float32)
        mask = np.ones((self._num, 2), np.float32)
        mask[:, 1] = self._green
        return {"agent_state": lights, "global_state": np.tile(everything, (self._num, 1)), "action_mask": mask}

    def step(self, action: np.ndarray) -> BaseEnvTimestep:
        action = np.asarray(action)
        assert action.shape == (self._num,), action.shape
        reward = np.array([(action == self._green).mean()], np.float32)
        self._steps += 1
        self._eval_episode_return += reward
        done = self._steps >= self._cfg.max_cycles
        info = {"eval_episode_return": self._eval_episode_return.item()} if done else {}
        return BaseEnvTimestep(self._obs(), reward, done, info)

    def close(self) -> None:
        self._launched = False

    def random_action(self) -> np.ndarray:
        return self._rng.randint(0, 2, self._num)

    @property
    def agents(self) -> list[str]:
        return [f"agent_{i}" for i in range(self._num)]

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
        return [copy.deepcopy(cfg) for _ in range(cfg.pop("collector_env_num"))]

    @staticmethod
    def create_evaluator_env_cfg(cfg: dict) -> list[dict]:
        return [copy.deepcopy(cfg) for _ in range(cfg.pop("evaluator_env_num"))]

    def __repr__(self) -> str:
        return "Team Env"
