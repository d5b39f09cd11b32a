"""The tasks of `tests.benchmarks.learning`, by the name under which the policy is registered.

The configs of DI-engine's examples, in `original_tasks` and `tests/entry/example_configs.py`, are these with changes.
"""

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from easydict import EasyDict

Config = dict[str, Any]
GONE = object()  # as a value of `changed`: the key goes


@dataclass(frozen=True)
class Task:
    """What a policy trains on.

    Attributes:
        budget: the env steps within which the stop value is to be reached; the steps of the data set, where there is
            one.
        pipeline: the name of the entry.
        train: takes the place of the entry, for what takes more than one call.
    """

    main_config: Config
    create_config: Config
    budget: int
    pipeline: str = "serial_pipeline"
    train: Callable[[Any, Any, int], Any] | None = None

    def configs(self) -> tuple[Any, Any]:
        """Return a fresh pair of main and create config."""
        return EasyDict(copy.deepcopy(self.main_config)), EasyDict(copy.deepcopy(self.create_config))


def changed(config: Config, changes: Config) -> Config:
    """Return a copy with other values, by their dotted paths."""
    result = copy.deepcopy(config)
    for path, value in changes.items():
        *sections, key = path.split(".")
        section = result
        for name in sections:
            section = section.setdefault(name, {})
        if value is GONE:
            del section[key]
        else:
            section[key] = copy.deepcopy(value)
    return result


def _task(policy: str, env_cfg: Config, cfg: Config, budget: int, **options: Any) -> Task:
    own = {name: options.pop(name) for name in ("pipeline", "train") if name in options}
    main = {"exp_name": policy, "env": env_cfg, "policy": {"cuda": False, **cfg}}
    create = {"env": {"type": "gymnasium"}, "env_manager": {"type": "base"}, "policy": {"type": policy}}
    create.update({part: kind if isinstance(kind, dict) else {"type": kind} for part, kind in options.items()})
    return Task(main, create, budget, **own)


def _cartpole(policy: str, cfg: Config, budget: int, env: Config | None = None, **options: Any) -> Task:
    counts = {"collector_env_num": 8, "evaluator_env_num": 5, "n_evaluator_episode": 5, "stop_value": 195}
    cfg = {**cfg, "model": {"obs_shape": 4, "action_shape": 2, **cfg.get("model", {})}}
    return _task(policy, {"env_id": "CartPole-v1", **counts, **(env or {})}, cfg, budget, **options)


def _pendulum(policy: str, cfg: Config, budget: int, env: Config, **options: Any) -> Task:
    counts = {"evaluator_env_num": 5, "n_evaluator_episode": 5, "stop_value": -250}
    cfg = {**cfg, "model": {"obs_shape": 3, **cfg["model"]}}
    return _task(policy, {"env_id": "Pendulum-v1", **counts, **env}, cfg, budget, **options)


# ---- the parts that several have


def _evaluated(every: int) -> Config:
    return {"evaluator": {"eval_freq": every}}


_WIDE = {"encoder_hidden_size_list": [128, 128, 64]}
_DUELING = {**_WIDE, "dueling": True}
_NARROW = {"encoder_hidden_size_list": [64, 64]}
_EPS = {"type": "exp", "start": 0.95, "end": 0.1, "decay": 10000}
_GAE = {"unroll_len": 1, "discount_factor": 0.9, "gae_lambda": 0.95}
_ON_POLICY = {"pipeline": "serial_pipeline_onpolicy"}


def _replay(size: int, eps: Config | None = None, **buffer: Any) -> Config:
    other = {"replay_buffer": {"replay_buffer_size": size, **buffer}}
    return other if eps is None else {"eps": eps, **other}


def _value(model: Config, every: int = 100, learn: Config | None = None, **changes: Any) -> Config:
    """DQN and its relatives, with 1-step returns of 8 samples a collection."""
    return {
        "discount_factor": 0.97,
        "nstep": 1,
        "model": model,
        "learn": {"update_per_collect": 5, "batch_size": 64, "learning_rate": 0.001, **(learn or {})},
        "collect": {"n_sample": 8, "unroll_len": 1},
        "eval": _evaluated(every),
        "other": _replay(20000, _EPS),
        **changes,
    }


