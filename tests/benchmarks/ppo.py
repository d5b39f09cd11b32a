"""Samples/s of whole PPO runs on CartPole against a bare torch loop and Stable-Baselines3.

128 samples an env and round, 4 epochs, minibatches of 256, one network 64-64 with two output layers, advantages
estimated once a round: the same work everywhere. What counts are the samples that were learned from, not the env steps
that it took. Ours runs with `fixed_rollout`, so that it learns from every step, as the others do, and once more as it
is by default: unfinished fragments are dropped, for which it takes more env steps. A run is everything from the config
to the trained policy; ours evaluates once. The bare loop steps EnvPool, too, and does not learn from steps that only
reset an env; Stable-Baselines3 steps envs in its own process.
`python -m tests.benchmarks.ppo`; the peers come with the extras `bench` and `envpool`.
"""

import sys
import time
from functools import partial
from typing import Any

import numpy as np
import torch
from easydict import EasyDict
from torch import nn
from torch.nn import functional

from ding.entry import serial_pipeline_onpolicy
from tests.benchmarks.harness import Report, medians, run
from tests.benchmarks.serial import warm_up

LENGTH, EPOCHS, BATCH = 128, 4, 256
LR, GAMMA, LAMBDA, CLIP, VALUE_WEIGHT, ENTROPY_WEIGHT, GRAD_NORM = 3e-4, 0.99, 0.95, 0.2, 0.5, 0.01, 0.5


def our_run(manager: str, envs: int, rounds: int, fixed_rollout: bool = True) -> float:
    main_config = EasyDict(
        exp_name=f"ppo_{manager}_{envs}",
        env={
            "env_id": "CartPole-v1",
            "collector_env_num": envs,
            "evaluator_env_num": 5,
            "n_evaluator_episode": 5,
            "stop_value": 1e9,
        },
        policy={
            "action_space": "discrete",
            "recompute_adv": False,
            "model": {
                "obs_shape": 4,
                "action_shape": 2,
                "encoder_hidden_size_list": [64, 64],
                "actor_head_layer_num": 0,
                "critic_head_layer_num": 0,
            },
            "learn": {
                "epoch_per_collect": EPOCHS,
                "batch_size": BATCH,
                "learning_rate": LR,
                "value_weight": VALUE_WEIGHT,
                "entropy_weight": ENTROPY_WEIGHT,
                "clip_ratio": CLIP,
                "adv_norm": True,
                "value_norm": False,
                "grad_clip_type": "clip_norm",
                "grad_clip_value": GRAD_NORM,
            },
            "collect": {
                "n_sample": envs * LENGTH,
                "discount_factor": GAMMA,
                "gae_lambda": LAMBDA,
                "collector": {"fixed_rollout": fixed_rollout},
            },
            "eval": {"evaluator": {"eval_freq": 10**9}},
        },
    )
    env_manager = {"type": manager, **({"batch_size": envs} if manager == "env_pool" else {})}
    create_config = EasyDict(env={"type": "gymnasium"}, env_manager=env_manager, policy={"type": "ppo"})
    start = time.perf_counter()
    iterations = rounds * envs * LENGTH * EPOCHS // BATCH
    serial_pipeline_onpolicy((main_config, create_config), seed=0, max_train_iter=iterations)
    return rounds * envs * LENGTH / (time.perf_counter() - start)


