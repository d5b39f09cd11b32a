"""Configs of classic control and the envs they name, as a program that is not part of this project brings them.

Networks, numbers of envs and batch sizes are those of DI-engine's examples; what takes long there, such as the 5000
samples of a round of PPO, is less here. The envs have the spaces of the real tasks and episodes of a few random
observations.
"""

import copy

import numpy as np
from easydict import EasyDict
from gymnasium import spaces
from torch import nn

from ding.envs import BaseEnv, BaseEnvTimestep
from ding.envs.common import affine_transform
from ding.torch_utils import to_ndarray
from ding.utils import ENV_REGISTRY


class ClassicEnv(BaseEnv):
    """Episodes of `cfg.length` (12) random observations; knows of the end of an episode only `done`."""

    def __init__(self, cfg: dict = {}) -> None:  # noqa: B006
        self._cfg = cfg
        self._init_flag = False
        self._reward_space = spaces.Box(low=-20.0, high=1.0, shape=(1,), dtype=np.float32)

    def reset(self) -> np.ndarray:
        self._init_flag = True
        if hasattr(self, "_seed") and self._dynamic_seed:
            self._rng = np.random.default_rng(self._seed + 100 * np.random.randint(1, 1000))
        elif hasattr(self, "_seed"):
            self._rng = np.random.default_rng(self._seed)
        self._count = 0
        self._eval_episode_return = 0
        return self._observe()

    def _observe(self) -> np.ndarray:
        return to_ndarray(self._rng.uniform(-1, 1, self._observation_space.shape)).astype(np.float32)

    def seed(self, seed: int, dynamic_seed: bool = True) -> None:
        self._seed = seed
        self._dynamic_seed = dynamic_seed
        np.random.seed(self._seed)

    def step(self, action: np.ndarray) -> BaseEnvTimestep:
        assert isinstance(action, np.ndarray), type(action)
        rew = self._reward(action)
        self._count += 1
        self._eval_episode_return += rew
        done = self._count == self._cfg.get("length", 12)
        info = {}
        if done:
            info["eval_episode_return"] = self._eval_episode_return
        return BaseEnvTimestep(self._observe(), to_ndarray([rew]).astype(np.float32), done, info)

    def _reward(self, action: np.ndarray) -> float:
        if action.shape == (1,):
            action = action.squeeze()
        assert self._action_space.contains(action), action
        return 1.0

    def random_action(self) -> np.ndarray:
        return to_ndarray([self.action_space.sample()], dtype=np.int64)

    def close(self) -> None:
        self._init_flag = False

    def enable_save_replay(self, replay_path=None) -> None:
        self._replay_path = replay_path

    def __repr__(self) -> str:
        return f"Outside {type(self).__name__}"

    @property
    def observation_space(self) -> spaces.Space:
        return self._observation_space

    @property
    def action_space(self) -> spaces.Space:
        return self._action_space

    @property
    def reward_space(self) -> spaces.Space:
        return self._reward_space


@ENV_REGISTRY.register("cartpole")
class CartPoleEnv(ClassicEnv):
    _observation_space = spaces.Box(-np.inf, np.inf, (4,), np.float32)
    _action_space = spaces.Discrete(2)


@ENV_REGISTRY.register("pendulum")
class PendulumEnv(ClassicEnv):
    """Takes a torque in [-2, 2], with `act_scale` a number in [-1, 1], without `continuous` one of 11 numbers."""

    def __init__(self, cfg: dict) -> None:
        super().__init__(cfg)
        self._act_scale = cfg.act_scale
        self._continuous = cfg.get("continuous", True)
        self._observation_space = spaces.Box(-8.0, 8.0, (3,), np.float32)
        self._action_space = spaces.Box(-2.0, 2.0, (1,), np.float32) if self._continuous else spaces.Discrete(11)

    def _reward(self, action: np.ndarray) -> float:
        if not self._continuous:
            assert action.shape == (1,) and self._action_space.contains(action[0]), action
            action = (action / 10 * 2 - 1).astype(np.float32)
        if self._act_scale:
            action = affine_transform(action, min_val=-2.0, max_val=2.0)
        assert action.shape == (1,), action
        return -float(np.abs(action[0]))


def _pair(name, env_type, env, policy_type, policy, **create):
    main = EasyDict(exp_name=f"{name}_seed0", env=env, policy=policy)
    created = {"env": {"type": env_type, "import_names": [__name__]}, "env_manager": {"type": "base"}}
    return main, EasyDict({**created, "policy": {"type": policy_type}, **create})