def _distributional(model: Config, nstep: int = 3, **learn: Any) -> Config:
    """C51 and its relatives, prioritized, with 80 samples a collection."""
    learn = {"update_per_collect": 3, "target_update_freq": 100, **learn}
    cfg = _value({**_WIDE, **model}, learn=learn, priority=True, nstep=nstep)
    return {**cfg, "collect": {"n_sample": 80, "unroll_len": 1}}


def _clipped(learn: Config, **cfg: Any) -> Config:
    """PPO and its relatives."""
    model = {
        "encoder_hidden_size_list": [64, 64, 128],
        "critic_head_hidden_size": 128,
        "actor_head_hidden_size": 128,
        **cfg.pop("model", {}),
    }
    weights = {"value_weight": 0.5, "entropy_weight": 0.01, "clip_ratio": 0.2}
    return {"model": model, "learn": {"batch_size": 64, "learning_rate": 0.001, **weights, **learn}, **cfg}


def _sequences(unroll_len: int, learn: Config, **cfg: Any) -> Config:
    """IMPALA and ACER: sequences out of a buffer."""
    return {
        "unroll_len": unroll_len,
        "model": _NARROW,
        "learn": {
            "update_per_collect": 4,
            "batch_size": 16,
            "entropy_weight": 0.0001,
            "discount_factor": 0.9,
            "c_clip_ratio": 1.0,
            **learn,
        },
        "collect": {"n_sample": 16, "unroll_len": unroll_len},
        "eval": _evaluated(200),
        "other": _replay(10000, max_use=16),
        **cfg,
    }


def _episodes(learn: Config, **collect: Any) -> Config:
    """Policy gradients of whole episodes."""
    return {
        "learn": {"batch_size": 64, "learning_rate": 0.001, "entropy_weight": 0.001, **learn},
        "collect": {"n_episode": 80, "unroll_len": 1, **collect},
        "eval": _evaluated(100),
    }


def _deterministic(model: Config, actor_update_freq: int = 1, noise: Config | None = None, **cfg: Any) -> Config:
    """DDPG, TD3 and D4PG."""
    return {
        "priority": False,
        "random_collect_size": 800,
        "model": {"action_shape": 1, "action_space": "regression", **model},
        "learn": {
            "update_per_collect": 2,
            "batch_size": 128,
            "learning_rate_actor": 0.001,
            "learning_rate_critic": 0.001,
            "ignore_done": True,
            "actor_update_freq": actor_update_freq,
            "noise": noise is not None,
            **(noise or {}),
        },
        "collect": {"n_sample": 48, "noise_sigma": 0.1},
        "eval": _evaluated(100),
        "other": _replay(20000),
        **cfg,
    }


def _stochastic(action_space: str = "reparameterization") -> Config:
    heads = {"actor_head_hidden_size": 128, "critic_head_hidden_size": 128}
    return {"action_shape": 1, "twin_critic": True, "action_space": action_space, **heads}


def _offline(learn: Config, every: int = 100, **cfg: Any) -> Config:
    return {"learn": learn, "collect": {"data_type": "npz"}, "eval": _evaluated(every), **cfg}


def _memory(learn: Config, every: int, eps_end: float, size: int, **cfg: Any) -> Config:
    """R2D2."""
    return {
        "learn": {"batch_size": 64, **learn},
        "eval": {"env_num": 8, **_evaluated(every)},
        "other": _replay(size, {**_EPS, "end": eps_end}),
        **cfg,
    }


# ---- what takes more than one call


def _learn_offline(data: Callable[[int], str]) -> Callable[[Any, Any, int], Any]:
    def train(main_config: Any, create_config: Any, seed: int) -> Any:
        from ding.entry import serial_pipeline_offline

        main_config.policy.collect.data_path = data(seed)
        return serial_pipeline_offline((main_config, create_config), seed)

    return train


def _cartpole_steps(seed: int) -> str:
    from tests.benchmarks.experts import cartpole_steps

    return cartpole_steps("qrdqn", seed, 10_000)


def _pendulum_steps(seed: int) -> str:
    from tests.benchmarks.experts import pendulum_steps

    return pendulum_steps(seed, 25_000)


def _clone(main_config: Any, create_config: Any, seed: int) -> Any:
    from ding.entry import serial_pipeline_bc
    from tests.benchmarks.experts import cartpole_steps

    return serial_pipeline_bc((main_config, create_config), seed, cartpole_steps("dqn", seed, 10_000))


