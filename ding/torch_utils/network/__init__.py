"""Network blocks."""

from ding.torch_utils.network.activation import build_activation
from ding.torch_utils.network.gtrxl import GRUGatingUnit, GTrXL, Transformer
from ding.torch_utils.network.nn_module import (
    MLP,
    Flatten,
    ScatterConnection,
    conv2d_block,
    fc_block,
    noise_block,
    one_hot,
    sequential_pack,
)
from ding.torch_utils.network.noise_layer import NoiseLinearLayer
from ding.torch_utils.network.normalization import build_normalization
from ding.torch_utils.network.resnet import ResBlock, ResFCBlock, ResNet, resnet18
from ding.torch_utils.network.rnn import get_lstm

__all__ = [
    "Flatten",
    "GRUGatingUnit",
    "GTrXL",
    "MLP",
    "NoiseLinearLayer",
    "ResBlock",
    "ResFCBlock",
    "ResNet",
    "ScatterConnection",
    "Transformer",
    "build_activation",
    "build_normalization",
    "conv2d_block",
    "fc_block",
    "get_lstm",
    "noise_block",
    "one_hot",
    "resnet18",
    "sequential_pack",
]
