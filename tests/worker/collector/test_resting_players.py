"""Players that rest for some rounds: their transitions go from one of their actions to the next."""

from functools import partial

import numpy as np
import pettingzoo
import pytest
import torch
from easydict import EasyDict
from gymnasium.spaces import Box, Discrete

from ding.envs import AsyncSubprocessEnvManager, BaseEnvManager, PettingZooEnv, SyncSubprocessEnvManager
from ding.policy import DQNPolicy
from ding.utils import deep_merge_dicts
from ding.worker.collector.players import (
    BattleEpisodeSerialCollector,
    BattleSampleSerialCollector,
)
from tests.fakes import FakeWriter
from tests.worker.collector.battles import PlainPlayer, Player


class Shifts(pettingzoo.ParallelEnv):
    """Agent `a` acts in all six rounds, `b` in some; observations are [round], rewards the number of the round.

    Args:
        rounds: those in which `b` acts.
        pays: whether `b` also gets its reward while it rests.
        end: "terminated" or "truncated", how `a` ends.
        b_end: the round in which `b` is terminated; by default `b` ends without a word.
    """

    metadata = {"name": "shifts_v0"}  # noqa: RUF012
    possible_agents = ["a", "b"]  # noqa: RUF012

    def __init__(self, rounds=(1, 2, 5, 6), pays=False, end="terminated", b_end=None):
        self.rounds, self.pays, self.end, self.b_end = rounds, pays, end, b_end

    def observation_space(self, agent):
        return Box(0, 9, (1,), np.float32)

    def action_space(self, agent):
        return Discrete(50)

    def reset(self, seed=None, options=None):
        self.count = 0
        self.agents = self._acting()
        return self._obs(self.possible_agents), {agent: {} for agent in self.possible_agents}

    def step(self, actions):
        assert list(actions) == self.agents, (list(actions), self.agents)
        self.count += 1
        acted, is_over = self.agents, self.count == 6
        self.agents = [] if is_over else self._acting()
        flags = {"terminated": dict.fromkeys(acted, False), "truncated": dict.fromkeys(acted, False)}
        flags[self.end]["a"] = is_over
        if self.count == self.b_end:
            flags["terminated"]["b"] = True
        paid = self.possible_agents if self.pays else acted
        rewards = {agent: float(self.count) for agent in paid}
        return self._obs({*acted, *self.agents}), rewards, *flags.values(), {agent: {} for agent in acted}

    def _acting(self):
        is_b_in = self.count + 1 in self.rounds and not (self.b_end and self.count >= self.b_end)
        return ["a", "b"] if is_b_in else ["a"]

    def _obs(self, agents):
        return {agent: np.array([self.count], np.float32) for agent in agents}


def build(cls, game, manager=BaseEnvManager, policies=None, env_num=1, **cfg):
    env = manager([partial(PettingZooEnv, {"env": game})] * env_num)
    policies = [Player(), Player()] if policies is None else policies
    return cls(EasyDict({**cls.default_config(), **cfg}), env, policies, FakeWriter(), "exp")


def steps_of(rows):
    """(step acted on, step of the next observation, reward, done, terminated) of transitions."""
    return [
        (int(row["obs"]), int(row["next_obs"]), float(row["reward"]), bool(row["done"]), bool(row["terminated"]))
        for row in rows
    ]


def episode_of_b(game, **kwargs):
    collector = build(BattleEpisodeSerialCollector, game, **kwargs)
    (first, second), _ = collector.collect(1)
    collector.close()
    assert steps_of(first[0]) == [(k, k + 1, k + 1, k == 5, k == 5 and first[0][-1]["terminated"]) for k in range(6)]
    return steps_of(second[0])


FOUR = [(0, 1, 1, False, False), (1, 4, 2, False, False), (4, 5, 5, False, False), (5, 6, 6, True, False)]


@pytest.mark.parametrize("player", [Player, PlainPlayer])
@pytest.mark.parametrize("manager", [BaseEnvManager, SyncSubprocessEnvManager])
def test_an_episode_has_a_transition_for_each_action(manager, player):
    assert episode_of_b(Shifts, manager=manager, policies=[player(), player()]) == FOUR


