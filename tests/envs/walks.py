"""Envs whose every step depends on all before it, for the tests of states."""

import numpy as np
from gymnasium import spaces

from ding.envs import BaseEnv, BaseEnvTimestep


class Walk(BaseEnv):
    """A random walk of `form`; episodes end at random, too. It follows seeds as the envs of this package do."""

    reward_space = spaces.Box(-1, 1, (1,))

    def __init__(self, form=np.asarray):
        self.form = form
        self.observation_space = spaces.Box(-1e9, 1e9, (2,), np.float32)
        self.action_space = spaces.Discrete(3)
        self.seeding = None
        self.rng = np.random.default_rng(0)
        self.place = np.zeros(2)

    def seed_episodes(self, seed, env_index, first_episode=0):
        self.seeding = [seed, env_index, first_episode]

    def seed(self, seed, dynamic_seed=True):
        self.seed_episodes(seed, 0)

    def reset(self, start=0.0):
        if self.seeding is not None:
            self.rng = np.random.default_rng(self.seeding)
            self.seeding[2] += 1
        self.place = self.rng.normal(size=2) + start
        return self.form(self.place.astype(np.float32))

    def step(self, action):
        self.place = self.place + self.rng.normal(size=2) + _total(action)
        done = bool(self.rng.random() < 0.1)
        info = {"eval_episode_return": float(self.place.sum())} if done else {}
        return BaseEnvTimestep(self.form(self.place.astype(np.float32)), np.ones(1, np.float32), done, info)

    def get_state(self):
        return {"place": self.place, "rng": self.rng.bit_generator.state}

    def set_state(self, state):
        self.place = state["place"]
        self.rng.bit_generator.state = state["rng"]

    def close(self):
        pass

    def __repr__(self):
        return "Walk"


def _total(action):
    if isinstance(action, dict):
        return sum(map(_total, action.values()))
    return sum(map(_total, action)) if isinstance(action, list | tuple) else float(np.sum(action))


class Endless(Walk):
    def step(self, action):
        return super().step(action)._replace(done=False)


class Silent(Endless):
    """Declares no state."""

    get_state = set_state = None


class Match(Walk):
    """A walk for two players, who see it from both sides; `form` makes the observation of each."""

    def _see(self, obs):
        return [self.form(obs), self.form(-obs)]

    def reset(self, start=0.0):
        return self._see(super().reset(start))

    def step(self, action):
        obs, _, done, _ = super().step([action[0], 2 * np.asarray(action[1])])
        infos = [{"eval_episode_return": sign * float(self.place.sum())} if done else {} for sign in (1, -1)]
        return BaseEnvTimestep(self._see(obs), np.array([[1.0], [-1.0]], np.float32), done, infos)
