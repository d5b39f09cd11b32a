"""PPG with two replay buffers on CartPole-v1, by a main program of its own."""

from typing import Any

budget = 200_000
main_config: dict[str, Any] = dict(
    exp_name="cartpole_ppg",
    env=dict(env_id="CartPole-v1", collector_env_num=8, evaluator_env_num=5, n_evaluator_episode=5, stop_value=195),
    policy=dict(
        cuda=False,
        model=dict(
            obs_shape=4,
            action_shape=2,
            encoder_hidden_size_list=[64, 64, 128],
            critic_head_hidden_size=128,
            actor_head_hidden_size=128,
        ),
        learn=dict(
            update_per_collect=5, batch_size=64, learning_rate=0.001, value_weight=0.5, entropy_weight=0.01,
            clip_ratio=0.2, adv_norm=False, aux_freq=5, aux_train_epoch=6, aux_bc_weight=1,
        ),
        collect=dict(n_sample=128, unroll_len=1, discount_factor=0.9, gae_lambda=0.95),
        eval=dict(evaluator=dict(eval_freq=40)),
        other=dict(
            replay_buffer=dict(
                multi_buffer=True,
                policy=dict(replay_buffer_size=1000, max_use=16),
                value=dict(replay_buffer_size=1000, max_use=16),
            ),
        ),
    ),
)  # fmt: skip
create_config: dict[str, Any] = dict(
    env=dict(type="gymnasium", import_names=["ding.envs.env.gymnasium_env"]),
    env_manager=dict(type="base"),
    policy=dict(type="ppg_offpolicy"),
    replay_buffer=dict(policy=dict(type="advanced"), value=dict(type="advanced")),
)


def train(main_config: Any, create_config: Any, seed: int, max_train_iter: int | None = None) -> Any:
    """Train until solved, or out of budget; return the policy."""
    from ding.config import compile_config
    from ding.entry.run_folder import append_evaluation
    from ding.envs import create_env_manager, get_vec_env_setting
    from ding.policy import create_policy
    from ding.utils import set_pkg_seed
    from ding.worker import BaseLearner, InteractionSerialEvaluator, SampleSerialCollector, create_buffer

    create_config.policy.type += "_command"
    cfg = compile_config(main_config, seed=seed, auto=True, create_cfg=create_config, save_cfg=True)
    env_fn, collector_env_cfg, evaluator_env_cfg = get_vec_env_setting(cfg.env)
    collector_env, evaluator_env = (
        create_env_manager(cfg.env.manager, [lambda c=c: env_fn(cfg=c) for c in env_cfg])
        for env_cfg in (collector_env_cfg, evaluator_env_cfg)
    )
    collector_env.seed(seed)
    evaluator_env.seed(seed, dynamic_seed=False)
    set_pkg_seed(seed, use_cuda=cfg.policy.cuda)
    policy = create_policy(cfg.policy, enable_field=["learn", "collect", "eval"])
    learner = BaseLearner(cfg.policy.learn.learner, policy.learn_mode, exp_name=cfg.exp_name)
    collector = SampleSerialCollector(
        cfg.policy.collect.collector, collector_env, policy.collect_mode, exp_name=cfg.exp_name
    )
    evaluator = InteractionSerialEvaluator(
        cfg.policy.eval.evaluator, evaluator_env, policy.eval_mode, exp_name=cfg.exp_name
    )
    buffers = {
        name: create_buffer(cfg.policy.other.replay_buffer[name], exp_name=cfg.exp_name, instance_name=f"{name}_buffer")
        for name in ("policy", "value")
    }
    batch_size = learner.policy.get_attribute("batch_size")
    learner.call_hook("before_run")
    while max_train_iter is None or learner.train_iter < max_train_iter:
        if evaluator.should_eval(learner.train_iter):
            stop, info = evaluator.eval(learner.save_checkpoint, learner.train_iter, collector.envstep)
            append_evaluation(cfg.exp_name, seed, learner.train_iter, collector.envstep, evaluator, info)
            if stop or collector.envstep >= budget:
                break
        data = collector.collect(train_iter=learner.train_iter)
        for buffer in buffers.values():
            buffer.push(data, cur_collector_envstep=collector.envstep)
        for _ in range(cfg.policy.learn.update_per_collect):
            batch = {name: buffer.sample(batch_size[name], learner.train_iter) for name, buffer in buffers.items()}
            if all(samples is not None for samples in batch.values()):
                learner.train(batch, collector.envstep)
        for buffer in buffers.values():
            buffer.clear()
    learner.call_hook("after_run")
    for part in (learner, collector, evaluator, *buffers.values()):
        part.close()
    return policy
