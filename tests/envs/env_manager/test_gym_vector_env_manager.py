"""What is special about envs in a vector env of gymnasium; the rest is in `test_contract.py` and `test_states.py`."""

from __future__ import annotations

import copy
import logging
import multiprocessing
import os
import sys

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from ding.entry import serial_pipeline
from ding.envs import GymnasiumEnv, GymVectorEnvManager, create_env_manager
from ding.envs.env_manager import gym_vector_env_manager
from ding.example.cartpole_dqn import cartpole_dqn_config, cartpole_dqn_create_config
from tests.envs.env_manager.scripted_env import (
    Make,
    Once,
    Raise,
    ScriptedEnv,
    Wait,
    act,
    hang_for_good,
    needs_reset_masks,
    shown,
)

pytestmark = needs_reset_masks


def launched(*envs, **cfg):
    manager = GymVectorEnvManager([Make(i, **env) for i, env in enumerate(envs)], {"retry_waiting_time": 0, **cfg})
    manager.launch()
    return manager


def test_a_config_names_it_as_gym_vector():
    manager = create_env_manager({"type": "gym_vector", "episode_num": 2}, [Make(0)])
    assert type(manager) is GymVectorEnvManager
    assert (manager._episode_num, manager._cfg.shared_memory) == (2, False)


@pytest.mark.parametrize("shared_memory", [False, True])
def test_only_the_envs_that_are_acted_in_step(shared_memory):
    with launched({}, {}, {}, shared_memory=shared_memory) as manager:
        assert act(manager, 1) == {1: ([1, 0, 1], False)}
        assert act(manager, 2, 1) == {2: ([2, 0, 1], False), 1: ([1, 0, 2], False)}
        assert manager.step({}) == {}
        assert shown(manager) == {0: [0, 0, 0], 1: [1, 0, 2], 2: [2, 0, 1]}
        assert [len(actions) for actions in manager.actions] == [0, 2, 1]


def test_an_episode_that_ends_is_followed_by_the_next_without_a_step_in_between():
    with launched({"length": 2}, {"length": 3}) as manager:
        act(manager)
        assert act(manager) == {0: ([0, 0, 2], True), 1: ([1, 0, 2], False)}
        assert shown(manager) == {0: [0, 1, 0], 1: [1, 0, 2]}
        assert act(manager) == {0: ([0, 1, 1], False), 1: ([1, 0, 3], True)}
        assert manager.calls == [{"make": 0, "reset": 1, "step": 2}, {"make": 0, "reset": 1, "step": 2}]


def test_a_time_limit_is_told_from_a_true_end():
    cfg = {"env_id": "CartPole-v1", "max_episode_steps": 3}
    manager = GymVectorEnvManager([lambda: GymnasiumEnv(cfg), lambda: GymnasiumEnv({"env_id": "CartPole-v1"})])
    manager.seed(0)
    with manager:
        manager.launch()
        infos = [{i: t.info for i, t in manager.step({0: 0, 1: 0}).items()} for _ in range(12)]
    limited = [infos[k][0] for k in range(4)]
    assert limited[1] == limited[3] == {"terminated": False, "truncated": False}
    assert limited[2] == {"terminated": False, "truncated": True, "eval_episode_return": 3.0}
    ends = [info[1] for info in infos if info[1]["terminated"]]
    assert [(type(end["terminated"]), end["truncated"]) for end in ends] == [(bool, False)]


def test_envs_without_episodes_left_and_without_auto_reset_wait():
    with launched({"length": 1}, {"length": 2}, episode_num=1) as manager:
        act(manager)
        assert (shown(manager), manager.done) == ({1: [1, 0, 1]}, False)
        act(manager)
        assert (shown(manager), manager.done) == ({}, True)
    with launched({"length": 1}, {"length": 2}, auto_reset=False) as manager:
        act(manager)
        assert shown(manager) == {1: [1, 0, 1]}
        with pytest.raises(AssertionError, match=r"actions are for envs \[0\], but only \[1\] are ready.*NEED_RESET"):
            act(manager, 0)
        manager.reset({0: None})
        assert shown(manager) == {0: [0, 1, 0], 1: [1, 0, 1]}


@pytest.mark.parametrize("retry_type, made", [("reset", 0), ("renew", 1)])
def test_a_failed_reset_is_tried_again_for_that_env_alone(retry_type, made, tmp_path):
    once = Once(tmp_path / "failed", Raise(ValueError("no level")))
    with launched({}, {"deeds": {("reset", 0): once}}, max_retry=2, retry_type=retry_type) as manager:
        assert shown(manager) == {0: [0, 0, 0], 1: [1, 0, 0]}
        assert manager.calls[0] == {"make": 0, "reset": 0}
        assert manager.calls[1]["reset"] == 1 - made


def test_a_reset_that_always_fails_is_an_error_that_names_the_env():
    with pytest.raises(RuntimeError, match=r"(?s)Env 1 reset has exceeded max retries\(3\).*ValueError: no level"):
        launched({}, {"deeds": {("reset", -1): Raise(ValueError("no level"))}}, max_retry=3)


def test_an_env_that_cannot_be_made_is_an_error_of_its_own_class():
    made = []

    def make():
        made.append(1)
        if len(made) == 3:  # of this process and its copies: the env that states the spaces, then env 0, then env 1
            raise LookupError("no licence")
        return ScriptedEnv(0)

    manager = GymVectorEnvManager([make, lambda: make() and make()])
    with pytest.raises(LookupError, match="env 1 failed in make with LookupError"):
        manager.launch()
    assert manager.closed


