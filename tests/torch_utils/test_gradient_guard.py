"""Clipping by the norm equals torch's, bit for bit, whatever the gradients are."""

import math

import pytest
import torch
from torch import nn

from ding.torch_utils.gradient_guard import GradientGuard


def clipped(make, max_norm, norm_type):
    guard = GradientGuard("clip_norm", max_norm, 5, norm_type, 100, None, None, 5, 2.0, 100)
    ours, theirs = make(), make()
    guard.apply(torch.optim.SGD(ours, lr=1.0))
    nn.utils.clip_grad_norm_(theirs, max_norm, norm_type)
    return [p.grad for p in ours], [p.grad for p in theirs]


def dense(dtypes):
    torch.manual_seed(0)
    parameters = [nn.Parameter(torch.rand(3, i + 1, dtype=dtype)) for i, dtype in enumerate(dtypes)]
    for parameter in parameters:
        parameter.grad = torch.randn_like(parameter)
    parameters.append(nn.Parameter(torch.rand(2)))  # without a gradient
    return parameters


@pytest.mark.parametrize("norm_type", [1.0, 2.0, math.inf])
@pytest.mark.parametrize("max_norm", [0.1, 100.0])
@pytest.mark.parametrize("dtypes", [[torch.float32] * 3, [torch.float64], [torch.float32, torch.float64]])
def test_dense_gradients(dtypes, max_norm, norm_type):
    ours, theirs = clipped(lambda: dense(dtypes), max_norm, norm_type)
    assert all(a is b is None or torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))


def test_parameters_without_any_gradient():
    ours, _ = clipped(lambda: [nn.Parameter(torch.ones(2))], 0.1, 2.0)
    assert ours == [None]
