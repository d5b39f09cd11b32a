"""Tensors: conversion of nested data, checkpoints, networks."""

from ding.utils.import_helper import exports

__all__, __getattr__ = exports(
    __name__,
    {},
    {
        "checkpoint_helper": "CheckpointHelper CountVar auto_checkpoint build_checkpoint_helper guard_training",
        "data_helper": (
            "CudaFetcher LogDict build_log_buffer get_null_data get_tensor_data same_shape squeeze tensor_to_list "
            "to_device to_dtype to_item to_list to_ndarray to_tensor unsqueeze zeros_like"
        ),
        "network.gtrxl": "GRUGatingUnit GTrXL Transformer",
        "network.nn_module": (
            "DataParallel Flatten MLP NoiseLinearLayer ScatterConnection build_activation build_normalization "
            "conv2d_block fc_block noise_block one_hot sequential_pack"
        ),
        "network.resnet": "ResBlock ResFCBlock ResNet resnet18",
        "network.rnn": "get_lstm",
        "optimizer_helper": (
            "Adam RMSprop calculate_grad_norm calculate_grad_norm_without_bias_two_norm grad_ignore_norm "
            "grad_ignore_value is_differentiable"
        ),
    },
)