def _with_expert(pipeline: str) -> Callable[[Any, Any, int], Any]:
    def train(main_config: Any, create_config: Any, seed: int) -> Any:
        import ding.entry
        from tests.benchmarks.experts import train_expert

        expert_main, expert_create, state = train_expert("dqn", seed)
        expert_main.policy.collect.model_path = state
        pairs = (main_config, create_config), (expert_main, expert_create)
        return getattr(ding.entry, pipeline)(*pairs, seed, max_env_step=50_000)

    return train


def train_ppg(main_config: Any, create_config: Any, seed: int, max_train_iter: int | None = None) -> Any:
    """Train PPG on two buffers until solved, or out of budget; return the policy."""
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
            if stop or collector.envstep >= TASKS["ppg_offpolicy"].budget:
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


# ---- the tasks

_ATOMS = {"v_min": -10, "v_max": 10, "n_atom": 51}
_TORQUE = {"act_scale": True}
_EIGHT, _TEN = {**_TORQUE, "collector_env_num": 8}, {**_TORQUE, "collector_env_num": 10}
_OFFLINE_SOFT = {"batch_size": 128, "learning_rate_q": 0.001, "learning_rate_policy": 0.001, "ignore_done": True}
_SAC_RATES = {"learning_rate_q": 0.001, "learning_rate_policy": 0.001, "learning_rate_alpha": 0.0003}
_SMOOTHING = {"noise_sigma": 0.1, "noise_range": {"min": -0.5, "max": 0.5}}

