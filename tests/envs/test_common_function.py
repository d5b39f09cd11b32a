"""Scaling of actions and the small encoders."""

from __future__ import annotations

import types

import numpy as np
import pytest
import torch

from ding.envs import common


def test_affine_transform_maps_the_unit_interval_onto_the_bounds_after_clipping():
    data = np.array([-3.0, -1.0, 0.0, 0.5, 2.0], np.float32)
    out = common.affine_transform(data, min_val=np.float32(-2), max_val=np.float32(6))
    assert out.tolist() == [-2, -2, 2, 4, 6]
    assert out.dtype == np.float32
    assert data[0] == -3


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("convert", [np.asarray, torch.from_numpy])
def test_affine_transform_reaches_the_bounds_exactly_and_does_not_leave_them(dtype, convert):
    tenths = [dtype(number / 10) for number in range(-20, 21)]
    pairs = [(low, high) for low in tenths for high in tenths if low < high]
    low, high = (convert(np.array(bound, dtype)) for bound in zip(*pairs, strict=True))
    for number in (-1, -0.999, 0, 0.999, 1):
        scaled = common.affine_transform(convert(np.full(len(pairs), number, dtype)), min_val=low, max_val=high)
        assert scaled.dtype == low.dtype
        assert (low <= scaled).all() and (scaled <= high).all()
        if abs(number) == 1:
            assert (scaled == (low if number < 0 else high)).all()


def test_affine_transform_without_clipping_and_with_alpha():
    assert common.affine_transform(np.array([2.0]), action_clip=False, alpha=3, beta=1).tolist() == [7]
    assert common.affine_transform(np.array([2.0]), alpha=3).tolist() == [3]
    assert common.affine_transform(torch.tensor([-2.0]), alpha=3).tolist() == [-3]


def test_one_hot_codes():
    assert common.num_first_one_hot(torch.tensor([2, 0]), 3).tolist() == [[0, 1], [0, 0], [1, 0]]
    assert common.sqrt_one_hot(torch.tensor([0, 3, 9]), 9).argmax(-1).tolist() == [0, 1, 3]
    assert common.sqrt_one_hot(torch.tensor([0]), 9).shape == (1, 4)
    assert common.div_one_hot(torch.tensor([0, 5, 10]), 10, 4).tolist() == [[1, 0, 0], [0, 1, 0], [0, 0, 1]]
    assert common.clip_one_hot(torch.tensor([-1, 1, 9]), 3).argmax(-1).tolist() == [0, 1, 2]
    assert common.clip_one_hot(torch.tensor([1]), 3).dtype == torch.float32


def test_div_func_divides_and_adds_an_axis():
    assert common.div_func(torch.tensor([2, 4]), 4).tolist() == [[0.5], [1.0]]


def test_reordered_codes():
    v = torch.tensor([7, 5])
    assert common.reorder_one_hot(v, {5: 0, 7: 2}, 3).argmax(-1).tolist() == [2, 0]
    assert common.reorder_one_hot(v, {0: 1, 1: 0}, 3, transform={7: 0, 5: 1}).argmax(-1).tolist() == [1, 0]
    assert common.reorder_one_hot_array(torch.tensor([1, 0]), np.array([2, 1]), 3).argmax(-1).tolist() == [1, 2]
    assert common.reorder_one_hot_array(torch.tensor([0]), [2, 1], 3, transform=[1]).argmax(-1).tolist() == [1]
    assert common.reorder_boolean_vector(v, {5: 0, 7: 2}, 4).tolist() == [1, 0, 1, 0]
    assert common.reorder_boolean_vector(v, {0: 3}, 4, transform={7: 0, 5: 0}).tolist() == [0, 0, 0, 1]


def test_reordering_refuses_what_it_does_not_know():
    with pytest.raises(KeyError):
        common.reorder_boolean_vector(torch.tensor([9]), {5: 0}, 4)
    with pytest.raises(AssertionError):
        common.reorder_one_hot(torch.zeros(1, 1), {0: 0}, 1)
    with pytest.raises(KeyError):
        common.reorder_one_hot(torch.tensor([9]), {5: 0}, 4)


def test_binary_code_has_the_highest_bit_first():
    assert common.batch_binary_encode(torch.tensor([6, 1]), 4).tolist() == [[0, 1, 1, 0], [0, 0, 0, 1]]


def test_position_vector_alternates_sine_and_cosine():
    out = common.get_postion_vector([1.0] * 32)
    assert out.shape == (64,)
    assert out[:2].tolist() == pytest.approx([np.sin(1), np.cos(1)])
    assert out[2:4].tolist() == pytest.approx([np.sin(10000 ** (-1 / 32)), np.cos(10000 ** (-1 / 32))])


def test_frames_are_written_as_gif(put_module):
    calls = []
    fake = types.SimpleNamespace(mimsave=lambda path, frames, fps: calls.append((path, frames, fps)))
    put_module("imageio", fake)
    common.save_frames_as_gif(("a", "b"), "x.gif")
    assert calls == [("x.gif", ["a", "b"], 20)]
