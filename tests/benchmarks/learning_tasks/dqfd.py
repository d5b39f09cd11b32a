"""DQfD on CartPole, with a DQN expert."""

from tests.benchmarks.experts import train_expert

main_config = {
    "exp_name": "cartpole_dqfd",
    "env": {
        "env_id": "CartPole-v1",
        "collector_env_num": 8,
        "evaluator_env_num": 5,
        "n_evaluator_episode": 5,
        "stop_value": 195,
    },
    "policy": {
        "cuda": False,
        "priority": True,
        "model": {"obs_shape": 4, "action_shape": 2, "encoder_hidden_size_list": [128, 128, 64], "dueling": True},
        "nstep": 3,
        "discount_factor": 0.97,
        "learn": {
            "batch_size": 64,
            "learning_rate": 0.001,
            "lambda1": 1,
            "lambda2": 3.0,
            "lambda3": 0,
            "per_train_iter_k": 10,
            "expert_replay_buffer_size": 10000,
        },
        "collect": {"n_sample": 8},
        "eval": {"evaluator": {"eval_freq": 50}},
        "other": {
            "eps": {"type": "exp", "start": 0.95, "end": 0.1, "decay": 10000},
            "replay_buffer": {"replay_buffer_size": 20000},
        },
    },
}
create_config = {"env": {"type": "gymnasium"}, "env_manager": {"type": "base"}, "policy": {"type": "dqfd"}}
budget = 50_000


def train(main_config, create_config, seed):
    from ding.entry import serial_pipeline_dqfd

    expert_main, expert_create, state = train_expert("dqn", seed)
    expert_main.policy.collect.model_path = state
    serial_pipeline_dqfd((main_config, create_config), (expert_main, expert_create), seed, max_env_step=budget)
