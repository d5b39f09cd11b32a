"""SAC on Pendulum-v1 through the serial pipeline.

Run it with `python -m ding.example.pendulum_sac [--seed N]`, or give this file's path to `serial_pipeline`.
"""

from easydict import EasyDict

from ding.example.runner import run

pendulum_sac_config = EasyDict(
    exp_name="pendulum_sac",
    env={
        "type": "gymnasium",
        "env_id": "Pendulum-v1",
        # The policy acts in [-1, 1].
        "act_scale": True,
        "collector_env_num": 10,
        "evaluator_env_num": 5,
        "n_evaluator_episode": 10,
        "stop_value": -250,
    },
    policy={
        "cuda": False,
        "random_collect_size": 1000,
        "model": {"obs_shape": 3, "action_shape": 1, "actor_head_hidden_size": 128, "critic_head_hidden_size": 128},
        "learn": {"batch_size": 128, "learning_rate_q": 0.001, "learning_rate_policy": 0.001},
        "collect": {"n_sample": 10},
        "eval": {"evaluator": {"eval_freq": 100}},
        "other": {"replay_buffer": {"replay_buffer_size": 100000}},
    },
)
pendulum_sac_create_config = EasyDict(
    env={"type": "gymnasium"},
    env_manager={"type": "base"},
    policy={"type": "sac"},
    replay_buffer={"type": "advanced"},
)
main_config, create_config = pendulum_sac_config, pendulum_sac_create_config

if __name__ == "__main__":
    raise SystemExit(run(main_config, create_config, max_env_step=100_000))
