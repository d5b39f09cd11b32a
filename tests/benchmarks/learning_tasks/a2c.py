"""A2C on CartPole-v1."""

from typing import Any

pipeline = "serial_pipeline_onpolicy"
budget = 200_000
main_config: dict[str, Any] = dict(
    exp_name="cartpole_a2c",
    env=dict(
        env_id="CartPole-v1", collector_env_num=8, evaluator_env_num=5, n_evaluator_episode=5, stop_value=195
    ),
    policy=dict(
        cuda=False,
        model=dict(obs_shape=4, action_shape=2, encoder_hidden_size_list=[128, 128, 64]),
        learn=dict(batch_size=40, learning_rate=0.001, entropy_weight=0.01),
        collect=dict(n_sample=80, unroll_len=1, discount_factor=0.9, gae_lambda=0.95),
        eval=dict(evaluator=dict(eval_freq=50)),
    ),
)  # fmt: skip
create_config: dict[str, Any] = dict(
    env=dict(type="gymnasium", import_names=["ding.envs.env.gymnasium_env"]),
    env_manager=dict(type="base"),
    policy=dict(type="a2c"),
)