def cartpole(name, policy_type, policy, env=None, **create):
    counts = dict(collector_env_num=8, evaluator_env_num=5, n_evaluator_episode=5, stop_value=195)
    return _pair(f"cartpole_{name}", "cartpole", {**counts, **(env or {})}, policy_type, policy, **create)


def pendulum(name, policy_type, policy, env_num=10, env=None, **create):
    counts = dict(evaluator_env_num=5, n_evaluator_episode=5, stop_value=-250, act_scale=True)
    if env_num:
        counts["collector_env_num"] = env_num
    return _pair(f"pendulum_{name}", "pendulum", {**counts, **(env or {})}, policy_type, policy, **create)


DEQUE = dict(type="deque", import_names=["ding.data.buffer.deque_buffer_wrapper"])
HIDDEN = dict(obs_shape=4, action_shape=2, encoder_hidden_size_list=[128, 128, 64])
EPS = dict(type="exp", start=0.95, end=0.1, decay=10000)


def _other(size=20000, eps=EPS, **buffer):
    return dict(eps=eps, replay_buffer=dict(replay_buffer_size=size, **buffer))


def _evaluated(freq):
    return dict(evaluator=dict(eval_freq=freq))


def _value_policy(freq=100, per_collect=3, n_sample=80, learn=None, other=None, **policy):
    """What the configs of DQN's relatives have in common."""
    return dict(
        **dict(dict(cuda=False, discount_factor=0.97, nstep=1, model=HIDDEN), **policy),
        learn=dict(update_per_collect=per_collect, batch_size=64, learning_rate=0.001, **(learn or {})),
        collect=dict(n_sample=n_sample, unroll_len=1),
        eval=_evaluated(freq),
        other=other or _other(),
    )


FREQ = dict(target_update_freq=100)
DUELING = dict(HIDDEN, dueling=True)
VAC = dict(
    obs_shape=4,
    action_shape=2,
    encoder_hidden_size_list=[64, 64, 128],
    critic_head_hidden_size=128,
    actor_head_hidden_size=128,
)
GAE = dict(unroll_len=1, discount_factor=0.9, gae_lambda=0.95)


def _recurrent(model, unroll, discount, nstep, burnin, rate, **learn):
    return dict(
        cuda=False,
        priority=False,
        priority_IS_weight=False,
        model=model,
        discount_factor=discount,
        nstep=nstep,
        burnin_step=burnin,
        learn_unroll_len=unroll,
        learn=dict(update_per_collect=5, batch_size=64, learning_rate=0.0005, target_update_theta=rate, **learn),
        collect=dict(n_sample=32, unroll_len=burnin + unroll, traj_len_inf=True, env_num=8),
        eval=dict(env_num=8, **_evaluated(30)),
        other=_other(100000, dict(EPS, end=0.05)),
    )


def _actor_critic(unroll, learn, **policy):
    """IMPALA and ACER: sequences out of a buffer."""
    return dict(
        cuda=False,
        priority=False,
        priority_IS_weight=False,
        model=dict(obs_shape=4, action_shape=2, encoder_hidden_size_list=[64, 64]),
        unroll_len=unroll,
        learn=dict(update_per_collect=4, batch_size=16, grad_clip_type="clip_norm", clip_value=5, **learn),
        collect=dict(n_sample=16, unroll_len=unroll, discount_factor=0.9, gae_lambda=0.95),
        eval=_evaluated(200),
        other=dict(replay_buffer=dict(replay_buffer_size=10000, max_use=16)),
        **policy,
    )


def _deterministic(twin, freq, noise, **policy):
    """DDPG, TD3 and D4PG."""
    return dict(
        **dict(
            dict(
                cuda=False,
                priority=False,
                random_collect_size=800,
                model=dict(obs_shape=3, action_shape=1, twin_critic=twin, action_space="regression"),
            ),
            **policy,
        ),
        learn=dict(
            update_per_collect=2,
            batch_size=128,
            learning_rate_actor=0.001,
            learning_rate_critic=0.001,
            ignore_done=True,
            actor_update_freq=freq,
            noise=noise,
            **(dict(noise_sigma=0.1, noise_range=dict(min=-0.5, max=0.5)) if noise else {}),
        ),
        collect=dict(n_sample=48, noise_sigma=0.1, collector=dict(collect_print_freq=1000)),
        eval=_evaluated(100),
        other=dict(replay_buffer=dict(replay_buffer_size=20000, max_use=16)),
    )


