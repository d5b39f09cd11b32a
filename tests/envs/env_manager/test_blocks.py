"""`act` and `ready_block` of each manager say what its documented `step` and `ready_obs` say."""

from functools import partial

import numpy as np
import pytest
from easydict import EasyDict

from ding.envs import (
    AsyncSubprocessEnvManager,
    BaseEnvManager,
    PoolEnvManager,
    SyncSubprocessEnvManager,
    VectorEnvManager,
)
from ding.envs.env_manager.block import ManagerInUseError, Ready, end_code, overrides_dicts
from ding.utils.data.samples import node_rows
from tests.envs.env_manager.counting_vector_env import CountingVectorEnv
from tests.envs.env_manager.fake_envpool import FakeEnvpool
from tests.envs.env_manager.own_manager import own_manager_class
from tests.envs.env_manager.scripted_env import Make
from tests.same_state import assert_same

LENGTHS = (1, 3, 2, 50)
ROUNDS = 12


def from_envs(cls, **cfg):
    def make(**more):
        envs = [Make(i, length=length, reuse=True) for i, length in enumerate(LENGTHS)]
        return cls(envs, EasyDict({**cfg, **more}))

    return make


def from_pool(**cfg):
    def make(**more):
        return PoolEnvManager({"env_id": "Three-v0", "env_num": 4, "batch_size": 4, **cfg, **more})

    return make


def from_vector(mode, **cfg):
    def make(**more):
        kwargs = {"lengths": LENGTHS, "mode": mode}
        return VectorEnvManager({"vector_env": CountingVectorEnv, "env_num": 4, "kwargs": kwargs, **cfg, **more})

    return make


def own(**more):
    return own_manager_class()({"env_num": 4, **more})


FORK = {"context": "fork", "retry_waiting_time": 0}
MANAGERS = [
    pytest.param(from_envs(BaseEnvManager), id="base"),
    pytest.param(from_envs(SyncSubprocessEnvManager, **FORK), id="subprocess"),
    pytest.param(from_pool(), id="env_pool"),
    pytest.param(from_pool(env_id="One-v0"), id="env_pool-all-end-at-each-step"),
    *(pytest.param(from_vector(mode), id=mode) for mode in ("NextStep", "SameStep", "Disabled")),
    pytest.param(own, id="own"),
]


@pytest.fixture(autouse=True)
def envpool(put_module):
    put_module("envpool", FakeEnvpool())


def launched(make, **cfg):
    manager = make(**cfg)
    manager.seed(10)
    manager.launch()
    return manager


def by_dicts(ready: Ready):
    assert ready.ids.tolist() == ready.env_ids and ready.ids.dtype == np.int64
    return dict(zip(ready.env_ids, node_rows(ready.obs), strict=True))


def assert_block_is(step, timesteps):
    assert step.env_ids == list(timesteps) == step.ids.tolist()
    for timestep, other in zip(step.timesteps(), timesteps.values(), strict=True):
        assert_same(tuple(timestep), tuple(other))
        assert type(timestep) is type(other)
    dones = [bool(np.all(timestep.done)) for timestep in timesteps.values()]
    assert (step.ends.tolist(), step.any_ends) == (dones, any(dones))
    assert step.codes.tolist() == [end_code(timestep.info) for timestep in timesteps.values()]


def actions_of(env_ids, t):
    return [np.array([(env_id + t) % 2]) for env_id in env_ids]


