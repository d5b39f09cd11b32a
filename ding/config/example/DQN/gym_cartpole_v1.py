"""DQN on CartPole-v1."""

from easydict import EasyDict

cfg = EasyDict(
    exp_name="CartPole-v1-DQN",
    env={
        "env_id": "CartPole-v1",
        "collector_env_num": 8,
        "evaluator_env_num": 5,
        "n_evaluator_episode": 5,
        "stop_value": 475,
    },
    policy={
        "discount_factor": 0.97,
        "nstep": 3,
        "model": {"obs_shape": 4, "action_shape": 2, "encoder_hidden_size_list": [128, 128]},
        "learn": {"update_per_collect": 10, "batch_size": 64, "learning_rate": 0.001, "target_update_freq": 50},
        "collect": {"n_sample": 64},
        "eval": {"evaluator": {"eval_freq": 200}},
        "other": {
            "eps": {"type": "exp", "start": 0.95, "end": 0.1, "decay": 3000},
            "replay_buffer": {"replay_buffer_size": 20000},
        },
    },
)
