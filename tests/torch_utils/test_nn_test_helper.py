"""is_differentiable."""

import logging

import pytest
import torch
from torch import nn

from ding.torch_utils.optimizer_helper import is_differentiable


def loss_of(*nets):
    return sum(net(torch.ones(1, 2)).sum() for net in nets)


def test_all_parameters_of_one_or_several_modules_get_gradients():
    a, b = nn.Linear(2, 1), nn.Linear(2, 1)
    assert is_differentiable(loss_of(a), a) is None
    a.zero_grad()
    is_differentiable(loss_of(a, b), [a, b])
    assert a.weight.grad is not None


def test_a_parameter_without_gradient_is_named():
    a, b = nn.Linear(2, 1), nn.Linear(2, 1)
    with pytest.raises(AssertionError, match="weight, bias"):
        is_differentiable(loss_of(a), [a, b])


def test_a_missing_gradient_can_be_logged_instead(caplog):
    a, b = nn.Linear(2, 1), nn.Linear(2, 1)
    with caplog.at_level(logging.WARNING):
        is_differentiable(loss_of(a), [a, b], print_instead=True)
    assert "weight, bias" in caplog.text
