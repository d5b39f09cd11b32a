"""The direct forward pass equals calling the modules, and steps aside where it would not."""

import copy

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations, prune

from ding.model import DQN
from ding.model.common.plain_forward import PlainForward

X = torch.rand(6, 4)


def by_modules(model, x=X):
    return model._forward_modules(x)["logit"]


def uses_plain(model, x=X):
    plain = model._plain_forward()
    return plain is not None and plain.may_run(x)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"dueling": False},
        {"head_hidden_size": 16},
        {"head_layer_num": 0},
        {"head_layer_num": 3},
        {"encoder_hidden_size_list": [8]},
        {"activation": nn.Tanh()},
        {"activation": nn.ReLU(inplace=True)},
        {"activation": nn.LeakyReLU(0.3)},
        {"activation": None},
    ],
)
@pytest.mark.parametrize("action_shape", [3, [3, 2]])
def test_values_and_gradients_equal_those_of_the_modules(options, action_shape):
    model = DQN(4, action_shape, **options)
    assert uses_plain(model)
    fast, slow = model(X)["logit"], by_modules(model)
    if action_shape == 3:
        fast, slow = [fast], [slow]
    assert all(torch.equal(a, b) for a, b in zip(fast, slow, strict=True))
    grads = [
        torch.autograd.grad(sum(head.pow(2).sum() for head in out), list(model.parameters())) for out in (fast, slow)
    ]
    assert all(torch.equal(a, b) for a, b in zip(*grads, strict=True))


@pytest.mark.parametrize(
    "options", [{"dropout": 0.1}, {"norm_type": "BN"}, {"noise": True}, {"activation": nn.PReLU()}]
)
def test_other_layers_are_called_as_modules(options):
    model = DQN(4, 3, **options)
    assert not uses_plain(model)
    assert model(X)["logit"].shape == (6, 3)


def test_parameters_assigned_anew_count():
    model = DQN(4, 3)
    model(X)
    model.head.V[1][0].bias = nn.Parameter(torch.tensor([100.0]))
    model.encoder.main[0].weight.data = torch.zeros_like(model.encoder.main[0].weight)
    assert uses_plain(model)
    assert torch.equal(model(X)["logit"], by_modules(model))
    assert (model(X)["logit"] > 50).all()


def test_layers_replaced_added_or_removed_count():
    model = DQN(4, 3, dueling=False)
    model(X)
    model.head.Q[1][0] = nn.Linear(64, 5)
    assert model(X)["logit"].shape == (6, 5)
    model.head.Q[1].append(nn.Linear(5, 2))
    assert model(X)["logit"].shape == (6, 2)
    model.encoder.main[1] = nn.Sigmoid()
    assert torch.equal(model(X)["logit"], by_modules(model))
    assert uses_plain(model)
    model.head = DQN(4, 7).head
    assert model(X)["logit"].shape == (6, 7)
    model.head.A[0].append(nn.Dropout(1.0))
    assert not uses_plain(model)
    assert torch.equal(model(X)["logit"], by_modules(model))


@pytest.mark.parametrize(
    "register", ["register_forward_hook", "register_forward_pre_hook", "register_full_backward_hook"]
)
def test_hooks_are_called(register):
    model = DQN(4, 3)
    model(X)
    calls = []
    handle = getattr(model.encoder.main[0], register)(lambda *_: calls.append(1))
    model(X)["logit"].sum().backward()
    assert calls == [1]
    handle.remove()
    assert uses_plain(model)
    model(X)["logit"].sum().backward()
    assert calls == [1]


def test_global_hooks_are_called():
    model = DQN(4, 3)
    calls = []
    handle = nn.modules.module.register_module_forward_hook(lambda module, *_: calls.append(type(module)))
    try:
        model.forward(X)
    finally:
        handle.remove()
    assert calls.count(nn.Linear) == 7


def test_parametrized_and_pruned_layers_are_called_as_modules():
    for change in (
        lambda layer: parametrizations.weight_norm(layer),
        lambda layer: prune.l1_unstructured(layer, "weight", 0.5),
    ):
        for layer_of in (lambda m: m.encoder.init, lambda m: m.head.V[0][0]):
            model = DQN(4, 3)
            model(X)
            change(layer_of(model))
            assert not uses_plain(model)
            assert torch.equal(model(X)["logit"], by_modules(model))


def test_an_own_forward_of_a_part_is_respected():
    model = DQN(4, 3)
    model.encoder.forward = lambda x: torch.zeros(len(x), 64)
    rows = model(X)["logit"]
    assert torch.allclose(rows, rows[0])


def test_a_copy_does_not_read_the_weights_of_the_original():
    model = DQN(4, 3)
    model(X)
    shallow = copy.copy(model)
    shallow._modules = copy.copy(model._modules)
    assert not model._plain.fits(shallow)
    twin = copy.deepcopy(model)
    assert twin._plain is None
    nn.init.constant_(model.encoder.init.weight, 0.0)
    assert torch.equal(twin(X)["logit"], by_modules(twin))
    assert not torch.equal(twin(X)["logit"], model(X)["logit"])


def test_subclasses_with_further_parts_are_called_as_modules():
    class Extended(DQN):
        def __init__(self, *args):
            super().__init__(*args)
            self.extra = nn.Linear(1, 1)

    model = Extended(4, 3)
    assert PlainForward.build(model) is None
    assert model(X)["logit"].shape == (6, 3)


def test_other_precisions_work():
    model = DQN(4, 3).double()
    assert uses_plain(model, X.double())
    assert torch.equal(model(X.double())["logit"], by_modules(model, X.double()))
    assert not uses_plain(model, X)


def test_functional_calls_use_the_parameters_they_are_given():
    model = DQN(4, 3)
    model(X)
    zeros = {name: torch.zeros_like(parameter) for name, parameter in model.named_parameters()}
    assert torch.equal(torch.func.functional_call(model, zeros, (X,))["logit"], torch.zeros(6, 3))
    assert not torch.equal(model(X)["logit"], torch.zeros(6, 3))
