"""The same training by Stable-Baselines3, with the hyper-parameters of a recipe or of RL Zoo, evaluated as ours is."""

from collections.abc import Callable, Sequence
from typing import Any

import gymnasium
import numpy as np

from ding.config.config import resolve_class
from ding.entry.serial_run import evaluation_seed
from ding.envs.env.lazy_env import episode_seed
from ding.utils.default_helper import deep_merge_dicts

EVALUATED = Callable[[int, list[float]], None]

# What DQN has here, by env: the hyper-parameters of RL Zoo (https://github.com/DLR-RM/rl-baselines3-zoo), after 1,000
# random steps, and on Acrobot with half as many updates. Our recipes have dueling networks, which the peer has not.
_ZOO = {
    "learning_rate": 6.3e-4,
    "batch_size": 128,
    "buffer_size": 50_000,
    "learning_starts": 1000,
    "gamma": 0.99,
    "target_update_interval": 250,
    "train_freq": 4,
    "gradient_steps": 4,
    "exploration_fraction": 0.12,
    "exploration_final_eps": 0.1,
    "policy_kwargs": {"net_arch": [256, 256]},
}
ZOO = {
    "CartPole-v1": {
        **_ZOO,
        "learning_rate": 2.3e-3,
        "batch_size": 64,
        "buffer_size": 100_000,
        "target_update_interval": 256,
        "train_freq": 256,
        "gradient_steps": 128,
        "exploration_fraction": 0.16,
        "exploration_final_eps": 0.04,
    },
    "Acrobot-v1": {**_ZOO, "target_update_interval": 500, "train_freq": 8},
    "LunarLander-v3": _ZOO,
}


def train_peer(main: Any, create: Any, seed: int, budget: int, every: int, evaluated: EVALUATED) -> None:
    """Train with Stable-Baselines3.

    Args:
        main, create: the two configs of a recipe.
        budget: env steps.
        every: env steps between two evaluations, which precede a collection, as ours do.
        evaluated: called with the env steps and the returns of each evaluation.
    """
    from stable_baselines3 import A2C, DQN, PPO, SAC, TD3
    from stable_baselines3.common.callbacks import BaseCallback
    from stable_baselines3.common.env_util import make_vec_env

    cfg = deep_merge_dicts(resolve_class("policy", create.policy).default_config(), main.policy)
    cls = {"dqn": DQN, "ppo": PPO, "a2c": A2C, "sac": SAC, "td3": TD3}[create.policy.type]
    number = 1 if cls is DQN else main.env.collector_env_num
    envs = make_vec_env(main.env.env_id, number, seed, env_kwargs=main.env.get("kwargs"))
    model = cls("MlpPolicy", envs, seed=seed, device="cpu", **hyper_parameters(create.policy.type, cfg, main.env))
    episodes = Episodes(main.env, seed)

    class Evaluate(BaseCallback):
        due = 0

        def _on_rollout_start(self) -> None:
            if self.num_timesteps >= self.due:
                self.due = self.num_timesteps + every
                self.evaluate()

        def _on_step(self) -> bool:
            return True

        def evaluate(self) -> None:
            evaluated(self.num_timesteps, episodes.play(lambda obs: self.model.predict(obs, deterministic=True)[0]))

    callback = Evaluate()
    model.learn(budget, callback=callback)
    callback.evaluate()
    envs.close()
    episodes.close()


class Episodes:
    """The episodes that the evaluations of a run of ours play: one in each of its evaluation envs."""

    def __init__(self, cfg: Any, seed: int) -> None:
        self._envs = [gymnasium.make(cfg.env_id, **cfg.get("kwargs", {})) for _ in range(cfg.n_evaluator_episode)]
        if cfg.evaluator_env_num != cfg.n_evaluator_episode:
            raise ValueError("an evaluation plays one episode in each of its envs")
        self._seed, self._played = evaluation_seed(seed), 0  # times that each env has played

    def play(self, act: Callable[[np.ndarray], Sequence[Any]]) -> list[float]:
        """Play an episode in each env; `act` returns an action for each observation of a batch."""
        observations, returns = [], [0.0] * len(self._envs)
        for number, env in enumerate(self._envs):
            observations.append(env.reset(seed=episode_seed(self._seed, number, self._played))[0])
        self._played += 1
        open_ = list(range(len(self._envs)))
        while open_:
            actions = act(np.stack([observations[number] for number in open_]))
            for number, action in zip(tuple(open_), actions, strict=True):
                observations[number], reward, terminated, truncated, _ = self._envs[number].step(action)
                returns[number] += float(reward)
                if terminated or truncated:
                    open_.remove(number)
        return returns

    def close(self) -> None:
        for env in self._envs:
            env.close()


