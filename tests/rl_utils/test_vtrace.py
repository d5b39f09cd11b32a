"""V-trace against the sums of its paper."""

import pytest
import torch

from ding.rl_utils import vtrace_data, vtrace_error_continuous_action, vtrace_error_discrete_action
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
