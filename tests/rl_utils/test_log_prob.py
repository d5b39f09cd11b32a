"""Log-probabilities and entropies against torch's distributions, gradients included."""

import math

import pytest
import torch
from torch.distributions import Categorical, Independent, Normal, TanhTransform, TransformedDistribution

from ding.rl_utils.log_prob import categorical_terms, gaussian_terms, squashed_gaussian_sample


def gradients(terms, *leaves):
    return torch.autograd.grad(terms[0].sum() + 0.3 * terms[1].square().sum(), leaves)


def assert_all_close(ours, theirs):
    assert all(torch.allclose(a, b, atol=1e-10) for a, b in zip(ours, theirs, strict=True))


@pytest.mark.parametrize("shape", [(5, 3), (5, 2, 3)])
def test_categorical_terms_are_those_of_the_distribution(shape):
    torch.manual_seed(0)
    logit = torch.randn(shape, dtype=torch.float64, requires_grad=True)
    action = torch.randint(3, shape[:-1])
    ours, dist = categorical_terms(logit, action), Categorical(logits=logit)
    theirs = dist.log_prob(action), dist.entropy()
    assert_all_close(ours, theirs)
    assert_all_close(gradients(ours, logit), gradients(theirs, logit))


@pytest.mark.parametrize("form", [lambda a: a, lambda a: list(a.unbind(1)), lambda a: list(a.split(1, 1))])
def test_a_multi_discrete_action_adds_up_its_parts(form):
    torch.manual_seed(0)
    logits = [torch.randn(4, 2), torch.randn(4, 3)]
    action = torch.tensor([[0, 2], [1, 1], [1, 0], [0, 0]])
    ours = categorical_terms(logits, form(action))
    parts = [Categorical(logits=logit) for logit in logits]
    assert torch.allclose(ours.log_prob, sum(p.log_prob(action[:, k]) for k, p in enumerate(parts)))
    assert torch.allclose(ours.entropy, sum(p.entropy() for p in parts))


@pytest.mark.parametrize("illegal", [-math.inf, -1e8])
def test_what_cannot_be_drawn_adds_no_entropy_and_gets_no_gradient(illegal):
    free = torch.tensor([[0.3, -0.2]], requires_grad=True)
    logit = torch.cat([free, torch.full((1, 1), illegal)], 1)
    logit.retain_grad()
    ours, theirs = categorical_terms(logit, torch.tensor([1])), categorical_terms(free, torch.tensor([1]))
    assert_all_close(ours, theirs)
    (ours.log_prob + ours.entropy).sum().backward()
    assert logit.grad[0, 2] == 0
    assert not logit.grad.isnan().any()


@pytest.mark.parametrize("form", [dict, tuple])
def test_gaussian_terms_are_those_of_the_distribution(form):
    torch.manual_seed(0)
    mu = torch.randn(5, 2, dtype=torch.float64, requires_grad=True)
    sigma = (torch.rand(5, 2, dtype=torch.float64) + 0.1).requires_grad_()
    action = torch.randn(5, 2, dtype=torch.float64)
    logit = {"mu": mu, "sigma": sigma} if form is dict else (mu, sigma)
    ours, dist = gaussian_terms(logit, action), Independent(Normal(mu, sigma), 1)
    theirs = dist.log_prob(action), dist.entropy()
    assert_all_close(ours, theirs)
    assert_all_close(gradients(ours, mu, sigma), gradients(theirs, mu, sigma))


def test_an_action_of_one_dimension_may_lack_its_axis():
    torch.manual_seed(0)
    logit = {"mu": torch.randn(4, 1), "sigma": torch.ones(4, 1)}
    action = torch.randn(4)
    assert torch.equal(gaussian_terms(logit, action)[0], gaussian_terms(logit, action[:, None])[0])


@pytest.mark.parametrize("form", [dict, tuple])
def test_squashed_samples_have_the_density_of_the_transformed_distribution(form):
    torch.manual_seed(0)
    mu = torch.randn(5, 2, dtype=torch.float64, requires_grad=True)
    sigma = torch.rand(5, 2, dtype=torch.float64, requires_grad=True)
    noise = torch.randn(5, 2, dtype=torch.float64)
    pair = {"mu": mu, "sigma": sigma} if form is dict else (mu, sigma)
    ours = squashed_gaussian_sample(pair, noise)
    dist = TransformedDistribution(Normal(mu, sigma), [TanhTransform()])
    action = torch.tanh(mu + sigma * noise)
    theirs = action, dist.log_prob(action).sum(-1)
    assert torch.equal(ours.action, action)
    assert torch.allclose(ours.log_prob, theirs[1], atol=1e-8)
    for weight in (0.0, 1.0):
        pairs = zip(
            *(
                torch.autograd.grad(a.sum() * weight + p.sum(), (mu, sigma), retain_graph=True)
                for a, p in (ours, theirs)
            ),
            strict=True,
        )
        assert all(torch.allclose(a, b, atol=1e-7) for a, b in pairs)


@pytest.mark.differs(
    "adds 1e-6 inside a logarithm of squashed actions, whose log-probability is wrong near the bounds",
    "computes it exactly",
)
@pytest.mark.parametrize("u", [0.0, 3.0, -8.0, 15.0, -40.0])
def test_the_log_probability_is_exact_where_the_action_rounds_to_the_bound(u):
    mu = torch.full((1, 1), u, requires_grad=True)
    sample = squashed_gaussian_sample((mu, torch.ones(1, 1)), torch.zeros(1, 1))
    # log cosh^2 u, written so that it does not overflow.
    exact = -0.5 * math.log(2 * math.pi) + 2 * (abs(u) + math.log1p(math.exp(-2 * abs(u))) - math.log(2))
    assert sample.log_prob.item() == pytest.approx(exact, rel=1e-6)
    sample.log_prob.sum().backward()
    assert mu.grad.item() == pytest.approx(2 * math.tanh(u), abs=1e-5)
