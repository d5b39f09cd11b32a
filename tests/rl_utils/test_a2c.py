"""The losses of A2C against torch's distributions."""

import pytest
import torch
from torch.distributions import Categorical, Independent, Normal

from ding.rl_utils.log_prob import ActionTerms
from ding.rl_utils.ppo import a2c_data, a2c_error, a2c_error_continuous, a2c_loss, a2c_terms_error


def check(loss, dist, data):
    weight = torch.ones(5) if data.weight is None else data.weight
    assert type(loss) is a2c_loss
    expected = -(dist.log_prob(data.action) * data.adv * weight).mean()
    assert loss.policy_loss.item() == pytest.approx(expected.item(), rel=1e-5)
    assert loss.value_loss.item() == pytest.approx(((data.return_ - data.value) ** 2 * weight).mean().item(), rel=1e-5)
    assert loss.entropy_loss.item() == pytest.approx((dist.entropy() * weight).mean().item(), rel=1e-5)


def columns(weighted):
    """Value, advantage, return and weight of 5 samples."""
    torch.manual_seed(0)
    return *torch.randn(3, 5).unbind(0), torch.rand(5) if weighted else None


@pytest.mark.parametrize("weighted", [False, True])
def test_discrete_losses(weighted):
    rest = columns(weighted)
    logit = torch.randn(5, 3)
    data = a2c_data(logit, torch.randint(3, (5,)), *rest)
    check(a2c_error(data), Categorical(logits=logit), data)


@pytest.mark.parametrize("weighted", [False, True])
def test_continuous_losses(weighted):
    rest = columns(weighted)
    mu, sigma = torch.randn(5, 2), torch.rand(5, 2) + 0.1
    data = a2c_data({"mu": mu, "sigma": sigma}, torch.randn(5, 2), *rest)
    check(a2c_error_continuous(data), Independent(Normal(mu, sigma), 1), data)


def test_the_parts_of_an_action_have_their_losses_added():
    data = a2c_data(None, None, torch.zeros(2), torch.tensor([1.0, 2.0]), torch.ones(2), torch.tensor([1.0, 3.0]))
    parts = [
        ActionTerms(torch.tensor([-0.5, -1.0]), torch.tensor([0.1, 0.2])),
        ActionTerms(torch.tensor([0.25, 0.5]), torch.tensor([1.0, 2.0])),
    ]
    loss = a2c_terms_error(parts, data)
    assert loss.policy_loss.item() == pytest.approx(((0.5 - 0.25) * 1 + (1.0 - 0.5) * 2 * 3) / 2)
    assert loss.value_loss.item() == pytest.approx((1 + 3) / 2)
    assert loss.entropy_loss.item() == pytest.approx((0.1 + 1.0 + 3 * (0.2 + 2.0)) / 2)
