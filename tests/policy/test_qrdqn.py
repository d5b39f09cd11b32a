"""QR-DQN: quantile regression at fixed fractions."""

import pytest
import torch

from tests.policy.learning import model_of, target_of
from tests.policy.samples import make_batch
from tests.policy.value_policies import make_policy


def huber(x):
    return x * x / 2 if abs(x) <= 1 else abs(x) - 0.5


def naive_error(policy, sample, gamma):
    with torch.no_grad():
        output, next_output = (model_of(policy)(sample[key][None]) for key in ("obs", "next_obs"))
        following = target_of(policy)(sample["next_obs"][None])["q"][0]
    best = int(next_output["logit"][0].argmax())
    targets = [sample["reward"].item() + gamma * (not sample["done"]) * q for q in following[best].tolist()]
    quantiles = output["q"][0, sample["action"].item()].tolist()
    total = 0.0
    for target in targets:
        for i, quantile in enumerate(quantiles):
            fraction = (2 * i + 1) / (2 * len(quantiles))
            total += abs(fraction - (target < quantile)) * huber(target - quantile)
    return total / len(targets)


def test_the_error_is_quantile_regression_to_the_double_q_target():
    policy = make_policy("qrdqn", "learn", model__num_quantiles=5)
    data = make_batch(6)
    for _ in range(3):
        policy.learn_mode.forward(data)  # now the target network differs
    expected = [naive_error(policy, sample, 0.97) for sample in data]
    output = policy.learn_mode.forward(data)
    assert output["priority"] == pytest.approx(expected, rel=1e-4)
    assert output["total_loss"] == pytest.approx(sum(expected) / 6, rel=1e-4)
