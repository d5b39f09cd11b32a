"""Whatever else draws or seeds random numbers in the process, a run with a seed is the same."""

import random
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import gymnasium
import numpy as np
import pytest
import torch

from ding import train
from ding.envs import BaseEnvManager, GymnasiumEnv
from ding.policy import DQNPolicy
from ding.utils import deep_merge_dicts, set_pkg_seed
from ding.utils.default_helper import new_generator
from ding.worker import SampleSerialCollector
from tests.entry.steps import Steps


class Walk(Steps):
    """Observations are drawn from the env's own generator."""

    observation_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
    length = 8

    def observe(self):
        return self.np_random.uniform(-1, 1, 2).astype(np.float32)

    def reward(self, action):
        return float(action)


class SeedingWalk(Walk):
    """The same, which seeds all global generators when it is made, and at each reset and step."""

    def __init__(self):
        self.seed_all()

    def seed_all(self):
        random.seed(7)
        np.random.seed(7)
        torch.manual_seed(7)

    def reset(self, **kwargs):
        self.seed_all()
        return super().reset(**kwargs)

    def step(self, action):
        self.seed_all()
        return super().step(action)


SETTINGS = {
    "dqn": {"model": {"dropout": 0.2}},
    "rainbow": {"learning_starts": 64},
    "ppo": {"n_sample": 80},
    "discrete_sac": {"learning_starts": 64, "n_sample": 8},
}


def weights(
    policy: str, env: type, seed: int = 0, folder: str = "run", env_steps: int = 200
) -> dict[str, torch.Tensor]:
    """The weights of a policy after a short training."""
    sizes = {"num_envs": 4, "eval_episodes": 1, "batch_size": 16, "recipe": False, **SETTINGS[policy]}
    training = train(policy, env, env_steps=100, seed=seed, folder=folder, **sizes)
    path = f"{training.folder}/ckpt/iteration_{training.result['train_iter']}.pth.tar"
    return torch.load(path, weights_only=True)["model"]


def are_equal(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[key], other[key]) for key in one)


@pytest.mark.guarantees("randomness")
@pytest.mark.parametrize("policy", SETTINGS)
def test_an_env_that_seeds_the_process_changes_nothing(policy: str) -> None:
    assert are_equal(weights(policy, Walk, folder="a"), weights(policy, SeedingWalk, folder="b"))


@pytest.mark.guarantees("randomness")
def test_random_episodes_in_an_env_that_seeds_numpy_differ() -> None:
    own = {"nstep": 1, "model": {"obs_shape": 2, "action_shape": 2}}
    policy = DQNPolicy(deep_merge_dicts(DQNPolicy.default_config(), own))
    envs = BaseEnvManager([partial(GymnasiumEnv, {"env": SeedingWalk})], BaseEnvManager.default_config())
    collector = SampleSerialCollector(SampleSerialCollector.default_config(), envs, policy.collect_mode, exp_name="exp")
    actions = [int(sample["action"]) for sample in collector.collect(n_sample=160, policy_kwargs={"eps": 1.0})]
    assert len({tuple(actions[i : i + 8]) for i in range(0, 160, 8)}) >= 17


@pytest.mark.guarantees("randomness")
@pytest.mark.differs("lets two trainings in threads of a process disturb each other", "gives each its own generators")
def test_trainings_in_threads_are_those_that_run_alone() -> None:
    jobs = [("dqn", Walk, 0), ("rainbow", Walk, 1), ("dqn", SeedingWalk, 2), ("ppo", Walk, 0)]
    alone = [weights(*job, folder=f"alone{i}") for i, job in enumerate(jobs)]
    with ThreadPoolExecutor(len(jobs)) as threads:
        together = [threads.submit(weights, *job, folder=f"thread{i}") for i, job in enumerate(jobs)]
    assert [are_equal(one, other.result()) for one, other in zip(alone, together, strict=True)] == [True] * len(jobs)


@pytest.mark.guarantees("randomness")
def test_a_new_seed_begins_anew_and_each_owner_draws_its_own() -> None:
    drawn = []
    for seed in (0, 0, 1):
        set_pkg_seed(seed, use_cuda=False)
        drawn.append([new_generator().random() for _ in range(2)])
    assert drawn[0] == drawn[1] and len({*drawn[0], *drawn[2]}) == 4


def test_without_a_seed_of_the_package_numpys_decides() -> None:
    drawn = []
    for seed in (0, 0, 1):
        np.random.seed(seed)
        drawn.append(new_generator().random())
    assert drawn[0] == drawn[1] != drawn[2]
