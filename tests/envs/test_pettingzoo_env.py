"""Parallel environments of PettingZoo as envs of several players, in the collectors and the evaluator of battles."""

from functools import partial
from types import ModuleType

import numpy as np
import pettingzoo
import pytest
from easydict import EasyDict
from gymnasium.spaces import Box, Discrete

from ding.envs import BaseEnvManager, PettingZooEnv, SyncSubprocessEnvManager
from ding.envs.env.base_env import get_env_cls
from ding.utils.config_helper import ConfigError
from ding.worker.collector.players import (
    BattleEpisodeSerialCollector,
    BattleInteractionSerialEvaluator,
    BattleSampleSerialCollector,
)
from tests.fakes import FakeWriter
from tests.own_folder import own_folder as own_folder
from tests.worker.collector.battles import Player


class Lifespans(pettingzoo.ParallelEnv):
    """Agent i ends at step `lifespans[i]`; observations are [agent, episode, step], rewards agent + 1.

    Args:
        limit: truncates the agents that are left after this many steps.
    """

    metadata = {"name": "lifespans_v0"}  # noqa: RUF012

    def __init__(self, lifespans=(2, 3), limit=99):
        self.lifespans, self.limit = lifespans, limit
        self.possible_agents = [f"agent_{i}" for i in range(len(lifespans))]
        self.agents, self.episode, self.count = [], -1, 0
        self.seeds, self.actions, self.is_closed = [], [], False

    def observation_space(self, agent):
        return Box(-9, 999, (3,), np.float64)

    def action_space(self, agent):
        return Discrete(50)

    def _obs(self):
        return {agent: np.array([int(agent[-1]), self.episode, self.count], np.float64) for agent in self.agents}

    def reset(self, seed=None, options=None):
        self.seeds.append((seed, options))
        self.agents, self.episode, self.count = list(self.possible_agents), self.episode + 1, 0
        return self._obs(), {agent: {} for agent in self.agents}

    def step(self, actions):
        assert list(actions) == self.agents
        self.actions.append({agent: int(action) for agent, action in actions.items()})
        self.count += 1
        obs = self._obs()
        rewards = {agent: float(agent[-1]) + 1 for agent in self.agents}
        terminated = {agent: self.count >= self.lifespans[int(agent[-1])] for agent in self.agents}
        truncated = {agent: not terminated[agent] and self.count >= self.limit for agent in self.agents}
        infos = {agent: {"count": self.count} for agent in self.agents}
        self.agents = [agent for agent in self.agents if not terminated[agent] and not truncated[agent]]
        return obs, rewards, terminated, truncated, infos

    def close(self):
        self.is_closed = True


class Matching(Lifespans):
    """Matching pennies: agent 0 wins 1 from agent 1 if both actions are equal, else it loses 1."""

    def step(self, actions):
        obs, _, *rest = super().step(actions)
        won = 1.0 if len(set(actions.values())) == 1 else -1.0
        return obs, {"agent_0": won, "agent_1": -won}, *rest


def listed(timestep):
    obs, reward, done, info = timestep
    return [row.tolist() for row in obs], reward.tolist(), done, info


def flags(info):
    return [(own["terminated"], own["truncated"]) for own in info]


def test_each_agent_is_a_player_by_its_place_in_possible_agents():
    env = PettingZooEnv({"env": Lifespans})
    assert [row.tolist() for row in env.reset()] == [[0, 0, 0], [1, 0, 0]]
    obs, reward, done, info = env.step([np.array([3]), 4])
    assert [(row.tolist(), row.dtype) for row in obs] == [([0, 0, 1], np.float32), ([1, 0, 1], np.float32)]
    assert (reward.tolist(), reward.dtype, done) == ([[1], [2]], np.float32, False)
    assert info == [{"count": 1, "terminated": False, "truncated": False}] * 2
    assert env._env._env.actions == [{"agent_0": 3, "agent_1": 4}]
    assert [space.dtype for space in env.observation_space] == [np.float32] * 2
    assert (env.reward_space.shape, len(env.action_space)) == ((2, 1), 2)
    assert [(action.shape, 0 <= action.item() < 50) for action in env.random_action()] == [((1,), True)] * 2