@pytest.mark.parametrize(
    "deeds, cfg, text",
    [
        ({("step", 0): Wait()}, {"step_timeout": 0.05}, "(?s)env 0 failed in step.*step_timeout = 0.05 s"),
        ({("step", 0): hang_for_good}, {"step_timeout": 0.05}, r"envs \[0\] did not answer to step within 0.55 s"),
        ({("reset", 0): Wait()}, {"connect_timeout": 5, "reset_timeout": 0.05}, "(?s)reset.*reset_timeout = 0.05 s"),
        ({("reset", 0): hang_for_good}, {"connect_timeout": 1}, r"envs \[0\] did not answer to reset within 1.0 s"),
    ],
)
def test_an_env_that_takes_too_long_is_an_error(deeds, cfg, text):
    manager = GymVectorEnvManager([Make(0, deeds=deeds), Make(1)], cfg)
    with pytest.raises((TimeoutError, RuntimeError), match=text):
        manager.launch()
        act(manager)
    assert manager.closed


def test_errors_of_close_are_raised_once_all_envs_are_closed():
    manager = launched({"deeds": {("close", 0): Raise(OSError("disk full"))}}, {})
    with pytest.raises(OSError, match="(?s)env 0 failed in close.*disk full"):
        manager.close()
    manager.close()


def test_an_env_that_does_not_close_is_killed(monkeypatch, caplog):
    monkeypatch.setattr(gym_vector_env_manager, "_CLOSE_S", 0.05)
    manager = launched({"deeds": {("close", 0): hang_for_good}}, {})
    with caplog.at_level(logging.WARNING, "ding"):
        manager.close()
    assert [record.getMessage()[:20] for record in caplog.records] == ["an env does not clos"]


def test_a_manager_that_was_closed_can_be_launched_again():
    manager = launched({}, {})
    act(manager)
    manager.close()
    assert (manager.closed, manager.ready_obs) == (True, {})
    with manager:
        manager.launch()
        assert act(manager) == {0: ([0, 0, 1], False), 1: ([1, 0, 1], False)}


def test_a_manager_that_was_never_closed_leaves_no_process():
    manager = launched({}, {})
    processes = manager._vector.processes
    del manager
    assert [process.exitcode is not None for process in processes] == [True, True]


def as_dict(row):
    return {"place": row[:2].copy(), "count": np.int64(row[2])}


@pytest.mark.parametrize("shared_memory", [False, True])
def test_observations_of_dict_and_discrete_spaces_come_as_the_env_returned_them(shared_memory):
    space = spaces.Dict({"place": spaces.Box(-9, 9, (2,), np.float32), "count": spaces.Discrete(5)})
    with launched(*[{"space": space, "form": as_dict}] * 2, shared_memory=shared_memory) as manager:
        obs = manager.step({1: np.array([0])})[1].obs
        assert (obs["place"].tolist(), obs["place"].dtype) == ([1, 0], np.float32)
        assert (obs["count"].shape, int(obs["count"])) == ((), 1)
    of_count = {"space": spaces.Discrete(5), "form": lambda row: np.int64(row[2])}
    with launched(of_count, of_count, shared_memory=shared_memory) as manager:
        obs = manager.step({0: np.array([0])})[0].obs
        assert (type(obs), obs.shape, int(obs)) == (np.ndarray, (), 1)


def test_an_env_without_a_space_of_gymnasium_is_refused():
    with pytest.raises(TypeError, match="needs a gymnasium observation space, .*None; set env.manager.type to 'subp"):
        GymVectorEnvManager([Make(0, space=None)])


def test_a_gymnasium_that_cannot_reset_single_envs_is_refused(monkeypatch):
    monkeypatch.delattr(gymnasium.vector, "AutoresetMode")
    monkeypatch.delitem(sys.modules, "ding.envs.env_manager.vector_member", raising=False)
    monkeypatch.delattr("ding.envs.env_manager.vector_member", raising=False)
    with pytest.raises(ImportError, match=r"needs gymnasium>=1.1, this is .*: pip install -U 'gymnasium>=1.1'"):
        GymVectorEnvManager([Make(0)])


def test_a_video_folder_reaches_the_envs(tmp_path):
    manager = GymVectorEnvManager([Make(0), Make(1)])
    manager.enable_save_replay([str(tmp_path / "a"), str(tmp_path / "b")])
    with manager:
        manager.launch()
        assert manager.replay_path == [str(tmp_path / "a"), str(tmp_path / "b")]


@pytest.mark.parametrize("context", ["fork", "forkserver"])
def test_envs_do_not_inherit_the_token(context, monkeypatch):
    monkeypatch.setenv("DING_TOKEN", "secret")
    with launched({}, {}, context=context) as manager:
        assert ["DING_TOKEN" in environment for environment in manager.environment] == [False, False]
    assert os.environ["DING_TOKEN"] == "secret"


def trained(manager, tmp_path):
    main, create = copy.deepcopy(cartpole_dqn_config), copy.deepcopy(cartpole_dqn_create_config)
    main.exp_name, create.env_manager.type = str(tmp_path / manager), manager
    main.env.update(collector_env_num=3, evaluator_env_num=2, n_evaluator_episode=3)
    main.policy.learn.update(update_per_collect=2, batch_size=8)
    main.policy.collect.n_sample, main.policy.model.encoder_hidden_size_list = 24, [16]
    policy = serial_pipeline([main, create], seed=0, max_train_iter=8)
    return {name: value.tolist() for name, value in policy.learn_mode.state_dict()["model"].items()}


def test_a_serial_run_trains_the_same_weights_as_with_envs_in_its_own_process(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert trained("gym_vector", tmp_path) == trained("base", tmp_path)
    assert multiprocessing.active_children() == []
