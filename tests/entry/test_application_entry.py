import os
import pickle

import numpy as np
import pytest
import torch

from ding.entry import (
    collect_demo_data,
    collect_episodic_demo_data,
    episode_to_transitions,
    episode_to_transitions_filter,
    eval,
    serial_pipeline,
)
from ding.model.template.q_learning import DQN
from ding.utils.config_helper import ConfigError
from ding.utils.data.dataset import HDF5Dataset, NaiveRLDataset, NpzDataset, naive_save
from tests.entry.fakes import TinyEnv, pair, setting


def always(action):
    """A model that always finds `action` best; a step with action 1 is worth 1, and an episode has 5."""
    model = DQN(3, 2, [8])
    for parameter in model.parameters():
        torch.nn.init.zeros_(parameter)
    model.head.A[-1][0].bias.data[action] = 1.0
    return model


def state_of(action):
    return {"model": always(action).state_dict()}


def config(**policy):
    main, create = pair(**policy)
    main.env.update(n_evaluator_episode=2)
    return main, create


# --- eval ---


@pytest.mark.parametrize(("action", "mean_return"), [(0, 0.0), (1, 5.0)])
def test_a_state_dict_a_checkpoint_and_a_model_are_evaluated_alike(action, mean_return):
    torch.save({**state_of(action), "last_iter": 3}, "ckpt.pth.tar")
    assert eval(config(), env_setting=setting(), state_dict=state_of(action)) == mean_return
    assert eval(config(), env_setting=setting(), load_path="ckpt.pth.tar") == mean_return
    assert eval(config(), env_setting=setting(), model=always(action)) == mean_return
    assert eval(config(load_path="ckpt.pth.tar"), env_setting=setting()) == mean_return
    main, create = config()
    main.policy.learn.learner = {"load_path": "ckpt.pth.tar"}
    assert eval((main, create), env_setting=setting()) == mean_return


@pytest.mark.differs(
    "logs into `./default_experiment` when it evaluates or collects demonstrations, and renames an experiment that "
    "exists",
    "logs into `exp_name`, which may be the folder of the training",
)
def test_eval_plays_the_evaluations_of_a_training_with_the_seed_next_to_its_files():
    main, create = config()
    main.env.n_evaluator_episode, main.env.env_id, create.env.type = 5, "CartPole-v1", "gymnasium"
    main.policy.model.obs_shape = 4
    serial_pipeline((main, create), seed=3, max_train_iter=6)
    with open("exp/result.pkl", "rb") as file:
        result = pickle.load(file)
    mean_return = eval((main, create), seed=3, load_path="exp/ckpt/iteration_6.pth.tar")
    again = eval((main, create), seed=3, load_path="exp/ckpt/iteration_6.pth.tar")
    best = eval((main, create), seed=3, load_path="exp/ckpt/ckpt_best.pth.tar")
    assert mean_return == again and isinstance(best, float)
    assert best >= result["eval_value"]
    assert os.path.exists("exp/eval_config.py") and os.listdir(".") == ["exp"]


def test_a_policy_that_has_learned_nothing_is_not_evaluated_and_leaves_nothing_behind():
    with pytest.raises(ConfigError, match="the policy has no weights"):
        eval(config(), env_setting=setting())
    with pytest.raises(ConfigError, match="the policy has no weights"):
        collect_demo_data(config(), 0, 3, "demos.pkl", env_setting=setting())
    assert os.listdir(".") == []


def test_the_envs_of_an_evaluation_are_closed_and_record_where_they_are_told_to(monkeypatch):
    folders = []
    monkeypatch.setattr(TinyEnv, "enable_save_replay", lambda self, path: folders.append(path))
    eval(config(), env_setting=setting(), model=always(1), replay_path="videos")
    assert folders == ["videos", "videos"]
    assert all(env.is_closed for env in TinyEnv.made if env.seeds)
    main, create = config()
    main.env.replay_path = "own"
    eval((main, create), env_setting=setting(), model=always(1))
    assert folders[2:] == ["own", "own"]


# --- demonstrations ---


