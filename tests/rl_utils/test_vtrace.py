"""V-trace against the sums of its paper."""

import pytest
import torch

from ding.rl_utils import (
    acer_policy_error,
    acer_trust_region_update,
    acer_value_error,
    compute_q_retraces,
    vtrace_data,
    vtrace_error_continuous_action,
    vtrace_error_discrete_action,
)
from ding.rl_utils.vtrace import vtrace_targets


def expected_targets(ratio, value, next_value, reward, discount, goes_on, lambda_, rho_bar, c_bar, pg_bar):
    """v_s = V_s + sum_t (prod_{i<t} discount_i lambda c_i) delta_t of one sequence, and the advantages."""
    steps = len(reward)

    def delta(t):
        return min(rho_bar, ratio[t]) * (reward[t] + discount[t] * next_value[t] - value[t])

    targets = []
    for s in range(steps):
        total, factor, t = value[s], 1.0, s
        while True:
            total += factor * delta(t)
            if not goes_on[t]:
                break
            factor *= discount[t] * lambda_ * min(c_bar, ratio[t])
            t += 1
        targets.append(total)
    advantages = [
        min(pg_bar, ratio[s]) * (reward[s] + discount[s] * (targets[s + 1] if goes_on[s] else next_value[s]) - value[s])
        for s in range(steps)
    ]
    return targets, advantages


@pytest.mark.parametrize("limits", [(1.0, 1.0, 1.0, 1.0), (0.9, 1.5, 0.7, 2.0), (0.0, 1.0, 1.0, 1.0)])
def test_targets_are_the_sums_of_the_paper_up_to_the_end_of_each_trajectory(limits):
    generator = torch.Generator().manual_seed(0)
    ratio = torch.rand(5, 3, generator=generator) * 2
    value, next_value, reward = (torch.randn(5, 3, generator=generator) for _ in range(3))
    discount = torch.full((5, 3), 0.9)
    goes_on = torch.ones(5, 3)
    goes_on[4] = 0
    goes_on[2, 1], discount[2, 1] = 0, 0  # the episode is over
    goes_on[1, 2] = 0  # cut off: the value of what follows counts
    found = vtrace_targets(ratio, value, next_value, reward, discount, goes_on, *limits)
    for b in range(3):
        columns = (column[:, b].tolist() for column in (ratio, value, next_value, reward, discount, goes_on))
        targets, advantages = expected_targets(*columns, *limits)
        assert found.value[:, b].tolist() == pytest.approx(targets, rel=1e-4, abs=1e-5)
        assert found.advantage[:, b].tolist() == pytest.approx(advantages, rel=1e-4, abs=1e-5)


@pytest.mark.parametrize("kind", ["discrete", "continuous"])
@pytest.mark.parametrize("weighted", [False, True])
def test_losses_are_weighted_means_over_all_steps(kind, weighted):
    torch.manual_seed(0)
    value, reward = torch.randn(4, 2), torch.randn(3, 2)
    weight = torch.rand(3, 2) if weighted else None
    if kind == "discrete":
        new, old, action = torch.randn(3, 2, 4), torch.randn(3, 2, 4), torch.randint(4, (3, 2))
        now, then = (torch.distributions.Categorical(logits=logit) for logit in (new, old))
        log_prob, old_log_prob, entropy = now.log_prob(action), then.log_prob(action), now.entropy()
        error = vtrace_error_discrete_action
    else:
        new, old = ({"mu": torch.randn(3, 2, 2), "sigma": torch.rand(3, 2, 2) + 0.5} for _ in range(2))
        action = torch.randn(3, 2, 2)
        now, then = (torch.distributions.Normal(one["mu"], one["sigma"]) for one in (new, old))
        log_prob, old_log_prob = now.log_prob(action).sum(-1), then.log_prob(action).sum(-1)
        entropy, error = now.entropy().sum(-1), vtrace_error_continuous_action
    limits = (0.8, 1.2, 0.9, 1.1)
    goes_on = torch.tensor([1.0, 1.0, 0.0])[:, None].expand(3, 2)
    targets = vtrace_targets(
        (log_prob - old_log_prob).exp(), value[:-1], value[1:], reward, torch.full((3, 2), 0.7), goes_on, *limits
    )
    loss = error(vtrace_data(new, old, action, value, reward, weight), 0.7, *limits)
    factor = torch.ones(3, 2) if weight is None else weight
    assert loss.policy_loss.item() == pytest.approx(-(log_prob * targets.advantage * factor).mean().item(), rel=1e-4)
    assert loss.value_loss.item() == pytest.approx(((value[:-1] - targets.value) ** 2 * factor).mean().item(), rel=1e-4)
    assert loss.entropy_loss.item() == pytest.approx((entropy * factor).mean().item(), rel=1e-4)


def test_gradients_reach_the_policy_and_the_values_and_nothing_else():
    logit, value = torch.randn(3, 2, 4, requires_grad=True), torch.randn(4, 2, requires_grad=True)
    behaviour = torch.randn(3, 2, 4, requires_grad=True)
    data = vtrace_data(logit, behaviour, torch.randint(4, (3, 2)), value, torch.randn(3, 2), None)
    loss = vtrace_error_discrete_action(data)
    loss.policy_loss.backward(retain_graph=True)
    assert logit.grad.abs().sum() > 0 and value.grad is None and behaviour.grad is None
    logit.grad = None
    loss.value_loss.backward(retain_graph=True)
    assert logit.grad is None and behaviour.grad is None
    assert value.grad[:-1].abs().min() > 0 and value.grad[-1].tolist() == [0, 0]
    loss.entropy_loss.backward()
    assert logit.grad.abs().sum() > 0


# Retrace and the losses of ACER, on tiny numbers.


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
