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
