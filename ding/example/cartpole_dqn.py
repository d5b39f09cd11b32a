"""DQN on CartPole-v1 through the serial pipeline.

Run it with `python -m ding.example.cartpole_dqn [--seed N]`, or give this file's path to `serial_pipeline`.
"""

from easydict import EasyDict

from ding.example.runner import run

cartpole_dqn_config = EasyDict(
    exp_name="cartpole_dqn",
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
        "discount_factor": 0.97,
        "nstep": 3,
        "model": {"obs_shape": 4, "action_shape": 2, "encoder_hidden_size_list": [128, 128], "dueling": False},
        "learn": {"update_per_collect": 10, "batch_size": 64, "learning_rate": 0.001, "target_update_freq": 50},
        "collect": {"n_sample": 64},
        "eval": {"evaluator": {"eval_freq": 100}},
        "other": {
            "eps": {"type": "exp", "start": 0.95, "end": 0.1, "decay": 3000},
            "replay_buffer": {"replay_buffer_size": 20000},
        },
    },
)
cartpole_dqn_create_config = EasyDict(
    env={"type": "gymnasium"},
    env_manager={"type": "base"},
    policy={"type": "dqn"},
    replay_buffer={"type": "advanced"},
)
main_config, create_config = cartpole_dqn_config, cartpole_dqn_create_config

if __name__ == "__main__":
    raise SystemExit(run(main_config, create_config))
