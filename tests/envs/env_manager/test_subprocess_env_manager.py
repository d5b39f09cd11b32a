"""The managers with processes: states, what is returned, failures, limits. Everything here forks; see test_contract."""

import copy
import gc
import pickle
import threading

import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, Text, Tuple

from ding.envs import (
    AsyncSubprocessEnvManager,
    BaseEnvManager,
    SyncSubprocessEnvManager,
)
from tests.envs.env_manager.scripted_env import (
    Make,
    Wait,
    WaitFor,
    be_abnormal,
    states,
)

FAST = {"retry_waiting_time": 0, "context": "fork"}


def sync(*envs, **cfg):
    return SyncSubprocessEnvManager([Make(i, **env) for i, env in enumerate(envs)], {**FAST, **cfg})


def asynchronous(*envs, **cfg):
    return AsyncSubprocessEnvManager([Make(i, **env) for i, env in enumerate(envs)], {**FAST, **cfg})


def lists(obs):
    return {env_id: value.tolist() for env_id, value in obs.items()}


def act(manager, *env_ids):
    return manager.step({env_id: np.array([env_id]) for env_id in env_ids or manager.ready_obs_id})


# -- configuration


def test_a_reset_in_place_needs_auto_reset():
    with pytest.raises(AssertionError):
        sync({}, reset_inplace=True, auto_reset=False)


# -- states and timesteps


def test_the_next_episode_begins_while_the_caller_is_busy(tmp_path):
    with asynchronous({"length": 1, "deeds": {("reset", 1): WaitFor(tmp_path / "go")}}, {"length": 9}) as manager:
        manager.launch()
        assert act(manager)[0].done
        assert states(manager) == ["RESET", "RUN"]
        assert manager.ready_obs_id == [1]
        (tmp_path / "go").touch()
        assert manager.wait_another()
        assert manager.ready_obs_id == [0, 1]


@pytest.mark.differs(
    "replaces the terminal observation by the next episode's first one with `reset_inplace`",
    "keeps it in the timestep; `ready_obs` has the first one",
)
@pytest.mark.parametrize("shared_memory", [True, False])
def test_a_reset_in_place_keeps_the_terminal_observation(shared_memory):
    with asynchronous({"length": 1, "reuse": True}, reset_inplace=True, shared_memory=shared_memory) as manager:
        manager.launch()
        timestep = act(manager)[0]
        assert states(manager) == ["RUN"]
        assert (timestep.obs.tolist(), timestep.info["note"].tolist()) == ([0, 0, 1], [1])
        assert lists({env_id: manager._ready_obs[env_id] for env_id in manager.ready_env}) == {0: [0, 1, 0]}


def test_envs_that_are_not_ready_cannot_be_stepped():
    with sync({"length": 1}, {}, episode_num=1) as manager:
        manager.launch()
        act(manager)
        with pytest.raises(AssertionError):
            act(manager, 0, 1)
        with pytest.raises(KeyError):
            act(manager, 1, 7)
        assert manager.actions == [[0], [1]]


# -- abnormal steps


def test_an_abnormal_step_puts_its_env_aside_until_a_reset():
    with sync({"length": 2, "deeds": {("step", 1): be_abnormal}}, {}, {}) as manager:
        manager.launch()
        act(manager)
        timestep = act(manager)[0]
        assert (timestep.info["abnormal"], timestep.done) == (True, True)
        assert states(manager) == ["ERROR", "RUN", "RUN"]
        assert manager._env_episode_count[0] == 0
        assert manager.ready_obs_id == [1, 2]
        with pytest.raises(AssertionError):
            act(manager, 0)
        manager.reset({0: None})
        assert lists(manager.ready_obs)[0] == [0, 1, 0]


# -- observations


SPACES = {
    "array": (Box(-9, 9, (3,), np.float32), lambda obs: obs),
    "dict": (
        Dict({"a": Box(-9, 9, (3,), np.float32), "b": Dict({"c": Box(-9, 9, (1,), np.float32)})}),
        lambda obs: {"a": obs, "b": {"c": obs[2:]}},
    ),
    "tuple": (Tuple((Box(-9, 9, (3,), np.float32), Discrete(9))), lambda obs: (obs, int(obs[2]))),
    "mixed": (Dict({"a": Box(-9, 9, (3,), np.float32), "t": Text(9)}), lambda obs: {"a": obs, "t": f"{obs[2]:g}"}),
    "unknown": (None, lambda obs: {"anything": obs}),
}