def test_a_player_that_ends_early_keeps_its_last_observation_and_gets_nothing():
    env = PettingZooEnv({"env": partial(Lifespans, (1, 3, 2))})
    env.reset()
    steps = [listed(env.step([7, 8, 9])) for _ in range(3)]
    assert [obs for obs, *_ in steps] == [
        [[0, 0, 1], [1, 0, 1], [2, 0, 1]],
        [[0, 0, 1], [1, 0, 2], [2, 0, 2]],
        [[0, 0, 1], [1, 0, 3], [2, 0, 2]],
    ]
    assert [reward for _, reward, *_ in steps] == [[[1], [2], [3]], [[0], [2], [3]], [[0], [2], [0]]]
    assert [done for *_, done, _ in steps] == [False, False, True]
    ended, alive = (True, False), (False, False)
    assert [flags(info) for *_, info in steps] == [[ended, alive, alive], [ended, alive, ended], [ended] * 3]
    assert env._env._env.actions[1:] == [{"agent_1": 8, "agent_2": 9}, {"agent_1": 8}]
    assert [info["eval_episode_return"] for info in steps[-1][3]] == [1.0, 6.0, 6.0]
    assert [info["result"] for info in steps[-1][3]] == ["losses", "draws", "draws"]


def test_a_time_limit_truncates_those_that_are_left():
    env = PettingZooEnv({"env": partial(Lifespans, (1, 9), limit=2)})
    env.reset()
    assert flags(env.step([0, 0]).info) == [(True, False), (False, False)]
    timestep = env.step([0, 0])
    assert (timestep.done, flags(timestep.info)) == (True, [(True, False), (False, True)])


def test_an_episode_ends_with_its_last_player_if_the_environment_keeps_all_agents():
    class Keeping(Lifespans):
        def step(self, actions):
            result = super().step(actions)
            self.agents = list(self.possible_agents)
            return result

    env = PettingZooEnv({"env": partial(Keeping, (2, 9), limit=3)})
    env.reset()
    timesteps = [env.step((0, 0)) for _ in range(3)]
    assert [timestep.done for timestep in timesteps] == [False, False, True]
    assert [(info["terminated"], info["truncated"]) for info in timesteps[2].info] == [(True, False), (False, True)]


def test_each_episode_has_a_seed_of_its_own_and_options_reach_the_environment():
    games = []

    def make():
        games.append(Lifespans((1, 1)))
        return games[-1]

    with BaseEnvManager([partial(PettingZooEnv, {"env": make})] * 2) as manager:
        manager.seed(5)
        manager.launch({0: {"options": {"level": 2}}, 1: None})
        manager.step({env_id: [0, 0] for env_id in manager.ready_obs})
        played = [game.seeds for game in games if game.seeds]
    assert [options for _, options in played[0]] == [{"level": 2}] * 2
    seeds = [seed for of_game in played for seed, _ in of_game]
    expected = [int(np.random.SeedSequence([5, i, k]).generate_state(1)[0]) for i in range(2) for k in range(2)]
    assert seeds == expected
    assert all(game.is_closed for game in games)


def test_the_config_names_a_module_with_its_arguments(put_module):
    module = ModuleType("arena_v3")
    module.parallel_env = Lifespans
    put_module("arena_v3", module)
    cfg = EasyDict(type="pettingzoo", env_id="arena_v3", kwargs={"lifespans": [1, 1, 1]})
    env = get_env_cls(cfg)(cfg)
    assert (len(env.reset()), repr(env)) == (3, "PettingZooEnv(arena_v3)")
    env = PettingZooEnv({"env": Lifespans, "kwargs": {"lifespans": [1, 1, 1]}})
    assert (len(env.reset()), repr(env)) == (3, "PettingZooEnv(Lifespans)")


class Turns(Lifespans):
    def agent_iter(self):
        """Only environments whose agents act in turn have it."""


