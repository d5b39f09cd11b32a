"""The gating unit of gated transformers."""

import math

import torch

from ding.torch_utils.network.gtrxl import GRUGatingUnit


def sigmoid(x):
    return 1 / (1 + math.exp(-x))


def test_the_gate_is_that_of_a_gru():
    gate = GRUGatingUnit(1, bg=0.5)
    weights = {name: layer.weight.item() for name, layer in gate.named_children()}
    for x, y in ((0.3, -1.2), (2.0, 0.7)):
        r = sigmoid(weights["Wr"] * y + weights["Ur"] * x)
        z = sigmoid(weights["Wz"] * y + weights["Uz"] * x - 0.5)
        h = math.tanh(weights["Wg"] * y + weights["Ug"] * r * x)
        result = gate(torch.tensor([x]), torch.tensor([y])).item()
        assert math.isclose(result, (1 - z) * x + z * h, abs_tol=1e-6)


def test_parameters_have_the_documented_names_and_no_biases():
    state = GRUGatingUnit(3).state_dict()
    assert sorted(state) == sorted(["bg", *(f"{w}{g}.weight" for w in "WU" for g in "rzg")])
    assert state["bg"].tolist() == [2.0] * 3


def test_the_bias_has_two_names():
    assert GRUGatingUnit(2, bg=1).bg.tolist() == GRUGatingUnit(2, bias_init=1).bg.tolist() == [1.0, 1.0]


def test_every_leading_shape_is_taken_and_all_parameters_learn():
    torch.manual_seed(0)
    gate = GRUGatingUnit(4)
    x, y = torch.rand(2, 3, 4), torch.rand(2, 3, 4)
    out = gate(x, y)
    assert torch.allclose(out[1, 2], gate(x[1, 2], y[1, 2]))
    out.sum().backward()
    assert all(parameter.grad.abs().sum() > 0 for parameter in gate.parameters())
