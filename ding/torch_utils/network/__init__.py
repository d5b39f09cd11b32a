"""Network blocks."""

from ding.torch_utils.network.activation import build_activation
from ding.torch_utils.network.nn_module import MLP, conv2d_block, fc_block, noise_block, one_hot, sequential_pack
from ding.torch_utils.network.noise_layer import NoiseLinearLayer
from ding.torch_utils.network.normalization import build_normalization
from ding.torch_utils.network.res_block import ResBlock, ResFCBlock

__all__ = [
    "MLP",
    "NoiseLinearLayer",
    "ResBlock",
    "ResFCBlock",
    "build_activation",
    "build_normalization",
    "conv2d_block",
    "fc_block",
    "noise_block",
    "one_hot",
    "sequential_pack",
]
