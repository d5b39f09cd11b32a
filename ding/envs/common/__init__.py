"""Helpers for writing environments."""

from ding.utils.import_helper import exports

__all__, __getattr__ = exports(
    __name__,
    {
        "common_function": (
            "affine_transform batch_binary_encode clip_one_hot div_func div_one_hot get_postion_vector "
            "num_first_one_hot reorder_boolean_vector reorder_one_hot reorder_one_hot_array save_frames_as_gif "
            "sqrt_one_hot"
        ),
        "env_element": "EnvElement EnvElementInfo EnvElementRunner",
    },
)