@pytest.mark.parametrize("how", ["state_dict", "state_dict_path", "model"])
def test_demonstrations_are_what_the_policy_does_without_exploring(how):
    torch.save(state_of(1), "ckpt.pth.tar")
    given = {"state_dict": state_of(1), "state_dict_path": "ckpt.pth.tar", "model": always(1)}[how]
    collect_demo_data(config(), 0, 23, "new/demos.pkl", env_setting=setting(), **{how: given})
    data = NaiveRLDataset("new/demos.pkl")
    assert len(data) == 23
    assert all(row["action"].tolist() == [1] and row["reward"].tolist() == [1.0] for row in data)
    assert data[0].keys() >= {"obs", "next_obs", "action", "reward", "done"}
    assert [bool(row["done"]) for row in data].count(True) >= 3
    assert os.path.exists("exp/collect_demo_data_config.py")
    assert all(env.is_closed for env in TinyEnv.made if env.seeds)


def test_the_config_says_where_and_how_to_save():
    with pytest.raises(ConfigError, match="pass expert_data_path"):
        collect_demo_data(config(), 0, 5, env_setting=setting(), model=always(1))
    main, create = config()
    main.policy.collect.update(data_type="npz", save_path="demos.pkl")
    collect_demo_data((main, create), 0, 5, env_setting=setting(), model=always(1))
    assert len(NpzDataset("demos_demos.npz")) == 5
    for data_type, path, error in (("csv", "x.pkl", "csv"), ("naive", ".", "the output path '.' is a folder")):
        main.policy.collect.data_type = data_type
        TinyEnv.made.clear()
        with pytest.raises((KeyError, ConfigError), match=error):
            collect_demo_data((main, create), 0, 5, path, env_setting=setting(), model=always(1))
        assert not any(getattr(env, "_step", 0) for env in TinyEnv.made)


def test_demonstrations_may_be_hdf5():
    pytest.importorskip("h5py")
    main, create = config()
    main.policy.collect.update(data_type="hdf5", save_path="expert.pkl")
    collect_demo_data((main, create), 0, 5, env_setting=setting(), model=always(1))
    assert len(HDF5Dataset("expert_demos.hdf5")) == 5


def test_episodes_are_whole_whatever_collector_the_config_names():
    collect_episodic_demo_data(config(), 0, 3, "episodes.pkl", env_setting=setting(), state_dict=state_of(1))
    data = NaiveRLDataset("episodes.pkl")
    assert [len(episode) for episode in data] == [5, 5, 5]
    assert all([bool(step["done"]) for step in episode] == [False] * 4 + [True] for episode in data)


def step(index, reward, done):
    obs, next_obs = torch.tensor([float(index)]), torch.tensor([float(index + 1)])
    return {"obs": obs, "next_obs": next_obs, "action": 0, "reward": torch.tensor([reward]), "done": done}


EPISODES = [[step(0, 1.0, False), step(1, 2.0, True)], [step(5, -4.0, True)]]


def test_episodes_become_transitions_of_several_steps():
    naive_save(EPISODES, "episodes.pkl")
    episode_to_transitions("episodes.pkl", "transitions.pkl", nstep=2)
    rows = [*NaiveRLDataset("transitions.pkl")]
    assert [row["obs"].item() for row in rows] == [0, 1, 5]
    assert [row["next_obs"].item() for row in rows] == [2, 2, 6]
    assert [row["reward"].tolist() for row in rows] == [[1, 2], [2, 0], [-4, 0]]
    assert [row["value_gamma"] for row in rows] == [pytest.approx(0.99**2), 0.99, 0.99]
    episode_to_transitions("episodes.pkl", "plain.pkl", nstep=1)
    assert [row["reward"].tolist() for row in NaiveRLDataset("plain.pkl")] == [[1], [2], [-4]]


@pytest.mark.parametrize(("threshold", "kept"), [(3.0, [0, 1]), (-4.0, [0, 1, 5]), (3.5, [])])
def test_episodes_of_a_low_return_are_left_out(threshold, kept):
    naive_save(EPISODES, "episodes.pkl")
    episode_to_transitions_filter("episodes.pkl", "transitions.pkl", nstep=1, min_episode_return=threshold)
    assert [row["obs"].item() for row in NaiveRLDataset("transitions.pkl")] == kept


def test_pickled_episodes_are_read_only_if_they_are_trusted():
    with open("episodes.pkl", "wb") as file:
        pickle.dump(EPISODES, file)
    with pytest.raises(pickle.UnpicklingError):
        episode_to_transitions("episodes.pkl", "transitions.pkl", 1)
    episode_to_transitions("episodes.pkl", "transitions.pkl", 1, trusted=True)
    assert np.array([row["obs"].item() for row in NaiveRLDataset("transitions.pkl")]).tolist() == [0, 1, 5]
