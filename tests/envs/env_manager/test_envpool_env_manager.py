"""Envs of EnvPool: exact contents with a fake of its module, and training with EnvPool itself where it is installed."""

from functools import partial

import numpy as np
import pytest
from easydict import EasyDict

from ding.envs import GymnasiumEnv, PoolEnvManager, create_env_manager
from ding.utils.config_helper import ConfigError
from tests.envs.env_manager.fake_envpool import LENGTHS, FakeEnvpool
from tests.envs.env_manager.scripted_env import act, shown
from tests.envs.env_manager.workers import collected, collector_over, episodes


@pytest.fixture
def library(put_module):
    library = FakeEnvpool()
    put_module("envpool", library)
    return library


def launched(env_num=3, **cfg):
    manager = PoolEnvManager({"env_id": "Three-v0", "env_num": env_num, "batch_size": env_num, **cfg})
    manager.seed(10)
    manager.launch()
    return manager


def test_the_config_alone_makes_a_manager_of_eight_envs(library):
    manager = PoolEnvManager(EasyDict(env_id="Three-v0"))
    assert (manager.env_num, manager.closed, manager.ready_obs) == (8, True, {})
    manager.launch()
    assert (library.pools[0].num_envs, library.pools[0].batch_size) == (8, 8)
    manager.close()
    assert library.pools[0].is_closed


@pytest.mark.parametrize(("batch_size", "answers"), [(None, 12), (5, 5), (20, 12)])
def test_a_step_waits_for_all_envs_unless_it_is_told_otherwise(library, batch_size, answers):
    with launched(env_num=12, batch_size=batch_size) as manager:
        assert library.pools[0].batch_size == answers
        answered = manager.step(dict.fromkeys(manager.ready_obs_id, 0))
        assert len(answered) == 12 if answers == 12 else 0 < len(answered) <= 5  # resets are answered among them


@pytest.mark.differs(
    "cannot make `env_pool` by `create_env_manager`; its steps return 8 envs, named by their places in the batch, "
    "and a step between two episodes that ignores its action",
    "makes it like other managers; a step returns all envs under their own ids, and none between episodes",
)
def test_a_config_names_it_as_env_pool_and_the_env_section_names_the_env(library):
    env_fn = [partial(GymnasiumEnv, cfg=EasyDict(env_id="Three-v0", max_episode_steps=2))] * 3
    manager = create_env_manager({"type": "env_pool", "frame_skip": 4, "kwargs": {"num_threads": 2}}, env_fn)
    assert type(manager) is PoolEnvManager
    with manager:
        manager.launch()
        assert (manager.env_num, library.pools[0].limit) == (3, 2)
        assert library.pools[0].options == {"frame_skip": 4, "num_threads": 2}
        assert manager.observation_space.dtype == np.float32


def test_a_timestep_has_what_envpool_returned_of_its_own_env(library):
    with launched() as manager:
        assert shown(manager) == {0: [10, 0, 0], 1: [11, 0, 0], 2: [12, 0, 0]}
        timesteps = manager.step({2: np.array([3]), 0: 1})
        assert list(timesteps) == [2, 0]
        obs, reward, done, info = timesteps[2]
        assert (obs.tolist(), obs.dtype, reward.tolist(), reward.dtype) == ([12, 0, 1], np.float32, [1], np.float32)
        assert done is False
        assert info.pop("place")["xy"].tolist() == [12, 0]
        assert info == {"env_id": 2, "elapsed_step": 1, "terminated": False, "truncated": False}
        assert shown(manager) == {0: [10, 0, 1], 1: [11, 0, 0], 2: [12, 0, 1]}
        assert library.pools[0].actions == [[1], [], [3]]


