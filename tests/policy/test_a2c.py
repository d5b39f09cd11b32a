"""What A2C makes of trajectories, and what it learns, against a twin that goes sample by sample."""

import copy

import pytest
import torch

from ding.policy.a2c import A2CPolicy
from tests.generators import reseed, rng_of
from tests.policy.learning import model_of, parameters_of
from tests.policy.on_policy_samples import (
    judge,
    make_pieces,
    make_policy,
)

SPACES = ["discrete", "continuous", "hybrid", "multi-discrete"]


def make(*fields, **settings):
    return make_policy(*fields, cls=A2CPolicy, **settings)


def naive_loss(model, samples, space, adv_norm):
    """The terms of the loss of a minibatch, and its largest advantage."""
    adv = torch.cat([sample["adv"] for sample in samples])
    returns = adv + torch.cat([sample["value"] for sample in samples])
    if adv_norm:
        adv = (adv - adv.mean()) / (adv.std() + 1e-8)
    policy = value = entropy = 0.0
    for sample, a, target in zip(samples, adv, returns, strict=True):
        output, weight = model(sample["obs"][None], mode="compute_actor_critic"), sample.get("weight", 1.0)
        for log_prob, h in judge(output["logit"], sample["action"], space):
            policy, entropy = policy - log_prob * a * weight, entropy + h * weight
        value = value + (target - output["value"][0]) ** 2 * weight
    return policy / len(samples), value / len(samples), entropy / len(samples), adv.abs().max()


@pytest.mark.parametrize("space", SPACES)
@pytest.mark.parametrize(
    "settings", [{}, {"learn__adv_norm": True, "learn__grad_norm": 1e-3, "learn__betas": (0.5, 0.9)}]
)
@pytest.mark.parametrize("weighted", [False, True])
def test_a_pass_of_minibatches_is_that_of_the_twin(space, settings, weighted):
    policy = make(space=space, **settings)
    data = make_pieces(policy)
    if weighted:
        for i, sample in enumerate(data):
            sample["weight"] = torch.tensor([0.5 + i % 3])
    model, learn = copy.deepcopy(model_of(policy)), policy.cfg.learn
    optimizer = torch.optim.Adam(model.parameters(), lr=0.001, betas=learn.betas)
    reseed(policy, 3)
    output = policy.learn_mode.forward(data)
    order = rng_of(3).permutation(21)
    for start in (0, 8, 13):  # the last minibatch is filled up
        minibatch = [data[i] for i in order[start : start + 8]]
        policy_loss, value_loss, entropy, adv_abs_max = naive_loss(model, minibatch, space, learn.adv_norm)
        total = policy_loss + 0.5 * value_loss - 0.01 * entropy
        optimizer.zero_grad()
        total.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), learn.grad_norm)
        optimizer.step()
    expected = {
        "cur_lr": 0.001,
        "total_loss": total.item(),
        "policy_loss": policy_loss.item(),
        "value_loss": value_loss.item(),
        "entropy_loss": entropy.item(),
        "adv_abs_max": adv_abs_max.item(),
        "grad_norm": norm.item(),
    }
    assert output == pytest.approx(expected, rel=1e-4, abs=1e-5)
    assert policy.learn_mode.monitor_vars() == list(output)
    theirs = torch.cat([p.detach().flatten() for p in model.parameters()])
    assert torch.allclose(parameters_of(policy), theirs, atol=1e-5)
