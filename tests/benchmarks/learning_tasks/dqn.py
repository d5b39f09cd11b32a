"""DQN on CartPole-v1."""

from typing import Any

budget = 30_000
main_config: dict[str, Any] = dict(
    exp_name="cartpole_dqn",
    env=dict(env_id="CartPole-v1", collector_env_num=8, evaluator_env_num=5, n_evaluator_episode=10, stop_value=195),
    policy=dict(
        cuda=False,
        model=dict(obs_shape=4, action_shape=2, encoder_hidden_size_list=[128, 128, 64], dueling=True),
        nstep=1,
        discount_factor=0.97,
        learn=dict(update_per_collect=5, batch_size=64, learning_rate=0.001),
        collect=dict(n_sample=8),
        eval=dict(evaluator=dict(eval_freq=40)),
        other=dict(
            eps=dict(type="exp", start=0.95, end=0.1, decay=10000), replay_buffer=dict(replay_buffer_size=20000)
        ),
    ),
)
create_config: dict[str, Any] = dict(
    env=dict(type="gymnasium", import_names=["ding.envs.env.gymnasium_env"]),
    env_manager=dict(type="base"),
    policy=dict(type="dqn"),
)
