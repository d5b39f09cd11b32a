"""Switching the mode of a module does what its `train` does."""

import copy
import pickle

import pytest
import torch
from torch import nn

from ding.policy.training_step import ModuleMode


def modes(module):
    return [part.training for part in module.modules()]


def test_all_parts_change_and_back():
    net = nn.Sequential(nn.Linear(1, 1), nn.Sequential(nn.Dropout(0.5), nn.BatchNorm1d(1)))
    mode = ModuleMode(net)
    for training in (False, False, True):
        mode.set(training)
        assert modes(net) == [training] * 5


def test_a_part_that_was_exchanged_is_switched_too():
    net = nn.Sequential(nn.Linear(1, 1))
    mode = ModuleMode(net)
    net[0] = nn.Sequential(nn.Dropout(0.5))
    mode.set(False)
    assert modes(net) == [False] * 3
    net[0].append(nn.Dropout(0.5))
    mode.set(True)
    assert modes(net) == [True] * 4


def test_a_part_that_was_added_in_evaluation_mode_is_put_into_it():
    net = nn.Sequential(nn.Linear(1, 1))
    mode = ModuleMode(net)
    mode.set(False)
    net[0] = nn.Sequential(nn.Dropout(0.5))
    mode.set(False)
    assert modes(net) == [False] * 3
    net[0][0] = nn.Dropout(0.5)
    mode.set(False)
    assert modes(net) == [False] * 3


@pytest.mark.parametrize("on_instance", [False, True])
def test_a_train_of_ones_own_is_called(on_instance):
    class Frozen(nn.Linear):
        def train(self, mode=True):
            return super().train(False)

    part = nn.Linear(1, 1) if on_instance else Frozen(1, 1)
    if on_instance:
        part.train = lambda mode=True: part
    net = nn.Sequential(part).eval()
    part.training = False
    ModuleMode(net).set(True)
    assert modes(net) == [True, False]


def test_a_train_changed_later_is_called(monkeypatch):
    net = nn.Sequential(nn.Linear(1, 1), nn.Dropout(0.5))
    mode = ModuleMode(net)
    mode.set(False)
    net[0].train = lambda mode=True: net[0]
    mode.set(True)
    assert modes(net) == [True, False, True]
    monkeypatch.setattr(nn.Dropout, "train", lambda self, mode=True: self, raising=False)
    mode.set(False)
    assert modes(net) == [False, False, True]


def test_the_mode_of_a_part_set_by_hand_stays_while_the_module_does_not_change():
    net = nn.Sequential(nn.Dropout(0.5))
    net[0].eval()
    ModuleMode(net).set(True)
    assert modes(net) == [True, False]


def test_the_dtype_is_that_of_the_first_parameter_now():
    net = nn.Sequential(nn.ReLU(), nn.Linear(1, 1))
    mode = ModuleMode(net)
    assert mode.dtype is torch.float32
    net.double()
    assert mode.dtype is torch.float64
    net[1].weight = nn.Parameter(torch.ones(1, 1, dtype=torch.float16))
    assert mode.dtype is torch.float16
    net[1] = nn.Linear(1, 1, dtype=torch.bfloat16)
    mode.set(False)
    assert mode.dtype is torch.bfloat16


def test_without_parameters_of_real_numbers_the_dtype_is_float32():
    net = nn.Module()
    net.count = nn.Parameter(torch.ones(1, dtype=torch.int64), requires_grad=False)
    assert ModuleMode(net).dtype is ModuleMode(nn.ReLU()).dtype is torch.float32


def test_several_modules_change_together():
    one, other = nn.Sequential(nn.Dropout(0.5)), nn.Sequential(nn.Dropout(0.5))
    mode = ModuleMode(one, other)
    other.eval()
    mode.set(True)
    assert modes(one) == modes(other) == [True] * 2
    one.eval()
    mode.set(False)
    assert modes(one) == modes(other) == [False] * 2


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda pair: pickle.loads(pickle.dumps(pair))])
def test_a_copy_switches_the_copied_modules(duplicate):
    net = nn.Sequential(nn.Dropout(0.5))
    twin, mode = duplicate((net, ModuleMode(net)))
    mode.set(False)
    assert modes(twin) == [False] * 2 and modes(net) == [True] * 2