STOCHASTIC = dict(
    obs_shape=3,
    action_shape=1,
    twin_critic=True,
    action_space="reparameterization",
    actor_head_hidden_size=128,
    critic_head_hidden_size=128,
)
SOFT = dict(
    learning_rate_q=0.001,
    learning_rate_policy=0.001,
    learning_rate_alpha=0.0003,
    ignore_done=True,
    target_theta=0.005,
    discount_factor=0.99,
    auto_alpha=True,
)


def _soft(random_size=1000, collect=None, model=STOCHASTIC, **policy):
    return dict(
        cuda=False,
        priority=False,
        random_collect_size=random_size,
        model=model,
        learn=dict(update_per_collect=1, batch_size=128, **SOFT),
        collect=dict(n_sample=10, unroll_len=1, **(collect or {})),
        eval=_evaluated(100),
        other=dict(replay_buffer=dict(replay_buffer_size=100000)),
        **policy,
    )


def _gaussian(n, learn, collect):
    return dict(
        cuda=False,
        action_space="continuous",
        model=dict(
            obs_shape=3,
            action_shape=1,
            action_space="continuous",
            encoder_hidden_size_list=[128, 128, 64],
        ),
        learn=dict(learning_rate=3e-5, entropy_weight=0.0, **learn),
        collect=dict(**n, discount_factor=0.99, **collect),
        eval=_evaluated(200),
    )


def _offline(**learn):
    return dict(train_epoch=1, batch_size=64, **learn)


DISTRIBUTED = dict(HIDDEN, v_min=-10, v_max=10, n_atom=51)
R2D2_EPISODES = dict(evaluator_env_num=8, n_evaluator_episode=8, length=45)
GENERATED = "./cartpole_qrdqn_generation_data_seed0/expert_demos.hdf5"

