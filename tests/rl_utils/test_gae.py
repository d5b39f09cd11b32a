"""Advantages against a plain-Python twin."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ding.rl_utils.gae import gae, gae_data


def naive_gae(value, next_value, reward, done, traj_flag, gamma, lambda_):
    advantages, running = [], 0.0
    for t in reversed(range(len(value))):
        delta = reward[t] + gamma * next_value[t] * (1 - done[t]) - value[t]
        running = delta + gamma * lambda_ * (1 - traj_flag[t]) * running
        advantages.insert(0, running)
    return advantages


@settings(deadline=None, max_examples=30)
@given(length=st.integers(1, 12), seed=st.integers(0, 1000))
def test_gae_equals_its_naive_twin(length, seed):
    generator = torch.Generator().manual_seed(seed)
    value, next_value, reward = (torch.rand(length, generator=generator) for _ in range(3))
    done, flag = (torch.randint(2, (length,), generator=generator).float() for _ in range(2))
    expected = naive_gae(*(x.tolist() for x in (value, next_value, reward, done, flag)), 0.9, 0.8)
    assert gae(gae_data(value, next_value, reward, done, flag), 0.9, 0.8).tolist() == pytest.approx(expected, abs=1e-5)


def test_batched_and_agent_axes_are_independent_columns():
    torch.manual_seed(0)
    value, next_value, reward = torch.rand(5, 3, 2), torch.rand(5, 3, 2), torch.rand(5, 3)
    done = torch.randint(2, (5, 3)).float()
    result = gae(gae_data(value, next_value.clone(), reward, done, None))
    for b in range(3):
        for a in range(2):
            column = gae_data(value[:, b, a], next_value[:, b, a].clone(), reward[:, b], done[:, b], None)
            assert torch.allclose(result[:, b, a], gae(column))


def test_done_is_zero_and_ends_the_trace_only_when_given():
    ones = torch.ones(2)
    assert gae(gae_data(ones, ones.clone(), ones, None, None), 1.0, 1.0).tolist() == [2.0, 1.0]
    assert gae(gae_data(ones, ones.clone(), ones, ones, None), 1.0, 1.0).tolist() == [0.0, 0.0]


def test_next_value_is_masked_in_place():
    next_value = torch.ones(2)
    gae(gae_data(torch.ones(2), next_value, torch.ones(2), torch.tensor([True, False]), None))
    assert next_value.tolist() == [0.0, 1.0]


def test_a_gradient_passes_through():
    value = torch.ones(3, requires_grad=True)
    gae(gae_data(value, torch.ones(3), torch.ones(3), None, None), 1.0, 1.0).sum().backward()
    assert value.grad.tolist() == [-1.0, -2.0, -3.0]
