"""What a program that brings its own env and config hands to a pipeline."""

from __future__ import annotations

import copy
from typing import Any

import gymnasium
import numpy as np
from easydict import EasyDict

from ding.envs import BaseEnv, BaseEnvTimestep
from ding.utils import ENV_REGISTRY


@ENV_REGISTRY.register("outside_gym_cartpole")
class OutsideCartPole(BaseEnv):
    """CartPole as such a program writes it: of the end of an episode it tells only `done`."""

    def __init__(self, cfg: dict[str, Any] | None = None) -> None:
        self._cfg, self._env, self._seed, self._return = cfg, None, 0, 0.0
        made = gymnasium.make("CartPole-v1")
        self._observation_space, self._action_space = made.observation_space, made.action_space
        self._reward_space = gymnasium.spaces.Box(0.0, 1.0, (1,), np.float32)

    def reset(self) -> np.ndarray:
        if self._env is None:
            self._env = gymnasium.make("CartPole-v1")
        obs, _ = self._env.reset(seed=self._seed)
        self._seed, self._return = self._seed + 1, 0.0
        return obs.astype(np.float32)

    def step(self, action: np.ndarray) -> BaseEnvTimestep:
        obs, reward, terminated, truncated, _ = self._env.step(int(np.squeeze(action)))
        self._return += float(reward)
        done = bool(terminated or truncated)
        info = {"eval_episode_return": self._return} if done else {}
        return BaseEnvTimestep(obs.astype(np.float32), np.array([reward], np.float32), done, info)

    def seed(self, seed: int, dynamic_seed: bool = True) -> None:
        self._seed = seed

    def close(self) -> None:
        if self._env is not None:
            self._env.close()

    def __repr__(self) -> str:
        return "OutsideCartPole()"

    observation_space = property(lambda self: self._observation_space)
    action_space = property(lambda self: self._action_space)
    reward_space = property(lambda self: self._reward_space)


def pair_of(task: Any, exp_name: str, **policy: Any) -> tuple[EasyDict, EasyDict]:
    """The configs of a learning task (a module), with the env of this module."""
    main, create = EasyDict(copy.deepcopy(task.main_config)), EasyDict(copy.deepcopy(task.create_config))
    main.exp_name = exp_name
    main.env.pop("env_id")
    main.policy.update(policy)
    create.env = EasyDict({"type": "outside_gym_cartpole", "import_names": [__name__]})
    return main, create
