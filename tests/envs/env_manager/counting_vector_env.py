"""A vector env whose envs count, in each of gymnasium's autoreset modes."""

import copy

import numpy as np
import torch
from gymnasium.spaces import Box, Dict, Discrete, MultiDiscrete
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

SPACE = Box(-9, 9999, (4,), np.float64)


class CountingVectorEnv(VectorEnv):
    """Observations are [env, episode, step, sum of its actions]; the reward is the action times 0.5 plus the step.

    The arrays that it returns are its own, written again by each call. Infos have `step` for all and, for odd steps,
    `odd` and a nested `note` of the state.

    Args:
        lengths: number of steps of the episodes of each env; 0 for no end.
        limit: number of steps after which an episode is truncated.
        form: observations as "array", "dict", "number" or "tensor".
    """

    def __init__(self, num_envs, mode, lengths, limit=10**9, form="array", actions=None, seed_to=None):
        self.num_envs, self.mode = num_envs, AutoresetMode(mode)
        self.metadata = {"autoreset_mode": self.mode}
        self.lengths, self.limit, self.form = np.array(lengths), limit, form
        spaces = {"array": SPACE, "tensor": SPACE, "number": Discrete(10_000)}
        self.single_observation_space = spaces.get(form) or Dict(a=SPACE, b=Dict(c=Discrete(10_000)))
        self.single_action_space = actions or Discrete(10)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self.state = np.zeros((num_envs, 4))
        self.rewards = np.zeros(num_envs)
        self.terminated, self.truncated = np.zeros(num_envs, bool), np.zeros(num_envs, bool)
        self.has_ended = np.zeros(num_envs, bool)
        self.state[:, 0], self.state[:, 1] = np.arange(num_envs), -1
        self.seeds, self.given = [], []

    def reset(self, *, seed=None, options=None):
        mask = np.ones(self.num_envs, bool)
        if options:
            assert self.mode is AutoresetMode.DISABLED
            mask = options["reset_mask"]
        else:
            self.seeds.append(seed)
        if seed is not None:
            self.state[:, 1] = -1
        self._begin(mask)
        self.has_ended[mask] = False
        return self._shown(), {}

    def _begin(self, mask):
        self.state[mask, 1] += 1
        self.state[mask, 2:] = 0

    def _shown(self):
        if self.form == "number":
            return self.state[:, 2].astype(np.int64)
        if self.form == "dict":
            return {"a": self.state, "b": {"c": self.state[:, 2].astype(np.int64)}}
        return torch.from_numpy(self.state) if self.form == "tensor" else self.state

    def step(self, actions):
        assert isinstance(actions, torch.Tensor) is (self.form == "tensor")
        actions = np.asarray(actions)
        assert self.action_space.contains(actions), actions
        self.given.append(actions.copy())
        assert not (self.mode is AutoresetMode.DISABLED and self.has_ended.any())
        begun = self.has_ended if self.mode is AutoresetMode.NEXT_STEP else np.zeros(self.num_envs, bool)
        amount = actions.reshape(self.num_envs, -1).sum(axis=1)
        self.state[:, 2] += 1
        self.state[:, 3] += amount
        self.rewards[:] = np.where(begun, 0, amount * 0.5 + self.state[:, 2])
        self.terminated[:] = ~begun & (self.state[:, 2] == self.lengths)
        self.truncated[:] = ~begun & ~self.terminated & (self.state[:, 2] >= self.limit)
        self._begin(begun)
        self.has_ended = ended = self.terminated | self.truncated
        infos = self._infos(~begun, ended)
        if self.mode is AutoresetMode.SAME_STEP and ended.any():
            infos = {**infos, "final_info": copy.deepcopy(self._infos(ended, ended)), "_final_info": ended}
            infos["final_obs"], infos["_final_obs"] = self._final(ended), ended
            infos["step"] = np.where(ended, -1, infos["step"])  # of the reset
            self._begin(ended)
        self._mirror = torch.from_numpy(self.rewards) if self.form == "tensor" else self.rewards
        return self._shown(), self._mirror, self.terminated, self.truncated, infos

    def _infos(self, mask, ended):
        step = self.state[:, 2].astype(int)
        odd = mask & (step % 2 == 1)
        nested = {"note": self.state, "_note": odd}
        return {"step": step, "_step": mask, "odd": step, "_odd": odd, "nested": nested, "_nested": odd}

    def _final(self, ended):
        if self.form == "tensor":
            return self._shown().clone()
        final = np.full(self.num_envs, None, object)
        for i in np.flatnonzero(ended):
            shown = self._shown()
            if self.form == "dict":
                final[i] = {"a": shown["a"][i].copy(), "b": {"c": shown["b"]["c"][i]}}
            else:
                final[i] = shown[i].copy()
        return final


MANY = MultiDiscrete([3, 4])
REAL = Box(-2.0, 2.0, (2,), np.float32)
