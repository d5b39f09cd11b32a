"""R2D2 where only memory helps: a cue is to be remembered for 10 steps."""

from typing import Any

budget = 60_000
main_config: dict[str, Any] = dict(
    exp_name="memory_r2d2",
    env=dict(env_id="CueMemory-v0", collector_env_num=8, evaluator_env_num=8, n_evaluator_episode=64, stop_value=0.9),
    policy=dict(
        cuda=False,
        priority=True,
        priority_IS_weight=True,
        model=dict(obs_shape=3, action_shape=2, encoder_hidden_size_list=[64, 64]),
        discount_factor=0.99,
        nstep=3,
        burnin_step=0,
        learn_unroll_len=14,
        learn=dict(update_per_collect=4, batch_size=64, learning_rate=0.001, target_update_theta=0.01),
        collect=dict(n_sample=32, env_num=8),
        eval=dict(env_num=8, evaluator=dict(eval_freq=100)),
        other=dict(
            eps=dict(type="exp", start=0.95, end=0.05, decay=10000), replay_buffer=dict(replay_buffer_size=10000)
        ),
    ),
)
create_config: dict[str, Any] = dict(
    env=dict(type="gymnasium", import_names=["ding.envs.env.gymnasium_env", "tests.benchmarks.cue_memory"]),
    env_manager=dict(type="base"),
    policy=dict(type="r2d2"),
)
