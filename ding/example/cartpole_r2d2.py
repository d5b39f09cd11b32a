"""R2D2 on CartPole-v1 through the serial pipeline: a recurrent network that learns from sequences.

Run it with `python -m ding.example.cartpole_r2d2 [--seed N]`, or give this file's path to `serial_pipeline`.
"""

from easydict import EasyDict

from ding.example.runner import run

cartpole_r2d2_config = EasyDict(
    exp_name="cartpole_r2d2",
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
        "priority": True,
        "priority_IS_weight": True,
        "discount_factor": 0.99,
        "nstep": 5,
        "burnin_step": 2,
        "learn_unroll_len": 30,
        "model": {"obs_shape": 4, "action_shape": 2, "encoder_hidden_size_list": [64, 64]},
        "learn": {"update_per_collect": 10, "batch_size": 64, "learning_rate": 0.001, "target_update_theta": 0.01},
        "collect": {"n_sample": 16, "env_num": 8},
        "eval": {"env_num": 5, "evaluator": {"eval_freq": 50}},
        "other": {
            "eps": {"type": "exp", "start": 0.95, "end": 0.05, "decay": 5000},
            "replay_buffer": {"replay_buffer_size": 5000},
        },
    },
)
cartpole_r2d2_create_config = EasyDict(
    env={"type": "gymnasium"},
    env_manager={"type": "base"},
    policy={"type": "r2d2"},
    replay_buffer={"type": "advanced"},
)
main_config, create_config = cartpole_r2d2_config, cartpole_r2d2_create_config

if __name__ == "__main__":
    raise SystemExit(run(main_config, create_config))
