"""A model that is changed after its first forward pass computes what the changed modules compute."""

from functools import partial

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations, parametrize, prune, spectral_norm

from ding.model import DQN, VAC, model_wrap

X = torch.rand(6, 4, generator=torch.Generator().manual_seed(0))


def dqn():
    torch.manual_seed(0)
    return DQN(4, 2, encoder_hidden_size_list=[8, 8], dueling=False)


def vac():
    torch.manual_seed(0)
    return VAC(4, 2, encoder_hidden_size_list=[8, 8], actor_head_hidden_size=8, critic_head_hidden_size=8)


def logit(model):
    kwargs = {"mode": "compute_actor"} if isinstance(model, VAC) else {}
    return model_wrap(model, wrapper_name="argmax_sample").forward(X, **kwargs)["logit"].detach()


def last_layer(model):
    head = model.actor_head if isinstance(model, VAC) else model.head
    return head.Q[1][0]


def by_hand(model, layers):
    """The logit that the encoder's and the head's linear layers have when they are called one after the other."""
    x = X
    for layer in layers(model)[:-1]:
        x = torch.relu(layer(x))
    return layers(model)[-1](x).detach()


def linear_layers(model):
    head = model.actor_head if isinstance(model, VAC) else model.head
    return [model.encoder.init, model.encoder.main[0], head.Q[0][0], head.Q[1][0]]


MODELS = pytest.mark.parametrize("make", [dqn, vac])


class Doubled(nn.Module):
    def forward(self, weight):
        return 2 * weight


@MODELS
@pytest.mark.parametrize(
    "change",
    [
        spectral_norm,
        parametrizations.spectral_norm,
        parametrizations.weight_norm,
        partial(prune.l1_unstructured, name="weight", amount=0.5),
        lambda layer: parametrize.register_parametrization(layer, "weight", Doubled()),
        lambda layer: layer.register_parameter("weight", nn.Parameter(torch.ones_like(layer.weight))),
    ],
    ids=["old spectral_norm", "spectral_norm", "weight_norm", "prune", "parametrization", "new parameter"],
)
@pytest.mark.parametrize("index", range(4))
def test_weights_changed_later_count(make, change, index):
    model = make()
    before = logit(model)
    with torch.no_grad():
        linear_layers(model)[index].weight.mul_(3)
    change(linear_layers(model)[index])
    model.eval()  # the power iteration of a spectral norm goes on with each pass in training mode
    assert torch.equal(logit(model), by_hand(model, linear_layers))
    assert not torch.equal(logit(model), before)


@MODELS
def test_the_forward_of_a_layer_changed_later_is_called(make):
    model = make()
    logit(model)
    layer = last_layer(model)
    layer.forward = lambda x: nn.Linear.forward(layer, x) + 100
    assert (logit(model) > 50).all()


@MODELS
def test_the_forward_of_the_model_changed_later_is_called(make):
    model = make()
    logit(model)
    plain = model.forward
    model.forward = lambda *args, **kwargs: {"logit": plain(*args, **kwargs)["logit"] + 100}
    assert (logit(model) > 50).all()


@MODELS
def test_the_forward_of_a_class_changed_later_is_called(make, monkeypatch):
    model = make()
    logit(model)
    monkeypatch.setattr(nn.ReLU, "forward", lambda self, x: torch.zeros_like(x))
    rows = logit(model)
    assert torch.equal(rows, last_layer(model).bias.detach().expand_as(rows))


@MODELS
@pytest.mark.parametrize("register", ["register_forward_hook", "register_forward_pre_hook"])
def test_hooks_added_later_are_called_of_every_module(make, register):
    model, calls = make(), []
    logit(model)
    parts = [part for part in model.modules() if not isinstance(part, nn.ModuleList)]  # a VAC's aliases are never run
    handles = [getattr(part, register)(lambda module, *_: calls.append(module)) for part in parts]
    wrapped = model_wrap(model, wrapper_name="base")
    kwargs = {"mode": "compute_actor_critic"} if isinstance(model, VAC) else {}
    wrapped.forward(X, **kwargs)
    assert set(calls) == set(parts)
    for handle in handles:
        handle.remove()
    calls.clear()
    wrapped.forward(X, **kwargs)
    assert calls == []


@MODELS
def test_backward_hooks_added_later_are_called_of_every_layer(make):
    model, calls = make(), []
    logit(model)
    layers = linear_layers(model)
    for layer in layers:
        layer.register_full_backward_hook(lambda module, *_: calls.append(module))
    kwargs = {"mode": "compute_actor"} if isinstance(model, VAC) else {}
    model(X.clone().requires_grad_(), **kwargs)["logit"].sum().backward()
    assert calls == layers[::-1]


@MODELS
def test_what_a_hook_returns_counts(make):
    model = make()
    logit(model)
    last_layer(model).register_forward_hook(lambda module, args, output: output + 100)
    assert (logit(model) > 50).all()


@MODELS
def test_a_module_exchanged_later_is_called(make):
    model = make()
    logit(model)
    model.encoder.main[0] = nn.Linear(8, 8)
    assert torch.equal(logit(model), by_hand(model, linear_layers))
    model.encoder = nn.Linear(4, 8)
    head = model.actor_head if isinstance(model, VAC) else model.head
    assert torch.equal(logit(model), head(model.encoder(X))["logit"].detach())


def test_a_critic_exchanged_later_is_called():
    model = VAC(4, 2, share_encoder=False)
    model(X, "compute_actor_critic")
    model.critic_encoder = nn.Linear(4, 64)
    expected = model.critic_head(model.critic_encoder(X))["pred"]
    for mode in ("compute_critic", "compute_actor_critic"):
        assert torch.equal(model(X, mode)["value"], expected)


def test_functional_calls_use_the_parameters_that_they_are_given():
    model = dqn()
    before = model(X)["logit"]
    zeros = {name: torch.zeros_like(parameter) for name, parameter in model.named_parameters()}
    assert torch.equal(torch.func.functional_call(model, zeros, (X,))["logit"], torch.zeros(6, 2))
    assert torch.equal(model(X)["logit"], before)


def test_a_projection_added_later_is_called():
    model = dqn()
    logit(model)
    model.projection = nn.Linear(8, 8)
    assert torch.equal(logit(model), model.head(model.projection(model.encoder(X)))["logit"].detach())
