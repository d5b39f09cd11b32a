"""Blocks, MLP, noisy layers, normalisations, activations."""

import math
import pickle

import pytest
import torch
from torch import nn

from ding.torch_utils.network.gtrxl import Transformer, TransformerLayer
from ding.torch_utils.network.nn_module import (
    MLP,
    Dropout,
    NoiseLinearLayer,
    ScatterConnection,
    build_activation,
    build_conv_normalization,
    build_normalization,
    conv2d_block,
    fc_block,
    noise_block,
    one_hot,
    sequential_pack,
)


def types(module):
    return [type(layer) for layer in module]


def test_fc_block_orders_linear_norm_activation_dropout():
    block = fc_block(4, 8, nn.ReLU(), norm_type="BN", use_dropout=True, dropout_probability=0.3)
    assert types(block) == [nn.Linear, nn.BatchNorm1d, nn.ReLU, Dropout]
    assert block[3].p == 0.3
    assert block.out_channels == 8
    assert types(fc_block(4, 8)) == [nn.Linear]


def test_noise_block_has_a_noisy_layer_in_the_place_of_the_linear_one():
    block = noise_block(4, 8, nn.ReLU(), norm_type="LN", use_dropout=True, sigma0=0.7)
    assert types(block) == [NoiseLinearLayer, nn.LayerNorm, nn.ReLU, Dropout]
    assert block[0].sigma0 == 0.7


def test_sequential_pack_tells_the_width_of_its_last_layer_that_has_one():
    assert sequential_pack([nn.Conv2d(3, 5, 1), nn.ReLU()]).out_channels == 5
    assert sequential_pack([nn.Linear(3, 6), nn.ReLU()]).out_channels == 6
    assert not hasattr(sequential_pack([nn.ReLU()]), "out_channels")


def test_mlp_is_flat_and_shares_one_activation():
    act = nn.Tanh()
    net = MLP(4, 8, 2, layer_num=3, activation=act, norm_type="LN", use_dropout=True, dropout_probability=0.1)
    assert types(net) == [nn.Linear, nn.LayerNorm, nn.Tanh, Dropout] * 3
    assert [net[i] is act for i in (2, 6, 10)] == [True] * 3
    assert [(layer.in_features, layer.out_features) for layer in net[::4]] == [(4, 8), (8, 8), (8, 2)]


def test_mlp_without_output_activation_or_norm_ends_in_the_bare_linear_layer():
    net = MLP(
        4, 8, 2, 2, activation=nn.ReLU(), norm_type="BN", use_dropout=True, output_activation=False, output_norm=False
    )
    assert types(net) == [nn.Linear, nn.BatchNorm1d, nn.ReLU, Dropout, nn.Linear]
    net = MLP(4, 8, 2, 1, activation=nn.ReLU(), norm_type="BN", output_activation=False)
    assert types(net) == [nn.Linear, nn.BatchNorm1d]
    net = MLP(4, 8, 2, 1, activation=nn.ReLU(), norm_type="BN", output_norm=False)
    assert types(net) == [nn.Linear, nn.ReLU]


def test_mlp_can_start_with_a_zero_last_layer():
    net = MLP(4, 8, 2, 2, activation=nn.ReLU(), last_linear_layer_init_zero=True)
    assert torch.equal(net(torch.rand(3, 4)), torch.zeros(3, 2))
    assert net[0].weight.abs().sum() > 0


def test_conv2d_block_pads_normalises_and_activates():
    block = conv2d_block(3, 5, 3, padding=1, activation=nn.ReLU(), norm_type="BN")
    assert types(block) == [nn.Conv2d, nn.BatchNorm2d, nn.ReLU]
    assert block.out_channels == 5
    assert block(torch.rand(2, 3, 6, 6)).shape == (2, 5, 6, 6)
    for pad_type, layer in (("reflect", nn.ReflectionPad2d), ("replication", nn.ReplicationPad2d)):
        block = conv2d_block(3, 5, 3, padding=1, pad_type=pad_type, bias=False)
        assert types(block) == [layer, nn.Conv2d]
        assert block[1].bias is None
        assert block(torch.rand(2, 3, 6, 6)).shape == (2, 5, 6, 6)
    with pytest.raises(AssertionError):
        conv2d_block(3, 5, 3, pad_type="circular")


