"""IMPALA on CartPole-v1 through the serial pipeline: an actor-critic that learns from older sequences.

Run it with `python -m ding.example.cartpole_impala [--seed N]`, or give this file's path to `serial_pipeline`.
"""

from easydict import EasyDict

from ding.example.runner import run

cartpole_impala_config = EasyDict(
    exp_name="cartpole_impala",
    env={
        "type": "gymnasium",
        "env_id": "CartPole-v1",
        "collector_env_num": 8,
        "evaluator_env_num": 5,
        "n_evaluator_episode": 10,
        "stop_value": 195,
    },
    policy={
        "cuda": False,
        "unroll_len": 8,
        "model": {"obs_shape": 4, "action_shape": 2, "encoder_hidden_size_list": [64, 64]},
        "learn": {"update_per_collect": 4, "batch_size": 16, "learning_rate": 0.001, "discount_factor": 0.9},
        "collect": {"n_sample": 16},
        "eval": {"evaluator": {"eval_freq": 100}},
        "other": {"replay_buffer": {"replay_buffer_size": 1000, "max_use": 16}},
    },
)
cartpole_impala_create_config = EasyDict(
    env={"type": "gymnasium"},
    env_manager={"type": "base"},
    policy={"type": "impala"},
    replay_buffer={"type": "advanced"},
)
main_config, create_config = cartpole_impala_config, cartpole_impala_create_config

if __name__ == "__main__":
    raise SystemExit(run(main_config, create_config))
