"""D4PG: what it learns, how it makes samples, what it keeps."""

import copy

import numpy as np
import pytest
import torch

from ding.policy.d4pg import D4PGPolicy
from tests.policy.continuous_samples import make_batch, make_config, parameters
from tests.policy.learning import model_of


def make_policy(*fields, cls=D4PGPolicy, seed=0, **settings):
    torch.manual_seed(seed)
    settings = {"model__n_atom": 5, "model__v_min": -2, "model__v_max": 2, **settings}
    return cls(make_config(cls, None, **settings), enable_field=list(fields) or None)


def make_samples(policy, length=6):
    """Train samples of a piece of trajectory that ends for good."""
    transitions = make_batch(length, done=False)
    transitions[-1]["done"] = True
    return policy.collect_mode.get_train_sample(transitions)


def project(probability, returns, support):
    """The categorical projection, atom by atom."""
    target = np.zeros_like(probability)
    gap = support[1] - support[0]
    for mass, value in zip(probability, np.clip(returns, support[0], support[-1]), strict=True):
        target += mass * np.clip(1 - np.abs(value - support) / gap, 0, 1)
    return target


def test_a_learning_step_is_that_of_d4pg():
    policy = make_policy()
    data = make_samples(policy)
    net = copy.deepcopy(model_of(policy))
    support = np.linspace(-2, 2, 5)
    obs, next_obs, action = (torch.stack([s[key] for s in data]) for key in ("obs", "next_obs", "action"))
    with torch.no_grad():
        next_action = net(next_obs, mode="compute_actor")["action"]
        judged = net({"obs": next_obs, "action": next_action}, mode="compute_critic")
        next_distribution = judged["distribution"][:, 0].double().numpy()
    targets = []
    for sample, probability in zip(data, next_distribution, strict=True):
        discounted = sum(0.99**i * float(r) for i, r in enumerate(sample["reward"]))
        goes_on = 0.0 if sample["done"] else sample["value_gamma"]
        targets.append(project(probability, discounted + goes_on * support, support))
    critic = net({"obs": obs, "action": action}, mode="compute_critic")
    error = -(torch.tensor(np.array(targets)) * critic["distribution"][:, 0].log()).sum(-1)
    weight = torch.tensor([s["IS"] for s in data])
    loss = (error * weight).mean()
    critic_step = torch.optim.Adam(net.critic.parameters(), 1e-3)
    loss.backward()
    critic_step.step()
    actor_loss = -net({"obs": obs, "action": net(obs, mode="compute_actor")["action"]}, mode="compute_critic")[
        "q_value"
    ].mean()
    actor_step = torch.optim.Adam(net.actor.parameters(), 1e-3)
    actor_step.zero_grad()
    actor_loss.backward()
    actor_step.step()
    output = policy.learn_mode.forward(data)
    assert output["priority"] == pytest.approx(error.tolist(), rel=1e-4)
    assert output["critic_loss"] == pytest.approx(loss.item(), rel=1e-4)
    assert output["actor_loss"] == pytest.approx(actor_loss.item(), rel=1e-4)
    assert output["total_loss"] == pytest.approx(loss.item() + actor_loss.item(), rel=1e-4)
    assert output["q_value"] == pytest.approx(critic["q_value"].mean().item(), rel=1e-4)
    assert torch.allclose(parameters(model_of(policy)), parameters(net), atol=1e-5)