@pytest.mark.parametrize("cfg", [{}, {"episode_num": 2}, {"auto_reset": False}], ids=["", "two-episodes", "no-reset"])
@pytest.mark.parametrize("make", MANAGERS)
def test_a_block_holds_exactly_the_timesteps_of_a_twin_that_is_stepped_by_dicts(make, cfg):
    with launched(make, **cfg) as manager, launched(make, **cfg) as twin:
        ready = manager.ready_block()
        for t in range(ROUNDS):
            assert_same(by_dicts(ready), twin.ready_obs)
            if not ready.env_ids:
                break
            actions = actions_of(ready.env_ids, t)
            step = manager.act(np.array(actions) if t % 2 else actions, ready.env_ids)
            assert_block_is(step, twin.step(dict(zip(ready.env_ids, actions, strict=True))))
            # Only the envs that were acted in are in `step.ready`, and only if all of them go on at once.
            goes_on = set(step.env_ids) == set(twin.ready_obs)
            assert (step.ready is None) == (not goes_on or (step.any_ends and getattr(manager, "idles", False)))
            ready = manager.ready_block() if step.ready is None else step.ready
            assert manager.episodes[ready.env_ids].tolist() == twin.episodes[ready.env_ids].tolist()
        assert manager.done is twin.done


@pytest.mark.parametrize("make", MANAGERS)
def test_what_a_block_has_handed_out_is_never_written_again(make):
    with launched(make) as manager:
        ready, kept = manager.ready_block(), []
        for t in range(ROUNDS):
            env_ids = ready.env_ids if t % 3 else ready.env_ids[1:3]
            step = manager.act(actions_of(env_ids, t), env_ids)
            ready = manager.ready_block() if step.ready is None or env_ids is not ready.env_ids else step.ready
            for node in (step.obs, step.reward, ready.obs):
                kept.append((node.data, node.data.copy()))
        for now, then in kept:
            np.testing.assert_array_equal(now, then)


@pytest.mark.parametrize("make", MANAGERS)
def test_each_reset_begins_another_episode_and_each_step_by_others_touches_its_env(make):
    with launched(make) as manager:
        assert manager.episodes[[0, 3]].tolist() == [1, 1]
        manager.reset({3: None})
        assert manager.episodes.tolist() == [1, 1, 1, 2]
        before, stepped = manager.touched.copy(), manager.ready_obs_id[-1]
        manager.step({stepped: actions_of([stepped], 0)[0]})
        assert (manager.touched - before).nonzero()[0].tolist() == [stepped]
        before, state = manager.touched.copy(), manager.state_dict()
        manager.begin()
        ready = manager.ready_block().env_ids[:1]
        manager.act(actions_of(ready, 0), ready)
        assert manager.touched.tolist() == before.tolist()
        for change in (manager.reset, partial(manager.step, {}), partial(manager.load_state_dict, state)):
            with pytest.raises(ManagerInUseError):
                change()
        manager.end()
        assert (manager.touched - before).tolist() == [1] * 4
        manager.reset()
        assert (manager.episodes > 1).all()
        episodes = manager.episodes.copy()
        manager.close()
        assert manager.ready_block().env_ids == []
        with pytest.raises(AssertionError):
            manager.act(actions_of([3], 0), [3])
        manager.launch()
        assert (manager.episodes > episodes).all()


def test_an_env_that_an_asynchronous_manager_answers_late_is_in_a_later_block():
    with launched(from_envs(AsyncSubprocessEnvManager, **FORK, wait_num=1, step_wait_timeout=0)) as manager:
        steps = {env_id: [] for env_id in range(4)}
        while min(map(len, steps.values())) < 6:
            ready = manager.ready_block()
            step = manager.act(actions_of(ready.env_ids, 0), ready.env_ids)
            for env_id, timestep in zip(step.env_ids, step.timesteps(), strict=True):
                steps[env_id].append(timestep.obs.tolist())
        for env_id, length in enumerate(LENGTHS):
            at = [divmod(k, length) for k in range(len(steps[env_id]))]
            assert steps[env_id] == [[env_id, episode, step + 1] for episode, step in at]


@pytest.mark.guarantees("overrides")
@pytest.mark.parametrize("cls", [BaseEnvManager, PoolEnvManager])
def test_a_class_that_overrides_step_is_stepped_by_it(cls):
    class Stepped(cls):
        def step(self, actions):
            return super().step(actions)

    assert overrides_dicts(Stepped.__new__(Stepped)) and not overrides_dicts(PoolEnvManager.__new__(PoolEnvManager))
