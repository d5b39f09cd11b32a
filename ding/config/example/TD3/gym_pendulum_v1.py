"""TD3 on Pendulum-v1."""

from easydict import EasyDict

cfg = EasyDict(
    exp_name="Pendulum-v1-TD3",
    env={
        "env_id": "Pendulum-v1",
        "act_scale": True,
        "collector_env_num": 8,
        "evaluator_env_num": 5,
        "n_evaluator_episode": 5,
        "stop_value": -250,
    },
    policy={
        "random_collect_size": 800,
        "model": {"obs_shape": 3, "action_shape": 1, "twin_critic": True, "action_space": "regression"},
        "learn": {
            "update_per_collect": 2,
            "batch_size": 128,
            "learning_rate_actor": 0.001,
            "learning_rate_critic": 0.001,
            "ignore_done": True,
            "noise_sigma": 0.1,
        },
        "collect": {"n_sample": 48, "noise_sigma": 0.1},
        "eval": {"evaluator": {"eval_freq": 100}},
        "other": {"replay_buffer": {"replay_buffer_size": 20000}},
    },
)
