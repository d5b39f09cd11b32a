"""ACER on CartPole-v1."""

from typing import Any

budget = 200_000
main_config: dict[str, Any] = dict(
    exp_name="cartpole_acer",
    env=dict(env_id="CartPole-v1", collector_env_num=8, evaluator_env_num=5, n_evaluator_episode=5, stop_value=195),
    policy=dict(
        cuda=False,
        priority=False,
        priority_IS_weight=False,
        model=dict(obs_shape=4, action_shape=2, encoder_hidden_size_list=[64, 64]),
        unroll_len=32,
        learn=dict(
            update_per_collect=4, batch_size=16, learning_rate_actor=0.0005, learning_rate_critic=0.0005,
            entropy_weight=0.0001, discount_factor=0.9, unroll_len=32, c_clip_ratio=10, trust_region=True,
            trust_region_value=1.0,
        ),
        collect=dict(n_sample=16, unroll_len=32),
        eval=dict(evaluator=dict(eval_freq=200)),
        other=dict(replay_buffer=dict(replay_buffer_size=10000, max_use=16)),
    ),
)  # fmt: skip
create_config: dict[str, Any] = dict(
    env=dict(type="gymnasium", import_names=["ding.envs.env.gymnasium_env"]),
    env_manager=dict(type="base"),
    policy=dict(type="acer"),
)
