"""PPO on Pendulum-v1."""

from easydict import EasyDict

cfg = EasyDict(
    exp_name="Pendulum-v1-PPO",
    env={
        "env_id": "Pendulum-v1",
        "act_scale": True,
        "collector_env_num": 8,
        "evaluator_env_num": 5,
        "n_evaluator_episode": 5,
        "stop_value": -250,
    },
    policy={
        "action_space": "continuous",
        "model": {"obs_shape": 3, "action_shape": 1, "share_encoder": False, "activation": "tanh"},
        "learn": {"epoch_per_collect": 10, "batch_size": 64, "learning_rate": 0.001},
        "collect": {"n_sample": 1600, "discount_factor": 0.9, "gae_lambda": 0.95},
        "eval": {"evaluator": {"eval_freq": 1000}},
    },
)
