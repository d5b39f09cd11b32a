"""Munchausen DQN: the log-policy of the target network in the reward."""

import math

import pytest
import torch

from tests.policy.learning import model_of, target_of
from tests.policy.samples import make_batch
from tests.policy.value_policies import make_policy


def naive_error(policy, sample, tau, alpha, gamma):
    with torch.no_grad():
        q = model_of(policy)(sample["obs"][None])["logit"][0]
        target_q, next_q = (target_of(policy)(sample[key][None])["logit"][0].tolist() for key in ("obs", "next_obs"))
    action = sample["action"].item()

    def log_policy(values):
        highest = max(values)
        total = math.log(sum(math.exp((value - highest) / tau) for value in values))
        return [(value - highest) / tau - total for value in values]

    bonus = tau * log_policy(target_q)[action]
    following = sum(
        math.exp(log_p) * (value - tau * log_p) for log_p, value in zip(log_policy(next_q), next_q, strict=True)
    )
    target = sample["reward"].item() + alpha * min(max(bonus, -1), 0) + gamma * (not sample["done"]) * following
    return (q[action].item() - target) ** 2, float(bonus < -1), abs(target_q[0] - target_q[1])


def test_the_target_is_that_of_munchausen():
    policy = make_policy("mdqn", "learn", learn__learning_rate=0.02, learn__target_update_freq=10)
    data = make_batch(8)
    for _ in range(25):
        policy.learn_mode.forward(data)  # the target network follows, and differs
    naive = [naive_error(policy, sample, 0.03, 0.9, 0.97) for sample in data]
    errors, clipped, gaps = zip(*naive, strict=True)
    output = policy.learn_mode.forward(data)
    assert output["priority"] == pytest.approx(errors, rel=1e-3, abs=1e-6)
    assert output["total_loss"] == pytest.approx(sum(errors) / 8, rel=1e-3)
    assert output["clip_frac"] == pytest.approx(sum(clipped) / 8)
    assert output["action_gap"] == pytest.approx(sum(gaps) / 8, rel=1e-4)


def test_adam_has_the_epsilon_of_the_paper():
    assert make_policy("mdqn", "learn").learn_mode.state_dict()["optimizer"]["param_groups"][0]["eps"] == 3.125e-4