CONFIGS = {
    "cartpole_dqn": cartpole(
        "dqn",
        "dqn",
        _value_policy(40, 5, 8, model=DUELING, load_path="cartpole_dqn_seed0/ckpt/ckpt_best.pth.tar"),
        env=dict(replay_path="cartpole_dqn_seed0/video"),
        replay_buffer=DEQUE,
    ),
    "cartpole_mdqn": cartpole(
        "mdqn",
        "mdqn",
        _value_policy(100, 5, 8, FREQ, model=DUELING, entropy_tau=0.03, m_alpha=0.9),
        replay_buffer=DEQUE,
    ),
    "cartpole_c51": cartpole("c51", "c51", _value_policy(learn=FREQ, priority=True, nstep=3, model=DISTRIBUTED)),
    "cartpole_rainbow": cartpole(
        "rainbow", "rainbow", _value_policy(learn=FREQ, priority=True, nstep=3, model=DISTRIBUTED)
    ),
    "cartpole_qrdqn": cartpole(
        "qrdqn", "qrdqn", _value_policy(learn=FREQ, priority=True, nstep=3, model=dict(HIDDEN, num_quantiles=64))
    ),
    "cartpole_iqn": cartpole(
        "iqn",
        "iqn",
        _value_policy(learn=dict(FREQ, kappa=1.0), priority=True, nstep=3, model=dict(HIDDEN, num_quantiles=32)),
    ),
    "cartpole_fqf": cartpole(
        "fqf",
        "fqf",
        _value_policy(
            learn=dict(FREQ, learning_rate_fraction=0.0001, learning_rate_quantile=0.0001, ent_coef=0),
            priority=True,
            model=dict(HIDDEN, num_quantiles=32, quantile_embedding_size=64),
        ),
    ),
    "cartpole_sql": cartpole("sql", "sql", _value_policy(50, 5, 8, dict(FREQ, alpha=0.12), model=DUELING)),
    "cartpole_sqn": cartpole(
        "sqn",
        "sqn",
        dict(
            cuda=False,
            model=dict(obs_shape=4, action_shape=2, encoder_hidden_size_list=[64, 64], dueling=True),
            learn=dict(
                update_per_collect=4,
                batch_size=64,
                learning_rate_q=0.001,
                learning_rate_alpha=0.001,
                alpha=0.2,
                target_entropy=0.2,
            ),
            collect=dict(n_sample=16),
            eval=_evaluated(50),
            other=_other(10000, dict(type="exp", start=1.0, end=0.8, decay=2000)),
        ),
    ),
    "cartpole_sac": cartpole(
        "sac",
        "discrete_sac",
        dict(
            cuda=False,
            random_collect_size=0,
            multi_agent=False,
            model=dict(
                obs_shape=4,
                action_shape=2,
                twin_critic=True,
                actor_head_hidden_size=64,
                critic_head_hidden_size=64,
            ),
            learn=dict(
                update_per_collect=2,
                batch_size=64,
                learning_rate_q=5e-3,
                learning_rate_policy=5e-3,
                learning_rate_alpha=3e-4,
                ignore_done=False,
                target_theta=0.01,
                discount_factor=0.99,
                alpha=0.2,
                auto_alpha=False,
            ),
            collect=dict(env_num=8, n_sample=256, unroll_len=1),
            command={},
            eval=dict(env_num=5, **_evaluated(50)),
            other=_other(100000, dict(type="linear", start=1.0, end=0.1, decay=10000)),
        ),
    ),
    "cartpole_acer": cartpole(
        "acer",
        "acer",
        _actor_critic(
            32,
            dict(
                learning_rate_actor=0.0005,
                learning_rate_critic=0.0005,
                value_weight=0.5,
                entropy_weight=0.0001,
                discount_factor=0.9,
                lambda_=0.95,
                unroll_len=32,
                c_clip_ratio=10,
                trust_region=True,
                trust_region_value=1.0,
            ),
        ),
        env=dict(length=70),
    ),
    "cartpole_impala": cartpole(
        "impala",
        "impala",
        _actor_critic(
            8,
            dict(
                learning_rate=0.0005,
                value_weight=0.5,
                entropy_weight=0.0001,
                discount_factor=0.9,
                lambda_=0.95,
                rho_clip_ratio=1.0,
                c_clip_ratio=1.0,
                rho_pg_clip_ratio=1.0,
            ),
        ),
    ),
    "cartpole_r2d2": cartpole("r2d2", "r2d2", _recurrent(HIDDEN, 40, 0.995, 5, 2, 0.001), env=R2D2_EPISODES),
    "cartpole_ppo": cartpole(
        "ppo",
        "ppo",
        dict(
            cuda=False,
            action_space="discrete",
            model=dict(VAC, action_space="discrete"),
            learn=dict(
                epoch_per_collect=2,
                batch_size=64,
                learning_rate=0.001,
                value_weight=0.5,
                entropy_weight=0.01,
                clip_ratio=0.2,
                learner=dict(hook=dict(save_ckpt_after_iter=1000)),
            ),
            collect=dict(n_sample=256, **GAE),
            eval=_evaluated(100),
        ),
    ),
    "cartpole_ppo_offpolicy": cartpole(
        "ppo_offpolicy",
        "ppo_offpolicy",
        dict(
            cuda=False,
            model=VAC,
            learn=dict(
                update_per_collect=6,
                batch_size=64,
                learning_rate=0.001,
                value_weight=0.5,
                entropy_weight=0.01,
                clip_ratio=0.2,
                learner=dict(hook=dict(save_ckpt_after_iter=1000)),
            ),
            collect=dict(n_sample=128, **GAE),
            eval=_evaluated(40),
            other=dict(replay_buffer=dict(replay_buffer_size=5000)),
        ),
    ),
    "cartpole_a2c": cartpole(
        "a2c",
        "a2c",
        dict(
            cuda=False,
            model=HIDDEN,
            learn=dict(batch_size=40, learning_rate=0.001, entropy_weight=0.01),
            collect=dict(n_sample=80, **GAE),
            eval=_evaluated(50),
        ),
    ),
    "cartpole_pg": cartpole(
        "pg",
        "pg",
        dict(
            cuda=False,
            model=dict(obs_shape=4, action_shape=2),
            learn=dict(batch_size=64, learning_rate=0.001, entropy_weight=0.001),
            collect=dict(n_episode=80, unroll_len=1, discount_factor=0.9),
            eval=_evaluated(100),
        ),
        collector=dict(type="episode"),
    ),
    "cartpole_ppopg": cartpole(
        "ppopg",
        "ppo_pg",
        dict(
            cuda=False,
            model=dict(obs_shape=4, action_shape=2),
            learn=dict(epoch_per_collect=1, batch_size=64, learning_rate=0.001, entropy_weight=0.001),
            collect=dict(n_episode=80, unroll_len=1, discount_factor=0.9, collector=dict(get_train_sample=True)),
            eval=_evaluated(100),
        ),
        collector=dict(type="episode"),
    ),
    "cartpole_ppg": cartpole(
        "ppg",
        "ppg_offpolicy",
        dict(
            cuda=False,
            model=VAC,
            learn=dict(
                update_per_collect=5,
                batch_size=64,
                learning_rate=0.001,
                value_weight=0.5,
                entropy_weight=0.01,
                clip_ratio=0.2,
                aux_freq=1,
                aux_train_epoch=1,
                aux_bc_weight=1,
            ),
            collect=dict(n_sample=128, **GAE),
            eval=_evaluated(40),
            other=dict(
                replay_buffer=dict(
                    multi_buffer=True,
                    policy=dict(replay_buffer_size=100, max_use=10),
                    value=dict(replay_buffer_size=1000, max_use=100),
                ),
            ),
        ),
        replay_buffer=dict(policy=dict(type="advanced"), value=dict(type="advanced")),
    ),
    "cartpole_bc": cartpole(
        "bc",
        "bc",
        dict(
            cuda=False,
            continuous=False,
            model=dict(obs_shape=4, action_shape=2, encoder_hidden_size_list=[64, 64, 128]),
            learn=dict(
                batch_size=64, learning_rate=0.01, train_epoch=20, learner=dict(hook=dict(save_ckpt_after_iter=1000))
            ),
            eval=_evaluated(40),
            other=dict(replay_buffer=dict(replay_buffer_size=20000)),
        ),
    ),
    "cartpole_dqfd": cartpole(
        "dqfd",
        "dqfd",
        dict(
            cuda=True,
            priority=True,
            model=DUELING,
            nstep=3,
            discount_factor=0.97,
            learn=dict(
                batch_size=64,
                learning_rate=0.001,
                lambda1=1,
                lambda2=3.0,
                lambda3=0,
                per_train_iter_k=10,
                expert_replay_buffer_size=10000,
            ),
            collect=dict(n_sample=8, model_path="expert.pth.tar"),
            eval=_evaluated(50),
            other=_other(),
        ),
    ),
    "cartpole_sqil": cartpole(
        "sqil",
        "sql",
        dict(
            _value_policy(50, 3, 8, dict(alpha=0.12), model=DUELING),
            collect=dict(n_sample=8, model_path="expert.pth.tar", unroll_len=1),
        ),
    ),
    "cartpole_qrdqn_generation_data": cartpole(
        "qrdqn_generation_data",
        "qrdqn",
        dict(
            cuda=False,
            priority=True,
            discount_factor=0.97,
            nstep=3,
            model=dict(HIDDEN, num_quantiles=64),
            collect=dict(
                n_sample=80, unroll_len=1, data_type="hdf5", save_path=GENERATED.replace("_demos.hdf5", ".pkl")
            ),
            other=dict(eps=dict(EPS, collect=0.2), replay_buffer=dict(replay_buffer_size=20000)),
        ),
    ),
    "cartpole_cql": cartpole(
        "cql",
        "discrete_cql",
        dict(
            cuda=False,
            priority=True,
            discount_factor=0.97,
            nstep=3,
            model=dict(HIDDEN, num_quantiles=64),
            learn=_offline(learning_rate=0.001, target_update_freq=100, kappa=1.0, min_q_weight=4.0),
            collect=dict(data_type="hdf5", data_path=GENERATED),
            eval=_evaluated(100),
            other=_other(),
        ),
    ),
    "pendulum_ddpg": pendulum("ddpg", "ddpg", _deterministic(False, 1, False), 8),
    "pendulum_td3": pendulum("td3", "td3", _deterministic(True, 2, True), 8),
    "pendulum_d4pg": pendulum(
        "d4pg",
        "d4pg",
        _deterministic(
            False,
            1,
            False,
            priority=True,
            nstep=3,
            model=dict(obs_shape=3, action_shape=1, action_space="regression", v_min=-100, v_max=100, n_atom=51),
        ),
        8,
    ),
    "pendulum_sac": pendulum("sac", "sac", _soft()),
    "pendulum_sqil_sac": pendulum(
        "sqil_sac",
        "sac",
        _soft(
            collect=dict(model_path="expert.pth.tar"),
            model=dict(STOCHASTIC, obs_shape=(3,), action_shape=(1,)),
        ),
    ),
    "pendulum_bdq": pendulum(
        "bdq",
        "bdq",
        _value_policy(
            1000,
            10,
            10,
            FREQ,
            model=dict(
                obs_shape=3,
                num_branches=1,
                action_bins_per_branch=11,
                layer_num=3,
                encoder_hidden_size_list=[128, 128, 64],
            ),
        ),
        env=dict(continuous=False),
        replay_buffer=DEQUE,
    ),
    "pendulum_ppo": pendulum(
        "ppo",
        "ppo",
        dict(
            cuda=False,
            recompute_adv=True,
            action_space="continuous",
            model=dict(
                obs_shape=3,
                action_shape=1,
                action_space="continuous",
                encoder_hidden_size_list=[64, 64],
                actor_head_layer_num=0,
                critic_head_layer_num=0,
                bound_type="tanh",
                activation=nn.Tanh(),
            ),
            learn=dict(
                epoch_per_collect=10,
                batch_size=32,
                learning_rate=0.001,
                value_weight=0.5,
                entropy_weight=0.0,
                clip_ratio=0.2,
                adv_norm=True,
                value_norm=True,
                ignore_done=True,
            ),
            collect=dict(n_sample=500, **GAE),
            eval=_evaluated(200),
        ),
    ),
    "pendulum_a2c": pendulum(
        "a2c",
        "a2c",
        _gaussian(dict(n_sample=200), dict(batch_size=40, ignore_done=True), dict(gae_lambda=0.95)),
        env=dict(stop_value=-200),
    ),
    "pendulum_pg": pendulum(
        "pg",
        "pg",
        _gaussian(dict(n_episode=10), dict(batch_size=40), dict(collector=dict(get_train_sample=True))),
        env=dict(stop_value=-200),
        collector=dict(type="episode"),
    ),
    "pendulum_sac_data_generation": _pair(
        "pendulum_sac_data_generation",
        "pendulum",
        dict(collector_env_num=10, act_scale=True),
        "sac",
        dict(
            cuda=False,
            random_collect_size=10000,
            model=STOCHASTIC,
            collect=dict(n_sample=10, unroll_len=1, save_path="./sac/expert.pkl", data_type="hdf5"),
            other=dict(replay_buffer=dict(replay_buffer_size=100000)),
        ),
        replay_buffer=dict(type="naive"),
    ),
    "pendulum_td3_data_generation": pendulum(
        "td3_data_generation",
        "ddpg",
        dict(
            _deterministic(True, 2, True),
            collect=dict(n_sample=48, noise_sigma=0.1, save_path="./td3/expert.pkl", data_type="hdf5"),
        ),
        8,
        env=dict(evaluator_env_num=10, n_evaluator_episode=10),
    ),
    "pendulum_cql": pendulum(
        "cql",
        "cql",
        dict(
            cuda=False,
            model=STOCHASTIC,
            learn=_offline(**{**SOFT, "learning_rate_alpha": 0.001, "alpha": 0.2, "num_actions": 10}),
            collect=dict(unroll_len=1, data_type="hdf5", data_path="./sac/expert_demos.hdf5"),
            command={},
            eval=_evaluated(100),
            other=dict(replay_buffer=dict(replay_buffer_size=2000000)),
        ),
        None,
        env=dict(norm_obs=dict(use_norm=False)),
    ),
    "pendulum_td3_bc": pendulum(
        "td3_bc",
        "td3_bc",
        dict(
            cuda=False,
            priority=False,
            model=dict(STOCHASTIC, action_space="regression"),
            learn=_offline(
                learning_rate_actor=0.0003,
                learning_rate_critic=0.0003,
                actor_update_freq=2,
                noise=True,
                noise_sigma=0.2,
                noise_range=dict(min=-0.5, max=0.5),
                alpha=2.5,
            ),
            collect=dict(unroll_len=1, data_type="hdf5", data_path="./td3/expert_demos.hdf5"),
            eval=_evaluated(100),
            other=dict(replay_buffer=dict(replay_buffer_size=2000000)),
        ),
        8,
        env=dict(norm_obs=dict(use_norm=True, offline_stats=dict(use_offline_stats=True))),
    ),
}
# A config of this kind is not among the examples: it is that of `cql` with another policy.
CONFIGS["pendulum_iql"] = pendulum(
    "iql",
    "iql",
    dict(
        cuda=False,
        model=STOCHASTIC,
        learn=_offline(
            learning_rate_q=0.001, learning_rate_policy=0.001, tau=0.7, inverse_temperature=3.0, ignore_done=True
        ),
        collect=dict(data_type="hdf5", data_path="./sac/expert_demos.hdf5"),
        eval=_evaluated(100),
    ),
    None,
)


def configs(name):
    """A fresh pair: `<name>_config`, `<name>_create_config`."""
    return copy.deepcopy(CONFIGS[name])