class BarePPO:
    """PPO in plain torch on EnvPool, which resets an env in the step after the end of its episode."""

    def __init__(self, envs: int) -> None:
        import envpool

        self._env = envpool.make_gymnasium("CartPole-v1", num_envs=envs, seed=0)
        self._body = nn.Sequential(nn.Linear(4, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU())
        self._actor, self._critic = nn.Linear(64, 2), nn.Linear(64, 1)
        self._weights = [w for part in (self._body, self._actor, self._critic) for w in part.parameters()]
        self._optimizer = torch.optim.Adam(self._weights, LR)
        shape = (LENGTH, envs)
        self._obs, self._action = np.zeros((*shape, 4), np.float32), np.zeros(shape, np.int64)
        self._reward, self._logp, self._adv = np.zeros((3, *shape), np.float32)
        self._value = np.zeros((LENGTH + 1, envs), np.float32)
        self._terminated, self._done, self._is_reset = np.zeros((3, *shape), np.bool_)
        self._now, self._resets = self._env.reset()[0], np.zeros(envs, np.bool_)

    def one_round(self) -> int:
        """Collect and train; return the number of samples."""
        self._collect()
        self._estimate_advantages()
        self._train()
        return int((~self._is_reset).sum())

    def _collect(self) -> None:
        for t in range(LENGTH):
            with torch.no_grad():
                hidden = self._body(torch.from_numpy(self._now))
                logp = functional.log_softmax(self._actor(hidden), 1)
                action = torch.multinomial(logp.exp(), 1)
                self._logp[t] = logp.gather(1, action).squeeze(1).numpy()
                self._value[t] = self._critic(hidden).squeeze(1).numpy()
            self._obs[t], self._is_reset[t], self._action[t] = self._now, self._resets, action.squeeze(1).numpy()
            self._now, self._reward[t], self._terminated[t], truncated, _ = self._env.step(self._action[t])
            self._resets = self._done[t] = self._terminated[t] | truncated
        with torch.no_grad():
            self._value[-1] = self._critic(self._body(torch.from_numpy(self._now))).squeeze(1).numpy()

    def _estimate_advantages(self) -> None:
        error = self._reward + GAMMA * self._value[1:] * ~self._terminated - self._value[:-1]
        kept, adv = GAMMA * LAMBDA * ~self._done, np.zeros(error.shape[1])
        for t in reversed(range(LENGTH)):
            self._adv[t] = adv = error[t] + kept[t] * adv

    def _train(self) -> None:
        is_step = ~self._is_reset
        columns = (self._obs, self._action, self._logp, self._adv, self._adv + self._value[:-1])
        obs, action, old_logp, adv, returns = (torch.from_numpy(column[is_step]) for column in columns)
        for _ in range(EPOCHS):
            for rows in torch.randperm(len(obs)).split(BATCH):
                hidden, part = self._body(obs[rows]), adv[rows]
                logp = functional.log_softmax(self._actor(hidden), 1)
                part = (part - part.mean()) / (part.std() + 1e-8)
                ratio = (logp.gather(1, action[rows, None]).squeeze(1) - old_logp[rows]).exp()
                policy_loss = -torch.min(ratio * part, ratio.clamp(1 - CLIP, 1 + CLIP) * part).mean()
                value_loss = functional.mse_loss(self._critic(hidden).squeeze(1), returns[rows])
                entropy = -(logp.exp() * logp).sum(1).mean()
                self._optimizer.zero_grad()
                (policy_loss + VALUE_WEIGHT * value_loss - ENTROPY_WEIGHT * entropy).backward()
                nn.utils.clip_grad_norm_(self._weights, GRAD_NORM)
                self._optimizer.step()


def bare_run(envs: int, rounds: int) -> float:
    start = time.perf_counter()
    loop = BarePPO(envs)
    return sum(loop.one_round() for _ in range(rounds)) / (time.perf_counter() - start)


def sb3_run(envs: int, rounds: int) -> float:
    from stable_baselines3 import PPO
    from stable_baselines3.common.env_util import make_vec_env
    from stable_baselines3.common.torch_layers import BaseFeaturesExtractor

    class Body(BaseFeaturesExtractor):
        def __init__(self, observation_space: Any) -> None:
            super().__init__(observation_space, 64)
            self._body = nn.Sequential(nn.Linear(4, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU())

        def forward(self, obs: torch.Tensor) -> torch.Tensor:
            return self._body(obs)

    start = time.perf_counter()
    model = PPO(
        "MlpPolicy",
        make_vec_env("CartPole-v1", n_envs=envs, seed=0),
        n_steps=LENGTH,
        batch_size=BATCH,
        n_epochs=EPOCHS,
        ent_coef=ENTROPY_WEIGHT,
        policy_kwargs={"features_extractor_class": Body, "net_arch": []},
        device="cpu",
    )
    model.learn(rounds * envs * LENGTH)
    return model.num_timesteps / (time.perf_counter() - start)


def measure(report: Report) -> None:
    warm_up()
    for manager, envs, rounds in (("env_pool", 64, 12), ("base", 8, 40)):
        ours = partial(our_run, manager, envs, rounds)
        runs = {
            "ours": ours,
            "by default": partial(ours, fixed_rollout=False),
            "sb3": partial(sb3_run, envs, rounds),
        }
        is_pooled = manager == "env_pool"
        found = medians({**runs, "bare": partial(bare_run, envs, rounds)} if is_pooled else runs, turns=5)
        what = f"PPO, whole run of {rounds} rounds, {manager}, {envs} CartPoles"
        for figure, details in (("ours", "fixed rollouts"), ("by default", "fragments dropped")):
            own = f"{what}, {details}", "samples/s", found[figure]
            if is_pooled:
                report.line(*own, "bare torch loop", found["bare"], at_least=1.0)
            report.line(*own, "stable-baselines3", found["sb3"], at_least=1.8 if is_pooled else 1.4)


if __name__ == "__main__":
    sys.exit(run(measure))
