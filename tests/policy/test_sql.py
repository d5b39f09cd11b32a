"""Soft Q-learning: the soft value of what follows, and acting at a temperature."""

import pytest
import torch

from tests.policy.value_policies import make_policy


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
