"""What holds for every manager, however its processes start and its observations travel."""

import itertools
import os
import signal

import gymnasium
import numpy as np
import pytest
from easydict import EasyDict

from ding.envs import (
    AsyncSubprocessEnvManager,
    BaseEnvManager,
    BaseEnvManagerV2,
    GymnasiumEnv,
    SubprocessEnvManagerV2,
    SyncSubprocessEnvManager,
)
from tests.envs.env_manager.scripted_env import Die, Make, Raise, ScriptedEnv, Wait, be_abnormal, states
from tests.envs.env_manager.workers import collected, collector_over, episodes, returns_of

BASE = {"base": BaseEnvManager, "base_v2": BaseEnvManagerV2}
PROCESSES = {
    "subprocess": SyncSubprocessEnvManager,
    "async_subprocess": AsyncSubprocessEnvManager,
    "subprocess_v2": SubprocessEnvManagerV2,
}
CONTEXTS = ("fork", "forkserver", "spawn")
LENGTHS = (2, 3, 5)

OBSERVING = [
    SyncSubprocessEnvManager,
    AsyncSubprocessEnvManager,
]


def combinations(*, base=True, v2=True):
    """(class, config) of each manager; interpreters that start anew are slow."""
    found = [pytest.param(cls, {}, id=name) for name, cls in BASE.items() if base and (v2 or "v2" not in name)]
    for (name, cls), context, shared in itertools.product(PROCESSES.items(), CONTEXTS, (True, False)):
        if v2 or "v2" not in name:
            is_slow = context == "spawn" or (context == "forkserver" and not shared)
            found.append(
                pytest.param(
                    cls,
                    {"context": context, "shared_memory": shared, "retry_waiting_time": 0},
                    id=f"{name}-{context}-{'shared' if shared else 'piped'}",
                    marks=[pytest.mark.slow] if is_slow else [],
                )
            )
    return found


def launched(cls, cfg, *envs, **more):
    manager = cls([Make(i, **env) for i, env in enumerate(envs)], EasyDict({**cfg, **more}))
    manager.launch()
    return manager


class Driver:
    """Steps all ready envs, whatever the format: `round()` gives `{env_id: (obs acted on, obs, done, note)}`."""

    def __init__(self, manager):
        self.manager = manager

    def round(self):
        if isinstance(self.manager, (BaseEnvManagerV2, SubprocessEnvManagerV2)):
            obs = self.manager.ready_obs
            timesteps = self.manager.step(np.arange(len(obs))[:, None])
            before = {int(timestep.env_id): row for timestep, row in zip(timesteps, obs, strict=True)}
            steps = {int(timestep.env_id): timestep for timestep in timesteps}
        else:
            before = self.manager.ready_obs
            steps = self.manager.step({env_id: np.array([env_id]) for env_id in before})
        return {
            env_id: (before.get(env_id), step.obs, bool(step.done), step.info["note"]) for env_id, step in steps.items()
        }


@pytest.mark.guarantees("data")
@pytest.mark.parametrize("cls, cfg", combinations(base=False))
def test_episodes_are_whole_and_what_was_returned_stays_as_it_was(cls, cfg):
    manager = launched(cls, cfg, *[{"length": length, "reuse": True} for length in LENGTHS])
    driver, handed_out = Driver(manager), []
    seen = {env_id: [] for env_id in range(3)}
    with manager:
        while min(map(len, seen.values())) < 8:
            for env_id, (before, after, done, note) in driver.round().items():
                seen[env_id].append((after.tolist(), done, note.tolist()))
                if before is not None:  # else the env answers to an earlier round
                    assert before.tolist() == [*after.tolist()[:2], after.tolist()[2] - 1]
                handed_out.append((after, after.tolist()))
    for env_id, length in enumerate(LENGTHS):
        at = [divmod(k, length) for k in range(len(seen[env_id]))]
        assert seen[env_id] == [([env_id, e, s + 1], s + 1 == length, [s + 1]) for e, s in at]
    assert [array for array, before in handed_out if array.tolist() != before] == []


