"""Reinforcement learning mathematics: TD errors, advantages, trajectory adders, exploration."""

from ding.utils.import_helper import exports

__all__, __getattr__ = exports(
    __name__,
    {},
    {
        "adder": "get_gae get_gae_with_default_last_value get_nstep_return_data get_train_sample",
        "distributional": (
            "beta_function_map dist_1step_td_data dist_1step_td_error dist_nstep_td_data dist_nstep_td_error "
            "evaluate_quantile_at_action fqf_calculate_fraction_loss fqf_nstep_td_data fqf_nstep_td_error "
            "iqn_nstep_td_data iqn_nstep_td_error qrdqn_nstep_td_data qrdqn_nstep_td_error"
        ),
        "exploration": "create_noise_generator get_epsilon_greedy_fn",
        "ppo": (
            "a2c_data a2c_error a2c_error_continuous ppg_data ppg_joint_error ppg_joint_loss ppo_data "
            "ppo_data_continuous ppo_error ppo_error_continuous ppo_info ppo_loss ppo_policy_data "
            "ppo_policy_data_continuous ppo_policy_error ppo_policy_error_continuous ppo_value_data ppo_value_error"
        ),
        "returns": (
            "bootstrap_mask gae gae_columns gae_data inv_symlog nstep_return "
            "nstep_return_data symlog value_inv_transform value_transform"
        ),
        "td": (
            "bdq_nstep_td_error dqfd_nstep_td_data dqfd_nstep_td_error m_q_1step_td_data m_q_1step_td_error "
            "q_1step_td_data q_1step_td_error q_nstep_sql_td_error q_nstep_td_data q_nstep_td_error "
            "q_nstep_td_error_with_rescale q_v_1step_td_data q_v_1step_td_error v_1step_td_data v_1step_td_error "
            "v_nstep_td_data v_nstep_td_error"
        ),
        "vtrace": (
            "acer_policy_error acer_trust_region_update acer_value_error compute_q_retraces vtrace_data "
            "vtrace_error_continuous_action vtrace_error_discrete_action vtrace_loss"
        ),
    },
)
