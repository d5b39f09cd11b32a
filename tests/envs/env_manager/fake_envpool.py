"""A module with the interface of envpool, whose envs count: observations are [seed, episode, step]."""

from types import SimpleNamespace

import numpy as np
from gymnasium.spaces import Box, Discrete

LENGTHS = {"One-v0": 1, "Three-v0": 3, "Five-v0": 5}


class Pool:
    """Env i is seeded with `seed + i` or `seed[i]`; an episode is truncated if `max_episode_steps` ends it."""

    def __init__(self, task_id, num_envs, batch_size, seed, max_episode_steps=None, **options):
        self.length, self.limit = LENGTHS[task_id], max_episode_steps or LENGTHS[task_id]
        self.num_envs, self.batch_size, self.options = num_envs, batch_size, options
        self.seeds = list(seed) if isinstance(seed, list) else [seed + i for i in range(num_envs)]
        self.episodes, self.steps = [-1] * num_envs, [0] * num_envs
        self.has_ended = [True] * num_envs
        self.answers = []  # (env id, reward), in the order of the requests
        self.actions = [[] for _ in range(num_envs)]
        self.is_closed = False

    def _reset(self, env_ids):
        for i in env_ids:
            self.episodes[i], self.steps[i], self.has_ended[i] = self.episodes[i] + 1, 0, False
            self.answers.append(self._state(i, 0.0))

    def _state(self, i, reward):
        terminated = self.steps[i] >= self.length
        truncated = not terminated and self.steps[i] >= self.limit
        return i, np.array([self.seeds[i], self.episodes[i], self.steps[i]], np.float64), reward, terminated, truncated

    def send(self, action, env_id):
        assert action.shape == (len(env_id),) and env_id.dtype == np.int32
        for value, i in zip(action.tolist(), env_id.tolist(), strict=True):
            if self.has_ended[i]:
                self._reset([i])
                continue
            self.actions[i].append(value)
            self.steps[i] += 1
            state = self._state(i, float(self.steps[i]))
            self.has_ended[i] = state[3] or state[4]
            self.answers.append(state)

    def recv(self):
        count = len(self.answers) if self.batch_size == self.num_envs else self.batch_size
        assert 0 < count <= len(self.answers), "envpool would wait for good"
        states, self.answers = self.answers[:count], self.answers[count:]
        ids, obs, rewards, terminated, truncated = map(np.array, zip(*states, strict=True))
        info = {"env_id": ids.astype(np.int32), "players": {"env_id": ids}, "elapsed_step": obs[:, 2].astype(np.int32)}
        if self.options.get("reward_clip"):
            info["reward"], rewards = rewards, np.sign(rewards)
        return obs, rewards, terminated, truncated, {**info, "place": {"xy": obs[:, :2]}}

    def reset(self, env_id):
        assert self.batch_size == self.num_envs
        self._reset(env_id.tolist())
        obs, _, _, _, info = self.recv()
        return obs, info

    def async_reset(self):
        self._reset(range(self.num_envs))

    def close(self):
        self.is_closed = True


class FakeEnvpool:
    """The module; `pools` are those it has made."""

    def __init__(self):
        self.pools = []

    def make_gymnasium(self, task_id, **kwargs):
        self.pools.append(Pool(task_id, **kwargs))
        return self.pools[-1]

    def make_spec(self, task_id, **options):
        LENGTHS[task_id]  # an unknown id is a KeyError
        return SimpleNamespace(
            gymnasium_observation_space=Box(-9, 999, (3,), np.float64),
            gymnasium_action_space=Discrete(1000),
            config=SimpleNamespace(),
        )
