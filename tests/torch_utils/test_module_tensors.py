"""Flat lists of a module's tensors that notice changes."""

import torch
from torch import nn

from ding.torch_utils.module_tensors import ModuleStructure, ModuleTensors


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
        self.alias = nn.ModuleList([self.body[0]])
        self.again = self.body[0].weight
        self.register_buffer("hidden", torch.zeros(1), persistent=False)


def test_tensors_are_listed_once_and_named_as_in_the_state_dict():
    net = Tied()
    tensors = ModuleTensors(net)
    parameters, buffers = tensors.current()
    assert tensors.names[0] == ["again", "body.0.bias", "body.1.weight", "body.1.bias"]
    assert tensors.names[1] == ["body.1.running_mean", "body.1.running_var", "body.1.num_batches_tracked"]
    assert all(net.state_dict()[name] is not None for name in tensors.names[0] + tensors.names[1])
    assert parameters[0] is net.body[0].weight
    assert buffers[0] is net.body[1].running_mean


def test_parameters_and_children_assigned_anew_are_noticed():
    net = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    tensors = ModuleTensors(net)
    net[0].weight = nn.Parameter(torch.zeros(2, 2))
    assert tensors.current()[0][0] is net[0].weight
    assert tensors.version == 0
    net[1] = nn.Linear(2, 1)
    assert tensors.current()[0][2] is net[1].weight
    assert tensors.version == 1
    net.append(nn.Linear(1, 1))
    assert len(tensors.current()[0]) == 6


def test_structure_notices_added_removed_and_replaced_children():
    net = nn.Sequential(nn.Sequential(nn.Linear(1, 1)), nn.ReLU())
    structure = ModuleStructure(net)
    assert structure.is_unchanged()
    old = net[0][0]
    net[0][0] = nn.Linear(1, 1)
    assert not structure.is_unchanged()
    net[0][0] = old
    assert structure.is_unchanged()
    net[0].append(nn.ReLU())
    assert not structure.is_unchanged()
    del net[0][1]
    assert structure.is_unchanged()
