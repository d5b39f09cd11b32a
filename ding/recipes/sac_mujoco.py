"""SAC on the locomotion envs of MuJoCo."""

envs = ["HalfCheetah-v*", "Hopper-v*", "Walker2d-v*", "Ant-v*", "Swimmer-v*", "Humanoid-v*"]
env_steps = 100_000
main_config = {
    "exp_name": "sac_mujoco",
    "env": {
        "env_id": "HalfCheetah-v5",
        "act_scale": True,
        "collector_env_num": 1,
        "evaluator_env_num": 5,
        "n_evaluator_episode": 5,
    },
    "policy": {
        "random_collect_size": 10_000,
        "transition_with_policy_data": False,
        "model": {"actor_head_hidden_size": 256, "critic_head_hidden_size": 256},
        "learn": {
            "update_per_collect": 1,
            "batch_size": 256,
            "learning_rate_q": 3e-4,
            "learning_rate_policy": 3e-4,
            "learning_rate_alpha": 3e-4,
            "alpha": 1.0,
            "target_theta": 0.005,
            "init_w": 0.0625,
            "discount_factor": 0.99,
        },
        "collect": {"n_sample": 1},
        "eval": {"evaluator": {"eval_freq": 5000}},
        "other": {"replay_buffer": {"replay_buffer_size": 1_000_000}},
    },
}
create_config = {
    "env": {"type": "gymnasium"},
    "env_manager": {"type": "base"},
    "policy": {"type": "sac"},
    "replay_buffer": {"type": "naive"},
}