def plain(obs):
    if isinstance(obs, dict):
        return {key: plain(value) for key, value in obs.items()}
    if isinstance(obs, tuple):
        return tuple(map(plain, obs))
    return obs.tolist() if isinstance(obs, np.ndarray) else obs


@pytest.mark.differs(
    "fails with shared memory where spaces are nested or missing, or an observation does not fit its space",
    "shares nested spaces, and sends what does not fit through the pipe",
)
@pytest.mark.parametrize("shared_memory", [True, False])
@pytest.mark.parametrize("kind", SPACES)
def test_observations_of_any_form_arrive(kind, shared_memory, caplog):
    space, form = SPACES[kind]
    cfg = {"length": 2, "reuse": True, "space": space, "form": form}
    with sync(cfg, shared_memory=shared_memory) as manager:
        manager.launch()
        seen = [manager.ready_obs[0]]
        for _ in range(3):
            seen += [act(manager)[0].obs, manager.ready_obs[0]]
    expected = [(0, 0), (0, 1), (0, 1), (0, 2), (1, 0), (1, 1), (1, 1)]
    assert [plain(obs) for obs in seen] == [plain(form(np.array([0.0, *at], np.float32))) for at in expected]
    assert "do not have the form" not in caplog.text


def test_an_observation_that_does_not_fit_its_space_arrives_exactly_with_one_notice(caplog):
    class Wide(type(Make(0)())):
        def step(self, action):
            timestep = super().step(action)
            return timestep._replace(obs=np.full(4, self.count + 1e-12))

    with SyncSubprocessEnvManager([lambda: Wide(space=Box(-7, 9, (3,), np.float32))] * 2, FAST) as manager:
        manager.launch()
        for count in (1, 2):
            obs = act(manager)[1].obs
            assert (obs.dtype, obs.tolist()) == (np.float64, [count + 1e-12] * 4)
    assert caplog.text.count("do not have the form of the observation space Box(-7.0, 9.0, (3,), float32)") == 1


def test_without_copy_on_get_observations_are_shared_memory():
    with sync({"length": 9}, copy_on_get=False) as manager:
        manager.launch()
        first = act(manager)[0].obs
        act(manager)
        act(manager)
        assert first.tolist() == [0, 0, 1]  # there are three buffers
        act(manager)
        assert first.tolist() == [0, 0, 4]


def test_large_observations_and_actions_cross_in_pieces():
    class Echo(type(Make(0)())):
        def step(self, action):
            return super().step(action)._replace(obs=action * 2)

    action = np.arange(300_000, dtype=np.float64)
    with SyncSubprocessEnvManager([lambda: Echo(space=None)] * 2, FAST) as manager:
        manager.launch()
        timesteps = manager.step({0: action, 1: action})
        assert all((timestep.obs == action * 2).all() for timestep in timesteps.values())


# -- seeds


@pytest.mark.differs(
    "gives all forked envs the same numbers from numpy's global generator",
    "gives each its own numbers, derived from the program's seed",
)
def test_envs_that_draw_from_numpys_global_generator_differ_from_each_other_and_repeat():
    def drawn():
        np.random.seed(0)
        with sync(*[{"deeds": {("step", 0): lambda env: {"drawn": np.random.random()}}}] * 2) as manager:
            manager.launch()
            return [timestep.info["drawn"] for timestep in act(manager).values()], np.random.random()

    first = drawn()
    assert first == drawn()
    assert first[0][0] != first[0][1]
    np.random.seed(0)
    assert first[1] == np.random.random()


# -- calls to the envs


def test_replay_paths_are_applied_at_launch_and_running_envs_are_reset_all_the_same():
    manager = sync({}, {})
    manager.enable_save_replay(["v", "w"])
    with manager:
        manager.launch()
        assert manager.replay_path == ["v", "w"]
        act(manager)
        manager.reset()
        assert manager.episode == [1, 1]


