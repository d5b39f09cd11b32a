"""Infinities of an env are named by whoever collects or evaluates, with every env manager."""

from functools import partial

import gymnasium
import numpy as np
import pytest
import torch
from easydict import EasyDict
from gymnasium.spaces import Box, Discrete
from gymnasium.vector import SyncVectorEnv

from ding.envs import DingEnvWrapper, GymnasiumEnv, create_env_manager
from ding.worker.collector.env_round import Batch, check_finite
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


# Copies of what envs return, as columns: as items, as one batch, and by player.


def batch_of(items):
    return Batch.copied(list(range(len(items))), items)


# NaN and infinities

STEPS = [0, 0, 0, 5, 7].__getitem__  # by env


@pytest.mark.differs(
    "trains on a NaN or infinite observation or reward, and takes an infinite return for the best one",
    "stops collecting and evaluating, and names the env, the key and the step",
)
@pytest.mark.parametrize(
    ("first", "second", "place"),
    [
        (np.zeros(1), np.array([np.inf]), ""),
        (np.zeros(1), np.array([1e39]), ""),
        (np.zeros(1, np.float32), np.array([-np.inf], np.float32), ""),
        (np.zeros(1, np.float16), np.array([np.inf], np.float16), ""),
        (np.zeros(1, np.complex128), np.array([1e39j]), ""),
        ({"a": np.zeros(1)}, {"a": np.array([0.0, np.inf])}, r"\['a'\]"),
        (torch.zeros(1), torch.tensor([np.inf]), ""),
        (torch.zeros(1, dtype=torch.float64), torch.tensor([1e39], dtype=torch.float64), ""),
        (0.0, 1e39, ""),
        (np.float32(0), np.float32("-inf"), ""),
        ([1.0, 2.0], [1.0, float("inf")], ""),
        ({"action_mask": np.zeros(1)}, {"action_mask": np.array([np.inf])}, r"\['action_mask'\]"),
    ],
)
def test_an_infinity_names_the_env_the_place_and_the_step(first, second, place):
    batch = Batch.copied([3, 4], [first, second])
    with pytest.raises(FloatingPointError, match=rf"the observation{place} of env 4 holds inf .* at step 7 of"):
        check_finite(batch.env_ids, STEPS, batch.node)


def test_a_mask_that_is_added_to_logits_may_be_minus_infinity():
    item = {"action_mask": np.array([-np.inf, 0.0]), "players": [{"action_mask": np.array([0.0, -np.inf])}]}
    check_finite([0, 1], STEPS, batch_of([item, item]).node)
    item["action_mask"][1] = np.nan
    with pytest.raises(FloatingPointError, match=r"\['action_mask'\] of env . holds NaN"):
        check_finite([0, 1], STEPS, batch_of([item, item]).node)
