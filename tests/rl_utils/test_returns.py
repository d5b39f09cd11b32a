"""Which rows bootstrap, n-step columns, and the squashings of values, against plain-Python twins."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ding.rl_utils.returns import (
    bootstrap_mask,
    inv_symlog,
    nstep_columns,
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


def test_bool_columns_tell_every_row():
    done, terminated, truncated = np.array([True] * 3), np.array([True, False, False]), np.array([False, True, False])
    assert bootstrap_mask(done, terminated, truncated).tolist() == [False, True, True]
    assert bootstrap_mask(done, truncated=truncated).tolist() == [False, True, False]


def test_a_flag_of_the_row_counts_for_all_its_agents():
    done = torch.tensor([[True, False], [True, True], [True, False]])
    mask = bootstrap_mask(done, terminated=[None, None, True], truncated=[None, True, None])
    assert mask.tolist() == [[False, True], [True, True], [False, False]]
    ended = [None, torch.tensor([True, False]), torch.tensor([True, True])]  # it is told once all agents have ended
    assert bootstrap_mask(np.array([False] * 3), terminated=ended).tolist() == [True, True, False]


# --- n-step columns ---


def naive_nstep(reward, is_end, gamma, nstep):
    """For each row the rewards in reach, the row at which the reach ends, and the discount of what follows."""
    result = []
    for start in range(len(reward)):
        reach = []
        for row in range(start, min(start + nstep, len(reward))):
            reach.append(reward[row])
            if is_end[row]:
                break
        result.append((reach, start + len(reach) - 1, gamma ** len(reach)))
    return result


def fragments():
    row = st.tuples(st.integers(-5, 5), st.booleans(), FLAG, FLAG)
    return st.lists(row, min_size=1, max_size=9)


@settings(max_examples=100)
@given(
    rows=fragments(),
    nstep=st.integers(1, 12),
    gamma=st.sampled_from([0, 0.5, 0.9, 1]),
    has_axis=st.booleans(),
    is_tensor=st.booleans(),
)
def test_nstep_columns_equal_their_naive_twin(rows, nstep, gamma, has_axis, is_tensor):
    reward, done, terminated, truncated = zip(*rows, strict=True)
    is_end = [any(flags) for flags in zip(done, terminated, truncated, strict=True)]
    expected = naive_nstep(reward, is_end, gamma, nstep)
    column = np.array(reward, dtype=np.float32)
    column = column[:, None] if has_axis else column
    column = torch.from_numpy(column) if is_tensor else column
    flags = {"terminated": list(terminated), "truncated": as_numbers(truncated)}
    windows = nstep_columns(column, np.array(done), gamma, nstep, **flags)
    summed = nstep_columns(column, np.array(done), gamma, nstep, cum_reward=True, **flags)
    kind = torch.Tensor if is_tensor else np.ndarray
    assert all(isinstance(part, kind) for part in (*windows, *summed))
    assert windows.reward.tolist() == [reach + [0] * (nstep - len(reach)) for reach, _, _ in expected]
    assert windows.index.tolist() == summed.index.tolist() == [row for _, row, _ in expected]
    assert windows.value_gamma.tolist() == pytest.approx([discount for _, _, discount in expected])
    assert summed.value_gamma.tolist() == windows.value_gamma.tolist()
    sums = [sum(gamma**i * r for i, r in enumerate(reach)) for reach, _, _ in expected]
    assert summed.reward.shape == column.shape
    assert summed.reward.flatten().tolist() == pytest.approx(sums, abs=1e-5)


def test_nstep_columns_end_with_their_fragment():
    reward = np.arange(1, 7, dtype=np.float32)
    columns = nstep_columns(reward, [False] * 6, 0.5, 3, lengths=np.array([2, 0, 4]))
    assert columns.reward.tolist() == [[1, 2, 0], [2, 0, 0], [3, 4, 5], [4, 5, 6], [5, 6, 0], [6, 0, 0]]
    assert columns.index.tolist() == [1, 1, 4, 5, 5, 5]
    assert columns.value_gamma.tolist() == [0.25, 0.5, 0.125, 0.125, 0.25, 0.5]


def test_the_dtypes_of_nstep_columns():
    for dtype in (np.float32, np.float64):
        columns = nstep_columns(np.ones(3, dtype), None, 0.9, 2)
        assert [part.dtype for part in columns] == [dtype, np.int64, np.float32]
        assert nstep_columns(np.ones(3, dtype), None, 0.9, 2, cum_reward=True).reward.dtype == dtype
    columns = nstep_columns(torch.ones(3), None, 0.9, 2)
    assert [part.dtype for part in columns] == [torch.float32, torch.int64, torch.float32]


def test_rewards_of_a_type_that_numpy_lacks_keep_it():
    reward = torch.tensor([1.0, 2.0, 4.0], dtype=torch.bfloat16)
    windows, summed = (nstep_columns(reward, None, 0.5, 2, cum_reward=cum).reward for cum in (False, True))
    assert windows.dtype is summed.dtype is torch.bfloat16
    assert windows.tolist() == [[1, 2], [2, 4], [4, 0]]
    assert summed.tolist() == [2, 4, 4]


def test_whole_rewards_are_summed_with_discounts_that_are_not_whole():
    columns = nstep_columns(np.array([2, 4]), None, 0.5, 2, cum_reward=True)
    assert columns.reward.tolist() == [4.0, 4.0]
    assert nstep_columns(np.array([2, 4]), None, 0.5, 2).reward.tolist() == [[2, 4], [4, 0]]


def test_agents_keep_their_axis_before_the_steps_also_where_an_episode_ends():
    reward = np.array([[[1.0], [10.0]], [[2.0], [20.0]], [[3.0], [30.0]]])  # [T, A, 1]
    columns = nstep_columns(reward, [False, True, False], 0.5, 3)
    assert columns.reward.tolist() == [
        [[1.0, 2.0, 0.0], [10.0, 20.0, 0.0]],
        [[2.0, 0.0, 0.0], [20.0, 0.0, 0.0]],
        [[3.0, 0.0, 0.0], [30.0, 0.0, 0.0]],
    ]
    summed = nstep_columns(reward, [False, True, False], 0.5, 3, cum_reward=True)
    assert summed.reward.tolist() == [[[2.0], [20.0]], [[2.0], [20.0]], [[3.0], [30.0]]]


def test_rewards_of_several_numbers_stand_one_step_after_the_other():
    columns = nstep_columns(np.array([[1.0, 10.0], [2.0, 20.0]]), None, 0.5, 2)
    assert columns.reward.tolist() == [[1.0, 10.0, 2.0, 20.0], [2.0, 20.0, 0.0, 0.0]]


def test_a_step_is_an_end_once_all_its_agents_are_done():
    done = np.array([[True, False], [True, True], [True, True]])
    assert nstep_columns(np.ones(3), done, 0.9, 3).index.tolist() == [1, 1, 2]


def test_a_reward_that_is_not_finite_stays_in_its_own_windows():
    columns = nstep_columns(np.array([1.0, np.inf, 2.0]), [True, False, False], 0.9, 2)
    assert columns.reward.tolist() == [[1.0, 0.0], [np.inf, 2.0], [2.0, 0.0]]


def test_an_empty_fragment_has_empty_columns():
    columns = nstep_columns(np.zeros((0, 1), np.float32), np.zeros(0, bool), 0.9, 3)
    assert [part.shape for part in columns] == [(0, 3), (0,), (0,)]


def test_the_columns_of_a_fragment_stay_as_they_are():
    reward, done = torch.ones(4, 1, requires_grad=True), torch.tensor([False, True, False, True])
    columns = nstep_columns(reward, done, 0.9, 2)
    columns.reward.zero_()
    assert reward.tolist() == [[1.0]] * 4 and done.tolist() == [False, True, False, True]


# --- squashed values ---


def test_value_transform_has_the_values_of_its_formula():
    assert torch.allclose(value_transform(torch.tensor([3.0, -3.0])), torch.tensor([1.03, -1.03]))


def test_inverse_value_transform_undoes_the_transform():
    assert torch.allclose(value_inv_transform(value_transform(VALUES)), VALUES, rtol=1e-3, atol=1e-4)
    assert torch.allclose(value_inv_transform(value_transform(VALUES, 0.1), 0.1), VALUES, rtol=1e-3, atol=1e-4)


def test_inverse_symlog_undoes_symlog():
    assert torch.allclose(symlog(torch.tensor([torch.e - 1, 1 - torch.e])), torch.tensor([1.0, -1.0]))
    assert torch.allclose(inv_symlog(symlog(VALUES)), VALUES, rtol=1e-4)
