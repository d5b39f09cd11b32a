"""Envs whose every step depends on all before it, for the tests of states."""

from __future__ import annotations

import numpy as np
from gymnasium import spaces

from ding.envs import BaseEnv, BaseEnvTimestep


class Walk(BaseEnv):
    """A random walk of `obs_form`; episodes end at random, too. Follows seeds as the envs of this package do.

    Its generator is in a set, where the search for generators of an env does not find it.

    Args:
        in_lock: hold what cannot be pickled.
        seeded: whether it follows seeds; else no two walks are alike.
    """

    reward_space = spaces.Box(-1, 1, (1,))

    def __init__(self, form=np.asarray, action_space=None, in_lock=False, seeded=True):
        self.form, self.seeded = form, seeded
        self.observation_space = spaces.Box(-1e9, 1e9, (2,), np.float32)
        self.action_space = action_space or spaces.Discrete(3)
        self.hold = (lambda: None) if in_lock else None
        self.seeding = None
        self.rng = np.random.default_rng(0 if seeded else None)
        self.place = np.zeros(2)
        self.resets = 0

    @property
    def rng(self):
        return next(iter(self.hidden))

    @rng.setter
    def rng(self, rng):
        self.hidden = {rng}

    def seed_episodes(self, seed, env_index, first_episode=0):
        self.seeding = [seed, env_index, first_episode]

    def seed(self, seed, dynamic_seed=True):
        self.seed_episodes(seed, 0)

    def reset(self, start=0.0):
        if self.seeded and self.seeding is not None:
            self.rng = np.random.default_rng(self.seeding)
            self.seeding[2] += 1
        self.resets += 1
        self.place = self.rng.normal(size=2) + start
        return self.form(self.place.astype(np.float32))

    def step(self, action):
        self.place = self.place + self.rng.normal(size=2) + _total(action)
        done = bool(self.rng.random() < 0.1)
        info = {"eval_episode_return": float(self.place.sum())} if done else {}
        return BaseEnvTimestep(self.form(self.place.astype(np.float32)), np.ones(1, np.float32), done, info)

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


class TellingWalk(Walk):
    """Tells its state; it could not be replayed, nor pickled."""

    def __init__(self, **kwargs):
        super().__init__(in_lock=True, seeded=False, **kwargs)

    def get_state(self):
        return {"place": self.place, "rng": self.rng.bit_generator.state, "resets": self.resets}

    def set_state(self, state):
        self.place, self.resets = state["place"], state["resets"]
        self.rng.bit_generator.state = state["rng"]


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
