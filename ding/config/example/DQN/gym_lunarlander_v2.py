"""DQN on LunarLander with discrete actions."""

from easydict import EasyDict

from ding.config.example.sections import env_section

cfg = EasyDict(
    exp_name="LunarLander-v3-DQN",
    env=env_section("LunarLander-v3", 8, 8, stop_value=260),
    policy={
        "random_collect_size": 25000,
        "discount_factor": 0.99,
        "nstep": 3,
        "model": {"obs_shape": 8, "action_shape": 4, "encoder_hidden_size_list": [512, 64], "dueling": True},
        "learn": {"update_per_collect": 10, "batch_size": 64, "learning_rate": 0.001, "target_update_freq": 100},
        "collect": {"n_sample": 64, "unroll_len": 1},
        "other": {
            "eps": {"type": "exp", "start": 0.95, "end": 0.1, "decay": 50000},
            "replay_buffer": {"replay_buffer_size": 100000},
        },
    },
)
