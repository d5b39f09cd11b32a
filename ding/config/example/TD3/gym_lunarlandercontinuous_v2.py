"""TD3 on LunarLander with continuous actions."""

from easydict import EasyDict

cfg = EasyDict(
    exp_name="LunarLanderContinuous-v3-TD3",
    env={
        "env_id": "LunarLanderContinuous-v3",
        "act_scale": True,
        "collector_env_num": 4,
        "evaluator_env_num": 8,
        "n_evaluator_episode": 8,
        "stop_value": 240,
    },
    policy={
        "random_collect_size": 10000,
        "model": {"obs_shape": 8, "action_shape": 2, "action_space": "regression"},
        "learn": {
            "update_per_collect": 256,
            "batch_size": 256,
            "learning_rate_actor": 3e-4,
            "learning_rate_critic": 0.001,
            "noise_sigma": 0.1,
        },
        "collect": {"n_sample": 256, "noise_sigma": 0.1},
        "eval": {"evaluator": {"eval_freq": 1000}},
        "other": {"replay_buffer": {"replay_buffer_size": 100000}},
    },
)
