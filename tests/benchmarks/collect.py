"""Env steps/s of SampleSerialCollector against Stable-Baselines3's collect loop, in turn in one process.

Both step 8 in-process CartPoles with an eps-greedy MLP 128-128-64 (not dueling) and store what they see in a replay
buffer; nobody trains. `python -m tests.benchmarks.collect`
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial

import torch
from easydict import EasyDict

from ding.envs import BaseEnvManager
from ding.envs.env.gymnasium_env import GymnasiumEnv
from ding.policy.dqn import DQNPolicy
from ding.worker import NaiveReplayBuffer, SampleSerialCollector
from tests.benchmarks.report import Report

ENVS, STEPS, ROUNDS, N_SAMPLE = 8, 8000, 7, 64


def our_collector() -> SampleSerialCollector:
    cfg = DQNPolicy.default_config()
    # head_layer_num=0: the output layer follows the encoder at once, as in the peer's network.
    cfg.model = EasyDict(
        obs_shape=4, action_shape=2, encoder_hidden_size_list=[128, 128, 64], dueling=False, head_layer_num=0
    )
    cfg.collect.n_sample = N_SAMPLE
    policy = DQNPolicy(cfg, enable_field=["collect"])
    env_cfg = EasyDict(env_id="CartPole-v1")
    envs = BaseEnvManager([partial(GymnasiumEnv, env_cfg)] * ENVS, BaseEnvManager.default_config())
    envs.seed(0)
    return SampleSerialCollector(SampleSerialCollector.default_config(), envs, policy.collect_mode)


def our_run(collector: SampleSerialCollector, buffer: NaiveReplayBuffer | None) -> Callable[[int], None]:
    def run(steps: int) -> None:
        end = collector.envstep + steps
        while collector.envstep < end:
            samples = collector.collect(policy_kwargs={"eps": 0.1})
            if buffer is not None:
                buffer.push(samples, cur_collector_envstep=collector.envstep)

    return run


def peer_run() -> Callable[[int], None] | None:
    try:
        from stable_baselines3 import DQN
        from stable_baselines3.common.env_util import make_vec_env
    except ImportError:
        return None
    model = DQN(
        "MlpPolicy",
        make_vec_env("CartPole-v1", n_envs=ENVS, seed=0),
        policy_kwargs={"net_arch": [128, 128, 64]},
        train_freq=1,
        buffer_size=20000,
        learning_starts=0,
        device="cpu",
        exploration_initial_eps=0.1,
        exploration_final_eps=0.1,
    )
    model.train = lambda gradient_steps, batch_size: None
    return lambda steps: model.learn(steps, reset_num_timesteps=True)


def steps_per_s(run: Callable[[int], None]) -> float:
    start = time.perf_counter()
    run(STEPS)
    return STEPS / (time.perf_counter() - start)


def main() -> int:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    os.chdir(tempfile.mkdtemp())
    storing = our_run(our_collector(), NaiveReplayBuffer(NaiveReplayBuffer.default_config()))
    bare = our_run(our_collector(), None)
    runs: dict[str, Callable[[int], None] | None] = {"collect": bare, "collect and push": storing, "sb3": peer_run()}
    rates: dict[str, list[float]] = {name: [] for name in runs}
    for run in runs.values():
        if run is not None:
            run(800)
    for _ in range(ROUNDS):
        for name, run in runs.items():
            if run is not None:
                rates[name].append(steps_per_s(run))
    sb3 = statistics.median(rates["sb3"]) if rates["sb3"] else None
    report = Report()
    for name in ("collect", "collect and push"):
        ours = statistics.median(rates[name])
        report.line(f"{name}, 8 CartPoles, n_sample 64", "env steps/s", ours, "stable-baselines3", sb3, at_least=1.3)
    return report.exit_status()


if __name__ == "__main__":
    sys.exit(main())
