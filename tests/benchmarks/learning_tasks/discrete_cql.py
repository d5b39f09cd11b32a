"""Discrete CQL on CartPole, from steps of a QR-DQN expert."""

from tests.benchmarks.experts import cartpole_steps

main_config = {
    "exp_name": "cartpole_cql",
    "env": {
        "env_id": "CartPole-v1",
        "collector_env_num": 8,
        "evaluator_env_num": 5,
        "n_evaluator_episode": 5,
        "stop_value": 195,
    },
    "policy": {
        "cuda": False,
        "discount_factor": 0.97,
        "nstep": 1,
        "model": {"obs_shape": 4, "action_shape": 2, "encoder_hidden_size_list": [128, 128, 64], "num_quantiles": 64},
        "learn": {
            "train_epoch": 20,
            "batch_size": 64,
            "learning_rate": 0.001,
            "target_update_freq": 100,
            "min_q_weight": 10.0,
        },
        "collect": {"data_type": "npz"},
        "eval": {"evaluator": {"eval_freq": 100}},
    },
}
create_config = {"env": {"type": "gymnasium"}, "env_manager": {"type": "base"}, "policy": {"type": "discrete_cql"}}
budget = 10_000  # steps in the data set


def train(main_config, create_config, seed):
    from ding.entry import serial_pipeline_offline

    main_config.policy.collect.data_path = cartpole_steps("qrdqn", seed, budget)
    serial_pipeline_offline((main_config, create_config), seed)
