"""TD errors of Munchausen, soft and branching Q-learning against loops over samples and actions."""

import math

import pytest
import torch
from torch import nn

from ding.rl_utils import bdq_nstep_td_error, m_q_1step_td_data, m_q_1step_td_error, q_nstep_sql_td_error
from ding.rl_utils.td import q_nstep_td_data

WEIGHT = torch.tensor([2.0, 0.5, 1.0])


def softmax(values, tau):
    exponentials = [math.exp(value / tau) for value in values]
    return [value / sum(exponentials) for value in exponentials]


def make_munchausen_data(seed=0):
    generator = torch.Generator().manual_seed(seed)
    q, target_q, next_q = (2 * torch.randn(3, 4, generator=generator) for _ in range(3))
    reward, done = torch.randn(3, generator=generator), torch.tensor([0.0, 1.0, 0.0])
    return m_q_1step_td_data(q.requires_grad_(), target_q, next_q, torch.tensor([1, 0, 3]), reward, done, WEIGHT)


@pytest.mark.parametrize(("tau", "alpha"), [(0.03, 0.9), (2.0, 0.5)])
def test_munchausen_error(tau, alpha):
    data = make_munchausen_data()
    loss, error, gap, clipped = m_q_1step_td_error(data, 0.9, tau, alpha)
    expected, gaps, clips = [], [], []
    for b in range(3):
        act, values, next_values = int(data.act[b]), data.target_q[b].tolist(), data.next_q[b].tolist()
        log_pi = values[act] - max(values)
        log_pi -= tau * math.log(sum(math.exp((value - max(values)) / tau) for value in values))
        clips.append(float(log_pi < -1))
        pi = softmax([value - max(next_values) for value in next_values], tau)
        terms = [p * (v - tau * math.log(p)) for p, v in zip(pi, next_values, strict=True) if p > 0]
        target = data.reward[b].item() + alpha * min(max(log_pi, -1), 0) + 0.9 * (1 - data.done[b].item()) * sum(terms)
        expected.append((data.q[b, act].item() - target) ** 2)
        first, second, *_ = sorted(values, reverse=True)
        gaps.append(first - second)
    assert error.tolist() == pytest.approx(expected, abs=1e-4)
    assert loss.item() == pytest.approx((torch.tensor(expected) * WEIGHT).mean().item(), abs=1e-4)
    assert gap.item() == pytest.approx(sum(gaps) / 3, abs=1e-5)
    assert clipped.tolist() == clips
    assert tau != 0.03 or 0 < sum(clips) < 3


def test_munchausen_targets_have_no_gradient_and_another_criterion_counts():
    data = make_munchausen_data()
    data = data._replace(target_q=data.target_q.requires_grad_(), next_q=data.next_q.requires_grad_())
    loss, error, *_ = m_q_1step_td_error(data, 0.9, 0.5, 0.9, nn.SmoothL1Loss(reduction="none"))
    loss.backward()
    assert data.target_q.grad is None and data.next_q.grad is None
    assert [(row != 0).nonzero().flatten().tolist() for row in data.q.grad] == [[1], [0], [3]]
    squared = m_q_1step_td_error(data, 0.9, 0.5, 0.9)[1]
    small = squared < 1
    assert small.any() and not small.all()
    assert torch.allclose(error, torch.where(small, squared / 2, squared.sqrt() - 0.5), atol=1e-6)


def make_data(nstep=2, seed=0, shape=(3, 4), agents=()):
    generator = torch.Generator().manual_seed(seed)
    q, next_q = (torch.randn(*shape, generator=generator) for _ in range(2))
    action, next_action = (torch.randint(shape[-1], shape[:-1], generator=generator) for _ in range(2))
    reward, done = torch.randn(nstep, 3, generator=generator), torch.tensor([0.0, 1.0, 0.0])
    return q_nstep_td_data(q.requires_grad_(), next_q.requires_grad_(), action, next_action, reward, done, WEIGHT)


@pytest.mark.parametrize("value_gamma", [None, torch.tensor([0.3, 0.5, 0.7])])
def test_soft_error(value_gamma):
    data = make_data()
    loss, error, value = q_nstep_sql_td_error(data, 0.9, 0.2, nstep=2, value_gamma=value_gamma)
    expected, values = [], []
    for b in range(3):
        values.append(0.2 * math.log(sum(math.exp(q / 0.2) for q in data.next_n_q[b].tolist())))
        factor = 0.81 if value_gamma is None else value_gamma[b].item()
        rewards = data.reward[:, b].tolist()
        target = rewards[0] + 0.9 * rewards[1] + factor * (1 - data.done[b].item()) * values[b]
        expected.append((data.q[b, data.action[b]].item() - target) ** 2)
    assert value.tolist() == pytest.approx(values, abs=1e-5)
    assert error.tolist() == pytest.approx(expected, abs=1e-4)
    assert loss.item() == pytest.approx((torch.tensor(expected) * WEIGHT).mean().item(), abs=1e-4)
    loss.backward()
    assert data.next_n_q.grad is None
    assert (data.q.grad != 0).sum(-1).tolist() == [1, 1, 1]


@pytest.mark.differs("learns a target for each branch of BDQ", "learns one for all, which the paper found best")
@pytest.mark.parametrize("value_gamma", [None, torch.tensor([0.3, 0.5, 0.7])])
def test_branches_learn_one_target(value_gamma):
    data = make_data(shape=(3, 2, 4))
    loss, error = bdq_nstep_td_error(data, 0.9, nstep=2, value_gamma=value_gamma)
    expected = []
    for b in range(3):
        next_value = sum(data.next_n_q[b, d, data.next_n_action[b, d]].item() for d in range(2)) / 2
        factor = 0.81 if value_gamma is None else value_gamma[b].item()
        rewards = data.reward[:, b].tolist()
        target = rewards[0] + 0.9 * rewards[1] + factor * (1 - data.done[b].item()) * next_value
        expected.append(sum((data.q[b, d, data.action[b, d]].item() - target) ** 2 for d in range(2)) / 2)
    assert error.tolist() == pytest.approx(expected, abs=1e-4)
    assert loss.item() == pytest.approx((torch.tensor(expected) * WEIGHT).mean().item(), abs=1e-4)
    loss.backward()
    assert data.next_n_q.grad is None
    assert (data.q.grad != 0).sum(-1).tolist() == [[1, 1]] * 3
