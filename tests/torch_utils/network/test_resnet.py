"""Residual networks for images."""

import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from ding.torch_utils.network.resnet import BasicBlock, ResBlock, ResFCBlock, ResNet, resnet18


def functional_resnet(state, x, layers):
    """The network in evaluation mode, written out with the tensors of its state dict."""

    def conv(name, x, stride=1, padding=1):
        return F.conv2d(x, state[f"{name}.weight"], stride=stride, padding=padding)

    def norm(name, x):
        tensors = [state[f"{name}.{part}"] for part in ("running_mean", "running_var", "weight", "bias")]
        return F.batch_norm(x, *tensors)

    x = F.max_pool2d(F.relu(norm("bn1", conv("conv1", x, 2, 3))), 3, 2, 1)
    for stage, depth in enumerate(layers, 1):
        for index in range(depth):
            name = f"layer{stage}.{index}"
            stride = 2 if stage > 1 and index == 0 else 1
            shortcut = x
            if f"{name}.downsample.0.weight" in state:
                shortcut = norm(f"{name}.downsample.1", conv(f"{name}.downsample.0", x, stride, 0))
            x = F.relu(norm(f"{name}.bn1", conv(f"{name}.conv1", x, stride)))
            x = F.relu(norm(f"{name}.bn2", conv(f"{name}.conv2", x)) + shortcut)
    return F.linear(F.adaptive_avg_pool2d(x, 1).flatten(1), state["fc.weight"], state["fc.bias"])


def randomized(net):
    """No tensor at a value that would hide its effect, such as the zero weights of last norms."""
    torch.manual_seed(0)
    for name, tensor in net.state_dict().items():
        if tensor.dtype.is_floating_point:
            tensor.copy_(torch.rand_like(tensor) * 0.2 + (0.5 if "running_var" in name else -0.1))
    return net.eval()


def test_the_forward_pass_equals_its_functional_twin():
    net = randomized(ResNet(BasicBlock, [2, 1, 2], num_classes=7, in_chans=2))
    x = torch.randn(2, 2, 40, 40)
    with torch.no_grad():
        assert torch.allclose(net(x), functional_resnet(net.state_dict(), x, [2, 1, 2]), rtol=1e-4, atol=1e-5)


def test_resnet18_has_the_documented_names_and_number_of_parameters():
    net = resnet18()
    assert sum(parameter.numel() for parameter in net.parameters()) == 11_689_512
    names = {name.rsplit(".", 1)[0] for name in net.state_dict()}
    blocks = {
        f"layer{stage}.{i}.{part}" for stage in range(1, 5) for i in (0, 1) for part in ("conv1", "bn1", "conv2", "bn2")
    }
    shortcuts = {f"layer{stage}.0.downsample.{i}" for stage in (2, 3, 4) for i in (0, 1)}
    assert names == blocks | shortcuts | {"conv1", "bn1", "fc"}


def test_convolutions_start_he_normal_in_the_fan_out_and_blocks_as_their_shortcut():
    torch.manual_seed(0)
    net = ResNet(BasicBlock, [1, 1])
    assert torch.equal(net.layer1[0].bn2.weight, torch.zeros(64))
    assert torch.equal(net.layer1[0].bn1.weight, torch.ones(64))
    std = net.layer2[0].conv1.weight.std().item()
    assert math.isclose(std, math.sqrt(2 / (128 * 9)), rel_tol=0.03)
    x = torch.rand(2, 64, 4, 4)
    assert torch.equal(net.layer1(x), x)


# Residual blocks.


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
