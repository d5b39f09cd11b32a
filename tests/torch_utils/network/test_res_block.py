"""Residual blocks."""

import pytest
import torch
from torch import nn

from ding.torch_utils.network.resnet import ResBlock, ResFCBlock


@pytest.mark.parametrize(("res_type", "convs", "size"), [("basic", 2, 6), ("bottleneck", 3, 6), ("downsample", 3, 3)])
def test_res_block_shapes_and_names(res_type, convs, size):
    block = ResBlock(4, res_type=res_type)
    assert [name for name, _ in block.named_children()] == ["act", *[f"conv{i + 1}" for i in range(convs)]]
    assert block(torch.rand(2, 4, 6, 6)).shape == (2, 4, size, size)
    assert "conv1.0.weight" in block.state_dict()
    assert "conv1.1.running_mean" in block.state_dict()


def test_basic_block_adds_its_input_before_the_activation():
    block = ResBlock(2, norm_type=None)
    nn.init.zeros_(block.conv2[0].weight)
    nn.init.constant_(block.conv2[0].bias, -0.25)
    x = torch.rand(1, 2, 3, 3)
    assert torch.equal(block(x), torch.relu(x - 0.25))


def test_downsample_changes_the_channels_with_a_bare_convolution_as_shortcut():
    block = ResBlock(3, res_type="downsample", out_channels=8, bias=False)
    assert block(torch.rand(1, 3, 8, 8)).shape == (1, 8, 4, 4)
    assert len(block.conv3) == 1
    assert block.conv3[0].bias is None


def test_bottleneck_is_as_wide_as_its_output_throughout():
    block = ResBlock(4, res_type="bottleneck")
    assert [getattr(block, f"conv{i}")[0].kernel_size for i in (1, 2, 3)] == [(1, 1), (3, 3), (1, 1)]
    assert {getattr(block, f"conv{i}")[0].out_channels for i in (1, 2, 3)} == {4}


def test_res_fc_block_adds_its_input_and_drops_out_last():
    block = ResFCBlock(4, norm_type=None)
    nn.init.zeros_(block.fc2[0].weight)
    nn.init.constant_(block.fc2[0].bias, -0.5)
    x = torch.rand(3, 4)
    assert torch.equal(block(x), torch.relu(x - 0.5))
    block = ResFCBlock(4, activation=nn.Tanh(), norm_type="LN", dropout=0.5)
    assert type(block.fc1[1]) is nn.LayerNorm
    assert (block.eval()(x).abs() < 1).all()
    torch.manual_seed(0)
    assert (block.train()(torch.rand(50, 4)) == 0).any()
