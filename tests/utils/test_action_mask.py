"""Action masks of observations and their forms."""

import re

import numpy as np
import pytest
import torch

from ding.utils.action_mask import action_mask_of, masks_by_choice


def test_the_entry_action_mask_of_any_dict_is_a_mask():
    assert action_mask_of({"action_mask": 1, "board": 2, "hand": 3}) == 1
    assert action_mask_of({"board": 2}) is None
    assert action_mask_of(np.zeros(2)) is None


@pytest.mark.parametrize("make", [np.array, torch.tensor])
@pytest.mark.parametrize(
    "mask", [[[[1, 0, 0], [0, 1, 0]], [[0, 0, 1], [1, 0, 0]]], [[1, 0, 0, 0, 1, 0], [0, 0, 1, 1, 0, 0]]]
)
def test_one_array_has_the_masks_of_each_env_in_a_row_or_one_below_the_other(make, mask):
    first, second = masks_by_choice(make(mask), [3, 3], [2])
    assert first.tolist() == [[1, 0, 0], [0, 0, 1]]
    assert second.tolist() == [[0, 1, 0], [1, 0, 0]]


def test_choices_among_different_numbers_lie_in_a_row_or_in_a_tuple():
    assert [part.tolist() for part in masks_by_choice(np.array([1, 0, 0, 1, 1]), [2, 3])] == [[1, 0], [0, 1, 1]]
    parts = np.array([1, 0]), np.array([0, 1, 1])
    assert masks_by_choice(parts, [2, 3])[1] is parts[1]


@pytest.mark.parametrize(
    ("mask", "counts", "allowed"),
    [
        (np.ones((3, 2)), [2, 2], "(4,) or (2, 2), or 2 arrays of the shapes (2,), (2,)"),
        (np.ones((2, 3)), [2, 3], "(5,), or 2 arrays of the shapes (2,), (3,)"),
        ((np.ones(2), np.ones(2)), [2, 3], "(5,), or 2 arrays"),
        ((np.ones(2),), [2, 3], "(5,), or 2 arrays"),
        ([1, 0, 1], [3], "(3,)"),
        (np.ones(4), [3], "(3,)"),
    ],
)
def test_other_shapes_are_refused_with_those_that_are_allowed(mask, counts, allowed):
    with pytest.raises(ValueError, match=re.escape(allowed)):
        masks_by_choice(mask, counts)
