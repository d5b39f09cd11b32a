"""SQN: twin soft values, a temperature that is learnt and travels with the state."""

import copy
import math

import pytest
import torch

from tests.policy.learning import model_of
from tests.policy.samples import make_batch
from tests.policy.value_policies import make_policy, stack


def test_a_learning_step_is_soft_q_learning_of_both_networks_and_of_alpha():
    policy = make_policy("sqn", "learn", learn__target_theta=0.1)
    online, target = copy.deepcopy(model_of(policy)), copy.deepcopy(model_of(policy))
    log_alpha = torch.tensor([math.log(0.2)], requires_grad=True)
    adam = torch.optim.Adam(online.parameters(), lr=0.001)
    adam_alpha = torch.optim.Adam([log_alpha], lr=0.001)
    for _ in range(3):
        data = make_batch(6)
        obs, next_obs, reward = stack(data, "obs"), stack(data, "next_obs"), stack(data, "reward").squeeze(1)
        action, done, alpha = stack(data, "action").long(), stack(data, "done"), log_alpha.exp().item()
        with torch.no_grad():
            q = torch.min(target.q0(next_obs)["logit"], target.q1(next_obs)["logit"])
            pi = torch.softmax(q / alpha, -1)
            entropy = -(pi * pi.log()).sum(-1)
            y = reward + 0.99 * (1 - done) * ((pi * q).sum(-1) + alpha * entropy)
        values = [net(obs)["logit"] for net in (online.q0, online.q1)]
        errors = [(value.gather(1, action).squeeze(1) - y) ** 2 for value in values]
        q_loss = errors[0].mean() + errors[1].mean()
        adam.zero_grad()
        q_loss.backward()
        adam.step()
        alpha_loss = log_alpha * (entropy.mean() - 0.2)
        adam_alpha.zero_grad()
        alpha_loss.backward()
        adam_alpha.step()
        with torch.no_grad():
            for own, new in zip(target.parameters(), online.parameters(), strict=True):
                own.lerp_(new, 0.1)
        output = policy.learn_mode.forward(data)
        assert output["q_loss"] == pytest.approx(q_loss.item(), rel=1e-4)
        assert output["alpha_loss"] == pytest.approx(alpha_loss.item(), rel=1e-4)
        assert output["entropy"] == pytest.approx(entropy.mean().item(), rel=1e-4)
        assert output["alpha"] == pytest.approx(log_alpha.exp().item(), rel=1e-5)
        assert output["q_value"] == pytest.approx((values[0].mean() + values[1].mean()).item() / 2, rel=1e-3, abs=1e-6)
        assert output["priority"] == pytest.approx(((errors[0] + errors[1]) / 2).tolist(), rel=1e-3)
        assert output["[histogram]action_distribution"].tolist() == action.squeeze(1).tolist()
    state = policy.learn_mode.state_dict()
    for name, net in (("model", online), ("target_model", target)):
        assert all(torch.allclose(state[name][key], value, atol=1e-5) for key, value in net.state_dict().items())
    assert torch.allclose(state["log_alpha"], log_alpha)


def test_collecting_draws_at_the_temperature_of_the_state():
    learner = make_policy("sqn", "learn", learn__alpha=0.05)
    collector = make_policy("sqn", "collect", seed=1, learn__alpha=100.0)
    observations = {env_id: torch.ones(4) for env_id in range(4000)}

    def share():
        output = collector.collect_mode.forward(observations)
        return sum(out["action"].item() == 0 for out in output.values()) / 4000, output[0]["logit"]

    assert share()[0] == pytest.approx(0.5, abs=0.04)
    collector.collect_mode.load_state_dict(learner.learn_mode.state_dict())
    drawn, logit = share()
    expected = torch.softmax(logit / 0.05, -1)[0].item()
    assert abs(expected - 0.5) > 0.1
    assert drawn == pytest.approx(expected, abs=0.04)


# Soft Q-learning: the soft value of what follows, and acting at a temperature.


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
