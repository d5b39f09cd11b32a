"""Losses of categorical value distributions against a loop over samples and atoms."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ding.rl_utils.distributional import (
    dist_nstep_td_data,
    dist_nstep_td_error,
    evaluate_quantile_at_action,
    fqf_calculate_fraction_loss,
    fqf_nstep_td_data,
    fqf_nstep_td_error,
    iqn_nstep_td_data,
    iqn_nstep_td_error,
    qrdqn_nstep_td_data,
    qrdqn_nstep_td_error,
)


def make_data(batch, actions, n_atom, nstep, seed, agents=None, weight=None):
    generator = torch.Generator().manual_seed(seed)
    lead = (batch,) if agents is None else (batch, agents)
    return dist_nstep_td_data(
        torch.rand(*lead, actions, n_atom, generator=generator).add(0.1).softmax(-1).requires_grad_(),
        torch.rand(*lead, actions, n_atom, generator=generator).softmax(-1),
        torch.randint(actions, lead, generator=generator),
        torch.randint(actions, lead, generator=generator),
        torch.randn(nstep, batch, generator=generator) * 2,
        torch.randint(2, (batch,), generator=generator).float(),
        weight,
    )


def naive_error(dist, next_dist, rewards, done, gamma, value_gamma, v_min, v_max):
    """The cross-entropy of one sample; everything is a plain list or number."""
    last = len(dist) - 1
    step = (v_max - v_min) / last
    target = [0.0] * (last + 1)
    reward = sum(gamma**i * r for i, r in enumerate(rewards))
    for j, probability in enumerate(next_dist):
        moved = reward + (1 - done) * value_gamma * (v_min + j * step)
        place = (min(max(moved, v_min), v_max) - v_min) / step
        lower = min(math.floor(place), last)
        target[lower] += probability * (1 - (place - lower))
        target[min(lower + 1, last)] += probability * (place - lower)
    return -sum(m * math.log(p) for m, p in zip(target, dist, strict=True))


def naive_errors(data, gamma, v_min, v_max, value_gamma):
    return [
        naive_error(
            data.dist[b, data.act[b]].tolist(),
            data.next_n_dist[b, data.next_n_act[b]].tolist(),
            data.reward[:, b].tolist(),
            data.done[b].item(),
            gamma,
            value_gamma[b],
            v_min,
            v_max,
        )
        for b in range(len(data.act))
    ]


@settings(max_examples=30)
@given(
    batch=st.integers(1, 4),
    actions=st.integers(1, 3),
    n_atom=st.integers(2, 7),
    nstep=st.integers(1, 3),
    gamma=st.sampled_from([0, 0.5, 0.97, 1]),
    seed=st.integers(0, 100),
)
def test_the_nstep_error_equals_its_naive_twin(batch, actions, n_atom, nstep, gamma, seed):
    data = make_data(batch, actions, n_atom, nstep, seed)
    loss, error = dist_nstep_td_error(data, gamma, -1.5, 2.0, n_atom, nstep)
    expected = naive_errors(data, gamma, -1.5, 2.0, [gamma**nstep] * batch)
    assert error.tolist() == pytest.approx(expected, abs=1e-4)
    assert loss.item() == pytest.approx(sum(expected) / batch, abs=1e-4)


def test_a_value_gamma_replaces_the_power_of_gamma_for_all_or_for_each_sample():
    data = make_data(3, 2, 5, 2, seed=1)
    _, error = dist_nstep_td_error(data, 0.9, -2, 2, 5, 2, value_gamma=torch.tensor([0.1, 0.5, 1.0]))
    assert error.tolist() == pytest.approx(naive_errors(data, 0.9, -2, 2, [0.1, 0.5, 1.0]), abs=1e-5)
    for value_gamma in (0.3, torch.tensor(0.3)):
        _, error = dist_nstep_td_error(data, 0.9, -2, 2, 5, 2, value_gamma=value_gamma)
        assert error.tolist() == pytest.approx(naive_errors(data, 0.9, -2, 2, [0.3] * 3), abs=1e-5)


def test_an_atom_that_is_hit_exactly_keeps_all_its_mass():
    dist = torch.tensor([[[0.2, 0.3, 0.5]]])
    certain = torch.tensor([[[0.0, 1.0, 0.0]]])
    zero = torch.tensor([0])
    for reward, hit in ((-1.0, 0.2), (0.0, 0.3), (1.0, 0.5), (7.0, 0.5), (-7.0, 0.2)):
        data = dist_nstep_td_data(dist, certain, zero, zero, torch.tensor([[reward]]), torch.zeros(1), None)
        assert dist_nstep_td_error(data, 0.9, -1, 1, 3)[1].item() == pytest.approx(-math.log(hit), abs=1e-6)


def test_the_error_of_a_certain_prediction_is_a_priority():
    """A head adds its eps to each probability: the logarithm of 1 + eps is positive, the cross-entropy negative."""
    dist = torch.tensor([[[0.0, 0.0, 60.0]]]).softmax(-1).add(1e-6).requires_grad_()
    zero = torch.tensor([0])
    data = dist_nstep_td_data(dist, dist.detach(), zero, zero, torch.ones(1, 1), torch.ones(1), None)
    loss, error = dist_nstep_td_error(data, 0.9, -1, 1, 3)
    assert loss.item() < 0
    assert error.tolist() == [0]


def test_only_the_distribution_of_the_action_gets_a_gradient():
    data = make_data(2, 3, 5, 1, seed=3)
    raw = data.dist.detach().clone().requires_grad_()
    data = data._replace(dist=raw, next_n_dist=data.next_n_dist.requires_grad_())
    dist_nstep_td_error(data, 0.9, -1, 1, 5)[0].backward()
    assert data.next_n_dist.grad is None
    touched = (raw.grad != 0).any(-1)
    assert [row.nonzero().flatten().tolist() for row in touched] == data.act.unsqueeze(1).tolist()


def test_agents_are_folded_into_the_batch():
    weight, value_gamma = torch.tensor([1.0, 0.5]), torch.tensor([0.9, 0.2])
    data = make_data(2, 3, 5, 2, seed=5, agents=3, weight=weight)
    loss, error = dist_nstep_td_error(data, 0.9, -2, 2, 5, 2, value_gamma=value_gamma)
    assert error.shape == (6,)
    for agent in range(3):
        alone = data._replace(
            dist=data.dist[:, agent],
            next_n_dist=data.next_n_dist[:, agent],
            act=data.act[:, agent],
            next_n_act=data.next_n_act[:, agent],
        )
        _, own = dist_nstep_td_error(alone, 0.9, -2, 2, 5, 2, value_gamma=value_gamma)
        assert torch.allclose(error.reshape(2, 3)[:, agent], own)
    assert loss.item() == pytest.approx((error.reshape(2, 3) * weight[:, None]).mean().item())


# Losses of quantile functions against loops over samples and fractions.


def make_quantile_data(batch, fractions, next_fractions, actions, nstep, seed, weight=None):
    generator = torch.Generator().manual_seed(seed)
    return fqf_nstep_td_data(
        torch.randn(batch, fractions, actions, generator=generator, requires_grad=True),
        torch.randn(batch, next_fractions, actions, generator=generator),
        torch.randint(actions, (batch,), generator=generator),
        torch.randint(actions, (batch,), generator=generator),
        torch.randn(nstep, batch, generator=generator),
        torch.randint(2, (batch,), generator=generator).float(),
        torch.rand(batch, fractions, generator=generator),
        weight,
    )


def naive_huber(x, threshold=1.0):
    return x * x / 2 if abs(x) <= threshold else threshold * (abs(x) - threshold / 2)


def naive_quantile_error(data, b, gamma, nstep, kappa, value_gamma, threshold=1.0):
    reward = sum(gamma**i * r for i, r in enumerate(data.reward[:, b].tolist()))
    values = data.next_n_q[b, :, data.next_n_action[b]].tolist()
    targets = [reward + (1 - data.done[b].item()) * value_gamma * value for value in values]
    total = 0.0
    for target in targets:
        for hat, quantile in zip(data.quantiles_hats[b].tolist(), data.q[b, :, data.action[b]].tolist(), strict=True):
            delta = target - quantile
            total += abs(hat - (1.0 if delta < 0 else 0.0)) * naive_huber(delta, threshold) / kappa
    return total / len(targets)


@settings(max_examples=30)
@given(
    batch=st.integers(1, 3),
    fractions=st.integers(1, 4),
    next_fractions=st.integers(1, 4),
    actions=st.integers(1, 3),
    nstep=st.integers(1, 3),
    kappa=st.sampled_from([0.5, 1.0]),
    seed=st.integers(0, 100),
)
def test_the_quantile_error_equals_its_naive_twin(batch, fractions, next_fractions, actions, nstep, kappa, seed):
    data = make_quantile_data(batch, fractions, next_fractions, actions, nstep, seed)
    loss, error = fqf_nstep_td_error(data, 0.9, nstep, kappa)
    expected = [naive_quantile_error(data, b, 0.9, nstep, kappa, 0.9**nstep) for b in range(batch)]
    assert error.tolist() == pytest.approx(expected, abs=1e-4)
    assert loss.item() == pytest.approx(sum(expected) / batch, abs=1e-4)


def as_qrdqn(data):
    q, next_q = (values.transpose(1, 2) for values in (data.q, data.next_n_q))
    return qrdqn_nstep_td_data(q, next_q, *data[2:6], data.quantiles_hats.unsqueeze(-1), data.weight)


def as_iqn(data):
    q, next_q = (values.transpose(0, 1) for values in (data.q, data.next_n_q))
    return iqn_nstep_td_data(q, next_q, *data[2:6], data.quantiles_hats.T.reshape(-1, 1), data.weight)


@settings(max_examples=30)
@given(
    batch=st.integers(1, 3),
    fractions=st.integers(1, 4),
    next_fractions=st.integers(1, 4),
    nstep=st.integers(1, 3),
    kappa=st.sampled_from([0.5, 1.0]),
    seed=st.integers(0, 100),
)
def test_fixed_and_random_fractions_have_the_same_error_in_their_own_layout(
    batch, fractions, next_fractions, nstep, kappa, seed
):
    weight = torch.rand(batch, generator=torch.Generator().manual_seed(seed))
    data = make_quantile_data(batch, fractions, next_fractions, 3, nstep, seed, weight)
    value_gamma = torch.rand(batch, generator=torch.Generator().manual_seed(seed + 1))
    for result, kind in (
        (qrdqn_nstep_td_error(as_qrdqn(data), 0.9, nstep, value_gamma), (1.0, 1.0)),
        (iqn_nstep_td_error(as_iqn(data), 0.9, nstep, kappa, value_gamma), (kappa, kappa)),
    ):
        loss, error = result
        scale, threshold = kind
        expected = [
            naive_quantile_error(data, b, 0.9, nstep, scale, value_gamma[b].item(), threshold) for b in range(batch)
        ]
        assert error.tolist() == pytest.approx(expected, abs=1e-4)
        assert loss.item() == pytest.approx((torch.tensor(expected) * weight).mean().item(), abs=1e-4)


@pytest.mark.parametrize(
    ("convert", "loss"),
    [(lambda data: data, fqf_nstep_td_error), (as_qrdqn, qrdqn_nstep_td_error), (as_iqn, iqn_nstep_td_error)],
)
def test_no_gradient_reaches_the_target_or_the_fractions(convert, loss):
    data = make_quantile_data(2, 3, 3, 4, 1, seed=2)
    data = data._replace(next_n_q=data.next_n_q.requires_grad_(), quantiles_hats=data.quantiles_hats.requires_grad_())
    loss(convert(data), 0.9)[0].backward()
    assert data.next_n_q.grad is None and data.quantiles_hats.grad is None
    touched = (data.q.grad != 0).any(1)
    assert [row.nonzero().flatten().tolist() for row in touched] == data.action.unsqueeze(1).tolist()


def naive_fraction_gradient(at_fraction, midpoint):
    """dW/dtau of one sample: the distance changes by 2 F - H_i - H_{i+1}, with signs where F does not grow."""
    result = []
    for i, value in enumerate(at_fraction):
        before = at_fraction[i - 1] if i else midpoint[0]
        after = at_fraction[i + 1] if i + 1 < len(at_fraction) else midpoint[-1]
        first, second = value - midpoint[i], value - midpoint[i + 1]
        result.append((first if value > before else -first) + (second if value < after else -second))
    return result


@settings(max_examples=30)
@given(batch=st.integers(1, 3), fractions=st.integers(2, 5), actions=st.integers(1, 3), seed=st.integers(0, 100))
def test_the_fraction_loss_equals_its_naive_twin_and_moves_only_the_inner_fractions(batch, fractions, actions, seed):
    generator = torch.Generator().manual_seed(seed)
    q_tau_i = torch.randn(batch, fractions - 1, actions, generator=generator)
    q_value = torch.randn(batch, fractions, actions, generator=generator, requires_grad=True)
    quantiles = torch.rand(batch, fractions + 1, generator=generator, requires_grad=True)
    action = torch.randint(actions, (batch,), generator=generator)
    loss = fqf_calculate_fraction_loss(q_tau_i, q_value, quantiles, action)
    gradients = [
        naive_fraction_gradient(q_tau_i[b, :, action[b]].tolist(), q_value[b, :, action[b]].tolist())
        for b in range(batch)
    ]
    expected = sum(g * q for b in range(batch) for g, q in zip(gradients[b], quantiles[b, 1:-1].tolist(), strict=True))
    assert loss.item() == pytest.approx(expected / batch, abs=1e-5)
    loss.backward()
    assert q_value.grad is None
    assert torch.allclose(quantiles.grad[:, 1:-1] * batch, torch.tensor(gradients), atol=1e-5)
    assert (quantiles.grad[:, [0, -1]] == 0).all()


def test_quantiles_are_picked_at_the_action():
    q_s = torch.arange(12.0).reshape(2, 3, 2)
    assert evaluate_quantile_at_action(q_s, torch.tensor([1, 0])).squeeze(-1).tolist() == [[1, 3, 5], [6, 8, 10]]
