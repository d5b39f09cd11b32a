"""DataParallel on at most one device: the model as it is."""

import pytest
import torch
from torch import nn

from ding.torch_utils.network.nn_module import DataParallel


class Net(nn.Linear):
    def greet(self):
        return f"{self.in_features} in"


def test_attributes_and_methods_of_the_model_can_be_asked_for():
    model = DataParallel(Net(4, 2))
    assert model.out_features == 2 and model.greet() == "4 in"
    assert model.weight is model.module.weight
    with pytest.raises(AttributeError):
        _ = model.colour


def test_it_runs_and_trains_the_model_under_torchs_names():
    torch.manual_seed(0)
    model = DataParallel(Net(4, 2))
    x = torch.rand(3, 4, device=model.weight.device)
    assert torch.equal(model(x), model.module(x))
    assert list(model.state_dict()) == ["module.weight", "module.bias"]
    model(x).sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())
