"""Advantages against a plain-Python twin."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ding.rl_utils.returns import gae, gae_columns, gae_data


def naive_gae(value, next_value, reward, done, traj_flag, gamma, lambda_):
    advantages, running = [], 0.0
    for t in reversed(range(len(value))):
        delta = reward[t] + gamma * next_value[t] * (1 - done[t]) - value[t]
        running = delta + gamma * lambda_ * (1 - traj_flag[t]) * running
        advantages.insert(0, running)
    return advantages


def column_of(data, index):
    """The lists of one trajectory, and one of its agents, out of those side by side."""
    agent, trajectory = (slice(None), *index), (slice(None), *index[: data.reward.dim() - 1])
    done = torch.zeros_like(data.reward) if data.done is None else data.done
    flag = done if data.traj_flag is None else data.traj_flag
    columns = [data.value[agent], data.next_value[agent], *(item[trajectory] for item in (data.reward, done, flag))]
    return [column.tolist() for column in columns]


@pytest.mark.parametrize(
    ("value_shape", "reward_shape"),
    [((7,), (7,)), ((7, 3), (7, 3)), ((7, 2), (7,)), ((7, 3, 2), (7, 3)), ((7, 1), (7,)), ((1, 3), (1, 3))],
)
@pytest.mark.parametrize("flags", ["none", "done", "done and traj_flag"])
def test_trajectories_and_agents_side_by_side_equal_their_naive_twins(value_shape, reward_shape, flags):
    generator = torch.Generator().manual_seed(1)
    value, next_value = (torch.rand(value_shape, generator=generator) for _ in range(2))
    reward = torch.rand(reward_shape, generator=generator)
    done, flag = (torch.randint(2, reward_shape, generator=generator) for _ in range(2))
    data = gae_data(value, next_value, reward, None if flags == "none" else done, flag if "traj" in flags else None)
    expected = {index: naive_gae(*column_of(data, index), 0.9, 0.8) for index in np.ndindex(*value_shape[1:])}
    result = gae(data, 0.9, 0.8)
    assert result.shape == value_shape and result.dtype == torch.float32
    for index, advantages in expected.items():
        assert result[(slice(None), *index)].tolist() == pytest.approx(advantages, abs=1e-5)


def test_the_advantages_of_a_batch_have_a_gradient_too():
    value = torch.rand(5, 3, requires_grad=True)
    data = gae_data(value, torch.rand(5, 3), torch.rand(5, 3), None, None)
    assert torch.allclose(gae(data, 0.9, 0.8), gae(data._replace(value=value.detach()), 0.9, 0.8))
    gae(data, 0.9, 0.8)[0].sum().backward()
    assert value.grad[:, 0].tolist() == pytest.approx([-(0.72**t) for t in range(5)])


# --- columns of a fragment ---


def naive_columns(value, reward, last_value, gamma, lambda_):
    zeros = [0] * len(value)
    return naive_gae(value, [*value[1:], last_value], reward, zeros, zeros, gamma, lambda_)


FLAG = st.sampled_from([None, False, True])


@settings(max_examples=60)
@given(
    rows=st.lists(st.tuples(st.integers(-9, 9), st.integers(-9, 9)), min_size=1, max_size=9),
    last=st.tuples(st.booleans(), FLAG, FLAG),
    agents=st.sampled_from([None, 1, 3]),
    reward_has_axis=st.booleans(),
    is_tensor=st.booleans(),
)
def test_gae_columns_equal_their_naive_twin(rows, last, agents, reward_has_axis, is_tensor):
    value, reward = (np.array(column, dtype=np.float32) for column in zip(*rows, strict=True))
    scales = [1] if agents is None else [1, -2, 3][:agents]
    columns = value if agents is None else np.stack([value * scale for scale in scales], 1)
    rewards = reward[:, None] if reward_has_axis else reward
    if is_tensor:
        columns, rewards = torch.from_numpy(columns), torch.from_numpy(rewards)
    done, terminated, truncated = ([False] * (len(rows) - 1) + [flag] for flag in last)
    result = gae_columns(columns, rewards, 0.9, 0.8, done=done, terminated=terminated, truncated=truncated)
    goes_on = not last[1] if last[1] is not None else bool(last[2]) or not last[0]
    length = len(rows) - goes_on
    assert isinstance(result, torch.Tensor if is_tensor else np.ndarray)
    assert result.dtype == columns.dtype and tuple(result.shape) == (length, *columns.shape[1:])
    for agent, scale in enumerate(scales):
        values = (value * scale).tolist()
        last_value = values[-1] if goes_on else 0.0
        expected = naive_columns(values[:length], reward.tolist()[:length], last_value, 0.9, 0.8)
        found = result if agents is None else result[:, agent]
        assert found.tolist() == pytest.approx(expected, abs=1e-3)


@pytest.mark.parametrize("last_value", [7.0, np.array([7.0], np.float32), torch.tensor(7.0)])
def test_a_last_value_counts_whatever_the_flags_say(last_value):
    value, reward = torch.tensor([1.0, 2.0]), torch.tensor([3.0, 4.0])
    for done in (None, [False, True], [False, False]):
        result = gae_columns(value, reward, 0.5, 1.0, last_value, done)
        assert result.tolist() == naive_columns([1.0, 2.0], [3.0, 4.0], 7.0, 0.5, 1.0)


@pytest.mark.parametrize("shape", [(), (1,), (3,)])
@pytest.mark.parametrize("last_value", [0.5, np.nan, np.inf])
def test_advantages_of_several_fragments_are_those_of_each(shape, last_value):
    generator, lengths = torch.Generator().manual_seed(0), np.array([3, 1, 0, 20])
    value, reward = torch.randn(2, 24, *shape, generator=generator)
    value[2] = reward[2] = -0.0
    last_values = torch.randn(4, *shape, generator=generator)
    last_values[1] = last_value
    made = gae_columns(value, reward, 0.9, 0.8, last_values, lengths=lengths)
    parts = [part.split(lengths.tolist()) for part in (value, reward)]
    alone = [gae_columns(*part, 0.9, 0.8, last) for *part, last in zip(*parts, last_values, strict=True)]
    assert made.numpy().tobytes() == torch.cat(alone).numpy().tobytes()


def test_next_value_is_masked_in_place():
    next_value = torch.ones(2)
    gae(gae_data(torch.ones(2), next_value, torch.ones(2), torch.tensor([True, False]), None))
    assert next_value.tolist() == [0.0, 1.0]
