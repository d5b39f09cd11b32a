"""Configs of classic control and the envs they name, as a program that is not part of this project brings them.

They are the tasks of `tests.benchmarks.learning_tasks` with what DI-engine's examples set otherwise; what takes long
there, such as the 5000 samples of a round of PPO, is less here. The envs have the spaces of the real tasks and episodes
of a few random observations.
"""

import numpy as np
from easydict import EasyDict
from gymnasium import spaces
from torch import nn

from ding.envs import BaseEnv, BaseEnvTimestep
from ding.envs.common import affine_transform
from ding.torch_utils import to_ndarray
from ding.utils import ENV_REGISTRY
from tests.benchmarks.learning_tasks import GONE, TASKS, changed


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


DEQUE = {"type": "deque", "import_names": ["ding.data.buffer.deque_buffer_wrapper"]}
EPS = {"type": "exp", "start": 0.95, "end": 0.1, "decay": 10000}
EVERY = "policy.eval.evaluator.eval_freq"
SAVED_EVERY = {"policy.learn.learner.hook.save_ckpt_after_iter": 1000}
CLIPPED = {
    "policy.collect.discount_factor": 0.9,
    "policy.collect.gae_lambda": 0.95,
    "policy.learn.grad_clip_type": "clip_norm",
    "policy.learn.clip_value": 5,
}
DETERMINISTIC = {
    "policy.collect.collector.collect_print_freq": 1000,
    "policy.other.replay_buffer.max_use": 16,
    "replay_buffer": GONE,
}
NOISE = {"noise": True, "noise_sigma": 0.1, "noise_range": {"min": -0.5, "max": 0.5}}
CONTINUOUS = {
    "env.act_scale": True,
    "env.collector_env_num": 10,
    "policy.action_space": "continuous",
    "policy.model": {
        "obs_shape": 3,
        "action_shape": 1,
        "action_space": "continuous",
        "encoder_hidden_size_list": [128, 128, 64],
    },
    "policy.learn.learning_rate": 3e-5,
    "policy.learn.entropy_weight": 0.0,
    "policy.learn.batch_size": 40,
    "policy.collect.discount_factor": 0.99,
    EVERY: 200,
}
GENERATED = "./cartpole_qrdqn_generation_data_seed0/expert"
OFFLINE = {
    "policy.learn.train_epoch": 1,
    "policy.learn.batch_size": 64,
    "policy.collect.unroll_len": 1,
    "policy.collect.data_type": "hdf5",
}
LARGE = {"policy.other.replay_buffer.replay_buffer_size": 2000000}
EXPERT = {"policy.collect.model_path": "expert.pth.tar"}

