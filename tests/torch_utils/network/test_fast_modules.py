"""Fast ways through modules do what methods of `nn.Module` do, and call them where these have something else to do."""

import inspect

import pytest
import torch
from torch import nn
from torch.nn.modules import module as torch_module
from torch.nn.utils import parametrize, prune, spectral_norm

from ding.torch_utils.network import fast_modules
from ding.torch_utils.network.fast_modules import fixed_modules, pass_through, weights_of

X = torch.rand(4, 3, generator=torch.Generator().manual_seed(0)) - 0.5


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(3, 5, bias=False)
        self.body = nn.Sequential(
            nn.Identity(), nn.ReLU(True), nn.Sequential(nn.Linear(5, 5), nn.Tanh()), nn.ReLU(), nn.LayerNorm(5)
        )
        self.last = nn.Sequential(nn.Linear(5, 5), nn.ReLU(), nn.Linear(5, 2))

    def forward(self, x):
        return pass_through(x, self, "first", "body", "last")


def by_calls(net, x=X):
    return net.last(net.body(net.first(x)))


@pytest.fixture
def net():
    torch.manual_seed(0)
    net = Net()
    net(X)
    return net


def parts_of(net):
    return [part for part in net.modules() if part is not net]


PARTS = pytest.mark.parametrize("index", range(13))


def test_no_layer_is_called_as_a_module(net, monkeypatch):
    calls, call = [], nn.Module._call_impl
    monkeypatch.setattr(nn.Module, "_call_impl", lambda self, *args: calls.append(self) or call(self, *args))
    net(X)
    assert calls == [net]


def test_value_and_gradients_have_the_same_bits(net):
    expected, own = by_calls(net), net(X)
    assert torch.equal(own, expected)
    parameters = list(net.parameters())
    for grad, own_grad in zip(*(torch.autograd.grad(y.sum(), parameters) for y in (expected, own)), strict=True):
        assert torch.equal(grad, own_grad)


@pytest.mark.parametrize("layer", [nn.Linear(3, 5), nn.Conv1d(1, 2, 2)], ids=["linear", "convolution"])
def test_what_others_have_seen_is_not_overwritten(layer):
    relu, seen = nn.ReLU(), []
    x = X[:, None].clone()
    pass_through(x, relu)
    pass_through(x, nn.Sequential(nn.Identity(), relu))
    assert torch.equal(x, X[:, None])
    layer.register_forward_hook(lambda module, args, output: seen.append(output))
    pass_through(x, nn.Sequential(layer, relu))
    assert torch.equal(seen[0], layer(x))
    assert (seen[0] < 0).any()


def test_a_convolution_and_a_relu_give_the_same_bits_and_gradients(monkeypatch):
    net, x = nn.Sequential(nn.Conv1d(1, 2, 2), nn.ReLU(), nn.ReLU()), X[:, None]
    expected = net(x)
    calls, overwrite = [], torch.relu_
    monkeypatch.setattr(torch, "relu_", lambda x: calls.append(x) or overwrite(x))
    own = pass_through(x, net)
    assert len(calls) == 1
    assert torch.equal(own, expected)
    parameters = list(net.parameters())
    for grad, own_grad in zip(*(torch.autograd.grad(y.sum(), parameters) for y in (expected, own)), strict=True):
        assert torch.equal(grad, own_grad)


def test_mixed_precision_applies(net):
    with torch.autocast("cpu", torch.bfloat16):
        own, expected = net(X), by_calls(net)
    assert own.dtype is torch.bfloat16
    assert torch.equal(own, expected)


# --- hooks ---