TASKS = {
    "dqn": _cartpole("dqn", _value(_DUELING, 40), 30_000, env={"n_evaluator_episode": 10}),
    "c51": _cartpole("c51", _distributional(_ATOMS), 100_000),
    "qrdqn": _cartpole("qrdqn", _distributional({"num_quantiles": 64}), 100_000),
    "iqn": _cartpole("iqn", _distributional({"num_quantiles": 32}), 100_000),
    "fqf": _cartpole(
        "fqf",
        changed(
            _distributional(
                {"num_quantiles": 32, "quantile_embedding_size": 64},
                nstep=1,
                learning_rate_fraction=0.0001,
                learning_rate_quantile=0.0001,
            ),
            {"learn.learning_rate": GONE},
        ),
        150_000,
    ),
    "rainbow": _cartpole("rainbow", _distributional(_ATOMS), 100_000),
    "mdqn": _cartpole(
        "mdqn", _value(_DUELING, learn={"target_update_freq": 100}, entropy_tau=0.03, m_alpha=0.9), 100_000
    ),
    "sql": _cartpole("sql", _value(_DUELING, learn={"target_update_freq": 100, "alpha": 0.12}), 100_000),
    "sqn": _cartpole(
        "sqn",
        {
            "model": _NARROW,
            "learn": {
                "update_per_collect": 4,
                "batch_size": 64,
                "learning_rate_q": 0.001,
                "learning_rate_alpha": 0.001,
                "alpha": 0.2,
                "target_entropy": 0.2,
            },
            "collect": {"n_sample": 16, "unroll_len": 1},
            "eval": _evaluated(100),
            "other": _replay(100000, {"type": "exp", "start": 1.0, "end": 0.8, "decay": 2000}),
        },
        100_000,
    ),
    "bdq": _pendulum(  # whose torque is one of 11
        "bdq",
        _value(
            {"num_branches": 1, "action_bins_per_branch": 11, **_WIDE},
            1000,
            {"update_per_collect": 10, "target_update_freq": 100},
            collect={"n_sample": 10, "unroll_len": 1},
        ),
        100_000,
        {"act_bins": 11, "collector_env_num": 10},
    ),
    # The target network follows ten times as fast as in DI-engine's example, whose rate takes up to 240,000 steps.
    "r2d2": _cartpole(
        "r2d2",
        _memory(
            {"update_per_collect": 5, "learning_rate": 0.0005, "target_update_theta": 0.01},
            30,
            0.05,
            100000,
            priority=False,
            priority_IS_weight=False,
            model=_WIDE,
            discount_factor=0.995,
            nstep=5,
            burnin_step=2,
            learn_unroll_len=40,
            collect={"n_sample": 32, "unroll_len": 2 + 40, "env_num": 8},
        ),
        60_000,
        env={"evaluator_env_num": 8, "n_evaluator_episode": 8},
    ),
    # Only memory helps here: a cue is to be remembered for 10 steps.
    "r2d2_memory": _task(
        "r2d2",
        {
            "env_id": "CueMemory-v0",
            "collector_env_num": 8,
            "evaluator_env_num": 8,
            "n_evaluator_episode": 64,
            "stop_value": 0.9,
        },
        _memory(
            {"update_per_collect": 4, "learning_rate": 0.001, "target_update_theta": 0.01},
            100,
            0.05,
            10000,
            priority=True,
            priority_IS_weight=True,
            model={"obs_shape": 3, "action_shape": 2, **_NARROW},
            discount_factor=0.99,
            nstep=3,
            burnin_step=0,
            learn_unroll_len=14,
            collect={"n_sample": 32, "env_num": 8},
        ),
        60_000,
        env={"type": "gymnasium", "import_names": ["tests.benchmarks.cue_memory"]},
    ),
    "a2c": _cartpole(
        "a2c",
        {
            "model": _WIDE,
            "learn": {"batch_size": 40, "learning_rate": 0.001, "entropy_weight": 0.01},
            "collect": {"n_sample": 80, **_GAE},
            "eval": _evaluated(50),
        },
        200_000,
        **_ON_POLICY,
    ),
    "pg": _cartpole("pg", _episodes({}, discount_factor=0.9), 300_000, collector="episode", **_ON_POLICY),
    "ppo": _cartpole(
        "ppo",
        _clipped(
            {"epoch_per_collect": 2},
            action_space="discrete",
            model={"action_space": "discrete"},
            collect={"n_sample": 256, **_GAE},
            eval=_evaluated(100),
        ),
        100_000,
        **_ON_POLICY,
    ),
    "ppo_pg": _cartpole(
        "ppo_pg",
        _episodes({"epoch_per_collect": 1}, discount_factor=0.99, collector={"get_train_sample": True}),
        300_000,
        collector="episode",
        **_ON_POLICY,
    ),
    "ppo_offpolicy": _cartpole(
        "ppo_offpolicy",
        _clipped(
            {"update_per_collect": 6},
            collect={"n_sample": 128, **_GAE},
            eval=_evaluated(40),
            other=_replay(5000),
        ),
        200_000,
    ),
    "impala": _cartpole(
        "impala",
        _sequences(
            8,
            {
                "learning_rate": 0.0005,
                "value_weight": 0.5,
                "lambda_": 0.95,
                "rho_clip_ratio": 1.0,
                "rho_pg_clip_ratio": 1.0,
            },
        ),
        100_000,
    ),
    "acer": _cartpole(
        "acer",
        _sequences(
            32,
            {
                "learning_rate_actor": 0.0005,
                "learning_rate_critic": 0.0005,
                "unroll_len": 32,
                "c_clip_ratio": 10,
                "trust_region": True,
                "trust_region_value": 1.0,
            },
            priority=False,
            priority_IS_weight=False,
        ),
        200_000,
    ),
    "ppg_offpolicy": _cartpole(
        "ppg_offpolicy",
        _clipped(
            {"update_per_collect": 5, "adv_norm": False, "aux_freq": 5, "aux_train_epoch": 6, "aux_bc_weight": 1},
            collect={"n_sample": 128, **_GAE},
            eval=_evaluated(40),
            other={
                "replay_buffer": {
                    "multi_buffer": True,
                    "policy": {"replay_buffer_size": 1000, "max_use": 16},
                    "value": {"replay_buffer_size": 1000, "max_use": 16},
                },
            },
        ),
        200_000,
        replay_buffer={"policy": {"type": "advanced"}, "value": {"type": "advanced"}},
        train=train_ppg,
    ),
    "ddpg": _pendulum("ddpg", _deterministic({"twin_critic": False}), 200_000, _EIGHT, replay_buffer="naive"),
    "td3": _pendulum(
        "td3", _deterministic({"twin_critic": True}, 2, _SMOOTHING), 200_000, _EIGHT, replay_buffer="naive"
    ),
    "d4pg": _pendulum(
        "d4pg",
        _deterministic({"v_min": -100, "v_max": 100, "n_atom": 51}, priority=True, priority_IS_weight=True, nstep=3),
        200_000,
        _EIGHT,
        replay_buffer="advanced",
    ),
    "sac": _pendulum(
        "sac",
        {
            "priority": False,
            "random_collect_size": 1000,
            "model": _stochastic(),
            "learn": {
                "update_per_collect": 1,
                "batch_size": 128,
                **_SAC_RATES,
                "ignore_done": True,
                "target_theta": 0.005,
                "discount_factor": 0.99,
                "auto_alpha": True,
            },
            "collect": {"n_sample": 10, "unroll_len": 1},
            "eval": _evaluated(100),
            "other": _replay(100000),
        },
        100_000,
        _TEN,
        replay_buffer="naive",
    ),
    "discrete_sac": _cartpole(
        "discrete_sac",
        {
            "random_collect_size": 0,
            "multi_agent": False,
            "model": {"twin_critic": True, "actor_head_hidden_size": 64, "critic_head_hidden_size": 64},
            "learn": {
                "update_per_collect": 2,
                "batch_size": 64,
                "learning_rate_q": 5e-3,
                "learning_rate_policy": 5e-3,
                "learning_rate_alpha": 3e-4,
                "ignore_done": False,
                "target_theta": 0.01,
                "discount_factor": 0.99,
                "alpha": 0.2,
                "auto_alpha": False,
            },
            "collect": {"env_num": 8, "n_sample": 256, "unroll_len": 1},
            "eval": {"env_num": 5, **_evaluated(50)},
            "other": _replay(100000, {**_EPS, "type": "linear", "start": 1.0}),
        },
        200_000,
        replay_buffer="naive",
    ),
    # From steps of a DQN that has solved CartPole.
    "bc": _cartpole(
        "bc",
        _offline(
            {"batch_size": 64, "learning_rate": 0.01, "train_epoch": 20},
            40,
            continuous=False,
            model={"encoder_hidden_size_list": [64, 64, 128]},
        ),
        10_000,
        train=_clone,
    ),
    "dqfd": _cartpole(
        "dqfd",
        changed(
            _value(_DUELING, 50, priority=True, nstep=3),
            {
                "learn": {
                    "batch_size": 64,
                    "learning_rate": 0.001,
                    "lambda1": 1,
                    "lambda2": 3.0,
                    "lambda3": 0,
                    "per_train_iter_k": 10,
                    "expert_replay_buffer_size": 10000,
                }
            },
        ),
        50_000,
        train=_with_expert("serial_pipeline_dqfd"),
    ),
    "sqil": _cartpole(
        "sql",
        _value(_DUELING, 50, {"update_per_collect": 3, "alpha": 0.12}),
        50_000,
        train=_with_expert("serial_pipeline_sqil"),
    ),
    # From steps of a QR-DQN that has solved CartPole.
    "discrete_cql": _cartpole(
        "discrete_cql",
        _offline(
            {
                "train_epoch": 20,
                "batch_size": 64,
                "learning_rate": 0.001,
                "target_update_freq": 100,
                "min_q_weight": 10.0,
            },
            discount_factor=0.97,
            nstep=1,
            model={**_WIDE, "num_quantiles": 64},
        ),
        10_000,
        train=_learn_offline(_cartpole_steps),
    ),
    # The rest learns from steps of SAC, well trained and untrained.
    "cql": _pendulum(
        "cql",
        _offline(
            {
                **_OFFLINE_SOFT,
                "train_epoch": 30,
                "learning_rate_alpha": 0.001,
                "num_actions": 4,
                "min_q_weight": 1.0,
            },
            model=_stochastic(),
        ),
        25_000,
        _TORQUE,
        train=_learn_offline(_pendulum_steps),
    ),
    "td3_bc": _pendulum(
        "td3_bc",
        _offline(
            {
                "train_epoch": 60,
                "batch_size": 128,
                "learning_rate_critic": 0.001,
                "learning_rate_actor": 0.001,
                "ignore_done": True,
            },
            model=_stochastic("regression"),
        ),
        25_000,
        _TORQUE,
        train=_learn_offline(_pendulum_steps),
    ),
    "iql": _pendulum(
        "iql",
        _offline(
            {**_OFFLINE_SOFT, "train_epoch": 30, "tau": 0.7, "inverse_temperature": 3.0},
            model=_stochastic(),
        ),
        25_000,
        _TORQUE,
        train=_learn_offline(_pendulum_steps),
    ),
}
