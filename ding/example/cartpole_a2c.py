"""A2C on CartPole-v1 through the on-policy pipeline.

Run it with `python -m ding.example.cartpole_a2c [--seed N]`, or give this file's path to `serial_pipeline_onpolicy`.
"""

from easydict import EasyDict

from ding.entry.serial_entry import run_serial_onpolicy
from ding.example.runner import run

cartpole_a2c_config = EasyDict(
    exp_name="cartpole_a2c",
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
        "action_space": "discrete",
        "model": {"obs_shape": 4, "action_shape": 2, "encoder_hidden_size_list": [128, 128, 64]},
        "learn": {"batch_size": 40, "learning_rate": 0.001, "entropy_weight": 0.01},
        "collect": {"n_sample": 80, "discount_factor": 0.97, "gae_lambda": 0.95},
        "eval": {"evaluator": {"eval_freq": 50}},
    },
)
cartpole_a2c_create_config = EasyDict(
    env={"type": "gymnasium"},
    env_manager={"type": "base"},
    policy={"type": "a2c"},
)
main_config, create_config = cartpole_a2c_config, cartpole_a2c_create_config

if __name__ == "__main__":
    raise SystemExit(run(main_config, create_config, train=run_serial_onpolicy, max_env_step=100_000))
