"""Random policies for filling a buffer."""

from collections import namedtuple
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from easydict import EasyDict
from gymnasium import spaces

from ding.policy import CommandModePolicy, DQNPolicy, EpsCommandModePolicy, PPOPolicy, create_policy, get_policy_cls
from ding.policy.policy_factory import PolicyFactory, get_random_policy
from ding.utils.default_helper import set_pkg_seed
from ding.utils.registry_factory import POLICY_REGISTRY

CollectMode = namedtuple("CollectMode", ["forward", "process_transition", "get_train_sample", "reset", "get_attribute"])
COLLECT_MODE = CollectMode(*"fptra")
OBS = {0: torch.zeros(2), 3: torch.zeros(2)}


def act(space, obs=OBS):
    return PolicyFactory.get_random_policy(COLLECT_MODE, action_space=space).forward(obs, eps=0.5)


def test_everything_but_forward_and_reset_is_the_given_policy():
    policy = PolicyFactory.get_random_policy(COLLECT_MODE, action_space=spaces.Discrete(2))
    assert policy._fields == ("forward", "process_transition", "get_train_sample", "reset", "get_attribute")
    assert (policy.process_transition, policy.get_train_sample, policy.get_attribute) == ("p", "t", "a")
    assert policy.reset([0]) is None


@pytest.mark.differs(
    "returns random actions without an axis for gymnasium's Discrete",
    "returns the shape (1,) for the spaces of any package",
)
def test_a_gymnasium_discrete_action_has_the_shape_of_a_policy_output():
    output = act(spaces.Discrete(3, start=5))
    assert list(output) == [0, 3]
    for out in output.values():
        assert out["action"].shape == (1,)
        assert out["action"].dtype == torch.int64
        assert 5 <= out["action"].item() < 8


def test_an_env_that_seeds_the_space_it_shares_changes_nothing_of_random_actions():
    space = spaces.Discrete(1000)
    drawn = []
    for seeds_space in (False, True):
        set_pkg_seed(0, use_cuda=False)
        policy = PolicyFactory.get_random_policy(COLLECT_MODE, action_space=space)
        for _ in range(4):
            if seeds_space:
                space.seed(7)
            drawn.append(policy.forward({0: torch.zeros(2)})[0]["action"].item())
    assert drawn[:4] == drawn[4:] and len(set(drawn)) == 4


@pytest.mark.parametrize(
    ("space", "shapes", "dtype"),
    [
        (spaces.MultiDiscrete([2, 3]), [(1,), (1,)], torch.int64),
        (spaces.MultiDiscrete([[2, 3], [4, 5]]), [(1,)] * 4, torch.int64),
        (spaces.Box(-1, 1, (3,), np.float64), [(3,)], torch.float32),
        (spaces.MultiBinary(4), [(4,)], None),
        (spaces.Dict({"a": spaces.Discrete(2), "b": spaces.Discrete(2)}), [(2,)], None),
    ],
)
def test_an_action_of_several_numbers_is_one_tensor_for_each_head(space, shapes, dtype):
    for out in act(space).values():
        parts = [out["action"]] if isinstance(out["action"], torch.Tensor) else out["action"]
        assert [part.shape for part in parts] == shapes
        assert dtype is None or {part.dtype for part in parts} == {dtype}


@pytest.mark.differs(
    "takes illegal random actions before training if observations have an `action_mask`",
    "takes only legal ones",
)
@pytest.mark.parametrize("as_mask", [np.array, torch.tensor, np.int32])
def test_only_legal_actions_are_taken(as_mask):
    space = spaces.Discrete(3, start=5)
    obs = {0: {"observation": np.zeros(2), "action_mask": as_mask([0, 1, 0])}}
    assert {act(space, obs)[0]["action"].item() for _ in range(20)} == {6}
    heads = spaces.MultiDiscrete([2, 3])
    obs = {0: {"observation": np.zeros(2), "action_mask": [as_mask([0, 1]), as_mask([1, 0, 0])]}}
    assert {tuple(head.item() for head in act(heads, obs)[0]["action"]) for _ in range(20)} == {(1, 0)}


