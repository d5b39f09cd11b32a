"""Rounds that are checked and reported together, when the samples of a collect may be complete."""

import numpy as np
import pytest
import torch
from easydict import EasyDict
from gymnasium.spaces import Box, Discrete

from ding.envs import BaseEnvManager
from ding.envs.env.base_env import BaseEnv, BaseEnvTimestep
from ding.policy import DQNPolicy
from ding.worker.collector.sample_serial_collector import SampleSerialCollector
from tests.fakes import FakeWriter


class Shared(BaseEnv):
    """Shows (env, episode, step), and writes into the same info at each step; its lengths are those of its episodes."""

    observation_space, action_space, reward_space = Box(-9, 99, (3,)), Discrete(2), Box(-9, 9, (1,))

    def __init__(self, number, lengths, wrong=None):
        self._number, self._lengths, self._wrong = number, lengths, wrong
        self._episode, self._info = -1, {}

    def reset(self):
        self._episode, self._step = self._episode + 1, 0
        return self._obs()

    def step(self, action):
        self._step += 1
        self._info["eval_episode_return"] = float(10 * self._number + self._step)
        done = self._step == self._lengths[self._episode % len(self._lengths)]
        return BaseEnvTimestep(self._obs(), np.ones(1, np.float32), done, self._info)

    def _obs(self):
        obs = np.array([self._number, self._episode, self._step], np.float32)
        return obs * np.nan if (self._episode, self._step) == self._wrong else obs

    def seed(self, seed, dynamic_seed=True): ...

    def close(self): ...

    def __repr__(self):
        return "Shared"


def collecting(*envs, n_sample, tb=None):
    cfg = DQNPolicy.default_config()
    cfg.model = EasyDict(obs_shape=3, action_shape=2, encoder_hidden_size_list=[8])
    cfg.collect.n_sample, cfg.nstep = n_sample, 1
    torch.manual_seed(0)
    policy = DQNPolicy(cfg, enable_field=["collect"])
    collector_cfg = {**SampleSerialCollector.default_config(), "collect_print_freq": 1}
    manager = BaseEnvManager([lambda env=env: env for env in envs])
    return SampleSerialCollector(EasyDict(collector_cfg), manager, policy.collect_mode, tb or FakeWriter(), "exp")


def collect(collector, *args):
    return collector.collect(*args, policy_kwargs={"eps": 0.0})


def steps_of(samples):
    return [tuple(int(number) for number in sample["next_obs"]) for sample in samples]


def test_an_observation_that_is_not_finite_ends_a_collect_of_which_the_rounds_before_count():
    collector = collecting(Shared(0, [2]), Shared(1, [9], wrong=(0, 4)), n_sample=40)
    with pytest.raises(FloatingPointError):
        collect(collector)
    assert collector._counter.steps == 6 and collector._statistics.finished == 1
    collector._env.reset({1: None})
    samples = collect(collector)
    assert steps_of(samples)[:2] == [(0, 0, 1), (0, 0, 2)] and len(samples) == 40
    assert not {(0, 1, 1), (1, 0, 1), (1, 0, 3)} & set(steps_of(samples))  # they have a gap


def test_the_returns_and_lengths_are_those_of_each_end_of_an_env_whose_info_is_one_dict():
    tb = FakeWriter()
    collector = collecting(Shared(0, [1, 3]), Shared(1, [2]), n_sample=24, tb=tb)
    collect(collector)
    ends = [(episode["reward"], episode["step"]) for episode in collector._statistics.latest]
    assert ends[:6] == [(1.0, 1), (12.0, 2), (3.0, 3), (12.0, 2), (1.0, 1), (12.0, 2)]
    assert [episode["train_sample"] for episode in collector._statistics.latest] == [step for _, step in ends]