def test_an_episode_that_ends_is_followed_by_the_next_during_the_next_step(library):
    with launched() as manager:
        act(manager), act(manager, 0, 1)
        timesteps = manager.step({0: 0, 2: 0})
        assert [(i, t.obs.tolist(), t.done) for i, t in timesteps.items()] == [
            (0, [10, 0, 3], True),
            (2, [12, 0, 2], False),
        ]
        assert timesteps[0].info["eval_episode_return"] == 6.0
        assert (shown(manager), manager.env_state_done(0)) == ({1: [11, 0, 2], 2: [12, 0, 2]}, False)
        with pytest.raises(AssertionError):
            act(manager, 0)
        timesteps = manager.step({1: 5})
        assert [(i, t.obs.tolist(), t.info["eval_episode_return"]) for i, t in timesteps.items()] == [
            (1, [11, 0, 3], 6.0)
        ]
        assert shown(manager) == {0: [10, 1, 0], 2: [12, 0, 2]}
        assert manager.episodes[[0, 1, 2]].tolist() == [2, 1, 1]
        assert act(manager, 0) == {0: ([10, 1, 1], False)}
        assert shown(manager) == {0: [10, 1, 1], 1: [11, 1, 0], 2: [12, 0, 2]}
        assert library.pools[0].actions == [[0, 0, 0, 0], [1, 1, 5], [2, 0]]


@pytest.mark.parametrize("length", ["One-v0", "Three-v0"])
@pytest.mark.parametrize("limit", [None, 2])
def test_a_collector_gets_every_step_once_and_none_across_episodes(library, length, limit):
    kwargs = {} if limit is None else {"max_episode_steps": limit}
    manager = PoolEnvManager({"env_id": length, "env_num": 3, "kwargs": kwargs})
    collector = collector_over(manager, n_sample=10)
    before = collected(collector, 1)
    manager.reset({1: None})  # by another caller, in mid-episode or after an end
    steps = {env_id: before[env_id] + more for env_id, more in collected(collector).items()}
    collector.close()
    end, (pool,) = min(LENGTHS[length], limit or 9), library.pools
    for env_id in (0, 2):
        assert steps[env_id] == episodes(end, len(steps[env_id]))
    assert len(set(steps[1])) == len(steps[1])
    for env_id in range(3):  # the collector holds back a running episode
        assert len(pool.actions[env_id]) - end < len(steps[env_id]) <= len(pool.actions[env_id])


def test_a_time_limit_is_told_from_a_true_end(library):
    with launched(1, env_id="Five-v0", kwargs={"max_episode_steps": 2}) as manager:
        infos = [manager.step({0: 0})[0].info for _ in range(2)]
        assert [(info["terminated"], info["truncated"]) for info in infos] == [(False, False), (False, True)]


def test_seeds_are_for_the_pool_that_is_made_next(library):
    with launched(2) as manager:
        manager.reset()
        assert shown(manager) == {0: [10, 1, 0], 1: [11, 1, 0]}
        manager.seed([7, 3])
        assert shown(manager) == {0: [10, 1, 0], 1: [11, 1, 0]}
        manager.reset()
        assert shown(manager) == {0: [7, 0, 0], 1: [3, 0, 0]}
        manager.close()
        manager.launch()
        assert shown(manager) == {0: [7, 0, 0], 1: [3, 0, 0]}
    assert [pool.is_closed for pool in library.pools] == [True, True, True]


def test_with_a_smaller_batch_a_step_returns_the_envs_that_are_ready_first(library):
    with launched(4, batch_size=2) as manager:
        assert shown(manager) == {i: [10 + i, 0, 0] for i in range(4)}
        assert act(manager) == {0: ([10, 0, 1], False), 1: ([11, 0, 1], False)}
        assert manager.ready_obs_id == [0, 1]
        with pytest.raises(AssertionError):
            act(manager, 2)
        assert act(manager) == {2: ([12, 0, 1], False), 3: ([13, 0, 1], False)}
        assert {i: t.obs.tolist() for i, t in manager.step({}).items()} == {0: [10, 0, 2], 1: [11, 0, 2]}


def test_actions_outside_of_the_space_are_refused_before_any_env_steps(library):
    with launched(2) as manager, pytest.raises(ValueError, match=r"\{1: 1000\} are outside of .*: \[0, 999\]"):
        manager.step({0: 3, 1: np.array([1000])})
    assert library.pools[0].actions == [[], []]


