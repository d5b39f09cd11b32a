"""Network blocks."""

from ding.utils.import_helper import exports

__all__, __getattr__ = exports(
    __name__,
    {},
    {
        "gtrxl": "GRUGatingUnit GTrXL Transformer",
        "nn_module": (
            "Flatten MLP NoiseLinearLayer ScatterConnection build_activation build_normalization conv2d_block fc_block "
            "noise_block one_hot sequential_pack"
        ),
        "resnet": "ResBlock ResFCBlock ResNet resnet18",
        "rnn": "get_lstm",
    },
)
