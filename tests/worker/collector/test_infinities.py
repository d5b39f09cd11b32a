"""Infinities of an env are named by whoever collects or evaluates, with every env manager."""

from __future__ import annotations

from functools import partial

import gymnasium
import numpy as np
import pytest
from easydict import EasyDict
from gymnasium.spaces import Box, Discrete
from gymnasium.vector import SyncVectorEnv

from ding.envs import DingEnvWrapper, GymnasiumEnv, create_env_manager
from ding.worker.collector.interaction_serial_evaluator import InteractionSerialEvaluator
from ding.worker.collector.sample_serial_collector import SampleSerialCollector
from tests.fakes import FakeWriter, ScriptedPolicy


class Gap(gymnasium.Env):
    """An env whose observation or reward of step 2 is `value`; its bounds are infinite, which is fine."""

    observation_space = Box(-np.inf, np.inf, (2,), np.float64)
    action_space = Discrete(50)

    def __init__(self, field, value):
        self.field, self.value, self.count = field, value, 0

    def reset(self, *, seed=None, options=None):
        self.count = 0
        return np.zeros(2), {}

    def step(self, action):
        self.count += 1
        value = self.value if self.count == 2 else 0.0
        obs = np.array([0.0, value if self.field == "observation" else 0.0])
        return obs, value if self.field == "reward" else 0.0, self.count == 4, False, {}


def gymnasium_env(field, value):
    return GymnasiumEnv({"env": partial(Gap, field, value)})


def ding_env(field, value):
    return DingEnvWrapper(Gap(field, value), {"env_wrapper": []})


def manager(kind, make, field, value):
    if kind != "vector_env":
        cfg = EasyDict(type=kind, context="fork", step_wait_timeout=None)
        return create_env_manager(cfg, [partial(make, field, value)])
    vector = partial(vector_env, field, value)
    return create_env_manager(EasyDict(type=kind, vector_env=vector, env_num=1), [partial(make, field, value)])


def vector_env(field, value, num_envs):
    return SyncVectorEnv([partial(Gap, field, value)] * num_envs)


@pytest.mark.parametrize("value", [np.inf, -np.inf, 1e39])
@pytest.mark.parametrize("field", ["observation", "reward"])
@pytest.mark.parametrize(
    ("kind", "make"),
    [
        ("base", gymnasium_env),
        ("base", ding_env),
        ("subprocess", gymnasium_env),
        ("async_subprocess", gymnasium_env),
        ("vector_env", gymnasium_env),
    ],
)
def test_a_collector_names_the_env_and_the_step_with_every_manager(kind, make, field, value):
    env = manager(kind, make, field, value)
    cfg = SampleSerialCollector.default_config()
    collector = SampleSerialCollector(cfg, env, ScriptedPolicy(), FakeWriter(), "exp")
    with pytest.raises(FloatingPointError, match=f"the {field} of env 0 holds inf .*step 2 of its episode"):
        collector.collect(8)
    collector.close()


@pytest.mark.parametrize("field", ["observation", "reward"])
def test_an_evaluation_is_neither_the_best_nor_enough(field):
    cfg = EasyDict({**InteractionSerialEvaluator.default_config(), "stop_value": 1.0, "n_episode": 1})
    env = manager("base", gymnasium_env, field, np.inf)
    evaluator = InteractionSerialEvaluator(cfg, env, ScriptedPolicy(), FakeWriter(), "exp")
    saved = []
    with pytest.raises(FloatingPointError, match=f"the {field} of env 0 holds inf .*step 2 of its episode"):
        evaluator.eval(saved.append, train_iter=5)
    assert saved == [] and evaluator.last_eval is None
    evaluator.close()