def test_a_state_keeps_counts_and_seeds_and_begins_new_episodes(library):
    with launched(2) as manager, launched(2) as other:
        act(manager)
        problems = other.load_state_dict(manager.state_dict())
        assert problems == ["envs 0, 1: EnvPool saves no states of envs; its running episode is dropped"]
        assert problems == [f"envs 0, 1: {manager.why_inexact}"]
        assert shown(other) == {0: [10, 1, 0], 1: [11, 1, 0]}
        assert other.episodes[[0, 1]].tolist() == [2, 2]
    with launched(3, batch_size=2) as manager, launched(3, batch_size=2) as other:
        other.load_state_dict(manager.state_dict())
        assert (other.episodes[[0, 1, 2]] > 1).all()


@pytest.mark.parametrize(
    "cfg, env_cfg, text",
    [
        ({}, None, "env.manager.env_id = None is not allowed"),
        ({}, {"env_id": "Three-v0", "wrappers": [str]}, "env.wrappers has no meaning for the env manager env_pool"),
        ({"env_id": "Three-v0", "batch_size": 0}, None, "batch_size = 0"),
    ],
)
def test_a_config_that_envpool_cannot_follow_is_refused(library, cfg, env_cfg, text):
    env_fn = None if env_cfg is None else [partial(GymnasiumEnv, cfg=env_cfg)]
    with pytest.raises(ConfigError, match=text):
        PoolEnvManager(cfg, env_fn)


@pytest.mark.parametrize("batch_size", [3, 2])
@pytest.mark.parametrize(("is_clipped", "rewards"), [(True, [1.0, 1.0, 1.0]), (False, [1.0, 2.0, 3.0])])
def test_the_return_of_an_episode_is_that_of_its_rewards_before_they_are_clipped(
    library, batch_size, is_clipped, rewards
):
    seen, returns = [], []
    with launched(batch_size=batch_size, reward_clip=is_clipped) as manager:
        while len(returns) < 3:
            for env_id, timestep in manager.step(dict.fromkeys(manager.ready_obs_id, 0)).items():
                if env_id == 0:
                    seen.append(timestep.reward.item())
                if timestep.done:
                    returns.append(timestep.info["eval_episode_return"])
    assert seen[:3] == rewards and returns[:3] == [6.0] * 3


# -- EnvPool itself


def needs_envpool():
    pytest.importorskip("envpool", reason="envpool is not installed: pip install envpool")


@pytest.mark.parametrize("batch_size", [4, 2])
def test_equal_seeds_play_equal_episodes_of_cartpole(batch_size):
    needs_envpool()

    def play():
        seen = {env_id: [] for env_id in range(4)}
        with PoolEnvManager({"env_id": "CartPole-v1", "env_num": 4, "batch_size": batch_size}) as manager:
            manager.seed(3)
            manager.launch()
            while min(map(len, seen.values())) < 60:
                obs = manager.ready_obs
                for env_id, row in obs.items():
                    seen[env_id].append(row.tolist())
                timesteps = manager.step({env_id: np.array([int(row[2] > 0.2)]) for env_id, row in obs.items()})
                for env_id, (after, reward, done, info) in timesteps.items():
                    assert (after.shape, reward.tolist(), info["env_id"]) == ((4,), [1.0], env_id)
                    if done:
                        seen[env_id].append(info["eval_episode_return"])
        return {env_id: rows[:60] for env_id, rows in seen.items()}

    first = play()
    assert first == play()
    returns = [row for rows in first.values() for row in rows if isinstance(row, float)]
    assert min(returns) >= 5 and len(returns) >= 4


def test_the_stack_of_frames_is_known():
    needs_envpool()
    for options, stack in (({}, 4), ({"stack_num": 2}, 2)):
        with PoolEnvManager({"env_id": "Pong-v5", "env_num": 1, "kwargs": options}) as manager:
            assert manager.frame_stack == stack
