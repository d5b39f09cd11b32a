# Written by docs/generate.py: the exports of the table in __init__.py, for type checkers and editors.

from ding.torch_utils.network.gtrxl import GRUGatingUnit as GRUGatingUnit
from ding.torch_utils.network.gtrxl import GTrXL as GTrXL
from ding.torch_utils.network.gtrxl import Transformer as Transformer
from ding.torch_utils.network.nn_module import Flatten as Flatten
from ding.torch_utils.network.nn_module import MLP as MLP
from ding.torch_utils.network.nn_module import NoiseLinearLayer as NoiseLinearLayer
from ding.torch_utils.network.nn_module import ScatterConnection as ScatterConnection
from ding.torch_utils.network.nn_module import build_activation as build_activation
from ding.torch_utils.network.nn_module import build_normalization as build_normalization
from ding.torch_utils.network.nn_module import conv2d_block as conv2d_block
from ding.torch_utils.network.nn_module import fc_block as fc_block
from ding.torch_utils.network.nn_module import noise_block as noise_block
from ding.torch_utils.network.nn_module import one_hot as one_hot
from ding.torch_utils.network.nn_module import sequential_pack as sequential_pack
from ding.torch_utils.network.resnet import ResBlock as ResBlock
from ding.torch_utils.network.resnet import ResFCBlock as ResFCBlock
from ding.torch_utils.network.resnet import ResNet as ResNet
from ding.torch_utils.network.resnet import resnet18 as resnet18
from ding.torch_utils.network.rnn import get_lstm as get_lstm
