"""TD3 on the locomotion envs of MuJoCo: its target networks follow when the actor learns, as in the paper."""

envs = ["HalfCheetah-v*", "Hopper-v*", "Walker2d-v*", "Ant-v*", "Swimmer-v*", "Humanoid-v*"]
env_steps = 100_000
main_config = {
    "exp_name": "td3_mujoco",
    "env": {
        "env_id": "HalfCheetah-v5",
        "act_scale": True,
        "collector_env_num": 1,
        "evaluator_env_num": 5,
        "n_evaluator_episode": 5,
    },
    "policy": {
        "random_collect_size": 10_000,
        "model": {"actor_head_hidden_size": 256, "critic_head_hidden_size": 256},
        "learn": {
            "update_per_collect": 1,
            "batch_size": 256,
            "learning_rate_actor": 1e-3,
            "learning_rate_critic": 1e-3,
            "actor_update_freq": 2,
            "target_theta": 0.005,
            "target_update_freq": 2,
            "discount_factor": 0.99,
            "noise": True,
            "noise_sigma": 0.2,
            "noise_range": {"min": -0.5, "max": 0.5},
        },
        "collect": {"n_sample": 1, "noise_sigma": 0.1},
        "eval": {"evaluator": {"eval_freq": 5000}},
        "other": {"replay_buffer": {"replay_buffer_size": 1_000_000}},
    },
}
create_config = {
    "env": {"type": "gymnasium"},
    "env_manager": {"type": "base"},
    "policy": {"type": "td3"},
    "replay_buffer": {"type": "naive"},
}
