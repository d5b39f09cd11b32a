"""IQL on Pendulum, from steps of SAC, well trained and untrained."""

from tests.benchmarks.experts import pendulum_steps

main_config = {
    "exp_name": "pendulum_iql",
    "env": {
        "env_id": "Pendulum-v1",
        "act_scale": True,
        "evaluator_env_num": 5,
        "n_evaluator_episode": 5,
        "stop_value": -250,
    },
    "policy": {
        "cuda": False,
        "model": {
            "obs_shape": 3,
            "action_shape": 1,
            "twin_critic": True,
            "action_space": "reparameterization",
            "actor_head_hidden_size": 128,
            "critic_head_hidden_size": 128,
        },
        "learn": {
            "train_epoch": 30,
            "batch_size": 128,
            "learning_rate_q": 0.001,
            "learning_rate_policy": 0.001,
            "tau": 0.7,
            "inverse_temperature": 3.0,
            "ignore_done": True,
        },
        "collect": {"data_type": "npz"},
        "eval": {"evaluator": {"eval_freq": 100}},
    },
}
create_config = {"env": {"type": "gymnasium"}, "env_manager": {"type": "base"}, "policy": {"type": "iql"}}
budget = 25_000  # steps in the data set


def train(main_config, create_config, seed):
    from ding.entry import serial_pipeline_offline

    main_config.policy.collect.data_path = pendulum_steps(seed, budget)
    serial_pipeline_offline((main_config, create_config), seed)
