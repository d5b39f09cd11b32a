"""Policies make of several fragments of trajectories at once, bit by bit, what they make of each fragment alone."""

import functools
from collections import namedtuple

import numpy as np
import pytest
import torch

from ding.policy import (
    A2CPolicy,
    ACERPolicy,
    CQLPolicy,
    D4PGPolicy,
    DDPGPolicy,
    IQLPolicy,
    PGPolicy,
    PPOOffPolicy,
    PPOPGPolicy,
    PPOPolicy,
    SACPolicy,
    TD3BCPolicy,
    TD3Policy,
)
from ding.utils.batch_methods import takes_fragments
from ding.utils.data.samples import Table
from tests.policy import on_policy_samples, test_bc, test_discrete_sac, test_dqfd, test_impala, test_ppg, test_r2d2
from tests.policy.continuous_samples import make_config as make_continuous_config
from tests.policy.value_policies import make_policy as make_value_policy
from tests.rl_utils.fragments import FLAGS, assert_same, parts_of

Timestep = namedtuple("Timestep", "obs reward done info")
NSTEP = {"nstep": 3}


def of_values(name, **settings):
    return functools.partial(make_value_policy, name, "collect", **settings)


def continuous(cls, space="reparameterization", **settings):
    return lambda: cls(make_continuous_config(cls, space, **settings), enable_field=["collect"])


def on_policy(cls, space="discrete", **settings):
    return functools.partial(on_policy_samples.make_policy, "collect", cls=cls, space=space, **settings)


POLICIES = {
    **{name: of_values(name, **NSTEP) for name in ("dqn", "c51", "rainbow", "qrdqn", "iqn", "fqf", "sql")},
    "dqn of one step": of_values("dqn", nstep=1),
    "bdq": of_values("bdq", **NSTEP),
    "discrete_cql": of_values("discrete_cql", **NSTEP),
    "mdqn": of_values("mdqn"),
    "sqn": of_values("sqn"),
    "dqfd": functools.partial(test_dqfd.make_policy, "collect"),
    "sac": continuous(SACPolicy),
    "cql": continuous(CQLPolicy),
    "discrete_sac": functools.partial(test_discrete_sac.make_policy, "collect"),
    "ddpg": continuous(DDPGPolicy, "regression"),
    "hybrid ddpg": continuous(DDPGPolicy, "hybrid", action_space="hybrid"),
    "td3": continuous(TD3Policy, "regression"),
    "td3_bc": continuous(TD3BCPolicy, "regression"),
    "d4pg": continuous(D4PGPolicy, None, **NSTEP),
    "iql": continuous(IQLPolicy),
    "a2c": on_policy(A2CPolicy),
    **{f"{space} ppo": on_policy(PPOPolicy, space) for space in on_policy_samples.ACTION_SHAPES},
    "ppo that ignores done": on_policy(PPOPolicy, learn__ignore_done=True),
    "ppo with its values of then": on_policy(PPOPolicy, recompute_adv=False, learn__value_norm=False),
    "ppo_offpolicy": on_policy(PPOOffPolicy),
    "ppo_offpolicy with n-step returns": on_policy(PPOOffPolicy, nstep_return=True, nstep=3),
    "ppo_pg": on_policy(PPOPGPolicy),
    "pg": on_policy(PGPolicy),
    "ppg_offpolicy": functools.partial(test_ppg.make_policy, "collect"),
    "ppg_offpolicy that ignores done": functools.partial(test_ppg.make_policy, "collect", learn__ignore_done=True),
    "impala": functools.partial(test_impala.make_policy, "collect"),
    "continuous impala": functools.partial(test_impala.make_policy, "collect", action_space="continuous"),
    "acer": continuous(ACERPolicy, "discrete", unroll_len=3),
    "r2d2": functools.partial(test_r2d2.make_policy, "collect"),
    "bc": functools.partial(test_bc.make_policy, "collect"),
}
# What `collect_mode.forward` needs, and whether all fragments are whole episodes.
EPISODES = ("pg", "ppo_pg")


@functools.cache
def policy_of(name):
    torch.manual_seed(0)
    policy = POLICIES[name]()
    if hasattr(policy, "_values"):  # a network rounds differently for batches of different sizes
        policy._values = lambda observations: observations.sum(1)
    return policy


def forward(policy, obs):
    try:
        return policy.collect_mode.forward({0: obs})[0]
    except TypeError:
        return policy.collect_mode.forward({0: obs}, eps=0.5)[0]


def collect(policy, lengths, flags, seed=0, is_whole=False):
    """Transitions of fragments of these lengths that a policy has collected, in columns."""
    draw, rows = np.random.default_rng(seed), []
    size = policy.cfg.model.get("obs_shape")
    for length in lengths:
        obs = torch.from_numpy(draw.random(size, np.float32))
        for i in range(length):
            following = torch.from_numpy(draw.random(size, np.float32))
            ends = i == length - 1 and (is_whole or bool(draw.integers(2)))
            step = Timestep(following, torch.from_numpy(draw.standard_normal(1, np.float32)), ends, {})
            rows.append(
                {**policy.collect_mode.process_transition(obs, forward(policy, obs), step), **FLAGS[flags](ends, draw)}
            )
            obs = following
    return Table(Table.of(rows).columns, chained=True, lengths=np.array(lengths))


@pytest.mark.parametrize("flags", ["done", "all flags", "truncated"])
@pytest.mark.parametrize("name", POLICIES)
def test_samples_of_all_fragments_are_those_of_each(name, flags):
    policy, get_train_sample = policy_of(name), policy_of(name).collect_mode.get_train_sample
    assert takes_fragments(get_train_sample)
    for seed, lengths in enumerate(([1], [7, 1, 20, 3, 3, 12])):
        together = collect(policy, lengths, flags, seed, is_whole=name in EPISODES)
        parts = [get_train_sample(part) for part in parts_of(together)]
        assert_same(get_train_sample(together), parts)