@pytest.mark.parametrize(
    ("name", "expected"),
    [("BN", nn.BatchNorm2d), ("IN", nn.InstanceNorm2d), ("SyncBN", nn.SyncBatchNorm), ("LN", nn.GroupNorm)],
)
def test_norms_after_a_convolution(name, expected):
    assert type(build_conv_normalization(name, 4)) is expected


def test_build_normalization_returns_classes():
    assert build_normalization("BN", dim=1) is nn.BatchNorm1d
    assert build_normalization("BN", dim=2) is nn.BatchNorm2d
    assert build_normalization("IN", dim=1) is nn.InstanceNorm1d
    assert build_normalization("IN", dim=2) is nn.InstanceNorm2d
    assert build_normalization("LN") is build_normalization("LN", dim=1) is nn.LayerNorm
    assert build_normalization("SyncBN") is nn.SyncBatchNorm


def test_build_activation_by_name():
    assert isinstance(build_activation("tanh"), nn.Tanh)
    assert build_activation("relu", inplace=True).inplace is True
    assert torch.equal(build_activation("square")(torch.tensor([-3.0])), torch.tensor([9.0]))
    with pytest.raises(KeyError):
        build_activation("rel")
    with pytest.raises(AssertionError):
        build_activation("tanh", inplace=True)


def test_noise_layer_starts_quiet_with_the_documented_ranges():
    torch.manual_seed(0)
    layer = NoiseLinearLayer(16, 4, sigma0=0.4)
    assert [name for name, _ in layer.named_parameters()] == ["weight_mu", "weight_sigma", "bias_mu", "bias_sigma"]
    assert [name for name, _ in layer.named_buffers()] == ["weight_eps", "bias_eps"]
    assert layer.enable_noise is False
    assert layer.weight_mu.abs().max() <= 1 / math.sqrt(16)
    assert torch.allclose(layer.weight_sigma, torch.full((4, 16), 0.4 / 4))
    assert torch.allclose(layer.bias_sigma, torch.full((4,), 0.4 / 2))
    x = torch.rand(3, 16)
    assert torch.equal(layer(x), nn.functional.linear(x, layer.weight_mu, layer.bias_mu))


def test_noise_is_factorised_and_stays_until_it_is_drawn_again():
    torch.manual_seed(0)
    layer = NoiseLinearLayer(5, 3)
    layer.enable_noise = True
    x = torch.rand(2, 5)
    first = layer(x)
    assert torch.equal(first, layer(x))
    assert torch.linalg.matrix_rank(layer.weight_eps) == 1
    expected = nn.functional.linear(
        x, layer.weight_mu + layer.weight_sigma * layer.weight_eps, layer.bias_mu + layer.bias_sigma * layer.bias_eps
    )
    assert torch.equal(first, expected)
    layer.reset_noise()
    assert not torch.equal(first, layer(x))
    assert "sigma0=0.4" in repr(pickle.loads(pickle.dumps(layer)))


def test_one_hot_codes_along_the_last_or_the_first_axis():
    val = torch.tensor([[0, 2], [1, 1]])
    code = one_hot(val, 3)
    assert code.dtype == torch.float32
    assert code.shape == (2, 2, 3)
    assert torch.equal(code.argmax(-1), val)
    assert torch.equal(code.sum(-1), torch.ones(2, 2))
    assert torch.equal(one_hot(val, 3, num_first=True), code.permute(2, 0, 1))


def test_one_hot_refuses_other_things():
    with pytest.raises(AssertionError):
        one_hot([1], 3)
    for value in (3, -1):
        with pytest.raises(RuntimeError, match="Class values must be"):
            one_hot(torch.tensor([value]), 3)


# Entities on a map.


def naive_map(x, size, location, scatter_type):
    result = torch.zeros(x.shape[0], x.shape[2], *size)
    for b in range(x.shape[0]):
        for m in range(x.shape[1]):
            row, column = location[b, m].tolist()
            if scatter_type == "add":
                result[b, :, row, column] += x[b, m]
            else:
                result[b, :, row, column] = x[b, m]
    return result


