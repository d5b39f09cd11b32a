"""TD3 on Pendulum-v1 through the serial pipeline.

Run it with `python -m ding.example.pendulum_td3 [--seed N]`, or give this file's path to `serial_pipeline`.
"""

from easydict import EasyDict

from ding.example.runner import run

pendulum_td3_config = EasyDict(
    exp_name="pendulum_td3",
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
        "random_collect_size": 800,
        "model": {"obs_shape": 3, "action_shape": 1},
        "learn": {"update_per_collect": 2, "batch_size": 128, "noise_sigma": 0.1},
        "collect": {"n_sample": 16},
        "eval": {"evaluator": {"eval_freq": 100}},
        "other": {"replay_buffer": {"replay_buffer_size": 20000}},
    },
)
pendulum_td3_create_config = EasyDict(
    env={"type": "gymnasium"},
    env_manager={"type": "base"},
    policy={"type": "td3"},
    replay_buffer={"type": "advanced"},
)
main_config, create_config = pendulum_td3_config, pendulum_td3_create_config

if __name__ == "__main__":
    raise SystemExit(run(main_config, create_config, max_env_step=200_000))
