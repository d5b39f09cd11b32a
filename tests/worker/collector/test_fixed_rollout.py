"""The setting `fixed_rollout`: every step of a collect is in its samples, and unfinished fragments bootstrap."""

from functools import partial

import numpy as np
import pytest
import torch
from easydict import EasyDict
from gymnasium import spaces

from ding.envs.env.base_env import BaseEnv, BaseEnvTimestep
from ding.envs.env_manager.base_env_manager import BaseEnvManager
from ding.policy.a2c import A2CPolicy
from ding.policy.ppo import PPOPolicy
from ding.policy.ppo_offpolicy import PPOOffPolicy
from ding.utils.config_helper import ConfigError
from ding.worker.collector.players import BattleSampleSerialCollector
from ding.worker.collector.sample_serial_collector import SampleSerialCollector
from tests.fakes import CountedManager, FakeManager, FakeWriter, ScriptedPolicy
from tests.policy.learning import model_of
from tests.worker.collector.battles import BattleManager, PlainPolicy, Player, step_of


def build(lengths=(5, 5), policy=None, manager=FakeManager, cfg=(), tb=None, **env_kwargs):
    config = SampleSerialCollector.default_config()
    config.update({"fixed_rollout": True, **dict(cfg)})
    policy = ScriptedPolicy(on_policy=True) if policy is None else policy
    env = manager(list(lengths), **env_kwargs)
    return SampleSerialCollector(config, env, policy, tb or FakeWriter(), "exp"), env, policy


