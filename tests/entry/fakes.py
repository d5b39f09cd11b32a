"""A small env that remembers its instances, the configs to train on it, and what a run has left."""

import json
import pickle

import numpy as np
import torch
from easydict import EasyDict
from gymnasium import spaces

from ding.envs.env.base_env import BaseEnv, BaseEnvTimestep
from ding.utils.registry_factory import ENV_REGISTRY


@ENV_REGISTRY.register("entry_tiny")
class TinyEnv(BaseEnv):
    """Episodes of `length` steps with random observations [3]; action 1 is worth 1. All instances are in `made`.

    Config keys: length (5), role, nan_at (step of the env's life whose observation is NaN), on_step (called with the
    env).
    """

    made = []

    def __init__(self, cfg):
        self.cfg = cfg
        self.role = cfg.get("role", "any")
        self.seeds, self.life, self.is_closed = [], 0, False
        self.observation_space = spaces.Box(0, 1, (3,), dtype=np.float32)
        self.action_space = spaces.Discrete(2)
        self.reward_space = spaces.Box(0, 1, (1,), dtype=np.float32)
        TinyEnv.made.append(self)

    def seed(self, seed, dynamic_seed=True):
        self.seeds.append((seed, dynamic_seed))
        self._rng = np.random.default_rng(seed)

    def reset(self):
        self._step, self._return, self.is_closed = 0, 0.0, False
        return self._rng.random(3, dtype=np.float32)

    def step(self, action):
        self.life += 1
        self._step += 1
        if "on_step" in self.cfg:
            self.cfg["on_step"](self)
        reward = float(np.asarray(action).reshape(-1)[0])
        self._return += reward
        obs = self._rng.random(3, dtype=np.float32)
        if self.life == self.cfg.get("nan_at"):
            obs[1] = np.nan
        done = self._step >= self.cfg.get("length", 5)
        info = {"eval_episode_return": self._return} if done else {}
        return BaseEnvTimestep(obs, np.array([reward], dtype=np.float32), done, info)

    def get_state(self):
        return {"rng": self._rng.bit_generator.state, "at": [self.life, self._step, self._return]}

    def set_state(self, state):
        self._rng.bit_generator.state = state["rng"]
        self.life, self._step, self._return = state["at"]

    def close(self):
        self.is_closed = True

    def __repr__(self):
        return "TinyEnv"


def pair(env=None, **policy):
    """A fresh (main_config, create_config) for a few fast iterations on TinyEnv."""
    main = EasyDict(
        exp_name="exp",
        env={
            "collector_env_num": 2,
            "evaluator_env_num": 2,
            "n_evaluator_episode": 3,
            "stop_value": 100,
            **(env or {}),
        },
        policy={
            "model": {"obs_shape": 3, "action_shape": 2, "encoder_hidden_size_list": [8]},
            "learn": {"update_per_collect": 3, "batch_size": 4},
            "collect": {"n_sample": 8},
            "eval": {"evaluator": {"eval_freq": 6}},
            "other": {"replay_buffer": {"replay_buffer_size": 64}},
        },
    )
    for key, value in policy.items():
        if isinstance(value, dict):
            main.policy.setdefault(key, EasyDict()).update(value)
        else:
            main.policy[key] = value
    create = EasyDict(env={"type": "entry_tiny"}, env_manager={"type": "base"}, policy={"type": "dqn"})
    return main, create


def setting(collector=None, evaluator=None):
    """An env setting of two collector and two evaluator TinyEnvs."""
    return [
        TinyEnv,
        [{"role": "collector", **(collector or {})} for _ in range(2)],
        [{"role": "evaluator", **(evaluator or {})} for _ in range(2)],
    ]


def on_policy_pair(env=None, **policy):
    """The same for PPO, with four iterations a collection: two epochs of two minibatches."""
    main, create = pair(env, **policy)
    create.policy.type = "ppo"
    main.policy.model.update(actor_head_hidden_size=8, critic_head_hidden_size=8)
    main.policy.learn.update(epoch_per_collect=2)
    main.policy.pop("other")
    return main, create


def demonstrations(number=10):
    """Transitions whose observations are their numbers."""
    return [
        {
            "obs": torch.full((3,), float(index)),
            "next_obs": torch.full((3,), float(index + 1)),
            "action": torch.tensor([index % 2]),
            "reward": torch.tensor([1.0]),
            "done": False,
        }
        for index in range(number)
    ]


def result(exp="exp"):
    with open(f"{exp}/result.pkl", "rb") as f:
        return pickle.load(f)


def evaluations(exp="exp"):
    with open(f"{exp}/eval.jsonl") as f:
        return [json.loads(line) for line in f]


def weights(policy):
    return policy.learn_mode.state_dict()["model"]