@pytest.mark.parametrize("player", [Player, PlainPlayer])
@pytest.mark.parametrize("manager", [BaseEnvManager, AsyncSubprocessEnvManager])
def test_so_has_each_episode_of_the_collector_of_samples(manager, player):
    collector = build(BattleSampleSerialCollector, Shifts, manager, [player(), player()], env_num=2)
    first, second = collector.collect(16, drop_extra=False)[0]
    collector.close()
    by_step = sorted(steps_of(second))
    assert len(second) >= 16 and set(by_step) == set(FOUR)
    counts = [by_step.count(step) for step in FOUR]
    assert max(counts) - min(counts) <= 2  # of two envs
    assert {step[:2] for step in steps_of(first)} == {(k, k + 1) for k in range(6)}


def test_rewards_while_it_rests_are_added():
    assert episode_of_b(partial(Shifts, pays=True))[1] == (1, 4, 2 + 3 + 4, False, False)


@pytest.mark.parametrize("end", ["terminated", "truncated"])
def test_a_transition_ends_with_the_episode_and_as_it_does(end):
    steps = episode_of_b(partial(Shifts, rounds=(1, 2), pays=True, end=end))
    assert steps[1:] == [(1, 2, 2 + 3 + 4 + 5 + 6, True, end == "terminated")]


def test_a_player_may_end_while_it_rests():
    steps = episode_of_b(partial(Shifts, rounds=(1, 6), pays=True, b_end=3))
    assert steps == [(0, 1, 1 + 2 + 3, True, True)]


def test_a_player_may_begin_by_resting():
    assert episode_of_b(partial(Shifts, rounds=(3, 4)))[0] == (2, 3, 3, False, False)


@pytest.mark.parametrize("samples", [False, True])
def test_an_episode_in_which_a_player_never_acts_is_empty(samples):
    collector = build(BattleEpisodeSerialCollector, partial(Shifts, rounds=()), get_train_sample=samples)
    (first, second), _ = collector.collect(2)
    assert (len(first), second) == ((12, []) if samples else (2, [[], []]))


def test_returns_of_n_steps_count_actions():
    own = {
        "nstep": 2,
        "discount_factor": 0.5,
        "model": {"obs_shape": 1, "action_shape": 50},
        "collect": {"n_sample": 8},
    }
    cfg = deep_merge_dicts(DQNPolicy.default_config(), own)
    policies = [DQNPolicy(cfg, enable_field=["collect"]).collect_mode for _ in "ab"]
    collector = build(BattleSampleSerialCollector, Shifts, policies=policies)
    second = collector.collect(policy_kwargs={"eps": 0.5})[0][1][:4]
    assert [int(row["obs"]) for row in second] == [0, 1, 4, 5]
    assert [int(row["next_obs"]) for row in second] == [4, 5, 6, 6]
    assert [row["reward"].tolist() for row in second] == [[1, 2], [2, 5], [5, 6], [6, 0]]


class Recurrent(Player):
    """Counts its own actions in each env, as a recurrent state would."""

    def __init__(self):
        super().__init__()
        self.states, self.log = {}, []

    def forward(self, obs, **kwargs):
        outputs = {}
        for env_id, seen in obs.items():
            self.states[env_id] = self.states.get(env_id, 0) + 1
            self.log.append(int(seen[0]))
            outputs[env_id] = {"action": torch.tensor([self.states[env_id]])}
        return outputs

    def reset(self, env_ids=None):
        for env_id in list(self.states) if env_ids is None else env_ids:
            self.states.pop(env_id, None)


def test_a_recurrent_state_stands_still_while_its_player_rests():
    policies = [Recurrent(), Recurrent()]
    collector = build(BattleEpisodeSerialCollector, Shifts, policies=policies)
    _, second = collector.collect(1)[0]
    assert [int(row["action"]) for row in second[0]] == [1, 2, 3, 4]
    assert (policies[0].log, policies[1].log) == ([0, 1, 2, 3, 4, 5], [0, 1, 4, 5])


def test_the_env_says_who_acted_and_who_acts_next():
    env = PettingZooEnv({"env": partial(Shifts, rounds=(1, 3))})
    env.reset()
    infos = [env.step([1, None if k == 1 else 2]).info[1] for k in range(6)]
    marks = [(info.get("acted", True), info.get("acts_next", True)) for info in infos]
    assert marks == [(True, False), (False, True), (True, False), (False, False), (False, False), (False, True)]
    assert (infos[-1]["terminated"], infos[-1]["eval_episode_return"]) == (True, 4.0)