@pytest.mark.parametrize(("mask", "word"), [(np.zeros(3), "no legal action"), (np.ones(4), "fit")])
def test_a_mask_of_which_no_action_follows_is_refused(mask, word):
    with pytest.raises(ValueError, match=word):
        act(spaces.Discrete(3), {0: {"action_mask": mask}})


def test_a_list_of_spaces_has_an_action_and_logits_per_agent():
    out = act([spaces.Discrete(4)] * 2)[0]
    assert out["action"].shape == (2,)
    assert out["logit"].tolist() == [[1.0] * 4] * 2
    out = act([spaces.Box(-1, 1, (3,), np.float32)] * 2)[0]
    assert out["logit"].shape == out["action"].shape == (2, 3)


def test_agents_with_a_mask_take_allowed_actions():
    mask = np.array([[0, 1, 0], [0, 0, 1]])
    out = act([spaces.Discrete(3)] * 2, {0: {"global_state": np.zeros(2), "action_mask": mask}})[0]
    assert out["action"].tolist() == [1, 2]
    assert out["logit"].argmax(-1).tolist() == [1, 2]


def test_a_given_forward_acts():
    policy = PolicyFactory.get_random_policy(COLLECT_MODE, forward_fn=lambda data: {k: {"action": 1} for k in data})
    assert policy.forward({5: None}) == {5: {"action": 1}}


def test_exactly_one_source_of_actions_is_needed():
    with pytest.raises(AssertionError):
        PolicyFactory.get_random_policy(COLLECT_MODE)
    assert PolicyFactory.get_random_policy(COLLECT_MODE, spaces.Discrete(2), lambda data: data) is None


def test_a_policy_whose_outputs_are_needed_stays_itself():
    env = SimpleNamespace(action_space=spaces.Discrete(2))
    with_data = SimpleNamespace(policy={"transition_with_policy_data": True})
    assert get_random_policy(with_data, COLLECT_MODE, env) is COLLECT_MODE
    without = get_random_policy(SimpleNamespace(policy={}), COLLECT_MODE, env)
    assert without.forward(OBS)[0]["action"].shape == (1,)


@pytest.fixture
def register():
    before = dict(POLICY_REGISTRY)
    yield POLICY_REGISTRY.update
    POLICY_REGISTRY.clear()
    POLICY_REGISTRY.update(before)


class GreedyPolicy(DQNPolicy):
    def _forward_collect(self, data):
        return super()._forward_collect(data, eps=0.0)


class UnscheduledPolicy(PPOPolicy):
    def _forward_collect(self, data, eps=0.5):
        return super()._forward_collect(data)


@pytest.mark.parametrize(
    ("base", "setting"), [(DQNPolicy, {"eps": 0.95}), (GreedyPolicy, {}), (PPOPolicy, {}), (UnscheduledPolicy, {})]
)
def test_a_policy_without_command_twin_gets_one(register, base, setting):
    mine = type("MinePolicy", (base,), {})
    register(mine=mine)
    cls = get_policy_cls(EasyDict(type="mine_command"))
    assert issubclass(cls, mine) and issubclass(cls, CommandModePolicy)
    assert cls is get_policy_cls(EasyDict(type="mine_command"))
    assert {**cls.default_config(), "cfg_type": ""} == {**mine.default_config(), "cfg_type": ""}
    policy = create_policy(EasyDict({**cls.default_config(), "type": "mine_command"}), enable_field=["command"])
    assert policy.command_mode.get_setting_collect({"envstep": 0}) == setting
    assert policy.command_mode.get_setting_learn({}) == policy.command_mode.get_setting_eval({}) == {}


def test_a_registered_command_twin_is_used(register):
    class MineCommandPolicy(DQNPolicy, EpsCommandModePolicy):
        pass

    register(mine=DQNPolicy, mine_command=MineCommandPolicy)
    assert get_policy_cls(EasyDict(type="mine_command")) is MineCommandPolicy


def test_a_command_twin_of_nothing_is_an_unknown_type(register):
    register(foreign=object)
    for name, text in (
        ("dqnn_command", "did you mean 'dqn'"),
        ("dqnn", "did you mean 'dqn'"),
        ("foreign_command", "foreign_command"),
    ):
        with pytest.raises(KeyError, match=text):
            get_policy_cls(EasyDict(type=name))
