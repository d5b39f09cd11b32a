"""Recurrent layers and their states."""

import pytest
import torch
from torch import nn

from ding.torch_utils.network.rnn import GRU, LSTM, PytorchLSTM, get_lstm

TYPES = ["normal", "pytorch", "gru"]


def naive_lstm(net, inputs):
    """The recurrence of the paper, step by step and without hoisting anything."""
    state = net.state_dict()
    x = list(inputs)
    for layer in range(net.num_layers):
        h = c = torch.zeros(inputs.shape[1], net.hidden_size)
        outputs = []
        for step in x:
            parts = [step @ state[f"wx.{layer}"], h @ state[f"wh.{layer}"]]
            for k, part in enumerate(parts):
                name = f"norm.{2 * layer + k}"
                if f"{name}.weight" in state:
                    centred = part - part.mean(-1, keepdim=True)
                    scaled = centred / (part.var(-1, unbiased=False, keepdim=True) + 1e-5).sqrt()
                    parts[k] = scaled * state[f"{name}.weight"] + state[f"{name}.bias"]
            i, f, o, u = (parts[0] + parts[1] + state["bias"][layer]).chunk(4, dim=-1)
            c = f.sigmoid() * c + i.sigmoid() * u.tanh()
            h = o.sigmoid() * c.tanh()
            outputs.append(h)
        x = outputs
    return torch.stack(x), h, c


@pytest.mark.parametrize("norm_type", ["LN", None])
def test_the_normalised_lstm_equals_its_naive_twin(norm_type):
    torch.manual_seed(0)
    net = get_lstm("normal", 3, 5, num_layers=2, norm_type=norm_type)
    for norm in net.norm:
        nn.init.uniform_(norm.weight)
        nn.init.uniform_(norm.bias)
    inputs = torch.randn(4, 2, 3)
    outputs, state = net(inputs, list_next_state=False)
    expected, h, c = naive_lstm(net, inputs)
    assert torch.allclose(outputs, expected, atol=1e-5)
    assert torch.allclose(state["h"][-1], h, atol=1e-5) and torch.allclose(state["c"][-1], c, atol=1e-5)


def test_without_norm_it_is_torchs_lstm():
    torch.manual_seed(0)
    ours, torchs = LSTM(3, 4, num_layers=2), nn.LSTM(3, 4, num_layers=2)
    order = [0, 1, 3, 2]  # torch has its gates in the order i, f, u, o
    with torch.no_grad():
        for layer in range(2):
            for own, name in ((ours.wx, "ih"), (ours.wh, "hh")):
                blocks = getattr(torchs, f"weight_{name}_l{layer}").chunk(4)
                own[layer].copy_(torch.cat([blocks[k] for k in order]).T)
            bias = (getattr(torchs, f"bias_ih_l{layer}") + getattr(torchs, f"bias_hh_l{layer}")).chunk(4)
            ours.bias[layer].copy_(torch.cat([bias[k] for k in order]))
    inputs = torch.randn(6, 3, 3)
    outputs, state = ours(inputs, list_next_state=False)
    expected, (h, c) = torchs(inputs)
    for got, wanted in ((outputs, expected), (state["h"], h), (state["c"], c)):
        assert torch.allclose(got, wanted, atol=1e-6)


def test_the_parameters_have_the_documented_names_shapes_and_range():
    torch.manual_seed(0)
    net = get_lstm("normal", 3, 16, num_layers=2)
    shapes = {name: tuple(tensor.shape) for name, tensor in net.state_dict().items()}
    norms = {f"norm.{i}.{part}": (64,) for i in range(4) for part in ("weight", "bias")}
    assert shapes == {"wx.0": (3, 64), "wx.1": (16, 64), "wh.0": (16, 64), "wh.1": (16, 64), "bias": (2, 64), **norms}
    drawn = torch.cat([tensor.flatten() for name, tensor in net.state_dict().items() if "norm" not in name])
    assert 0.24 < drawn.abs().max() <= 0.25
    assert sorted(get_lstm("pytorch", 3, 4).state_dict()) == sorted(nn.LSTM(3, 4).state_dict())
    assert sorted(get_lstm("gru", 3, 4).state_dict()) == sorted(nn.GRUCell(3, 4).state_dict())


