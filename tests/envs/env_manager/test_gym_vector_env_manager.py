"""The manager `gym_vector`, which is `subprocess` by another name."""

from __future__ import annotations

import copy
import multiprocessing

import pytest

from ding.entry import serial_pipeline
from ding.envs import GymnasiumEnv, GymVectorEnvManager, create_env_manager
from ding.example.cartpole_dqn import cartpole_dqn_config, cartpole_dqn_create_config
from tests.envs.env_manager.scripted_env import Make, act, shown


def launched(*envs, **cfg):
    manager = GymVectorEnvManager([Make(i, **env) for i, env in enumerate(envs)], {"retry_waiting_time": 0, **cfg})
    manager.launch()
    return manager


@pytest.mark.differs(
    "`gym_vector` steps a gymnasium `AsyncVectorEnv`",
    "it is `subprocess` by another name; `vector_env` steps the vector envs of gymnasium",
)
def test_a_config_names_it_as_gym_vector():
    manager = create_env_manager({"type": "gym_vector", "episode_num": 2}, [Make(0)])
    assert type(manager) is GymVectorEnvManager
    assert (manager._episode_num, manager._cfg.shared_memory) == (2, True)


@pytest.mark.differs("`gym_vector` steps an env without an action at random", "such an env is not stepped")
@pytest.mark.parametrize("shared_memory", [False, True])
def test_only_the_envs_that_are_acted_in_step(shared_memory):
    with launched({}, {}, {}, shared_memory=shared_memory) as manager:
        assert act(manager, 1) == {1: ([1, 0, 1], False)}
        assert act(manager, 2, 1) == {2: ([2, 0, 1], False), 1: ([1, 0, 2], False)}
        assert manager.step({}) == {}
        assert shown(manager) == {0: [0, 0, 0], 1: [1, 0, 2], 2: [2, 0, 1]}
        assert [len(actions) for actions in manager.actions] == [0, 2, 1]


@pytest.mark.differs(
    "`gym_vector` resets its envs when all episodes have ended, and cannot reset some of them",
    "an env whose episode has ended is reset within the same step, without a step in between; `reset` takes `{env_id: "
    "parameters}`",
)
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


def trained(manager, tmp_path):
    main, create = copy.deepcopy(cartpole_dqn_config), copy.deepcopy(cartpole_dqn_create_config)
    main.exp_name, create.env_manager.type = str(tmp_path / manager), manager
    main.env.update(collector_env_num=3, evaluator_env_num=2, n_evaluator_episode=3)
    main.policy.learn.update(update_per_collect=2, batch_size=8)
    main.policy.collect.n_sample, main.policy.model.encoder_hidden_size_list = 24, [16]
    policy = serial_pipeline([main, create], seed=0, max_train_iter=8)
    return {name: value.tolist() for name, value in policy.learn_mode.state_dict()["model"].items()}


@pytest.mark.differs(
    "`gym_vector` has no `launch`, so that no collector or pipeline can use it",
    "it is launched, seeded, reset and closed as the other managers",
)
def test_a_serial_run_trains_the_same_weights_as_with_envs_in_its_own_process(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert trained("gym_vector", tmp_path) == trained("base", tmp_path)
    assert multiprocessing.active_children() == []
