"""DQN on CartPole: dueling networks, three-step returns, and a learning rate that falls over half of the budget.

With another budget, set `learn.lr_scheduler.epoch_num` to a quarter of its env steps, half of its iterations.
"""

envs = ["CartPole-v*"]
env_steps = 100_000
main_config = {
    "exp_name": "dqn_cartpole",
    "env": {"env_id": "CartPole-v1", "collector_env_num": 8, "evaluator_env_num": 10, "n_evaluator_episode": 10},
    "policy": {
        "nstep": 3,
        "discount_factor": 0.99,
        "random_collect_size": 1000,
        "model": {"dueling": True, "encoder_hidden_size_list": [128], "head_layer_num": 1},
        "learn": {
            "update_per_collect": 32,
            "batch_size": 64,
            "learning_rate": 2e-3,
            "lr_scheduler": {"epoch_num": 25_000, "min_lr_lambda": 0.05},
            "target_update_freq": 256,
            "criterion": "huber",
            "grad_clip_type": "clip_norm",
            "grad_clip_value": 10,
        },
        "collect": {"n_sample": 64, "collector": {"fixed_rollout": True}},
        "eval": {"evaluator": {"eval_freq": 2000}},
        "other": {
            "eps": {"type": "linear", "start": 1.0, "end": 0.05, "decay": 10_000},
            "replay_buffer": {"replay_buffer_size": 100_000},
        },
    },
}
create_config = {"env": {"type": "gymnasium"}, "env_manager": {"type": "base"}, "policy": {"type": "dqn"}}
