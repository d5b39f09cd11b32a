"""Env steps/s of SampleSerialCollector against Stable-Baselines3's collect loop, in turn in one process.

Both step 8 or 64 in-process CartPoles with one eps-greedy MLP 128-128-64 (not dueling) and store what they see in a
replay buffer; nobody trains. `python -m tests.benchmarks.collect`
"""

import contextlib
import sys
from functools import partial
from typing import Any

import torch
from easydict import EasyDict
from torch import nn

from ding.envs import BaseEnvManager
from ding.envs.env.gymnasium_env import GymnasiumEnv
from ding.model import DQN
from ding.policy.dqn import DQNPolicy
from ding.worker import NaiveReplayBuffer, SampleSerialCollector
from tests.benchmarks.harness import Report, Work, rates, run

LENGTH, EPS, WIDTHS = 8, 0.1, [128, 128, 64]  # LENGTH: the steps of each env in a collect


def q_network(obs_shape: Any, action_shape: int, widths: list[int]) -> DQN:
    torch.manual_seed(0)
    # head_layer_num=0: the output layer follows the encoder at once, as in the peers' networks.
    return DQN(obs_shape, action_shape, widths, dueling=False, head_layer_num=0)


def copy_weights(source: nn.Module, target: nn.Module) -> None:
    """Make two networks of the same layers act alike: the lengths of their episodes decide how often envs are reset."""
    for theirs, ours in zip(target.parameters(), source.parameters(), strict=True):
        theirs.data.copy_(ours.data)


def dqn_collector(envs: Any, model: DQN) -> SampleSerialCollector:
    policy = DQNPolicy(DQNPolicy.default_config(), model, enable_field=["collect"])
    return SampleSerialCollector(SampleSerialCollector.default_config(), envs, policy.collect_mode)


def our_work(collector: SampleSerialCollector, env_num: int, buffer: NaiveReplayBuffer | None) -> Work:
    def work() -> int:
        before = collector.envstep
        samples = collector.collect(LENGTH * env_num, policy_kwargs={"eps": EPS})
        if buffer is not None:
            buffer.push(samples, cur_collector_envstep=collector.envstep)
        return collector.envstep - before

    return work


def cartpoles(env_num: int) -> SampleSerialCollector:
    cfg = EasyDict(env_id="CartPole-v1")
    envs = BaseEnvManager([partial(GymnasiumEnv, cfg)] * env_num, BaseEnvManager.default_config())
    envs.seed(0)
    return dqn_collector(envs, q_network(4, 2, WIDTHS))


def peer_work(env_num: int) -> Work:
    from stable_baselines3 import DQN as PeerDQN
    from stable_baselines3.common.env_util import make_vec_env

    model = PeerDQN(
        "MlpPolicy",
        make_vec_env("CartPole-v1", n_envs=env_num, seed=0),
        policy_kwargs={"net_arch": WIDTHS},
        train_freq=1,
        buffer_size=20000,
        learning_starts=0,
        device="cpu",
        exploration_initial_eps=EPS,
        exploration_final_eps=EPS,
    )
    copy_weights(q_network(4, 2, WIDTHS), model.q_net)
    model.train = lambda gradient_steps, batch_size: None
    steps = 8000  # `learn` begins with a reset of all envs

    def work() -> int:
        model.learn(steps, reset_num_timesteps=True)
        return steps

    return work


def measure(report: Report) -> None:
    torch.manual_seed(0)
    for env_num, goal in ((8, 1.4), (64, 1.2)):
        storing = our_work(cartpoles(env_num), env_num, NaiveReplayBuffer(NaiveReplayBuffer.default_config()))
        works = {"collect": our_work(cartpoles(env_num), env_num, None), "collect and push": storing}
        with contextlib.suppress(ImportError):
            works["sb3"] = peer_work(env_num)
        found = rates(works)
        for name in ("collect", "collect and push"):
            what = f"{name}, {env_num} CartPoles, n_sample {LENGTH * env_num}"
            report.line(what, "env steps/s", found[name], "stable-baselines3", found.get("sb3"), at_least=goal)


if __name__ == "__main__":
    sys.exit(run(measure))
