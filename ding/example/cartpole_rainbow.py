"""Rainbow on CartPole-v1 through the serial pipeline.

Run it with `python -m ding.example.cartpole_rainbow [--seed N]`, or give this file's path to `serial_pipeline`.
"""

from easydict import EasyDict

from ding.example.runner import run

cartpole_rainbow_config = EasyDict(
    exp_name="cartpole_rainbow",
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
        # Prioritized replay, importance weights and noisy layers are on by default.
        "discount_factor": 0.97,
        "nstep": 3,
        "model": {
            "obs_shape": 4,
            "action_shape": 2,
            "encoder_hidden_size_list": [128, 128, 64],
            # The range of the value distribution: at most 1 / (1 - 0.97).
            "v_min": 0,
            "v_max": 35,
            "n_atom": 51,
        },
        "learn": {"update_per_collect": 10, "batch_size": 64, "learning_rate": 0.001, "target_update_freq": 50},
        "collect": {"n_sample": 64},
        "eval": {"evaluator": {"eval_freq": 100}},
        "other": {
            # Noisy layers explore.
            "eps": {"type": "exp", "start": 0.5, "end": 0.0, "decay": 1000},
            "replay_buffer": {"replay_buffer_size": 20000},
        },
    },
)
cartpole_rainbow_create_config = EasyDict(
    env={"type": "gymnasium"},
    env_manager={"type": "base"},
    policy={"type": "rainbow"},
    replay_buffer={"type": "advanced"},
)
main_config, create_config = cartpole_rainbow_config, cartpole_rainbow_create_config

if __name__ == "__main__":
    raise SystemExit(run(main_config, create_config))
