"""PPO on Pendulum-v1, with continuous actions, through the on-policy pipeline.

Run it with `python -m ding.example.pendulum_ppo [--seed N]`, or give this file's path to `serial_pipeline_onpolicy`.
"""

from easydict import EasyDict

from ding.entry.serial_entry import run_serial_onpolicy
from ding.example.runner import run

pendulum_ppo_config = EasyDict(
    exp_name="pendulum_ppo",
    env={
        "type": "gymnasium",
        "env_id": "Pendulum-v1",
        # The policy acts in [-1, 1].
        "act_scale": True,
        "collector_env_num": 8,
        "evaluator_env_num": 5,
        "n_evaluator_episode": 10,
        "stop_value": -250,
    },
    policy={
        "cuda": False,
        "action_space": "continuous",
        "model": {
            "obs_shape": 3,
            "action_shape": 1,
            "encoder_hidden_size_list": [64, 64],
            "share_encoder": False,
            "actor_head_hidden_size": 64,
            "actor_head_layer_num": 0,
            "critic_head_hidden_size": 64,
            "critic_head_layer_num": 0,
            "activation": "tanh",
        },
        "learn": {"epoch_per_collect": 10, "batch_size": 64, "learning_rate": 0.001},
        "collect": {"n_sample": 1600, "discount_factor": 0.9, "gae_lambda": 0.95},
        "eval": {"evaluator": {"eval_freq": 1000}},
    },
)
pendulum_ppo_create_config = EasyDict(
    env={"type": "gymnasium"},
    env_manager={"type": "base"},
    policy={"type": "ppo"},
)
main_config, create_config = pendulum_ppo_config, pendulum_ppo_create_config

if __name__ == "__main__":
    raise SystemExit(run(main_config, create_config, train=run_serial_onpolicy, max_env_step=500_000))