@pytest.mark.parametrize("scatter_type", ["add", "cover"])
@pytest.mark.parametrize("entities", [0, 1, 40])
def test_features_lie_where_their_entities_are_and_later_ones_cover_earlier_ones(scatter_type, entities):
    torch.manual_seed(0)
    x, size = torch.randn(2, entities, 3), (4, 5)
    location = torch.stack([torch.randint(4, (2, entities)), torch.randint(5, (2, entities))], dim=-1)
    scatter = ScatterConnection(scatter_type)
    expected = naive_map(x, size, location, scatter_type)
    assert torch.allclose(scatter(x, size, location), expected, atol=1e-5)
    assert torch.allclose(scatter.xy_forward(x, size, location[..., 1], location[..., 0]), expected, atol=1e-5)


def test_locations_outside_of_the_map_and_unknown_types_are_refused():
    scatter = ScatterConnection("add")
    with pytest.raises(ValueError, match="columns from 0 to 3"):
        scatter(torch.rand(1, 2, 1), (2, 3), torch.tensor([[[1, 3], [0, 0]]]))
    with pytest.raises(ValueError):
        scatter(torch.rand(1, 2, 1), (2, 3), torch.tensor([[[-1, 2], [0, 0]]]))
    with pytest.raises(AssertionError):
        ScatterConnection("mean")


# Transformer encoders against torch's own modules.


def torchs_layer(layer, width, heads, hidden):
    """torch's encoder layer with the weights of `layer`."""
    twin = nn.TransformerEncoderLayer(width, heads, hidden, dropout=0.0, batch_first=True)
    with torch.no_grad():
        twin.self_attn.in_proj_weight.copy_(layer.attention.attention_pre[0].weight)
        twin.self_attn.in_proj_bias.copy_(layer.attention.attention_pre[0].bias)
        for ours, theirs in (
            (layer.attention.project[0], twin.self_attn.out_proj),
            (layer.mlp[0], twin.linear1),
            (layer.mlp[2], twin.linear2),
            (layer.layernorm1, twin.norm1),
            (layer.layernorm2, twin.norm2),
        ):
            theirs.load_state_dict(ours.state_dict())
    return twin


@pytest.mark.parametrize("masked", [False, True])
def test_a_layer_is_torchs_encoder_layer(masked):
    torch.manual_seed(0)
    layer = TransformerLayer(8, head_dim=4, hidden_dim=16, output_dim=8, head_num=2, mlp_num=2)
    x, mask = torch.randn(3, 5, 8), torch.ones(3, 5, dtype=torch.bool)
    mask[0, 3:] = mask[1, 0] = False
    expected = torchs_layer(layer, 8, 2, 16)(x, src_key_padding_mask=~mask if masked else None)
    assert torch.allclose(layer(x, mask if masked else None), expected, atol=1e-5)


def test_a_transformer_embeds_and_runs_its_layers():
    torch.manual_seed(0)
    net = Transformer(3, head_dim=4, hidden_dim=16, output_dim=8, head_num=2, mlp_num=2, layer_num=2)
    x, mask = torch.randn(2, 4, 3), torch.tensor([[1, 1, 0, 0], [1, 1, 1, 1]])
    expected = torch.relu(nn.functional.linear(x, net.embedding[0].weight, net.embedding[0].bias))
    for layer in net.main:
        expected = torchs_layer(layer, 8, 2, 16)(expected, src_key_padding_mask=mask == 0)
    assert torch.allclose(net(x, mask), expected, atol=1e-5)


def test_masked_entities_do_not_count():
    torch.manual_seed(0)
    net = Transformer(3, head_dim=4, hidden_dim=16, output_dim=8).eval()
    x, mask = torch.randn(1, 4, 3), torch.tensor([[True, True, False, False]])
    other = x.clone()
    other[:, 2:] = 100.0
    assert torch.allclose(net(x, mask)[:, :2], net(other, mask)[:, :2])
    assert torch.allclose(net(x, mask)[:, :2], net(x[:, :2]), atol=1e-5)
