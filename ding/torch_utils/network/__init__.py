"""Network blocks."""

from ding.utils.import_helper import lazy_names

_NAMES = {
    "gtrxl": "GRUGatingUnit GTrXL Transformer",
    "nn_module": (
        "Flatten MLP NoiseLinearLayer ScatterConnection build_activation build_normalization conv2d_block fc_block "
        "noise_block one_hot sequential_pack"
    ),
    "resnet": "ResBlock ResFCBlock ResNet resnet18",
    "rnn": "get_lstm",
}

_MODULES = {name: f"ding.torch_utils.network.{module}" for module, names in _NAMES.items() for name in names.split()}

__all__ = sorted(_MODULES)
__getattr__ = lazy_names(__name__, _MODULES)