# The examples by their names: the task, and the changes.
CONFIGS = {
    "cartpole_dqn": (
        "dqn",
        {
            "env.n_evaluator_episode": 5,
            "env.replay_path": "cartpole_dqn_seed0/video",
            "policy.load_path": "cartpole_dqn_seed0/ckpt/ckpt_best.pth.tar",
            "replay_buffer": DEQUE,
        },
    ),
    "cartpole_mdqn": ("mdqn", {"replay_buffer": DEQUE}),
    "cartpole_c51": ("c51", {}),
    "cartpole_rainbow": ("rainbow", {}),
    "cartpole_qrdqn": ("qrdqn", {}),
    "cartpole_iqn": ("iqn", {"policy.learn.kappa": 1.0}),
    "cartpole_fqf": ("fqf", {"policy.learn.ent_coef": 0, "policy.learn.learning_rate": 0.001}),
    "cartpole_sql": ("sql", {EVERY: 50}),
    "cartpole_sqn": (
        "sqn",
        {EVERY: 50, "policy.model.dueling": True, "policy.other.replay_buffer.replay_buffer_size": 10000},
    ),
    "cartpole_sac": ("discrete_sac", {"policy.command": {}, "replay_buffer": GONE}),
    "cartpole_acer": (
        "acer",
        {**CLIPPED, "env.length": 70, "policy.learn.lambda_": 0.95, "policy.learn.value_weight": 0.5},
    ),
    "cartpole_impala": ("impala", {**CLIPPED, "policy.priority": False, "policy.priority_IS_weight": False}),
    "cartpole_r2d2": (
        "r2d2",
        {"env.length": 45, "policy.collect.traj_len_inf": True, "policy.learn.target_update_theta": 0.001},
    ),
    "cartpole_ppo": ("ppo", SAVED_EVERY),
    "cartpole_ppo_offpolicy": ("ppo_offpolicy", SAVED_EVERY),
    "cartpole_a2c": ("a2c", {}),
    "cartpole_pg": ("pg", {}),
    "cartpole_ppopg": ("ppo_pg", {"policy.collect.discount_factor": 0.9}),
    "cartpole_ppg": (
        "ppg_offpolicy",
        {
            "policy.learn.aux_freq": 1,
            "policy.learn.aux_train_epoch": 1,
            "policy.learn.adv_norm": GONE,
            "policy.other.replay_buffer.policy": {"replay_buffer_size": 100, "max_use": 10},
            "policy.other.replay_buffer.value": {"replay_buffer_size": 1000, "max_use": 100},
        },
    ),
    "cartpole_bc": (
        "bc",
        {**SAVED_EVERY, "policy.collect": GONE, "policy.other.replay_buffer.replay_buffer_size": 20000},
    ),
    "cartpole_dqfd": ("dqfd", {**EXPERT, "policy.cuda": True}),
    "cartpole_sqil": ("sqil", EXPERT),
    "cartpole_qrdqn_generation_data": (
        "qrdqn",
        {
            "policy.learn": GONE,
            "policy.eval": GONE,
            "policy.collect.data_type": "hdf5",
            "policy.collect.save_path": f"{GENERATED}.pkl",
            "policy.other.eps.collect": 0.2,
        },
    ),
    "cartpole_cql": (
        "discrete_cql",
        {
            **OFFLINE,
            "policy.priority": True,
            "policy.nstep": 3,
            "policy.learn.kappa": 1.0,
            "policy.learn.min_q_weight": 4.0,
            "policy.collect.data_path": f"{GENERATED}_demos.hdf5",
            "policy.other.eps": EPS,
            "policy.other.replay_buffer.replay_buffer_size": 20000,
        },
    ),
    "pendulum_ddpg": ("ddpg", DETERMINISTIC),
    "pendulum_td3": ("td3", DETERMINISTIC),
    "pendulum_d4pg": ("d4pg", {**DETERMINISTIC, "policy.priority_IS_weight": GONE}),
    "pendulum_sac": ("sac", {"replay_buffer": GONE}),
    "pendulum_sqil_sac": (
        "sac",
        {**EXPERT, "policy.model.obs_shape": (3,), "policy.model.action_shape": (1,), "replay_buffer": GONE},
    ),
    "pendulum_bdq": (
        "bdq",
        {
            "env.act_bins": GONE,
            "env.act_scale": True,
            "env.continuous": False,
            "policy.model.layer_num": 3,
            "replay_buffer": DEQUE,
        },
    ),
    "pendulum_ppo": (
        "ppo",
        {
            **CONTINUOUS,
            "policy.recompute_adv": True,
            "policy.model.encoder_hidden_size_list": [64, 64],
            "policy.model.actor_head_layer_num": 0,
            "policy.model.critic_head_layer_num": 0,
            "policy.model.bound_type": "tanh",
            "policy.model.activation": nn.Tanh(),
            "policy.learn.epoch_per_collect": 10,
            "policy.learn.batch_size": 32,
            "policy.learn.learning_rate": 0.001,
            "policy.learn.adv_norm": True,
            "policy.learn.value_norm": True,
            "policy.learn.ignore_done": True,
            "policy.collect.n_sample": 500,
            "policy.collect.discount_factor": 0.9,
        },
    ),
    "pendulum_a2c": ("a2c", {**CONTINUOUS, "policy.learn.ignore_done": True, "policy.collect.n_sample": 200}),
    "pendulum_pg": (
        "pg",
        {**CONTINUOUS, "policy.collect.n_episode": 10, "policy.collect.collector.get_train_sample": True},
    ),
    "pendulum_sac_data_generation": (
        "sac",
        {
            "env": {"collector_env_num": 10, "act_scale": True},
            "policy.random_collect_size": 10000,
            "policy.learn": GONE,
            "policy.eval": GONE,
            "policy.collect.data_type": "hdf5",
            "policy.collect.save_path": "./sac/expert.pkl",
        },
    ),
    "pendulum_td3_data_generation": (
        "ddpg",
        {
            **DETERMINISTIC,
            **{f"policy.learn.{key}": value for key, value in NOISE.items()},
            "env.evaluator_env_num": 10,
            "env.n_evaluator_episode": 10,
            "policy.model.twin_critic": True,
            "policy.learn.actor_update_freq": 2,
            "policy.collect": {
                "n_sample": 48,
                "noise_sigma": 0.1,
                "save_path": "./td3/expert.pkl",
                "data_type": "hdf5",
            },
        },
    ),
    "pendulum_cql": (
        "cql",
        {
            **OFFLINE,
            **LARGE,
            "env.norm_obs.use_norm": False,
            "policy.command": {},
            "policy.learn.alpha": 0.2,
            "policy.learn.auto_alpha": True,
            "policy.learn.discount_factor": 0.99,
            "policy.learn.target_theta": 0.005,
            "policy.learn.num_actions": 10,
            "policy.learn.min_q_weight": GONE,
            "policy.collect.data_path": "./sac/expert_demos.hdf5",
        },
    ),
    "pendulum_td3_bc": (
        "td3_bc",
        {
            **OFFLINE,
            **LARGE,
            **{f"policy.learn.{key}": value for key, value in NOISE.items()},
            "env.collector_env_num": 8,
            "env.norm_obs": {"use_norm": True, "offline_stats": {"use_offline_stats": True}},
            "policy.priority": False,
            "policy.learn.learning_rate_actor": 0.0003,
            "policy.learn.learning_rate_critic": 0.0003,
            "policy.learn.actor_update_freq": 2,
            "policy.learn.noise_sigma": 0.2,
            "policy.learn.alpha": 2.5,
            "policy.learn.ignore_done": GONE,
            "policy.collect.data_path": "./td3/expert_demos.hdf5",
        },
    ),
    # A config of this kind is not among the examples: it is that of `cql` with another policy.
    "pendulum_iql": ("iql", {**OFFLINE, "policy.collect.data_path": "./sac/expert_demos.hdf5"}),
}


def configs(name):
    """A fresh pair: `<name>_config`, `<name>_create_config`."""
    task, changes = CONFIGS[name]
    main = {path: value for path, value in changes.items() if path != "replay_buffer"}
    create = {path: value for path, value in changes.items() if path == "replay_buffer"}
    main_config = changed(TASKS[task].main_config, {"env.env_id": GONE, **main, "exp_name": f"{name}_seed0"})
    create["env"] = {"type": name.split("_")[0], "import_names": [__name__]}
    return EasyDict(main_config), EasyDict(changed(TASKS[task].create_config, create))