@pytest.mark.parametrize("cls", [BaseEnvManager, SyncSubprocessEnvManager])
@pytest.mark.parametrize("returned", [None, [{"reward": 5}]])
def test_shaped_rewards_are_what_the_env_returns_or_has_written(cls, returned):
    make = Make(0, deeds={("reward_shaping", 0): lambda env: returned})
    with cls([make], {}) as manager:
        manager.launch()
        expected = [{"reward": -2}] if returned is None else returned
        assert manager.reward_shaping(0, [{"reward": 2}]) == expected


@pytest.mark.parametrize("copies", [copy.deepcopy, pickle.dumps])
def test_an_open_manager_refuses_to_be_copied_and_goes_on(copies):
    with sync({}) as manager:
        manager.launch()
        with pytest.raises(TypeError):
            copies(manager)
        gc.collect()
        assert act(manager)[0].obs.tolist() == [0, 0, 1]


# -- asynchronous


@pytest.mark.differs(
    "lists envs that are still stepping as ready in the asynchronous manager, and spins forever in `ready_obs` if "
    "none will be",
    "lists only those that wait for an action; `ready_obs` is then empty",
)
def test_step_returns_with_those_that_are_quick_and_the_others_answer_later(tmp_path):
    slow = {"length": 9, "deeds": {("step", 0): WaitFor(tmp_path / "go")}}
    with asynchronous({"length": 9}, {"length": 9}, slow, step_wait_timeout=0) as manager:
        manager.launch()
        assert sorted(act(manager)) == [0, 1]
        assert states(manager) == ["RUN"] * 3
        assert (manager.ready_obs_id, manager.ready_env, list(manager.random_action())) == ([0, 1], {0, 1}, [0, 1])
        with pytest.raises(AssertionError):
            act(manager, 2)
        (tmp_path / "go").touch()
        assert list(manager.step({})) == [2]
        assert manager.step({}) == {}
        assert lists(manager.ready_obs) == {0: [0, 0, 1], 1: [1, 0, 1], 2: [2, 0, 1]}


def test_the_wait_number_is_at_most_that_of_the_envs_that_are_stepping():
    with asynchronous({"length": 9}, {"length": 9}, wait_num=5, step_wait_timeout=0) as manager:
        manager.launch()
        assert list(act(manager, 1)) == [1]


def test_ready_obs_waits_for_a_reset_when_nothing_else_is_ready(tmp_path):
    slow = {"length": 1, "deeds": {("reset", 1): Wait(0.1)}}
    with asynchronous(slow, {"length": 1, "deeds": {("reset", 1): Wait(0.3)}}) as manager:
        manager.launch()
        assert sorted(act(manager)) == [0, 1]
        assert lists(manager.ready_obs) == {0: [0, 1, 0]}
        assert manager.wait_another()
        assert lists(manager.ready_obs) == {0: [0, 1, 0], 1: [1, 1, 0]}
        assert not manager.wait_another()


def test_a_reset_discards_the_step_that_is_under_way(tmp_path):
    slow = {"length": 9, "deeds": {("step", 0): Wait(0.5)}}
    with asynchronous({"length": 9}, slow, wait_num=1, step_wait_timeout=0) as manager:
        manager.launch()
        assert list(act(manager)) == [0]
        manager.reset({1: None})
        assert lists(manager.ready_obs) == {0: [0, 0, 1], 1: [1, 1, 0]}
        assert manager.step({}) == {}


def test_wait_returns_when_enough_are_ready_and_the_time_is_over():
    from multiprocessing import Pipe

    pipes = [Pipe() for _ in range(3)]
    ends = [pipe[0] for pipe in pipes]
    pipes[1][1].send(1)
    assert AsyncSubprocessEnvManager.wait(ends, 1, 0.01) == ([ends[1]], [ends[0], ends[2]])
    later = threading.Timer(0.1, pipes[0][1].send, [0])
    later.start()
    ready, rest = AsyncSubprocessEnvManager.wait(ends, 2, 0.01)
    assert (set(ready), rest) == ({ends[0], ends[1]}, [ends[2]])
    pipes[2][1].send(2)
    assert set(AsyncSubprocessEnvManager.wait(ends, 1)[0]) == set(ends)
    for wait_num in (0, 4):
        with pytest.raises(AssertionError):
            AsyncSubprocessEnvManager.wait(ends, wait_num, 0)
    later.join()
    for pipe in pipes:
        pipe[0].close(), pipe[1].close()
