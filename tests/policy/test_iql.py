"""IQL: what it learns, what it keeps, and how it is trained."""

import copy
import itertools

import pytest
import torch
from torch.distributions import Normal

from ding.model import ContinuousQVAC
from ding.policy import IQLPolicy
from ding.rl_utils.log_prob import squashed_gaussian_log_prob
from tests.policy.continuous_samples import columns, make_batch, make_config
from tests.policy.learning import before_each_step, model_of


def make_policy(*fields, **settings):
    torch.manual_seed(0)
    return IQLPolicy(make_config(IQLPolicy, **settings), enable_field=list(fields) or None)


@pytest.mark.differs(
    "treats `learn.beta` of IQL as the inverse of the paper's, scales the tanh of its actions, and clips the "
    "gradient of its actor",
    "treats `beta` in the same way, or takes the paper's `learn.inverse_temperature`; actions and gradients "
    "are those of the paper",
)
@pytest.mark.parametrize(
    ("tau", "settings", "factor", "limit"),
    [
        (0.7, {}, 1.0, 20),
        (0.7, {"learn__beta": 0.05}, 20.0, 20),
        (0.5, {"learn__inverse_temperature": 3.0}, 3.0, 100),
        (0.5, {"learn__inverse_temperature": 40.0}, 40.0, 100),
        (0.9, {"learn__inverse_temperature": 0.0}, 0.0, 100),
    ],
)
def test_losses_are_those_of_the_paper(tau, settings, factor, limit):
    policy, data = make_policy("learn", learn__tau=tau, **settings), make_batch(8)
    obs, next_obs, action, reward, done, _ = columns(data)
    with torch.no_grad():  # positive advantages
        model_of(policy).critic_v_head[-1].last.bias -= 0.5
    net = copy.deepcopy(model_of(policy))
    q = [one.detach() for one in net({"obs": obs, "action": action}, mode="compute_critic")["q_value"]]
    value, next_value = (net(place, mode="compute_value")["v_value"].detach() for place in (obs, next_obs))
    best = torch.minimum(*q)  # the target network is a copy
    gap = best - value
    y = reward + 0.99 * (1 - done) * next_value
    value_loss = sum((tau if d > 0 else 1 - tau) * d**2 for d in gap.tolist()) / 8
    mu, sigma = net(obs, mode="compute_actor")["logit"]
    u = torch.atanh(action.clamp(-0.999, 0.999))
    log_prob = (Normal(mu, sigma).log_prob(u) - torch.log(1 - torch.tanh(u) ** 2)).sum(-1)
    policy_loss = -(torch.exp(factor * gap).clamp(max=limit) * log_prob).mean().item()
    assert (torch.exp(factor * gap).max() > limit) == (factor >= 20)
    output = policy.learn_mode.forward(data)
    assert output["value_loss"] == pytest.approx(value_loss, rel=1e-4)
    for name, one in zip(("critic_loss", "twin_critic_loss"), q, strict=True):
        assert output[name] == pytest.approx((one - y).square().mean().item(), rel=1e-4)
    assert output["policy_loss"] == pytest.approx(policy_loss, rel=1e-4)
    assert output["priority"] == pytest.approx((sum((one - y) ** 2 for one in q) / 2).tolist(), rel=1e-4)
    assert output["total_loss"] == pytest.approx(
        output["value_loss"] + output["critic_loss"] + output["twin_critic_loss"] + output["policy_loss"], rel=1e-4
    )


def test_each_step_moves_its_own_part_alone():
    policy, data = make_policy("learn"), make_batch(8)
    states = []

    def keep(optimizer=None):
        states.append({key: value.clone() for key, value in model_of(policy).state_dict().items()})

    with before_each_step(keep):
        policy.learn_mode.forward(data)
    keep()
    moved = [
        {key.split(".")[0] for key in after if not torch.equal(after[key], before[key])}
        for before, after in itertools.pairwise(states)
    ]
    assert moved == [{"critic", "critic_q_head", "critic_v_head"}, {"actor", "actor_head"}]


def test_actions_at_their_bounds_have_a_finite_log_probability():
    mu = torch.zeros(3, 2, requires_grad=True)
    action = torch.tensor([[1.0, -1.0], [0.5, 0.0], [0.9999, 0.2]])
    log_prob = squashed_gaussian_log_prob((mu, torch.ones(3, 2)), action)
    assert log_prob.shape == (3,) and log_prob.isfinite().all()
    u = torch.atanh(action[1])
    expected = (Normal(0.0, 1.0).log_prob(u) - torch.log(1 - action[1] ** 2)).sum()
    assert log_prob[1].item() == pytest.approx(expected.item(), rel=1e-5)
    log_prob.sum().backward()
    assert mu.grad.isfinite().all() and mu.grad[0, 0] > 0 > mu.grad[0, 1]


def test_the_model_has_values_beside_the_critics():
    model = ContinuousQVAC(3, 2, "reparameterization", twin_critic=True)
    obs, action = torch.rand(5, 3), torch.rand(5, 2)
    output = model({"obs": obs, "action": action}, mode="compute_critic")
    assert [q.shape for q in output["q_value"]] == [(5,), (5,)] and output["v_value"].shape == (5,)
    assert torch.equal(model(obs, mode="compute_value")["v_value"], output["v_value"])
    own = {id(parameter) for parameter in model.critic_v_head.parameters()}
    assert own <= {id(parameter) for parameter in model.critic.parameters()}