def test_the_pytorch_type_is_torchs_lstm():
    torch.manual_seed(0)
    ours = get_lstm("pytorch", 3, 4, num_layers=2)
    torchs = nn.LSTM(3, 4, num_layers=2)
    torchs.load_state_dict(ours.state_dict())
    inputs, h, c = torch.rand(5, 2, 3), torch.rand(2, 2, 4), torch.rand(2, 2, 4)
    outputs, state = ours(inputs, {"h": h, "c": c}, list_next_state=False)
    expected, (next_h, next_c) = torchs(inputs, (h, c))
    assert torch.equal(outputs, expected) and torch.equal(state["h"], next_h) and torch.equal(state["c"], next_c)


def test_the_gru_type_is_torchs_gru_over_the_steps():
    torch.manual_seed(0)
    ours, torchs = get_lstm("gru", 3, 4), nn.GRU(3, 4)
    torchs.load_state_dict({f"{name}_l0": value for name, value in ours.state_dict().items()})
    inputs, h, c = torch.rand(5, 2, 3), torch.rand(1, 2, 4), torch.rand(1, 2, 4)
    outputs, state = ours(inputs, {"h": h, "c": c}, list_next_state=False)
    expected, next_h = torchs(inputs, h)
    assert torch.allclose(outputs, expected, atol=1e-6) and torch.allclose(state["h"], next_h, atol=1e-6)
    assert state["c"] is c


@pytest.mark.parametrize("lstm_type", TYPES)
def test_a_sequence_may_be_run_in_pieces(lstm_type):
    torch.manual_seed(0)
    net = get_lstm(lstm_type, 3, 4)
    inputs = torch.rand(5, 2, 3)
    whole, _ = net(inputs)
    first, states = net(inputs[:2])
    second, _ = net(inputs[2:], states)
    assert torch.allclose(torch.cat([first, second]), whole, atol=1e-6)
    assert [{name: tuple(tensor.shape) for name, tensor in state.items()} for state in states] == [
        {"h": (1, 1, 4), "c": (1, 1, 4)}
    ] * 2


class Tree:
    """As much of a tree of tensors as is needed here."""

    def __init__(self, **leaves):
        self._leaves = leaves

    def json(self):
        return self._leaves


@pytest.mark.parametrize("lstm_type", TYPES)
def test_states_may_be_dicts_pairs_trees_or_none_and_none_is_zeros(lstm_type):
    torch.manual_seed(0)
    net = get_lstm(lstm_type, 3, 4)
    inputs, h, c = torch.rand(1, 3, 3), torch.rand(1, 3, 4), torch.rand(1, 3, 4)
    h[:, 2] = c[:, 2] = 0
    states = [{"h": h[:, :1], "c": c[:, :1]}, (h[:, 1:2], c[:, 1:2]), None]
    expected, _ = net(inputs, {"h": h, "c": c})
    assert torch.equal(net(inputs, states)[0], expected)
    assert torch.equal(net(inputs, tuple(states))[0], expected)
    assert torch.equal(net(inputs, Tree(h=h, c=c))[0], expected)
    assert torch.equal(net(inputs, [Tree(**states[0]), *states[1:]])[0], expected)
    assert torch.equal(net(inputs, [None] * 3)[0], net(inputs)[0])


def test_the_types_are_told_by_name():
    assert [type(get_lstm(lstm_type, 3, 4)) for lstm_type in TYPES] == [LSTM, PytorchLSTM, GRU]
    with pytest.raises(AssertionError):
        get_lstm("rnn", 3, 4)
    with pytest.raises(NotImplementedError):
        get_lstm("hpc", 3, 4, seq_len=5, batch_size=2)
    with pytest.raises(ValueError, match="num_layers = 2"):
        get_lstm("gru", 3, 4, num_layers=2)
    with pytest.raises(KeyError):
        get_lstm("normal", 3, 4, norm_type="BN")