@pytest.mark.guarantees("data")
@pytest.mark.parametrize("cls, cfg", combinations(v2=False))
def test_a_collector_gets_every_transition_once_and_none_across_episodes(cls, cfg):
    envs = [{"length": length, "reuse": True} for length in LENGTHS]
    manager = cls([Make(i, **env) for i, env in enumerate(envs)], EasyDict({**cfg, "step_wait_timeout": 0}))
    collector = collector_over(manager, n_sample=21)
    found = collected(collector)
    collector.close()
    assert found == {i: episodes(length, len(found[i])) for i, length in enumerate(LENGTHS)}
    assert sum(map(len, found.values())) >= 63


@pytest.mark.parametrize("cls", OBSERVING)
def test_what_a_collector_stores_is_its_own_although_observations_are_shared_memory(cls):
    envs = [Make(i, length=length, reuse=True) for i, length in enumerate(LENGTHS)]
    manager = cls(envs, {"context": "fork", "shared_memory": True, "copy_on_get": False, "step_wait_timeout": None})
    collector = collector_over(manager, n_sample=60)
    found = collected(collector, 1)
    collector.close()
    assert found == {i: episodes(length, len(found[i])) for i, length in enumerate(LENGTHS)}


@pytest.mark.guarantees("data")
@pytest.mark.parametrize("cls, cfg", combinations(v2=False))
def test_an_abnormal_step_voids_its_episode_only(cls, cfg):
    envs = [{"length": 3, "deeds": {("step", 4): be_abnormal}}, {"length": 4}]
    manager = cls([Make(i, **env) for i, env in enumerate(envs)], EasyDict({**cfg, "step_wait_timeout": None}))
    collector = collector_over(manager, n_sample=16)
    first, second = [], []
    while len(first) < 4:  # an asynchronous manager may step the other env many times meanwhile
        found = collected(collector, 1)
        first += found.get(0, [])
        second += found.get(1, [])
    collector.close()
    assert first[:4] == [*episodes(3, 3), (2, 0, False)] and 1 not in {episode for episode, _, _ in first}
    assert second == episodes(4, len(second))


@pytest.mark.parametrize("cls, cfg", combinations(v2=False))
def test_an_evaluator_counts_the_episodes_it_asks_for(cls, cfg):
    def final(env):
        return {"eval_episode_return": float(env.length)}

    envs = [{"length": length, "deeds": {("step", -1): final}} for length in LENGTHS]
    manager = cls([Make(i, **env) for i, env in enumerate(envs)], EasyDict({**cfg, "step_wait_timeout": None}))
    assert returns_of(manager, 6) == [2, 2, 3, 3, 5, 5]


def test_an_asynchronous_evaluation_waits_for_envs_that_begin_an_episode():
    def final(env):
        return {"eval_episode_return": float(env.number)}

    slow = {("step", -1): final, **{("reset", k): Wait(0.05) for k in range(1, 9)}}
    envs = [Make(0, length=1, deeds={("step", -1): final}), Make(1, length=1, deeds=slow)]
    manager = AsyncSubprocessEnvManager(envs, {"context": "fork", "wait_num": 1, "step_wait_timeout": 0})
    assert returns_of(manager, 6) == [0, 0, 0, 1, 1, 1]


def act_all(manager):
    return Driver(manager).round()


@pytest.mark.guarantees("workers")
@pytest.mark.parametrize("cls, cfg", combinations(base=False))
def test_a_killed_env_is_named_with_its_signal(cls, cfg):
    manager = launched(cls, {**cfg, "step_wait_timeout": None}, {}, {"deeds": {("step", 1): Die(signal.SIGKILL)}}, {})
    act_all(manager)
    with pytest.raises(RuntimeError, match="env 1 died in step: .*SIGKILL"):
        act_all(manager)
    assert manager.closed


