"""IQN: quantile regression at random fractions, rows of each env when acting."""

import pytest
import torch

from tests.generators import reseed
from tests.policy.learning import model_of, target_of
from tests.policy.samples import make_batch
from tests.policy.value_policies import make_policy, stack


def naive_error(output, following, best, sample, b, gamma, kappa):
    count = output["q"].shape[0]
    fractions = output["quantiles"].view(count, -1)[:, b].tolist()
    targets = [sample["reward"].item() + gamma * (not sample["done"]) * q for q in following["q"][:, b, best].tolist()]
    total = 0.0
    for target in targets:
        for fraction, quantile in zip(fractions, output["q"][:, b, sample["action"].item()].tolist(), strict=True):
            delta = abs(target - quantile)
            huber = delta * delta / 2 if delta <= kappa else kappa * (delta - kappa / 2)
            total += abs(fraction - (target < quantile)) * huber / kappa
    return total / len(targets)


def test_the_error_is_quantile_regression_to_the_double_q_target():
    policy = make_policy("iqn", "learn", model__num_quantiles=5, learn__kappa=0.5)
    data = make_batch(6)
    for _ in range(3):
        policy.learn_mode.forward(data)  # now the target network differs
    obs, next_obs = stack(data, "obs"), stack(data, "next_obs")
    target = target_of(policy)
    for owner in (policy, target):
        reseed(owner, 7)
    with torch.no_grad():
        output, following, chooser = model_of(policy)(obs), target(next_obs), model_of(policy)(next_obs)
    best = chooser["logit"].argmax(-1).tolist()
    expected = [naive_error(output, following, best[b], sample, b, 0.97, 0.5) for b, sample in enumerate(data)]
    reseed(policy, 7)
    learnt = policy.learn_mode.forward(data)
    assert learnt["priority"] == pytest.approx(expected, rel=1e-4)
    assert learnt["total_loss"] == pytest.approx(sum(expected) / 6, rel=1e-4)


def test_each_env_gets_its_own_values_at_its_own_fractions():
    policy = make_policy("iqn", "collect", "eval", model__num_quantiles=5)
    observations = {env_id: torch.rand(4) for env_id in (4, 1, 2)}
    for forward in (policy.eval_mode.forward, lambda data: policy.collect_mode.forward(data, eps=0.0)):
        reseed(policy, 0)
        with torch.no_grad():
            output = model_of(policy)(torch.stack(list(observations.values())))
        reseed(policy, 0)
        acted = forward(observations)
        for row, env_id in enumerate(observations):
            assert torch.equal(acted[env_id]["q"], output["q"][:, row])
            assert torch.equal(acted[env_id]["quantiles"], output["quantiles"].view(5, 3)[:, row])
            assert torch.equal(acted[env_id]["logit"], output["logit"][row])
            assert acted[env_id]["q"].mean(0).argmax().item() == acted[env_id]["action"].item()
