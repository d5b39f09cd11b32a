"""Policy gradients on CartPole-v1."""

from typing import Any

pipeline = "serial_pipeline_onpolicy"
budget = 300_000
main_config: dict[str, Any] = dict(
    exp_name="cartpole_pg",
    env=dict(
        env_id="CartPole-v1", collector_env_num=8, evaluator_env_num=5, n_evaluator_episode=5, stop_value=195
    ),
    policy=dict(
        cuda=False,
        model=dict(obs_shape=4, action_shape=2),
        learn=dict(batch_size=64, learning_rate=0.001, entropy_weight=0.001),
        collect=dict(n_episode=80, unroll_len=1, discount_factor=0.9),
        eval=dict(evaluator=dict(eval_freq=100)),
    ),
)  # fmt: skip
create_config: dict[str, Any] = dict(
    env=dict(type="gymnasium", import_names=["ding.envs.env.gymnasium_env"]),
    env_manager=dict(type="base"),
    policy=dict(type="pg"),
    collector=dict(type="episode"),
)
