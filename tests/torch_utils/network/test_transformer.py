"""Transformer encoders against torch's own modules."""

import pytest
import torch
from torch import nn

from ding.torch_utils.network.gtrxl import Transformer, TransformerLayer


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
