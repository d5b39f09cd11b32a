"""An env as people write it around one of gymnasium: made and seeded at its first reset, and never seeded again."""

from __future__ import annotations

import random

import gymnasium
import numpy as np
import torch

from ding.envs import BaseEnv, BaseEnvTimestep
from ding.utils.registry_factory import ENV_REGISTRY


@ENV_REGISTRY.register("usual_cartpole")
class UsualEnv(BaseEnv):
    """CartPole; the second episode and later ones follow from the generator that the first one left."""

    def __init__(self, cfg=None):
        self._cfg = cfg
        self._init_flag = False
        self._observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (4,), np.float32)
        self._action_space = gymnasium.spaces.Discrete(2)
        self._reward_space = gymnasium.spaces.Box(0.0, 1.0, (1,), np.float32)

    def reset(self):
        if not self._init_flag:
            self._env = self._make()
            self._init_flag = True
            obs, _ = self._env.reset(seed=self._seed) if hasattr(self, "_seed") else self._env.reset()
        else:
            obs, _ = self._env.reset()
        self._eval_episode_return = 0.0
        return self._see(obs)

    def _make(self):
        return gymnasium.make("CartPole-v1")

    def _see(self, obs):
        return np.asarray(obs, np.float32)

    def close(self):
        if self._init_flag:
            self._env.close()
        self._init_flag = False

    def seed(self, seed, dynamic_seed=True):
        self._seed, self._dynamic_seed = seed, dynamic_seed
        np.random.seed(self._seed)

    def step(self, action):
        obs, reward, terminated, truncated, info = self._env.step(int(np.asarray(action).reshape(-1)[0]) % 2)
        self._eval_episode_return += reward
        if terminated or truncated:
            info["eval_episode_return"] = self._eval_episode_return
        return BaseEnvTimestep(self._see(obs), np.array([reward], np.float32), terminated or truncated, info)

    def random_action(self):
        return np.array([self.action_space.sample()])

    @property
    def observation_space(self):
        return self._observation_space

    @property
    def action_space(self):
        return self._action_space

    @property
    def reward_space(self):
        return self._reward_space

    def __repr__(self):
        return "a usual CartPole env"


class NoisyWrapper(gymnasium.Wrapper):
    """Adds noise of a generator of its own, which follows no seed, to observations."""

    def __init__(self, env):
        super().__init__(env)
        self.rng = np.random.Generator(np.random.Philox(5))

    def reset(self, **kwargs):
        obs, info = super().reset(**kwargs)
        return obs + self.rng.normal(size=4), info

    def step(self, action):
        obs, *others = super().step(action)
        return obs + self.rng.normal(size=4), *others


@ENV_REGISTRY.register("noisy_cartpole")
class NoisyEnv(UsualEnv):
    """One with generators of all kinds and in all places, which do not follow the seed."""

    def __init__(self, cfg=None):
        super().__init__(cfg)
        self.rngs = {"legacy": np.random.RandomState(1), "python": [random.Random(2)]}
        self.torch = (torch.Generator(),)
        self.torch[0].manual_seed(3)
        self.shared = self.again = np.random.Generator(np.random.SFC64(4))

    def _make(self):
        return NoisyWrapper(super()._make())

    def _see(self, obs):
        noise = self.rngs["legacy"].normal() + self.rngs["python"][0].random() + torch.rand(1, generator=self.torch[0])
        self.shared.normal()
        return np.asarray(obs + noise.numpy() + self.again.normal(), np.float32)


class RenewingEnv(UsualEnv):
    """Replaces its generator at each reset by one that the last has drawn."""

    def __init__(self, cfg=None):
        super().__init__(cfg)
        self.rng = np.random.default_rng()

    def reset(self):
        self.rng = np.random.default_rng(self.rng.integers(1 << 30))
        return super().reset()

    def _see(self, obs):
        return np.asarray(obs + self.rng.normal(size=4), np.float32)


class SpawningEnv(UsualEnv):
    """Spawns a generator for each episode, from a generator and from a seed sequence."""

    def __init__(self, cfg=None):
        super().__init__(cfg)
        self.rng, self.seeds = np.random.default_rng(5), np.random.SeedSequence(6)

    def reset(self):
        self.children = [self.rng.spawn(1)[0], np.random.default_rng(self.seeds.spawn(1)[0])]
        return super().reset()

    def _see(self, obs):
        return np.asarray(obs + sum(child.normal() for child in self.children), np.float32)


class FlaggedEnv(UsualEnv):
    """Makes its inner env at once, and seeds it at the first reset after each call of `seed`."""

    def __init__(self, cfg=None):
        super().__init__(cfg)
        self._env, self._init_flag, self._is_seeded = self._make(), True, False

    def seed(self, seed, dynamic_seed=True):
        super().seed(seed, dynamic_seed)
        self._is_seeded = False

    def reset(self):
        obs, _ = self._env.reset() if self._is_seeded else self._env.reset(seed=self._seed)
        self._is_seeded = True
        self._eval_episode_return = 0.0
        return self._see(obs)


class DynamicEnv(UsualEnv):
    """Seeds each episode by a number from the global generator."""

    def reset(self):
        self._init_flag = False
        self._seed = 100 * np.random.randint(1, 1000)
        return super().reset()
