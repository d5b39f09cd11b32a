"""Retrace and the losses of ACER, on tiny numbers."""

import pytest
import torch

from ding.rl_utils import acer_policy_error, acer_trust_region_update, acer_value_error, compute_q_retraces


def test_retrace_is_its_recursion():
    generator = torch.Generator().manual_seed(0)
    q, v = torch.randn(4, 2, 3, generator=generator), torch.randn(4, 2, 1, generator=generator)
    reward, ratio = torch.randn(3, 2, generator=generator), 2 * torch.rand(3, 2, 3, generator=generator)
    action = torch.tensor([[0, 1], [2, 0], [1, 1]])
    weight = torch.tensor([[1.0, 1.0], [1.0, 0.0], [1.0, 1.0]])
    found = compute_q_retraces(q, v, reward, action, weight, ratio, gamma=0.8)
    assert found.shape == (4, 2, 1)
    for b in range(2):
        retrace, following = [v[3, b, 0].item()], v[3, b, 0].item()
        for t in (2, 1, 0):
            a = action[t, b]
            retrace.insert(0, (reward[t, b] + 0.8 * weight[t, b] * following).item())
            following = (min(1.0, ratio[t, b, a].item()) * (retrace[0] - q[t, b, a]) + v[t, b, 0]).item()
        assert found[:, b, 0].tolist() == pytest.approx(retrace, rel=1e-5)


def test_where_the_ratio_is_zero_the_value_of_what_follows_counts():
    q, v = torch.zeros(3, 1, 2), torch.tensor([1.0, 5.0, 7.0]).view(3, 1, 1)
    action, ones = torch.zeros(2, 1, dtype=torch.int64), torch.ones(2, 1)
    ratio = torch.tensor([1.0, 0.0]).view(2, 1, 1).expand(2, 1, 2)
    assert compute_q_retraces(q, v, ones, action, ones, ratio, gamma=0.5).flatten().tolist() == [3.5, 4.5, 7.0]


@pytest.mark.parametrize("clip", [0.5, 10.0])
def test_the_terms_of_the_policy_and_their_gradient(clip):
    generator = torch.Generator().manual_seed(0)
    q, retrace, v = (torch.randn(2, 1, n, generator=generator) for n in (3, 1, 1))
    logit = torch.randn(2, 1, 3, generator=generator, requires_grad=True)
    log_prob = logit.log_softmax(-1)
    log_prob.retain_grad()
    ratio, action = 2 * torch.rand(2, 1, 3, generator=generator), torch.tensor([[2], [0]])
    actor, correction = acer_policy_error(q, retrace, v, log_prob, action, ratio, clip)
    assert actor.shape == correction.shape == (2, 1, 1)
    prob = log_prob.exp().detach()
    gradient = torch.zeros(2, 1, 3)
    for t in range(2):
        a, rho, base = action[t, 0], ratio[t, 0], v[t, 0, 0]
        factor = min(clip, rho[a].item()) * (retrace[t, 0, 0] - base)
        assert actor[t, 0, 0].item() == pytest.approx((factor * log_prob[t, 0, a]).item(), rel=1e-5)
        gradient[t, 0, a] += factor
        terms = [max(0.0, 1 - clip / rho[i].item()) * prob[t, 0, i] * (q[t, 0, i] - base) for i in range(3)]
        expected = sum(term * log_prob[t, 0, i] for i, term in enumerate(terms))
        assert correction[t, 0, 0].item() == pytest.approx(expected.item(), rel=1e-4, abs=1e-6)
        gradient[t, 0] += torch.stack([torch.as_tensor(term) for term in terms])
    (actor + correction).sum().backward()
    assert torch.allclose(log_prob.grad, gradient, atol=1e-5)


def test_the_error_of_the_values_trains_q_only_at_the_action():
    q = torch.tensor([[[1.0, 2.0]]], requires_grad=True)
    retrace = torch.tensor([[[5.0]]], requires_grad=True)
    error = acer_value_error(q, retrace, torch.tensor([[1]]))
    assert error.tolist() == [[[4.5]]]
    error.sum().backward()
    assert q.grad.tolist() == [[[0.0, -3.0]]] and retrace.grad is None


@pytest.mark.parametrize("scale", [0.01, 100.0])
def test_the_gradient_is_the_nearest_one_within_the_trust_region(scale):
    generator = torch.Generator().manual_seed(0)
    gradient = scale * torch.randn(4, 2, 3, generator=generator)
    average, policy = (torch.randn(4, 2, 3, generator=generator).log_softmax(-1) for _ in range(2))
    policy.requires_grad_()
    divergence = (average.exp() * (average - policy)).sum()
    (k,) = torch.autograd.grad(divergence, policy)
    (found,) = acer_trust_region_update([gradient], policy, average, 0.3)
    rise = (-found * k).sum(-1)  # of the divergence, along a step against the gradient
    was = (-gradient * k).sum(-1)
    assert (rise <= 0.3 + 1e-4).all()
    within = was <= 0.3
    assert torch.equal(found[within], gradient[within]) and within.any()
    assert torch.allclose(rise[~within], torch.tensor(0.3), atol=1e-3)
    change = found - gradient  # along k: no other change of this effect is smaller
    length = (change * k).sum(-1, keepdim=True) / k.square().sum(-1, keepdim=True)
    assert torch.allclose(change, length * k, atol=1e-4 * scale)
    assert bool((~within).any()) is (scale == 100.0)
