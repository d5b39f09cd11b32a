"""The manager `gym_vector`, which is `subprocess` by another name."""

import copy
import multiprocessing

import pytest

from ding.entry import serial_pipeline
from ding.envs import GymVectorEnvManager, create_env_manager
from ding.example.cartpole_dqn import cartpole_dqn_config, cartpole_dqn_create_config
from tests.envs.env_manager.scripted_env import Make


def test_a_config_names_it_as_gym_vector():
    manager = create_env_manager({"type": "gym_vector", "episode_num": 2}, [Make(0)])
    assert type(manager) is GymVectorEnvManager
    assert (manager._episode_num, manager._cfg.shared_memory) == (2, True)


def trained(manager, tmp_path):
    main, create = copy.deepcopy(cartpole_dqn_config), copy.deepcopy(cartpole_dqn_create_config)
    main.exp_name, create.env_manager.type = str(tmp_path / manager), manager
    main.env.update(collector_env_num=3, evaluator_env_num=2, n_evaluator_episode=3)
    main.policy.learn.update(update_per_collect=2, batch_size=8)
    main.policy.collect.n_sample, main.policy.model.encoder_hidden_size_list = 24, [16]
    policy = serial_pipeline([main, create], seed=0, max_train_iter=8)
    return {name: value.tolist() for name, value in policy.learn_mode.state_dict()["model"].items()}


@pytest.mark.differs(
    "cannot use `gym_vector` in a collector or pipeline; it steps envs without an action at random, and resets all "
    "at once",
    "makes it another name of `subprocess`; `vector_env` steps the vector envs of gymnasium",
)
def test_a_serial_run_trains_the_same_weights_as_with_envs_in_its_own_process(tmp_path):
    assert trained("gym_vector", tmp_path) == trained("base", tmp_path)
    assert multiprocessing.active_children() == []
