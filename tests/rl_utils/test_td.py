"""TD errors and n-step returns against plain-Python twins."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from ding.rl_utils import (
    a2c_data,
    a2c_error,
    a2c_error_continuous,
    bdq_nstep_td_error,
    dist_1step_td_data,
    dist_1step_td_error,
    dist_nstep_td_data,
    dist_nstep_td_error,
    fqf_nstep_td_data,
    fqf_nstep_td_error,
    m_q_1step_td_data,
    m_q_1step_td_error,
    ppg_data,
    ppg_joint_error,
    ppo_data,
    ppo_data_continuous,
    ppo_error,
    ppo_error_continuous,
    q_nstep_sql_td_error,
)
from ding.rl_utils.returns import value_inv_transform, value_transform
from ding.rl_utils.td import (
    nstep_return,
    nstep_return_data,
    q_1step_td_data,
    q_1step_td_error,
    q_nstep_td_data,
    q_nstep_td_error,
    q_nstep_td_error_with_rescale,
    q_v_1step_td_data,
    q_v_1step_td_error,
    v_1step_td_data,
    v_1step_td_error,
    v_nstep_td_data,
    v_nstep_td_error,
    view_similar,
)


def make_q_data(batch, actions, nstep, seed, weight=None):
    generator = torch.Generator().manual_seed(seed)
    return q_nstep_td_data(
        torch.rand(batch, actions, generator=generator, requires_grad=True),
        torch.rand(batch, actions, generator=generator),
        torch.randint(actions, (batch,), generator=generator),
        torch.randint(actions, (batch,), generator=generator),
        torch.rand(nstep, batch, generator=generator),
        torch.randint(2, (batch,), generator=generator).float(),
        weight,
    )


def naive_return(rewards, next_value, done, gamma, value_gamma):
    return sum(gamma**i * r for i, r in enumerate(rewards)) + value_gamma * next_value * (1 - done)


@pytest.mark.differs("raises TypeError for an integer gamma", "takes any real number")
@settings(max_examples=30)
@given(
    batch=st.integers(1, 5),
    actions=st.integers(1, 4),
    nstep=st.integers(1, 4),
    gamma=st.one_of(st.floats(0, 1), st.sampled_from([0, 1])),
    seed=st.integers(0, 100),
)
def test_q_nstep_error_equals_its_naive_twin(batch, actions, nstep, gamma, seed):
    data = make_q_data(batch, actions, nstep, seed)
    loss, error = q_nstep_td_error(data, gamma, nstep)
    expected = []
    for b in range(batch):
        next_value = data.next_n_q[b, data.next_n_action[b]].item()
        target = naive_return(data.reward[:, b].tolist(), next_value, data.done[b].item(), gamma, gamma**nstep)
        expected.append((data.q[b, data.action[b]].item() - target) ** 2)
    assert error.tolist() == pytest.approx(expected, abs=1e-5)
    assert loss.item() == pytest.approx(sum(expected) / batch, abs=1e-5)


def test_gradient_reaches_only_the_chosen_q():
    data = make_q_data(2, 3, 1, 1)
    target = data.next_n_q.requires_grad_()
    q_nstep_td_error(data, 0.9)[0].backward()
    assert target.grad is None
    assert (data.q.grad != 0).sum(-1).tolist() == [1, 1]


def test_value_gamma_replaces_the_discount_of_the_next_value_per_sample_or_for_all():
    data = nstep_return_data(torch.ones(2, 2), torch.tensor([10.0, 10.0]), torch.zeros(2))
    assert nstep_return(data, 0.5, 2, torch.tensor([1.0, 0.1])).tolist() == [11.5, 2.5]
    assert nstep_return(data, 0.5, 2, 0.1).tolist() == [2.5, 2.5]


def test_cumulated_reward_is_taken_as_it_is():
    data = make_q_data(3, 2, 3, 4)
    summed = torch.stack([data.reward[i] * 0.9**i for i in range(3)]).sum(0)
    _, error = q_nstep_td_error(data, 0.9, 3)
    _, cumulated = q_nstep_td_error(data._replace(reward=summed), 0.9, 3, cum_reward=True)
    assert torch.allclose(error, cumulated)
    value_gamma = torch.full((3,), 0.9**3)
    _, cumulated = q_nstep_td_error(data._replace(reward=summed), 0.9, 3, cum_reward=True, value_gamma=value_gamma)
    assert torch.allclose(error, cumulated)


@pytest.mark.parametrize("reward_shape", [(3, 4, 2), (3, 4, 1)])
@pytest.mark.parametrize("with_value_gamma", [True, False])
def test_agents_have_an_axis_of_their_own(reward_shape, with_value_gamma):
    torch.manual_seed(0)
    q, next_q = torch.rand(4, 2, 5), torch.rand(4, 2, 5)
    action, next_action = torch.randint(5, (4, 2)), torch.randint(5, (4, 2))
    reward, done, weight = torch.rand(reward_shape), torch.tensor([0.0, 1.0, 0.0, 1.0]), torch.rand(4)
    data = q_nstep_td_data(q, next_q, action, next_action, reward, done, weight)
    value_gamma = torch.full((4,), 0.7) if with_value_gamma else None
    loss, error = q_nstep_td_error(data, 0.9, 3, value_gamma=value_gamma)
    assert error.shape == (4, 2)
    for agent in range(2):
        alone = q_nstep_td_data(
            q[:, agent],
            next_q[:, agent],
            action[:, agent],
            next_action[:, agent],
            reward.expand(3, 4, 2)[..., agent],
            done,
            weight,
        )
        assert torch.allclose(error[:, agent], q_nstep_td_error(alone, 0.9, 3, value_gamma=value_gamma)[1])
    assert loss.item() == pytest.approx((error * weight[:, None]).mean().item())


def test_a_list_of_discounts_has_one_per_sample():
    reward, value = torch.ones(2, 2), torch.ones(2)
    data = nstep_return_data(reward, value, torch.zeros(2))
    result = nstep_return(data, [torch.tensor(0.5), torch.tensor(0.1)], 2, value_gamma=torch.zeros(2))
    assert result.tolist() == pytest.approx([1.75, 1.11])


def test_rescaled_error_compares_in_the_transformed_space():
    data = make_q_data(4, 3, 2, 5)
    _, error = q_nstep_td_error_with_rescale(data, 0.9, 2)
    next_value = value_inv_transform(data.next_n_q.gather(1, data.next_n_action[:, None]).squeeze(1))
    target = value_transform(nstep_return(nstep_return_data(data.reward, next_value, data.done), 0.9, 2))
    chosen = data.q.gather(1, data.action[:, None]).squeeze(1)
    assert torch.allclose(error, (chosen - target) ** 2)


def test_q_1step_error_is_the_nstep_loss_of_one_step():
    data = make_q_data(4, 3, 1, 6, weight=torch.rand(4))
    single = q_1step_td_data(*data[:4], data.reward[0], data.done, data.weight)
    loss = q_1step_td_error(single, 0.9)
    assert loss.dim() == 0
    assert loss.item() == pytest.approx(q_nstep_td_error(data, 0.9)[0].item())


def test_v_1step_error_without_done_always_bootstraps():
    v, next_v, reward = torch.tensor([1.0, 2.0]), torch.tensor([4.0, 4.0]), torch.tensor([0.5, 0.5])
    loss, error = v_1step_td_error(v_1step_td_data(v, next_v, reward, None, None), 0.5)
    assert error.tolist() == [2.25, 0.25]
    assert loss.item() == 1.25
    _, error = v_1step_td_error(v_1step_td_data(v, next_v, reward, torch.tensor([1.0, 0.0]), None), 0.5)
    assert error.tolist() == [0.25, 0.25]


def test_v_1step_error_gives_reward_and_done_the_agent_axis():
    v, next_v = torch.zeros(2, 3), torch.ones(2, 3)
    data = v_1step_td_data(v, next_v, torch.tensor([1.0, 2.0]), torch.tensor([0.0, 1.0]), torch.tensor([1.0, 0.0]))
    loss, error = v_1step_td_error(data, 0.5)
    assert error.tolist() == [[2.25] * 3, [4.0] * 3]
    assert loss.item() == pytest.approx(2.25 / 2)


def test_v_nstep_error_reads_value_gamma_from_its_data():
    data = v_nstep_td_data(torch.zeros(1), torch.ones(1), torch.ones(2, 1), torch.zeros(1), None, torch.tensor([0.5]))
    loss, error = v_nstep_td_error(data, 0.9, 2)
    assert error.item() == loss.item() == pytest.approx(2.4**2)


@pytest.mark.parametrize("agents", [None, 2])
def test_q_v_1step_error_compares_the_chosen_q(agents):
    torch.manual_seed(0)
    lead = (4,) if agents is None else (4, agents)
    q, v, act = torch.rand(*lead, 3), torch.rand(lead), torch.randint(3, lead)
    reward, done = torch.rand(4), torch.tensor([0.0, 1.0, 0.0, 0.0])
    _, error = q_v_1step_td_error(q_v_1step_td_data(q, v, act, reward, done, None), 0.9)
    target = view_similar(reward, v) + 0.9 * view_similar(1 - done, v) * v
    assert torch.allclose(error, (q.gather(-1, act.unsqueeze(-1)).squeeze(-1) - target) ** 2)


# TD errors of Munchausen, soft and branching Q-learning against loops over samples and actions.


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


# Weights of samples: every loss takes [B] and [B, 1] alike, and refuses other shapes.


B, N, A = 4, 3, 2
OF_SAMPLES = torch.tensor([0.5, 2.0, 0.0, 1.5])


def draw(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(len(shape) + sum(shape)))


ACTION = torch.tensor([0, 2, 1, 1])
AGENT_ACTION = torch.tensor([[0, 1], [2, 2], [1, 0], [0, 0]])
DONE = torch.tensor([0.0, 1.0, 0.0, 0.0])
Q, Q_AGENTS, DIST, QUANTILES = draw(B, N), draw(B, A, N), draw(B, N, 5).softmax(-1), draw(B, 6, N)
DIST_AGENTS = draw(B, A, N, 5).softmax(-1)
GAUSSIAN = {"mu": draw(B, A), "sigma": torch.rand(B, A) + 0.5}

LOSSES = {
    "q_1step": lambda w: [q_1step_td_error(q_1step_td_data(Q, 2 * Q, ACTION, ACTION, draw(B), DONE, w), 0.9)],
    "q_nstep": lambda w: q_nstep_td_error(q_nstep_td_data(Q, 2 * Q, ACTION, ACTION, draw(2, B), DONE, w), 0.9, 2)[:1],
    "q_nstep_agents": lambda w: q_nstep_td_error(
        q_nstep_td_data(Q_AGENTS, 2 * Q_AGENTS, AGENT_ACTION, AGENT_ACTION, draw(2, B, A), DONE, w), 0.9, 2
    )[:1],
    "q_nstep_rescaled": lambda w: q_nstep_td_error_with_rescale(
        q_nstep_td_data(Q, 2 * Q, ACTION, ACTION, draw(2, B), DONE, w), 0.9, 2
    )[:1],
    "v_1step": lambda w: v_1step_td_error(v_1step_td_data(draw(B), -draw(B), draw(B), DONE, w), 0.9)[:1],
    "v_1step_agents": lambda w: v_1step_td_error(v_1step_td_data(draw(B, A), -draw(B, A), draw(B), None, w), 0.9)[:1],
    "v_nstep": lambda w: v_nstep_td_error(v_nstep_td_data(draw(B), -draw(B), draw(2, B), DONE, w, None), 0.9, 2)[:1],
    "q_v_1step": lambda w: q_v_1step_td_error(q_v_1step_td_data(Q, draw(B), ACTION, draw(B), DONE, w), 0.9)[:1],
    "dist_1step": lambda w: [
        dist_1step_td_error(dist_1step_td_data(DIST, DIST, ACTION, ACTION, draw(B), DONE, w), 0.9, -1, 1, 5)
    ],
    "dist_nstep": lambda w: dist_nstep_td_error(
        dist_nstep_td_data(DIST, DIST, ACTION, ACTION, draw(2, B), DONE, w), 0.9, -1, 1, 5, 2
    )[:1],
    "dist_nstep_agents": lambda w: dist_nstep_td_error(
        dist_nstep_td_data(DIST_AGENTS, DIST_AGENTS, AGENT_ACTION, AGENT_ACTION, draw(2, B), DONE, w), 0.9, -1, 1, 5, 2
    )[:1],
    "fqf": lambda w: fqf_nstep_td_error(
        fqf_nstep_td_data(QUANTILES, 2 * QUANTILES, ACTION, ACTION, draw(2, B), DONE, torch.rand(B, 6), w), 0.9, 2
    )[:1],
    "ppo": lambda w: ppo_error(ppo_data(Q, 2 * Q, ACTION, draw(B), -draw(B), draw(B), 3 * draw(B), w))[0][:3],
    "ppo_agents": lambda w: ppo_error(
        ppo_data(Q_AGENTS, 2 * Q_AGENTS, AGENT_ACTION, draw(B, A), -draw(B, A), 2 * draw(B, A), 3 * draw(B, A), w)
    )[0][:3],
    "ppo_continuous": lambda w: ppo_error_continuous(
        ppo_data_continuous(GAUSSIAN, GAUSSIAN, draw(B, A), draw(B), -draw(B), draw(B), 3 * draw(B), w)
    )[0][:3],
    "ppg": lambda w: ppg_joint_error(ppg_data(Q, 2 * Q, ACTION, draw(B), -draw(B), draw(B), w))[:1],
    "a2c": lambda w: a2c_error(a2c_data(Q, ACTION, draw(B), -draw(B), draw(B), w)),
    "a2c_continuous": lambda w: a2c_error_continuous(a2c_data(GAUSSIAN, draw(B, A), draw(B), -draw(B), draw(B), w)),
}


def values(losses):
    return [loss.item() for loss in losses]


@pytest.fixture(params=LOSSES)
def losses_of(request):
    def losses(weight):
        torch.manual_seed(0)
        return values(LOSSES[request.param](weight))

    return losses


@pytest.mark.differs(
    "multiplies each error by the weights of all samples if weights are [B, 1], and fails on [B] in "
    "`dist_1step_td_error`",
    "accepts [B] and [B, 1]",
)
def test_a_weight_is_one_number_for_each_sample_whether_it_has_an_axis_of_its_own_or_not(losses_of):
    weighted = losses_of(OF_SAMPLES)
    for same in (
        OF_SAMPLES.unsqueeze(1),
        OF_SAMPLES.double().numpy(),
        OF_SAMPLES.unsqueeze(1).numpy(),
        OF_SAMPLES.tolist(),
    ):
        assert losses_of(same) == weighted
    # A loss is linear in the weights of its samples.
    each = [losses_of(row) for row in torch.diag(OF_SAMPLES)]
    assert [sum(column) for column in zip(*each, strict=True)] == pytest.approx(weighted, abs=1e-5)
    assert weighted != pytest.approx(losses_of(None))


@pytest.mark.parametrize("shape", [(), (1,), (3,), (1, B), (B, 2), (B, B), (B, 1, 1)])
def test_a_weight_of_another_shape_is_refused(losses_of, shape):
    for weight in (torch.ones(shape), np.ones(shape)):
        with pytest.raises(ValueError, match="weight has shape"):
            losses_of(weight)
