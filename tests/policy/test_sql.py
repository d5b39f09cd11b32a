"""Soft Q-learning: the soft value of what follows, and acting at a temperature."""

import math

import pytest
import torch

from tests.policy.learning import model_of, target_of
from tests.policy.samples import make_batch
from tests.policy.value_policies import make_policy


def test_the_target_is_the_soft_value_of_the_target_network():
    policy = make_policy("sql", "learn", learn__alpha=0.3)
    data = make_batch(6)
    for _ in range(3):
        policy.learn_mode.forward(data)  # now the target network differs
    expected, values = [], []
    for sample in data:
        with torch.no_grad():
            q = model_of(policy)(sample["obs"][None])["logit"][0, sample["action"].item()].item()
            next_q = target_of(policy)(sample["next_obs"][None])["logit"][0].tolist()
        values.append(0.3 * math.log(sum(math.exp(value / 0.3) for value in next_q)))
        expected.append((q - sample["reward"].item() - 0.97 * (not sample["done"]) * values[-1]) ** 2)
    output = policy.learn_mode.forward(data)
    assert output["priority"] == pytest.approx(expected, rel=1e-3, abs=1e-6)
    assert output["total_loss"] == pytest.approx(sum(expected) / 6, rel=1e-3)
    assert output["record_value_function"] == pytest.approx(sum(values) / 6, rel=1e-4)


def shares(alpha, eps):
    policy = make_policy("sql", "collect", learn__alpha=alpha)
    output = policy.collect_mode.forward({env_id: torch.zeros(4) for env_id in range(4000)}, eps=eps)
    first = sum(out["action"].item() == 0 for out in output.values()) / 4000
    return first, output[0]["logit"]


def test_collecting_draws_at_the_temperature_and_explores_besides():
    first, logit = shares(0.1, eps=0.0)
    policy = torch.softmax(logit / 0.1, -1)[0].item()
    assert abs(policy - 0.5) > 0.1
    assert first == pytest.approx(policy, abs=0.04)
    assert shares(0.1, eps=0.5)[0] == pytest.approx((policy + 0.5) / 2, abs=0.04)
    assert shares(100.0, eps=0.0)[0] == pytest.approx(0.5, abs=0.04)
