"""A2C on classic control with discrete actions."""

envs = ["CartPole-v*", "Acrobot-v*"]
env_steps = 200_000
main_config = {
    "exp_name": "a2c_classic_control",
    "env": {"env_id": "CartPole-v1", "collector_env_num": 8, "evaluator_env_num": 10, "n_evaluator_episode": 10},
    "policy": {
        "model": {
            "share_encoder": False,
            "encoder_hidden_size_list": [64],
            "actor_head_hidden_size": 64,
            "critic_head_hidden_size": 64,
            "activation": "tanh",
        },
        "learn": {
            "batch_size": 64,
            "learning_rate": 7e-4,
            "eps": 1e-5,
            "entropy_weight": 0.0,
            "value_weight": 0.5,
            "grad_norm": 0.5,
            "init_gains": [1.4142135623730951, 0.01, 1.0],
        },
        "collect": {"n_sample": 64, "discount_factor": 0.99, "gae_lambda": 0.95, "collector": {"fixed_rollout": True}},
        "eval": {"evaluator": {"eval_freq": 80}},
    },
}
create_config = {"env": {"type": "gymnasium"}, "env_manager": {"type": "base"}, "policy": {"type": "a2c"}}