def hyper_parameters(policy: str, cfg: Any, env: Any) -> dict[str, Any]:
    """Return those of the peer: of DQN RL Zoo's, otherwise those of a recipe, of which `cfg` is the policy section."""
    if policy == "dqn":
        return ZOO[env.env_id]
    return {"ppo": _ppo, "a2c": _a2c, "sac": _sac, "td3": _td3}[policy](cfg, env.collector_env_num)


def _widths(model: Any, layers: str = "encoder_hidden_size_list") -> list[int]:
    return list(model[layers])


def _activation(model: Any) -> Any:
    from torch import nn

    return {"relu": nn.ReLU, "tanh": nn.Tanh}[model.get("activation", "relu")]


def _on_policy(cfg: Any, envs: int) -> dict[str, Any]:
    learn, model = cfg.learn, cfg.model
    assert not model.share_encoder and list(learn.init_gains) == [2**0.5, 0.01, 1.0]
    return {
        "learning_rate": learn.learning_rate,
        "n_steps": cfg.collect.n_sample // envs,
        "gamma": cfg.collect.discount_factor,
        "gae_lambda": cfg.collect.gae_lambda,
        "ent_coef": learn.entropy_weight,
        "policy_kwargs": {
            "net_arch": {
                "pi": [*_widths(model), model.actor_head_hidden_size],
                "vf": [*_widths(model), model.critic_head_hidden_size],
            },
            "activation_fn": _activation(model),
        },
    }


def _ppo(cfg: Any, envs: int) -> dict[str, Any]:
    learn = cfg.learn
    assert not (learn.value_clip or learn.value_norm or cfg.recompute_adv) and learn.eps == 1e-5
    return {
        **_on_policy(cfg, envs),
        "batch_size": learn.batch_size,
        "n_epochs": learn.epoch_per_collect,
        "clip_range": learn.clip_ratio,
        "normalize_advantage": learn.adv_norm,
        "vf_coef": learn.value_weight / 2,  # our loss of the value is half the squared error
        "max_grad_norm": learn.grad_clip_value,
    }


def _a2c(cfg: Any, envs: int) -> dict[str, Any]:
    learn = cfg.learn
    assert learn.batch_size == cfg.collect.n_sample and learn.eps == 1e-5
    return {
        **_on_policy(cfg, envs),
        "vf_coef": learn.value_weight,
        "max_grad_norm": learn.grad_norm,
        "normalize_advantage": learn.adv_norm,
        "use_rms_prop": False,
    }


def _off_policy(cfg: Any, envs: int) -> dict[str, Any]:
    model, learn = cfg.model, cfg.learn
    assert model.get("actor_head_layer_num", 1) == model.get("critic_head_layer_num", 1) == 1
    return {
        "buffer_size": cfg.other.replay_buffer.replay_buffer_size,
        "learning_starts": cfg.random_collect_size,
        "batch_size": learn.batch_size,
        "gamma": learn.discount_factor,
        "train_freq": cfg.collect.n_sample // envs,
        "gradient_steps": learn.update_per_collect,
        "policy_kwargs": {
            "net_arch": {"pi": [model.actor_head_hidden_size] * 2, "qf": [model.critic_head_hidden_size] * 2}
        },
    }


def _sac(cfg: Any, envs: int) -> dict[str, Any]:
    learn = cfg.learn
    assert learn.learning_rate_q == learn.learning_rate_policy == learn.learning_rate_alpha and learn.auto_alpha
    return {
        **_off_policy(cfg, envs),
        "learning_rate": learn.learning_rate_q,
        "tau": learn.target_theta,
        "ent_coef": f"auto_{learn.alpha}",
    }


def _td3(cfg: Any, envs: int) -> dict[str, Any]:
    from stable_baselines3.common.noise import NormalActionNoise

    learn = cfg.learn
    assert learn.learning_rate_actor == learn.learning_rate_critic and learn.noise
    assert learn.noise_range.max == -learn.noise_range.min
    assert learn.target_update_freq == learn.actor_update_freq  # the peer's targets follow when its actor learns
    action_shape = cfg.model.action_shape
    return {
        **_off_policy(cfg, envs),
        "learning_rate": learn.learning_rate_actor,
        "tau": learn.target_theta,
        "policy_delay": learn.actor_update_freq,
        "target_policy_noise": learn.noise_sigma,
        "target_noise_clip": learn.noise_range.max,
        "action_noise": NormalActionNoise(np.zeros(action_shape), np.full(action_shape, cfg.collect.noise_sigma)),
    }
