"""Reinforcement learning maths: TD errors, advantages, trajectory adders, exploration."""

from ding.rl_utils.adder import get_gae, get_gae_with_default_last_value, get_nstep_return_data, get_train_sample
from ding.rl_utils.exploration import create_noise_generator, get_epsilon_greedy_fn
from ding.rl_utils.gae import gae, gae_data
from ding.rl_utils.td import (
    nstep_return,
    nstep_return_data,
    q_1step_td_data,
    q_1step_td_error,
    q_nstep_td_data,
    q_nstep_td_error,
    q_nstep_td_error_with_rescale,
    q_v_1step_td_data,
    q_v_1step_td_error,
    v_1step_td_data,
    v_1step_td_error,
    v_nstep_td_data,
    v_nstep_td_error,
)
from ding.rl_utils.value_rescale import inv_symlog, symlog, value_inv_transform, value_transform

__all__ = [
    "create_noise_generator",
    "gae",
    "gae_data",
    "get_epsilon_greedy_fn",
    "get_gae",
    "get_gae_with_default_last_value",
    "get_nstep_return_data",
    "get_train_sample",
    "inv_symlog",
    "nstep_return",
    "nstep_return_data",
    "q_1step_td_data",
    "q_1step_td_error",
    "q_nstep_td_data",
    "q_nstep_td_error",
    "q_nstep_td_error_with_rescale",
    "q_v_1step_td_data",
    "q_v_1step_td_error",
    "symlog",
    "v_1step_td_data",
    "v_1step_td_error",
    "v_nstep_td_data",
    "v_nstep_td_error",
    "value_inv_transform",
    "value_transform",
]