@pytest.mark.guarantees("workers")
@pytest.mark.parametrize("cls, cfg", combinations())
def test_a_failing_env_is_named_with_its_own_exception(cls, cfg):
    deeds = {("step", 1): Raise(LookupError("broken"))}
    manager = launched(cls, {**cfg, "step_wait_timeout": None}, {}, {"deeds": deeds}, {})
    act_all(manager)
    with pytest.raises((LookupError, RuntimeError), match="(?is)env 1.*step.*LookupError: broken") as caught:
        act_all(manager)
    assert isinstance(caught.value.__cause__ if cls in BASE.values() else caught.value, LookupError)
    assert manager.closed is (cls not in BASE.values())
    manager.close()


@pytest.mark.parametrize("cls, cfg", combinations())
def test_every_manager_offers_the_same(cls, cfg):
    manager = cls([Make(0, length=1), Make(1, length=4)], EasyDict({**cfg, "step_wait_timeout": None}))
    manager.seed(5)
    assert (manager.env_num, manager.closed, manager.ready_obs_id) == (2, True, [])
    with manager:
        manager.launch({0: {"level": 1}, 1: None})
        assert manager.told == [[(5,), {"level": 1}], [(6,), {}]]
        assert list(manager.random_action()) == [0, 1]
        assert manager.ready_imgs == {0: "rgb_array 0 0 0", 1: "rgb_array 1 0 0"}
        assert states(manager) == ["RUN", "RUN"]
        act_all(manager)
        assert manager.episode == [1, 0]
        assert manager.reward_shaping(1, [{"reward": 3}]) == [{"reward": -3}]
        manager.reset({1: {"level": 2}})
        assert manager.told[1] == [(6,), {}, {"level": 2}]
        assert manager.episodes[[0, 1]].tolist() == [2, 2]  # with the auto reset of the first
        pids = manager.pid
        assert (os.getpid() in pids) is (cls in BASE.values())


def play(cls, cfg):
    """What two CartPoles show, over two launches."""
    manager = cls([lambda: GymnasiumEnv({"env_id": "CartPole-v1"})] * 2, EasyDict(cfg))
    manager.seed(3)
    seen = []
    for _ in range(2):
        with manager:
            manager.launch()
            for _ in range(40):
                obs = manager.ready_obs
                steps = manager.step({env_id: int(value.sum() > 0) for env_id, value in obs.items()})
                seen.append((obs, steps))
    return repr(seen)


@pytest.mark.guarantees("equal-bits")
@pytest.mark.differs(
    "steps the envs of a `subprocess` manager in groups that depend on when their resets end",
    "plays the same episodes as with these seeds in one process",
)
@pytest.mark.parametrize("cls, cfg", [p for p in combinations(base=False, v2=False) if "async" not in p.id])
def test_seeded_envs_play_the_same_in_processes(cls, cfg):
    assert play(cls, cfg) == play(BaseEnvManager, {})


@pytest.mark.parametrize("context", ["fork", "forkserver"])
def test_functions_may_be_closures(context):
    envs = [lambda number=number: ScriptedEnv(number, form=lambda obs: obs + 0) for number in (4, 7)]
    with SyncSubprocessEnvManager(envs, {"context": context}) as manager:
        manager.launch()
        assert manager.number == [4, 7]


def test_a_function_that_cannot_be_sent_is_named():
    stream = (i for i in range(9))
    manager = SyncSubprocessEnvManager([Make(0), lambda: ScriptedEnv(next(stream))], {"context": "forkserver"})
    with pytest.raises(TypeError, match=r"env_fn\[1\] cannot be sent to a new process"):
        manager.launch()
    assert manager.closed


class FourValues(ScriptedEnv):
    """Has the spaces of a `BaseEnv`, and steps as envs of gym do."""

    def step(self, action):
        return tuple(super().step(action))


@pytest.mark.parametrize("cls", [*BASE.values(), *PROCESSES.values()])
def test_envs_of_gym_and_gymnasium_that_nothing_adapts_are_refused(cls):
    with pytest.raises(TypeError, match="CartPole.*no BaseEnv"):
        cls([lambda: gymnasium.make("CartPole-v1")], {})
    with cls([FourValues], {}) as manager:
        manager.launch()
        with pytest.raises(TypeError):
            manager.step({0: np.array([0])})
