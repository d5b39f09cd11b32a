"""A chain of layers computes what calls of its modules compute, and calls those that have something to do in a call."""

import copy
import pickle

import pytest
import torch
from torch import nn
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook

from ding.torch_utils.network.layer_chain import LayerChain


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(3, 5, bias=False)
        self.body = nn.Sequential(nn.Identity(), nn.ReLU(True), nn.Sequential(nn.Linear(5, 5), nn.Tanh()), nn.ReLU())
        self.last = nn.Linear(5, 2)
        self._chain = LayerChain("first", "body", "last")

    def forward(self, x):
        return self._chain(self, x)


X = torch.rand(4, 3, generator=torch.Generator().manual_seed(0)) - 0.5


def by_calls(net):
    return net.last(net.body(net.first(X)))


@pytest.fixture
def net():
    torch.manual_seed(0)
    net = Net()
    net(X)
    return net


def inlined(net):
    """The modules that are computed without a call."""
    return [part for part in net.modules() if part is not net and not isinstance(part, nn.Tanh)]


def test_plain_layers_are_computed_without_a_call(net, monkeypatch):
    calls = []
    inner = nn.Module._call_impl
    monkeypatch.setattr(nn.Module, "_call_impl", lambda self, *args: calls.append(self) or inner(self, *args))
    net(X)
    assert calls == [net, net.body[2][1]]


def test_value_and_gradients_are_the_same_bits(net):
    expected = by_calls(net)
    grads = torch.autograd.grad(expected.sum(), list(net.parameters()))
    own = net(X)
    assert torch.equal(own, expected)
    for grad, own_grad in zip(grads, torch.autograd.grad(own.sum(), list(net.parameters())), strict=True):
        assert torch.equal(grad, own_grad)


def test_an_activation_in_place_writes_into_its_input():
    net = nn.Module()
    net.act = nn.ReLU(inplace=True)
    x = torch.tensor([-1.0, 2.0])
    assert LayerChain("act")(net, x) is x
    assert x.tolist() == [0.0, 2.0]


def test_an_activation_changed_later_to_work_in_place_does():
    net, chain = nn.Module(), LayerChain("act")
    net.act = nn.ReLU()
    x = torch.tensor([-1.0, 2.0])
    chain(net, x)
    assert x.tolist() == [-1.0, 2.0]
    net.act.inplace = True
    assert chain(net, x) is x


@pytest.mark.parametrize("register", [register_module_forward_hook, register_module_forward_pre_hook])
def test_global_hooks_added_later_are_called_of_every_module(net, register):
    calls = []
    handle = register(lambda module, *_: calls.append(module))
    try:
        net(X)
    finally:
        handle.remove()
    assert set(calls) == set(net.modules())
    calls.clear()
    net(X)
    assert calls == []


@pytest.mark.parametrize("index", range(8))
def test_a_forward_changed_later_is_called(net, index):
    part = inlined(net)[index]
    plain = part.forward
    part.forward = lambda x: plain(x) + 1
    expected = by_calls(net)
    assert torch.equal(net(X), expected)
    del part.forward
    assert not torch.equal(net(X), expected)


@pytest.mark.parametrize("cls", [nn.Linear, nn.ReLU, nn.Identity, nn.Sequential])
@pytest.mark.parametrize("method", ["forward", "__call__"])
def test_a_class_changed_later_is_called(net, cls, method, monkeypatch):
    plain, calls = getattr(cls, method), []
    monkeypatch.setattr(cls, method, lambda self, x: calls.append(self) or plain(self, x))
    net(X)
    assert set(calls) == {part for part in net.modules() if type(part) is cls}


def test_the_class_of_a_layer_changed_later_counts(net):
    class Doubled(nn.Linear):
        def forward(self, x):
            return 2 * super().forward(x)

    before = net(X)
    net.last.__class__ = Doubled
    assert torch.equal(net(X), 2 * before)


def test_layers_added_later_are_called(net):
    before = net(X)
    net.body[2].append(nn.Linear(5, 5))
    assert torch.equal(net(X), by_calls(net))
    assert not torch.equal(net(X), before)
    net.last = nn.Linear(5, 2)
    assert torch.equal(net(X), by_calls(net))


def test_a_layer_compiled_later_is_called_as_it_was_compiled(net, monkeypatch):
    calls = []
    monkeypatch.setattr(torch, "compile", lambda function: lambda x: calls.append(x) or function(x))
    net.last.compile()
    assert torch.equal(net(X), net.last(calls[0]))
    assert len(calls) == 2


def test_a_model_compiled_later_is_compiled_whole(net):
    graphs = []
    compiled = torch.compile(net, backend=lambda graph, inputs: graphs.append(graph) or graph.forward, fullgraph=True)
    assert torch.equal(compiled(X), by_calls(net))
    assert len(graphs) == 1


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda net: pickle.loads(pickle.dumps(net))])
def test_a_copy_has_layers_of_its_own(net, duplicate):
    before = net(X)
    other = duplicate(net)
    with torch.no_grad():
        other.last.weight.zero_()
        other.last.bias.fill_(3.0)
    assert torch.equal(other(X), torch.full((4, 2), 3.0))
    assert torch.equal(net(X), before)


def test_one_chain_serves_another_module(net):
    torch.manual_seed(1)
    other = Net()
    assert torch.equal(net._chain(other, X), by_calls(other))
    assert torch.equal(net(X), by_calls(net))
