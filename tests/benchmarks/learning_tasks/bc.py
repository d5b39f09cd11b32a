"""Behaviour cloning on CartPole, of a DQN expert's steps."""

from tests.benchmarks.experts import cartpole_steps

main_config = {
    "exp_name": "cartpole_bc",
    "env": {
        "env_id": "CartPole-v1",
        "collector_env_num": 8,
        "evaluator_env_num": 5,
        "n_evaluator_episode": 5,
        "stop_value": 195,
    },
    "policy": {
        "cuda": False,
        "continuous": False,
        "model": {"obs_shape": 4, "action_shape": 2, "encoder_hidden_size_list": [64, 64, 128]},
        "learn": {"batch_size": 64, "learning_rate": 0.01, "train_epoch": 20},
        "collect": {"data_type": "npz"},
        "eval": {"evaluator": {"eval_freq": 40}},
    },
}
create_config = {"env": {"type": "gymnasium"}, "env_manager": {"type": "base"}, "policy": {"type": "bc"}}
budget = 10_000  # steps in the data set


def train(main_config, create_config, seed):
    from ding.entry import serial_pipeline_bc

    serial_pipeline_bc((main_config, create_config), seed, cartpole_steps("dqn", seed, budget))
