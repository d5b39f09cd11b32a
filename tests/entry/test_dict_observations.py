"""Trainings on dict observations, from an env of gymnasium to the weights: nothing but `obs_shape` tells of them."""

import numpy as np
import pytest
import torch
from easydict import EasyDict
from gymnasium import spaces

from ding import train
from ding.entry import serial_pipeline, serial_pipeline_onpolicy
from ding.utils.config_helper import ConfigError
from tests.entry.steps import Steps

LEARN = {"batch_size": 8, "update_per_collect": 2}


class Reach(Steps):
    """Episodes of 6 steps; `clock` is one number, `camera` an image of bytes."""

    observation_space = spaces.Dict(
        {
            "pos": spaces.Box(-1, 1, (2,), np.float32),
            "goal": spaces.Box(-1, 1, (2,), np.float32),
            "clock": spaces.Box(0, 9, (1,), np.float32),
            "camera": spaces.Box(0, 255, (1, 36, 36), np.uint8),
        }
    )

    length = 6

    def __init__(self, continuous=False):
        self.action_space = spaces.Box(-1, 1, (2,), np.float32) if continuous else spaces.Discrete(2)

    def reward(self, action):
        return float(np.sum(action))

    def observe(self):
        if self.steps == 0:
            self.goal = self.np_random.uniform(-1, 1, 2).astype(np.float32)
        return {
            "pos": self.np_random.uniform(-1, 1, 2).astype(np.float32),
            "goal": self.goal,
            "clock": np.array([self.steps], np.float32),
            "camera": np.full((1, 36, 36), self.steps, np.uint8),
        }


def pair(policy_type, obs_shape, continuous=False, manager="base", **policy):
    main = EasyDict(
        exp_name="exp",
        env=dict(
            env=lambda: Reach(continuous),
            collector_env_num=2,
            evaluator_env_num=2,
            n_evaluator_episode=2,
            stop_value=1e6,
        ),
        policy=dict(
            model=dict(obs_shape=obs_shape, action_shape=2),
            learn=dict(LEARN if policy_type in ("dqn", "sac") else {"batch_size": 8}),
            collect=dict(n_sample=16),
            eval=dict(evaluator=dict(eval_freq=100)),
            **policy,
        ),
    )
    create = EasyDict(env=dict(type="gymnasium"), env_manager=dict(type=manager), policy=dict(type=policy_type))
    return main, create


VECTORS = {"pos": 2, "goal": 2}
WITH_IMAGE = {"pos": 2, "clock": 1, "camera": [1, 36, 36]}


def weights(policy):
    return {name: value.clone() for name, value in policy._model.state_dict().items()}


@pytest.mark.parametrize(
    ("policy_type", "obs_shape"), [("dqn", WITH_IMAGE), ("ppo", VECTORS), ("a2c", WITH_IMAGE), ("sac", VECTORS)]
)
def test_every_entry_of_an_observation_is_learned_from(policy_type, obs_shape):
    pipeline = serial_pipeline if policy_type in ("dqn", "sac") else serial_pipeline_onpolicy
    policy = {"random_collect_size": 0} if policy_type == "sac" else {}
    configs = pair(policy_type, obs_shape, continuous=policy_type == "sac", **policy)
    before = weights(pipeline(configs, seed=0, max_train_iter=1))
    iterations = 21 if policy_type == "ppo" else 3  # a further round, at least
    after = weights(pipeline(configs, seed=0, max_train_iter=iterations))
    encoders = [name for name in after if "encoders." in name and name.endswith("weight")]
    assert len({name.split("encoders.")[1].split(".")[0] for name in encoders}) == len(obs_shape)
    assert not any(torch.equal(before[name], after[name]) for name in encoders if "target" not in name)


def test_dict_observations_come_from_processes_too():
    policies = [
        serial_pipeline(pair("dqn", WITH_IMAGE, manager=manager), seed=0, max_train_iter=4)
        for manager in ("base", "subprocess")
    ]
    one, other = map(weights, policies)
    assert all(torch.equal(one[name], other[name]) for name in one)


@pytest.mark.parametrize(
    ("obs_shape", "message"),
    [({"pos": 2, "speed": 1}, "'speed': 1} does not fit"), ({"pos": 3}, "= {'pos': 3} does not fit")],
)
def test_an_obs_shape_that_the_env_does_not_have_is_refused_at_the_start(obs_shape, message):
    with pytest.raises(ConfigError, match=message):
        serial_pipeline(pair("dqn", obs_shape), max_train_iter=1)


def test_dict_observations_may_lie_beside_a_mask():
    class Masked(Reach):
        observation_space = spaces.Dict(
            {"observation": Reach.observation_space, "action_mask": spaces.Box(0, 1, (2,), np.int8)}
        )

        def observe(self):
            return {"observation": super().observe(), "action_mask": np.array([0, 1], np.int8)}

    main, create = pair("dqn", VECTORS)
    main.env.env = Masked
    policy = serial_pipeline((main, create), seed=0, max_train_iter=4)
    obs = {"observation": {"pos": torch.rand(2), "goal": torch.rand(2)}, "action_mask": torch.tensor([0, 1])}
    assert policy.eval_mode.forward({0: obs})[0]["action"].item() == 1


class OneOrTwoLegal(Steps):
    """Other actions are legal after each step; only action 0 is rewarded. Episodes end within the sequences."""

    observation_space = spaces.Dict(
        {"observation": spaces.Box(-1, 1, (3,)), "action_mask": spaces.Box(0, 1, (4,), np.int8)}
    )
    action_space = spaces.Discrete(4)
    length = 7

    def observe(self):
        self.mask = np.zeros(4, np.int8)
        self.mask[self.np_random.integers(0, 4, 2)] = 1
        return {"observation": np.ones(3, np.float32), "action_mask": self.mask}

    def reward(self, action):
        assert self.mask[int(action)] == 1
        return float(action == 0)

    def step(self, action):
        obs, reward, truncated, _, info = super().step(action)
        return obs, reward, False, truncated, info


@pytest.mark.parametrize("policy", ["acer", "impala", "r2d2"])
def test_sequences_that_reach_beyond_an_episode_are_learned_from_with_masks(policy):
    few = {"batch_size": 4, "unroll_len": 5, "num_envs": 4, "eval_episodes": 4}
    training = train(policy, OneOrTwoLegal, iterations=8, stop_value=7, **few)  # a loss that is NaN ends a training
    assert training.result["train_iter"] >= 8 or training.result["eval_value"] >= 7
