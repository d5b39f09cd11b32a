"""Helpers for writing environments."""

from ding.envs.common.common_function import (
    affine_transform,
    batch_binary_encode,
    clip_one_hot,
    div_func,
    div_one_hot,
    get_postion_vector,
    num_first_one_hot,
    reorder_boolean_vector,
    reorder_one_hot,
    reorder_one_hot_array,
    save_frames_as_gif,
    sqrt_one_hot,
)
from ding.envs.common.env_element import EnvElement, EnvElementInfo
from ding.envs.common.env_element_runner import EnvElementRunner

__all__ = [
    "EnvElement",
    "EnvElementInfo",
    "EnvElementRunner",
    "affine_transform",
    "batch_binary_encode",
    "clip_one_hot",
    "div_func",
    "div_one_hot",
    "get_postion_vector",
    "num_first_one_hot",
    "reorder_boolean_vector",
    "reorder_one_hot",
    "reorder_one_hot_array",
    "save_frames_as_gif",
    "sqrt_one_hot",
]
