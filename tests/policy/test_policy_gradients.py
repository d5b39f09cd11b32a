"""What all policy gradient methods have in common: modes, state, ranks, columns, masks, images, dicts, pipelines."""

import math

import numpy as np
import pytest
import torch

from ding.policy import (
    A2CPolicy,
    PGPolicy,
    PPOOffPolicy,
    PPOPGPolicy,
)
from tests.policy.learning import parameters_of
from tests.policy.on_policy_samples import make_episodes, make_pieces, make_policy

CLASSES = {"a2c": A2CPolicy, "pg": PGPolicy, "ppo_pg": PPOPGPolicy, "ppo_offpolicy": PPOOffPolicy}
OBS = {3: torch.rand(4), 0: torch.rand(4)}

each_policy = pytest.mark.parametrize("name", CLASSES)


def make(name, *fields, **settings):
    return make_policy(*fields, cls=CLASSES[name], **settings)


def make_data(policy, **kwargs):
    is_episodic = isinstance(policy, (PGPolicy, PPOPGPolicy))
    return (make_episodes if is_episodic else make_pieces)(policy, **kwargs)


def learn(policy, data):
    np.random.seed(0)
    output = policy.learn_mode.forward(data)
    return output if isinstance(output, list) else [output]


# --- modes ---


@each_policy
def test_actions_and_logits_have_the_documented_shapes(name):
    expected = {"discrete": ((1,), (3,)), "continuous": ((2,), {"mu": (2,), "sigma": (2,)})}
    for space, (action, logit) in expected.items():
        policy = make(name, "collect", "eval", space=space)
        for forward in (policy.collect_mode.forward, policy.eval_mode.forward):
            output = forward(OBS)
            assert list(output) == [3, 0]
            for entry in output.values():
                found = entry["logit"]
                shapes = {k: v.shape for k, v in found.items()} if isinstance(found, dict) else found.shape
                assert (entry["action"].shape, shapes) == (action, logit)


@pytest.mark.differs(
    "ignores `action_mask` in discrete SAC, PG and PPO without a critic",
    "excludes illegal actions, in acting and learning",
)
@each_policy
def test_illegal_actions_are_never_taken_nor_learned(name):
    policy, mask = make(name), torch.tensor([1, 0, 1])
    obs = {i: {"observation": torch.rand(4), "action_mask": mask} for i in range(50)}
    assert all(output["action"].item() != 1 for output in policy.collect_mode.forward(obs).values())
    data = make_data(policy, make_obs=lambda: {"observation": torch.rand(4), "action_mask": mask})
    before = parameters_of(policy)
    for output in learn(policy, data):
        assert not any(math.isnan(value) for value in output.values())
    assert not torch.equal(parameters_of(policy), before)