HOOKS = {
    "forward": lambda part, note: part.register_forward_hook(lambda *_: note(part)),
    "forward with kwargs": lambda part, note: part.register_forward_hook(lambda *_: note(part), with_kwargs=True),
    "forward always": lambda part, note: part.register_forward_hook(lambda *_: note(part), always_call=True),
    "pre": lambda part, note: part.register_forward_pre_hook(lambda *_: note(part)),
    "pre with kwargs": lambda part, note: part.register_forward_pre_hook(lambda *_: note(part), with_kwargs=True),
    "backward": lambda part, note: part.register_full_backward_hook(lambda *_: note(part)),
    "backward pre": lambda part, note: part.register_full_backward_pre_hook(lambda *_: note(part)),
}
GLOBAL_HOOKS = ("forward_hook", "forward_pre_hook", "full_backward_hook", "full_backward_pre_hook")


@PARTS
@pytest.mark.parametrize("register", HOOKS.values(), ids=HOOKS)
def test_a_hook_added_later_is_called_until_it_is_removed(net, index, register):
    net.body[1].inplace = net.body[3].inplace = False  # backward hooks of torch refuse what is modified in place
    part, calls = parts_of(net)[index], []
    handle = register(part, calls.append)
    for _ in range(2):
        net(X.clone().requires_grad_()).sum().backward()
    assert calls == [part] * 2
    handle.remove()
    net(X).sum().backward()
    assert calls == [part] * 2


@pytest.mark.parametrize("kind", GLOBAL_HOOKS)
def test_a_hook_of_all_modules_is_called_for_each(net, kind):
    net.body[1].inplace = net.body[3].inplace = False
    calls = []
    handle = getattr(torch_module, f"register_module_{kind}")(lambda module, *_: calls.append(module))
    try:
        net(X.clone().requires_grad_()).sum().backward()
    finally:
        handle.remove()
    assert set(calls) == set(net.modules())
    calls.clear()
    net(X).sum().backward()
    assert calls == []


# --- what is changed later ---


@PARTS
def test_a_forward_set_later_is_called(net, index):
    part = parts_of(net)[index]
    plain = part.forward
    part.forward = lambda x: plain(x) + 1
    expected = by_calls(net)
    assert torch.equal(net(X), expected)
    del part.forward
    assert not torch.equal(net(X), expected)


class Doubled(nn.Linear):
    def forward(self, x):
        return 2 * super().forward(x)


class Twice(nn.Linear):
    def __call__(self, x):
        return 2 * super().__call__(x)


@pytest.mark.parametrize("cls", [Doubled, Twice])
def test_a_subclass_is_called(net, cls):
    before = net(X)
    net.last[2].__class__ = cls
    assert torch.equal(net(X), 2 * before)


class Negated(nn.Module):
    def forward(self, weight):
        return -weight