@pytest.mark.parametrize(
    "cfg, error, text",
    [
        ({}, ConfigError, "give one of env_id and env; env_id = None"),
        ({"env_id": "math", "env": Lifespans}, ConfigError, "give one of env_id and env; env_id = 'math'"),
        ({"env": Lifespans()}, ConfigError, "must be a callable"),
        ({"env_id": "math"}, AttributeError, "has no attribute 'parallel_env'"),
        ({"env_id": "no_such_module_v0"}, ImportError, "No module named 'no_such_module_v0'"),
        ({"env": Turns}, TypeError, "act in turn; convert it with pettingzoo.utils.aec_to_parallel"),
    ],
)
def test_what_is_no_parallel_environment_is_refused(cfg, error, text):
    with pytest.raises(error, match=text):
        PettingZooEnv(cfg).reset()


def test_misuse_is_an_error():
    env = PettingZooEnv({"env": Lifespans})
    with pytest.raises(RuntimeError, match=r"PettingZooEnv\(Lifespans\): step\(\) before reset\(\)"):
        env.step([0, 0])
    env.reset()
    with pytest.raises(ValueError):
        env.step([0])
    with pytest.raises(ValueError):
        env.step([0, 99])
    with pytest.raises(NotImplementedError):
        env.enable_save_replay("videos")


def managed(game, cls=BaseEnvManager, env_num=2):
    return cls([partial(PettingZooEnv, {"env": game})] * env_num)


def where(sample):
    return tuple(int(x) for x in sample["obs"]), tuple(int(x) for x in sample["next_obs"])


@pytest.mark.parametrize("cls", [BaseEnvManager, SyncSubprocessEnvManager])
def test_episodes_of_both_players_are_collected_also_of_one_that_ends_early(cls):
    cfg = BattleEpisodeSerialCollector.default_config()
    env = managed(partial(Lifespans, (2, 3)), cls)
    collector = BattleEpisodeSerialCollector(cfg, env, [Player(), Player()], FakeWriter(), "exp")
    (first, second), infos = collector.collect(2)
    collector.close()
    for episode in first:
        assert [where(row) for row in episode] == [((0, 0, 0), (0, 0, 1)), ((0, 0, 1), (0, 0, 2))]
        assert [row["reward"].tolist() for row in episode] == [[1], [1]]
        assert [bool(row["terminated"]) for row in episode] == [False, True]
        assert [row["done"] for row in episode] == [False, True]
    for episode in second:
        assert [where(row) for row in episode] == [((1, 0, k), (1, 0, k + 1)) for k in range(3)]
        assert [bool(row["terminated"]) for row in episode] == [False, False, True]
    assert [[info["eval_episode_return"] for info in of_player] for of_player in infos] == [[2.0] * 2, [6.0] * 2]


def test_nothing_is_recorded_of_a_player_after_its_own_end():
    players = [Player(), Player()]
    env = managed(partial(Lifespans, (2, 5)))
    cfg = BattleSampleSerialCollector.default_config()
    collector = BattleSampleSerialCollector(cfg, env, players, FakeWriter(), "exp")
    (first, second), _ = collector.collect(20, drop_extra=False)
    collector.close()
    steps = [[int(row["next_obs"][2]) for row in samples] for samples in (first, second)]
    assert steps[0] == [1, 2] * (len(first) // 2) and len(first) >= 20
    assert [row["done"] for row in first] == [False, True] * (len(first) // 2)
    assert set(steps[1]) == {1, 2, 3, 4, 5} and len(second) > len(first)


class Always:
    """A policy that always acts alike."""

    def __init__(self, action):
        self.action = action

    def forward(self, obs):
        return {env_id: {"action": np.array([self.action])} for env_id in obs}

    def reset(self, env_ids=None):
        pass


@pytest.mark.parametrize("actions, result, mean", [((1, 1), "wins", 3.0), ((1, 0), "losses", -3.0)])
def test_an_evaluation_counts_who_wins_a_zero_sum_game(actions, result, mean):
    evaluator = BattleInteractionSerialEvaluator(
        BattleInteractionSerialEvaluator.default_config(),
        managed(partial(Matching, (3, 3))),
        [Always(action) for action in actions],
        FakeWriter(),
        exp_name="exp",
    )
    _, (first, second) = evaluator.eval(n_episode=3)
    evaluator.close()
    assert [info["result"] for info in first] == [result] * 3
    assert [info["eval_episode_return"] for info in first] == [mean] * 3
    assert [info["eval_episode_return"] for info in second] == [-mean] * 3
