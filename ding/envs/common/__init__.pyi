# Written by docs/generate.py: the exports of the table in __init__.py, for type checkers and editors.

from ding.envs.common.common_function import affine_transform as affine_transform
from ding.envs.common.common_function import batch_binary_encode as batch_binary_encode
from ding.envs.common.common_function import clip_one_hot as clip_one_hot
from ding.envs.common.common_function import div_func as div_func
from ding.envs.common.common_function import div_one_hot as div_one_hot
from ding.envs.common.common_function import get_postion_vector as get_postion_vector
from ding.envs.common.common_function import num_first_one_hot as num_first_one_hot
from ding.envs.common.common_function import reorder_boolean_vector as reorder_boolean_vector
from ding.envs.common.common_function import reorder_one_hot as reorder_one_hot
from ding.envs.common.common_function import reorder_one_hot_array as reorder_one_hot_array
from ding.envs.common.common_function import save_frames_as_gif as save_frames_as_gif
from ding.envs.common.common_function import sqrt_one_hot as sqrt_one_hot
from ding.envs.common.env_element import EnvElement as EnvElement
from ding.envs.common.env_element import EnvElementInfo as EnvElementInfo
from ding.envs.common.env_element import EnvElementRunner as EnvElementRunner
