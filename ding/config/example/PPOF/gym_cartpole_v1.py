"""PPO on CartPole-v1."""

from easydict import EasyDict

cfg = EasyDict(
    exp_name="CartPole-v1-PPO",
    env={
        "env_id": "CartPole-v1",
        "collector_env_num": 8,
        "evaluator_env_num": 5,
        "n_evaluator_episode": 5,
        "stop_value": 475,
    },
    policy={
        "action_space": "discrete",
        "model": {"obs_shape": 4, "action_shape": 2, "encoder_hidden_size_list": [64, 64]},
        "learn": {"epoch_per_collect": 5, "batch_size": 64, "learning_rate": 0.001, "entropy_weight": 0.01},
        "collect": {"n_sample": 512, "discount_factor": 0.99, "gae_lambda": 0.95},
        "eval": {"evaluator": {"eval_freq": 200}},
    },
)
