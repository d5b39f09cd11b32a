"""PPO on LunarLander with continuous actions."""

from easydict import EasyDict

cfg = EasyDict(
    exp_name="LunarLanderContinuous-v3-PPO",
    env={
        "env_id": "LunarLanderContinuous-v3",
        "act_scale": True,
        "collector_env_num": 4,
        "evaluator_env_num": 4,
        "n_evaluator_episode": 4,
        "stop_value": 240,
    },
    policy={
        "action_space": "continuous",
        "model": {"obs_shape": 8, "action_shape": 2, "share_encoder": False},
        "learn": {"epoch_per_collect": 10, "batch_size": 64, "learning_rate": 3e-4, "entropy_weight": 0.01},
        "collect": {"n_sample": 400, "discount_factor": 0.99, "gae_lambda": 0.95},
    },
)
