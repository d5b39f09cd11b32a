"""Which rows bootstrap, n-step columns, and the squashings of values, against plain-Python twins."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ding.rl_utils.returns import (
    bootstrap_mask,
    gae,
    gae_columns,
    gae_data,
    inv_symlog,
    symlog,
    value_inv_transform,
    value_transform,
)

VALUES = torch.tensor([-100.0, -3.0, -0.5, 0.0, 0.5, 3.0, 100.0])
FLAG = st.sampled_from([None, False, True])


# --- which rows bootstrap ---


def naive_bootstraps(done, terminated, truncated):
    if terminated is not None:
        return not terminated
    return bool(truncated) or not done


def as_told_by_lists(column):
    return column


def as_told_by_tensors(column):
    return [None if flag is None else torch.tensor([flag]) for flag in column]


def as_numbers(column):
    return np.array([math.nan if flag is None else float(flag) for flag in column])


def as_column_of_numbers(column):
    return torch.from_numpy(as_numbers(column)).unsqueeze(1)


def as_objects(column):
    return np.array(column, dtype=object)


FORMS = [as_told_by_lists, as_told_by_tensors, as_numbers, as_column_of_numbers, as_objects]


@settings(max_examples=60)
@given(
    rows=st.lists(st.tuples(st.booleans(), FLAG, FLAG), min_size=1, max_size=6),
    form=st.sampled_from(FORMS),
    done_is_tensor=st.booleans(),
)
def test_each_row_decides_by_the_flags_that_it_tells(rows, form, done_is_tensor):
    done, terminated, truncated = zip(*rows, strict=True)
    column = torch.tensor(done) if done_is_tensor else np.array(done)
    mask = bootstrap_mask(column, form(terminated), form(truncated))
    assert isinstance(mask, torch.Tensor) is done_is_tensor
    assert mask.dtype == (torch.bool if done_is_tensor else bool) and mask.shape == (len(rows),)
    assert mask.tolist() == [naive_bootstraps(*row) for row in rows]


@pytest.mark.parametrize("done", [[True, False], np.array([[1.0], [0.0]]), torch.tensor([1, 0], dtype=torch.uint8)])
def test_without_other_flags_done_decides(done):
    assert bootstrap_mask(done).tolist() == [False, True]


def test_a_flag_of_the_row_counts_for_all_its_agents():
    done = torch.tensor([[True, False], [True, True], [True, False]])
    mask = bootstrap_mask(done, terminated=[None, None, True], truncated=[None, True, None])
    assert mask.tolist() == [[False, True], [True, True], [False, False]]
    ended = [None, torch.tensor([True, False]), torch.tensor([True, True])]  # it is told once all agents have ended
    assert bootstrap_mask(np.array([False] * 3), terminated=ended).tolist() == [True, True, False]


# --- squashed values ---


def test_value_transform_has_the_values_of_its_formula():
    assert torch.allclose(value_transform(torch.tensor([3.0, -3.0])), torch.tensor([1.03, -1.03]))


def test_inverse_value_transform_undoes_the_transform():
    assert torch.allclose(value_inv_transform(value_transform(VALUES)), VALUES, rtol=1e-3, atol=1e-4)
    assert torch.allclose(value_inv_transform(value_transform(VALUES, 0.1), 0.1), VALUES, rtol=1e-3, atol=1e-4)


def test_inverse_symlog_undoes_symlog():
    assert torch.allclose(symlog(torch.tensor([torch.e - 1, 1 - torch.e])), torch.tensor([1.0, -1.0]))
    assert torch.allclose(inv_symlog(symlog(VALUES)), VALUES, rtol=1e-4)


# Advantages against a plain-Python twin.


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
