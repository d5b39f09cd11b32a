"""The V2 managers: stacked observations and actions, trees of arrays, and which env an action is for."""

import copy
import pickle

import numpy as np
import pytest
import torch

from ding.envs import BaseEnvManagerV2, SubprocessEnvManagerV2, create_env_manager, setup_ding_env_manager
from ding.envs.env_manager import block
from ding.envs.env_manager.block import Tree
from tests.envs.env_manager.scripted_env import Make, ScriptedEnv


@pytest.fixture(autouse=True)
def plain_trees(monkeypatch):
    """As if DI-treetensor were not installed."""
    monkeypatch.setattr(block, "_treetensor", lambda: None)


def base(*envs, **cfg):
    return BaseEnvManagerV2([Make(i, **env) for i, env in enumerate(envs)], cfg)


def odd_info(env):
    return {"TimeLimit.truncated": True, "2nd": 2, 7: 1.5, "name": "odd", "deep": {"a.b": [1, 2], "text": "x"}}


@pytest.mark.parametrize("name, cls", [("base_v2", BaseEnvManagerV2), ("subprocess_v2", SubprocessEnvManagerV2)])
def test_they_are_registered(name, cls):
    assert type(create_env_manager({"type": name}, [Make(0)])) is cls


@pytest.mark.differs(
    "needs DI-treetensor for V2 managers",
    "does not need it: observations and timesteps are plain trees with the same attributes",
)
def test_observations_are_stacked_and_timesteps_are_trees():
    manager = base({"length": 2}, {"length": 1, "deeds": {("step", 0): odd_info}})
    manager.launch()
    assert manager.ready_obs.tolist() == [[0, 0, 0], [1, 0, 0]]
    first, second = manager.step([np.array([5]), np.array([6])])
    assert sorted(first) == ["done", "env_id", "info", "obs", "reward"]
    assert (first.obs.tolist(), first["reward"].tolist()) == ([0, 0, 1], [1])
    assert (first.done.shape, first.done.item(), first.env_id.shape, second.env_id.item()) == ((), False, (), 1)
    assert second.done.item() is True
    assert sorted(second.info) == ["TimeLimit_truncated", "_2nd", "_7", "deep", "eval_episode_return", "note"]
    assert second.info.TimeLimit_truncated.item() is True
    assert second.info.deep.a_b.tolist() == [1, 2]
    assert manager.actions == [[5], [6]]


def test_dict_observations_become_a_tree_of_stacked_arrays():
    form = _as_dict
    manager = base({"space": None, "form": form}, {"space": None, "form": form})
    manager.launch()
    obs = manager.ready_obs
    assert (obs.image.shape, obs.deep.number.tolist()) == ((2, 3), [[0], [1]])
    assert manager.step([0, 0])[1].obs.deep.number.tolist() == [1]


def _as_dict(obs):
    return {"image": obs, "deep": {"number": obs[:1].copy()}}


def test_without_a_ready_env_there_is_nothing_to_stack():
    manager = base({"length": 1}, episode_num=1)
    with pytest.raises(IndexError):
        _ = manager.ready_obs
    manager.launch()
    manager.step([0])
    with pytest.raises(IndexError):
        _ = manager.ready_obs


@pytest.mark.parametrize(
    "actions, expected",
    [
        ([3, 4], [[3], [4]]),
        ((3, 4), [[3], [4]]),
        (np.array([[3], [4]]), [[np.array([3])], [np.array([4])]]),
        (torch.tensor([[3], [4]]), [[torch.tensor([3])], [torch.tensor([4])]]),
        ({"a": np.array([3, 4]), "b": {"c": [5, 6]}}, [[{"a": 3, "b": {"c": 5}}], [{"a": 4, "b": {"c": 6}}]]),
        ({1: 3, np.int64(0): 4}, [[4], [3]]),
        ({1: 3}, [[], [3]]),
    ],
    ids=str,
)
def test_actions_come_in_a_list_or_stacked_or_by_env(actions, expected):
    manager = base({}, {})
    manager.launch()
    assert len(manager.step(actions)) == sum(map(len, expected))
    assert manager.actions == expected


@pytest.mark.parametrize("actions", [[1], [1, 2, 3], np.zeros((1, 1)), 5, {"a": 5}])
def test_another_number_of_actions_than_envs_is_refused(actions):
    manager = base({}, {})
    manager.launch()
    with pytest.raises(ValueError):
        manager.step(actions)
    assert manager.actions == [[], []]


@pytest.mark.differs(
    "pairs actions for V2 managers with the envs that are ready at the step, not with those whose observations "
    "were read",
    "pairs them with those that were read",
)
def test_actions_are_for_the_envs_whose_observations_were_read():
    manager = base({"length": 1}, {"length": 9}, auto_reset=False)
    manager.launch()
    manager.step([1, 2])
    assert manager.ready_obs.tolist() == [[1, 0, 1]]
    # Env 0 becomes ready between the reading of the observations and the step.
    super(block.StackedFormat, manager).reset({0: None})
    assert [timestep.env_id.item() for timestep in manager.step([3])] == [1]
    assert manager.actions == [[1], [2, 3]]
    assert [timestep.env_id.item() for timestep in manager.step([4, 5])] == [0, 1]


def test_a_tree_is_a_dict_with_attributes():
    tree = Tree(obs=Tree(image=1))
    for twin in (tree, copy.deepcopy(tree), pickle.loads(pickle.dumps(tree))):
        assert twin.obs.image == twin["obs"]["image"] == 1
    with pytest.raises(AttributeError):
        _ = tree.nothing
    assert not hasattr(tree, "nothing")


class Cloneable:
    """A wrapped env of which more can be made."""

    def __init__(self):
        self.callers = []

    def clone(self, caller):
        self.callers.append(caller)
        return ScriptedEnv(len(self.callers))


@pytest.mark.parametrize("debug, cls", [(True, BaseEnvManagerV2), (False, SubprocessEnvManagerV2)])
def test_a_manager_is_made_of_clones_of_one_env(debug, cls):
    env = Cloneable()
    manager = setup_ding_env_manager(env, 2, context="forkserver", debug=debug, caller="evaluator")
    assert type(manager) is cls
    assert (manager.env_num, manager._cfg.context, env.callers) == (2, "forkserver", ["evaluator"])
    assert setup_ding_env_manager(env, 2, debug=debug)._cfg.get("context") == (None if debug else "fork")
    assert env.callers[1] == "collector"
