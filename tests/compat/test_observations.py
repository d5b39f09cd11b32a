"""Observations of all kinds on their way from an env to a model of a program's own, and to those of the package."""

import gymnasium
import numpy as np
import pytest
import torch
from easydict import EasyDict
from torch import nn

from ding.entry import serial_pipeline, serial_pipeline_onpolicy
from ding.envs import BaseEnv, BaseEnvTimestep
from ding.utils import ENV_REGISTRY

PIPELINES = {"dqn": serial_pipeline, "ppo": serial_pipeline_onpolicy, "ppo_offpolicy": serial_pipeline}
OBSERVATIONS = {
    "words": lambda step: np.array([step, 1, 2]),
    "short": lambda step: np.array([step, 1], np.int16),
    "dict": lambda step: {"words": np.array([step, 1]), "state": np.zeros(2, np.float32)},
    "tuple": lambda step: (np.array([step, 1]), np.zeros(2)),
    "number": lambda step: step,
    "scalar": lambda step: np.int64(step),
    "array": lambda step: np.array(step),
    "image": lambda step: np.full((1, 36, 36), step, np.uint8),
}


class Steps(BaseEnv):
    """Episodes of five steps; `cfg.kind` names the kind of the observations."""

    def __init__(self, cfg=None):
        self._make = OBSERVATIONS[cfg.kind]
        self._step = 0

    def seed(self, seed, dynamic_seed=True):
        self._seed = seed

    def close(self):
        self._step = 0

    def reset(self):
        self._step = 0
        return self._make(0)

    def step(self, action):
        self._step += 1
        done = self._step == 5
        info = {"eval_episode_return": 1.0} if done else {}
        return BaseEnvTimestep(self._make(self._step), np.ones(1, np.float32), done, info)

    def __repr__(self):
        return "Steps"

    observation_space = reward_space = None
    action_space = gymnasium.spaces.Discrete(2)


@pytest.fixture(autouse=True)
def _registered(monkeypatch):
    monkeypatch.setattr(ENV_REGISTRY, "derive", {"steps_of_a_kind": Steps}.get)


def dtypes(obs):
    if isinstance(obs, dict):
        return {key: dtypes(value) for key, value in obs.items()}
    return [dtypes(value) for value in obs] if isinstance(obs, list | tuple) else obs.dtype


class Probe(nn.Module):
    """Notes the dtypes of all observations, and embeds the first integers of them."""

    def __init__(self):
        super().__init__()
        self.seen = []
        self.embedding = nn.Embedding(8, 4)
        self.head, self.value_head = nn.Linear(4, 2), nn.Linear(4, 1)

    def forward(self, obs, mode=None):
        self.seen.append(dtypes(obs))
        while not isinstance(obs, torch.Tensor):
            obs = next(iter(obs.values())) if isinstance(obs, dict) else obs[0]
        x = self.embedding(obs.int()).reshape(len(obs), -1, 4).mean(1)
        output = {"logit": self.head(x)}
        return output if mode is None else {**output, "value": self.value_head(x).squeeze(-1)}


def train(kind, policy, obs_shape, model=None):
    learn = {"batch_size": 4, "update_per_collect": 1, "epoch_per_collect": 1}
    if policy != "ppo":
        del learn["epoch_per_collect"]
    main = EasyDict(
        exp_name="run",
        env={"kind": kind, "collector_env_num": 2, "evaluator_env_num": 1, "n_evaluator_episode": 1, "stop_value": 9},
        policy={
            "cuda": False,
            "model": {"obs_shape": obs_shape, "action_shape": 2},
            "learn": learn,
            "collect": {"n_sample": 8},
            "eval": {"evaluator": {"eval_freq": 1}},
        },
    )
    if policy == "ppo":
        main.policy.action_space = "discrete"
    create = EasyDict(env={"type": "steps_of_a_kind"}, env_manager={"type": "base"}, policy={"type": policy})
    return PIPELINES[policy]((main, create), seed=0, model=model, max_train_iter=2)


@pytest.mark.differs(
    "gives integer observations to models as integers or floats, differently in collecting, evaluating and learning",
    "keeps integers; converts bytes, which are images, to floats",
)
@pytest.mark.parametrize("policy", PIPELINES)
@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("words", torch.int64),
        ("short", torch.int16),
        ("dict", {"words": torch.int64, "state": torch.float32}),
        ("tuple", [torch.int64, torch.float32]),
        ("number", torch.int64),
        ("array", torch.int64),
        ("image", torch.float32),
    ],
)
def test_integers_stay_integers_when_acting_evaluating_and_learning(kind, expected, policy):
    model = Probe()
    train(kind, policy, 3, model)
    assert len(model.seen) > 6
    assert all(seen == expected for seen in model.seen)


@pytest.mark.parametrize("policy", PIPELINES)
@pytest.mark.parametrize("kind", ["number", "scalar", "array"])
def test_models_of_the_package_take_numbers_where_the_shape_is_one(kind, policy):
    assert train(kind, policy, 1).learn_mode.state_dict()["model"]


@pytest.mark.parametrize("policy", PIPELINES)
def test_models_of_the_package_take_integers_and_images_of_bytes(policy):
    assert train("words", policy, 3).learn_mode.state_dict()["model"]
    assert train("image", policy, [1, 36, 36]).learn_mode.state_dict()["model"]


@pytest.mark.parametrize("policy", PIPELINES)
def test_models_of_the_package_name_tuples_and_what_to_do(policy):
    with pytest.raises(TypeError, match="tuple of 2 parts"):
        train("tuple", policy, 3)