def steps_of(env_id, length, number):
    """The first steps of a CountingEnv, in order, as `step_of` tells them."""
    return [(env_id, step // length, step % length, step % length + 1) for step in range(number)]


def of_env(rows, env_id):
    return [step_of(row) for row in rows if int(row["obs"][0]) == env_id]


@pytest.mark.differs(
    "drops the fragments that are unfinished when an on-policy collect ends: a quarter of the steps of 64 CartPoles",
    "does the same by default; with `collect.collector.fixed_rollout`, every step becomes a sample: see "
    "[Workers](guides/workers.md)",
)
@pytest.mark.parametrize("make", [ScriptedPolicy, PlainPolicy])
@pytest.mark.parametrize("manager", [FakeManager, CountedManager])
@pytest.mark.parametrize("on_policy", [True, False])
def test_each_step_of_each_env_is_a_sample_once_and_in_order(make, manager, on_policy):
    lengths = (3, 7, 100)
    collector, env, _ = build(lengths, make(n_sample=15, on_policy=on_policy), manager)
    for i in range(1, 9):
        rows = collector.collect(train_iter=i)
        assert len(rows) == 15 and all(row["collect_iter"] == i for row in rows)
        for env_id, length in enumerate(lengths):
            assert of_env(rows, env_id) == steps_of(env_id, length, 5 * i)[-5:]
            assert len(env.envs[env_id].actions) == 5 * i
        assert not any(collector._traj_buffer.values())
    assert collector.envstep == 120


def test_without_the_setting_an_on_policy_collect_drops_what_is_unfinished():
    policy = ScriptedPolicy(n_sample=15, on_policy=True)
    collector, env, _ = build((3, 7, 100), policy, cfg={"fixed_rollout": False})
    assert len(collector.collect()) == 15
    assert sum(len(one.actions) for one in env.envs) > 15


@pytest.mark.parametrize("drop_extra", [True, False])
def test_the_last_round_is_not_dropped_where_the_envs_do_not_divide_the_number(drop_extra):
    collector, _, _ = build((9, 9, 9), ScriptedPolicy(n_sample=7, on_policy=True))
    for i in range(1, 4):
        rows = collector.collect(drop_extra=drop_extra)
        assert [of_env(rows, env_id) for env_id in range(3)] == [steps_of(env_id, 9, 3 * i)[-3:] for env_id in range(3)]


def test_a_fragment_ends_with_its_episode_or_with_the_collect_however_long_that_is():
    policy = ScriptedPolicy(n_sample=4, on_policy=True)
    collector, _, _ = build((3, 100), policy)
    collector.collect(14)
    fragments = [[step_of(row)[:3] for row in fragment] for fragment in policy.fragments]
    assert fragments == [
        [(0, 0, 0), (0, 0, 1), (0, 0, 2)],
        [(0, 1, 0), (0, 1, 1), (0, 1, 2)],
        [(0, 2, 0)],
        [(1, 0, step) for step in range(7)],
    ]
    assert [row["done"] for fragment in policy.fragments for row in fragment] == [step in (2, 5) for step in range(14)]


def test_steps_that_an_abnormal_step_voids_are_made_up_for():
    def mark(env_id, episode, step):
        return {"abnormal": (env_id, episode, step) == (1, 0, 3)}

    collector, env, _ = build((9, 9), mark=mark)
    rows = collector.collect(8, drop_extra=False)
    assert of_env(rows, 0) == steps_of(0, 9, 6)
    assert of_env(rows, 1) == [(1, 1, step, step + 1) for step in range(3)]
    assert collector.envstep == sum(len(one.actions) for one in env.envs) - 1
    rows = collector.collect(8)
    assert of_env(rows, 0) == steps_of(0, 9, 10)[6:]
    assert of_env(rows, 1) == [(1, 1, step, step + 1) for step in range(3, 7)]


# --- advantages ---


class Scripted(BaseEnv):
    """Observations and rewards follow a seed; episodes end where `ends` tells: 't'erminated, 'l'imit, or None."""

    def __init__(self, env_id, ends, with_flags):
        self.observation_space = spaces.Box(-9, 9, (3,), np.float32)
        self.action_space = spaces.Discrete(2)
        self.reward_space = spaces.Box(-9, 9, (1,), np.float32)
        self._rng, self._ends, self._with_flags = np.random.default_rng(env_id), iter(ends), with_flags
        self.told = []  # (obs, reward, end, next_obs) of each step

    def reset(self):
        self._obs = self._rng.normal(size=3).astype(np.float32)
        return self._obs

    def step(self, action):
        before, self._obs = self._obs, self._rng.normal(size=3).astype(np.float32)
        reward, end = self._rng.normal(size=1).astype(np.float32), next(self._ends)
        self.told.append((before, float(reward[0]), end, self._obs))
        info = {"eval_episode_return": 0.0} if end else {}
        if self._with_flags:
            info.update(terminated=end == "t", truncated=end == "l")
        return BaseEnvTimestep(self._obs, reward, end is not None, info)

    def seed(self, seed, dynamic_seed=True):
        pass

    def close(self):
        pass

    def __repr__(self):
        return "Scripted"


ENDS = [
    [None, "t", None, None, "l", None, None, None] + [None] * 16,
    [None] * 7 + ["t"] + [None] * 6 + ["l", "l"] + [None] * 8,  # the last step of a collect ends episodes
    [None] * 24,
]
GAMMA, LAMBDA, ROUNDS = 0.9, 0.8, 8


def ppo(cls=PPOPolicy, **cfg):
    config = cls.default_config()
    config.model = EasyDict(obs_shape=3, action_shape=2, encoder_hidden_size_list=[8, 8])
    config.collect.update(discount_factor=GAMMA, gae_lambda=LAMBDA, n_sample=3 * ROUNDS)
    config.learn.update(cfg.pop("learn", {}))
    config.update(cfg)
    torch.manual_seed(0)
    return cls(config, enable_field=["collect", "learn"])


def collecting(policy, with_flags=True):
    envs = [Scripted(i, ends, with_flags) for i, ends in enumerate(ENDS)]
    manager = BaseEnvManager([partial(lambda env: env, env) for env in envs], BaseEnvManager.default_config())
    config = SampleSerialCollector.default_config()
    config.fixed_rollout = True
    return SampleSerialCollector(config, manager, policy.collect_mode, FakeWriter(), "exp"), envs


def value_of(policy, obs):
    with torch.no_grad():
        return model_of(policy)(torch.from_numpy(np.stack(obs)), mode="compute_critic")["value"].double().numpy()


def reference(policy, envs, first, zero_at):
    """`{(env, step): advantage}` of ROUNDS steps from `first` on, as in a bare loop over arrays [T, E]."""
    told = [[env.told[first + t] for env in envs] for t in range(ROUNDS)]
    value, next_value = (
        np.array([value_of(policy, [row[place] for row in of_round]) for of_round in told]) for place in (0, 3)
    )
    reward = np.array([[row[1] for row in of_round] for of_round in told])
    is_over = np.array([[row[2] is not None for row in of_round] for of_round in told])
    is_zero = np.array([[row[2] is not None and row[2] in zero_at for row in of_round] for of_round in told])
    delta = reward + GAMMA * next_value * ~is_zero - value
    adv, running = np.zeros_like(delta), np.zeros(len(envs))
    for t in reversed(range(ROUNDS)):
        running = delta[t] + GAMMA * LAMBDA * ~is_over[t] * running
        adv[t] = running
    return {tuple(told[t][i][0].tolist()): adv[t, i] for t in range(ROUNDS) for i in range(len(envs))}


def by_obs(rows, adv):
    found = {tuple(row["obs"].tolist()): float(value) for row, value in zip(rows, adv, strict=True)}
    assert len(found) == len(rows)
    return found


@pytest.mark.parametrize("cls", [PPOPolicy, A2CPolicy, PPOOffPolicy])
@pytest.mark.parametrize(("with_flags", "ignore_done"), [(True, False), (False, False), (True, True)])
def test_advantages_are_those_of_a_loop_over_arrays_that_bootstraps_where_a_collect_ends(cls, with_flags, ignore_done):
    policy = ppo(cls, learn={"ignore_done": ignore_done, "value_norm": False})
    collector, envs = collecting(policy, with_flags)
    zero_at = "" if ignore_done else "t" if with_flags else "tl"
    for i in range(3):
        rows = list(collector.collect())
        assert len(rows) == 3 * ROUNDS
        expected = reference(policy, envs, ROUNDS * i, zero_at)
        found = by_obs(rows, [row["adv"] for row in rows])
        assert found.keys() == expected.keys()
        assert [found[key] for key in expected] == pytest.approx(list(expected.values()), rel=1e-5, abs=1e-6)
    collector.close()


# --- settings ---


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        ({"unroll_len": 4}, "unroll_len = 4"),
        ({"traj_len_inf": True}, "traj_len_inf"),
        ({"collect": {"traj_len_inf": True}}, "traj_len_inf"),
    ],
)
def test_policies_whose_fragments_cannot_be_cut_are_refused(policy, message):
    with pytest.raises(ConfigError, match=message):
        build(policy=ScriptedPolicy(on_policy=True, **policy))
    build(policy=ScriptedPolicy(on_policy=True, **policy), cfg={"fixed_rollout": False})


# --- players ---


def test_each_step_is_a_sample_of_each_player():
    config = BattleSampleSerialCollector.default_config()
    config.fixed_rollout = True
    players = [Player(n=5, on_policy=True), Player(n=5, on_policy=False)]
    env = BattleManager([3, 7])
    collector = BattleSampleSerialCollector(config, env, players, FakeWriter(), "exp")
    taken = [[], []]
    for i in range(1, 6):
        data, _ = collector.collect()
        assert [len(rows) for rows in data] == [6, 6]
        for player, rows in enumerate(data):
            taken[player].extend((int(row["obs"][0]) % 10, row["collect_iter"]) for row in rows)
        assert collector.envstep == 6 * i and [len(one.actions) for one in env.envs] == [3 * i] * 2
    assert len(taken[0]) == len(taken[1]) == 30
