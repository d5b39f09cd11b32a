"""PPO on CartPole-v1 through the on-policy pipeline.

Run it with `python -m ding.example.cartpole_ppo [--seed N]`, or give this file's path to `serial_pipeline_onpolicy`.
"""

from easydict import EasyDict

from ding.entry.serial_entry import run_serial_onpolicy
from ding.example.runner import run

cartpole_ppo_config = EasyDict(
    exp_name="cartpole_ppo",
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
        "model": {
            "obs_shape": 4,
            "action_shape": 2,
            "encoder_hidden_size_list": [64, 64],
            "actor_head_hidden_size": 64,
            "critic_head_hidden_size": 64,
        },
        "learn": {"epoch_per_collect": 5, "batch_size": 64, "learning_rate": 0.001, "entropy_weight": 0.01},
        "collect": {"n_sample": 512, "discount_factor": 0.99, "gae_lambda": 0.95},
        "eval": {"evaluator": {"eval_freq": 200}},
    },
)
cartpole_ppo_create_config = EasyDict(
    env={"type": "gymnasium"},
    env_manager={"type": "base"},
    policy={"type": "ppo"},
)
main_config, create_config = cartpole_ppo_config, cartpole_ppo_create_config

if __name__ == "__main__":
    raise SystemExit(run(main_config, create_config, train=run_serial_onpolicy, max_env_step=100_000))