CHANGES = {
    "parametrization": lambda layer: parametrize.register_parametrization(layer, "weight", Negated()),
    "pruning": lambda layer: prune.l1_unstructured(layer, "weight", amount=0.5),
    "spectral norm": spectral_norm,
    "a new parameter": lambda layer: setattr(layer, "weight", nn.Parameter(torch.ones(2, 5))),
    "a tensor": lambda layer: (delattr(layer, "weight"), setattr(layer, "weight", torch.ones(2, 5))),
    "a tensor beside a new parameter": lambda layer: (
        layer.register_parameter("scale", nn.Parameter(torch.ones(1))),
        delattr(layer, "weight"),
        setattr(layer, "weight", torch.ones(2, 5)),
    ),
    "without bias": lambda layer: setattr(layer, "bias", None),
    "loaded": lambda layer: layer.load_state_dict({"weight": torch.ones(2, 5), "bias": torch.ones(2)}, assign=True),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_changed_weight_counts(net, change):
    change(net.last[2])
    net.eval()  # the power iteration of a spectral norm goes on with each pass in training mode
    assert torch.equal(net(X), by_calls(net))


def test_layers_exchanged_later_are_called(net):
    before = net(X)
    net.body[2].append(nn.Linear(5, 5))
    assert torch.equal(net(X), by_calls(net))
    assert not torch.equal(net(X), before)
    net.last = nn.Linear(5, 2)
    assert torch.equal(net(X), by_calls(net))


def test_hooks_and_new_numbers_count_where_layers_are_looked_at_once(net):
    calls = []
    handle = net.body[2].register_forward_hook(lambda *_: calls.append(1))
    with fixed_modules():
        before = net(X)
        with torch.no_grad():
            net.last[2].weight.mul_(2)
        within = net(X)
    assert len(calls) == 2 and not torch.equal(within, before) and torch.equal(within, by_calls(net))
    handle.remove()
    calls.clear()
    net.last = nn.Linear(5, 2)
    assert torch.equal(net(X), by_calls(net)) and calls == []


def test_layers_are_looked_at_once_within_a_block(net, monkeypatch):
    looks = []
    is_hooked = fast_modules._has_any_global_hook
    monkeypatch.setattr(fast_modules, "_has_any_global_hook", lambda: looks.append(1) or is_hooked())
    with fixed_modules():
        outputs = [net(X) for _ in range(3)]
        in_block = len(looks)
        with fixed_modules():
            net(X)
    assert looks and len(looks) == 2 * in_block  # the inner block looks for itself
    assert all(torch.equal(output, by_calls(net)) for output in outputs)


# --- transformations of torch ---


def test_a_model_is_compiled_in_one_graph(net):
    graphs = []
    compiled = torch.compile(net, backend=lambda graph, inputs: graphs.append(graph) or graph.forward, fullgraph=True)
    assert torch.equal(compiled(X), by_calls(net))
    assert len(graphs) == 1


# --- modes, dtypes and weights ---


def modes(module):
    return [part.training for part in module.modules()]


def test_weights_have_the_names_that_torch_gives_them(net):
    net.body.append(nn.BatchNorm1d(5))
    net.again = net.last
    net.register_module("none", None)
    parameters, buffers = weights_of(net)
    assert list(parameters.items()) == list(net.named_parameters(remove_duplicate=False))
    assert list(buffers.items()) == list(net.named_buffers(remove_duplicate=False))


# --- what it relies on ---


def test_a_call_of_a_module_of_torch_does_only_what_is_known():
    wrapped, call = nn.Module._wrapped_call_impl.__code__, nn.Module._call_impl.__code__
    assert nn.Module.__call__ is nn.Module._wrapped_call_impl
    assert set(wrapped.co_names) == {"_compiled_call_impl", "_call_impl"}
    begin = inspect.getsource(nn.Module._call_impl).partition("result = None")[0].split("\n", 1)[1]
    words = set(begin.replace("(", " ").replace(")", " ").replace(":", " ").split())
    hooks = {"_backward_hooks", "_backward_pre_hooks", "_forward_hooks", "_forward_pre_hooks"}
    assert {word for word in words if word.startswith(("self.", "_global", "torch."))} == {
        *(f"self.{name}" for name in hooks),
        *(f"_global{name}" for name in hooks),
        *("self.forward", "self._slow_forward", "torch._C._get_tracing_state"),
    }
    assert {"_forward_hooks", "_slow_forward"} <= set(call.co_names)
    assert nn.Module._compiled_call_impl is None


def test_the_mode_of_a_module_of_torch_is_set_as_is_known():
    lines = [line.strip() for line in inspect.getsource(nn.Module.train).splitlines()]
    body = ["self.training = mode", "for module in self.children():", "module.train(mode)", "return self"]
    assert lines[-4:] == body


@pytest.mark.parametrize(
    ("cls", "body"),
    [
        (nn.Linear, "return F.linear(input, self.weight, self.bias)"),
        (nn.ReLU, "return F.relu(input, inplace=self.inplace)"),
        (nn.Sequential, "for module in self:\n            input = module(input)\n        return input"),
    ],
)
def test_the_layers_of_torch_compute_what_is_known(cls, body):
    assert inspect.getsource(cls.forward).rstrip().endswith(body)
