"""Random policies for filling a buffer."""

from collections import namedtuple
from types import SimpleNamespace

import gymnasium
import numpy as np
import pytest
import torch
from easydict import EasyDict

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
    policy = PolicyFactory.get_random_policy(COLLECT_MODE, action_space=gymnasium.spaces.Discrete(2))
    assert policy._fields == ("forward", "process_transition", "get_train_sample", "reset", "get_attribute")
    assert (policy.process_transition, policy.get_train_sample, policy.get_attribute) == ("p", "t", "a")
    assert policy.reset([0]) is None


@pytest.mark.differs(
    "the random policy gives 0-dim actions for gymnasium's Discrete",
    "shape (1,) for any package's space",
)
def test_a_gymnasium_discrete_action_has_the_shape_of_a_policy_output():
    output = act(gymnasium.spaces.Discrete(3, start=5))
    assert list(output) == [0, 3]
    for out in output.values():
        assert out["action"].shape == (1,)
        assert out["action"].dtype == torch.int64
        assert 5 <= out["action"].item() < 8


def test_an_env_that_seeds_the_space_it_shares_changes_nothing_of_random_actions():
    space = gymnasium.spaces.Discrete(1000)
    drawn = []
    for seeds_space in (False, True):
        set_pkg_seed(0, use_cuda=False)
        policy = PolicyFactory.get_random_policy(COLLECT_MODE, action_space=space)
        for _ in range(4):
            if seeds_space:
                space.seed(7)
            drawn.append(policy.forward({0: torch.zeros(2)})[0]["action"].item())
    assert drawn[:4] == drawn[4:] and len(set(drawn)) == 4


def test_a_discrete_space_of_any_package_will_do():
    space = SimpleNamespace(n=4, sample=lambda: 2)
    assert act(space)[0]["action"].tolist() == [2]


def test_a_multi_discrete_action_is_one_tensor_per_head():
    for out in act(gymnasium.spaces.MultiDiscrete([2, 3])).values():
        assert [a.shape for a in out["action"]] == [(1,), (1,)]
        assert all(a.dtype == torch.int64 for a in out["action"])


def test_choices_of_several_dimensions_are_one_tensor_per_head():
    action = act(gymnasium.spaces.MultiDiscrete([[2, 3], [4, 5]]))[0]["action"]
    assert [part.shape for part in action] == [(1,)] * 4


@pytest.mark.differs(
    "random actions before the training are illegal ones, too, where the observation has an `action_mask`",
    "they are legal",
)
@pytest.mark.parametrize("as_mask", [np.array, torch.tensor, np.int32])
def test_only_legal_actions_are_taken(as_mask):
    space = gymnasium.spaces.Discrete(3, start=5)
    obs = {0: {"observation": np.zeros(2), "action_mask": as_mask([0, 1, 0])}}
    assert {act(space, obs)[0]["action"].item() for _ in range(20)} == {6}
    heads = gymnasium.spaces.MultiDiscrete([2, 3])
    obs = {0: {"observation": np.zeros(2), "action_mask": [as_mask([0, 1]), as_mask([1, 0, 0])]}}
    assert {tuple(head.item() for head in act(heads, obs)[0]["action"]) for _ in range(20)} == {(1, 0)}


def test_a_mask_counts_whatever_lies_beside_it():
    obs = {0: {"board": np.zeros(2), "hand": np.zeros(1), "action_mask": np.array([0, 1], bool)}}
    assert {act(gymnasium.spaces.Discrete(2), obs)[0]["action"].item() for _ in range(20)} == {1}


def test_masks_of_choices_of_several_dimensions_are_in_the_order_of_the_actions():
    obs = {0: {"action_mask": np.array([0, 1, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 1])}}
    action = act(gymnasium.spaces.MultiDiscrete([[2, 3], [4, 5]]), obs)[0]["action"]
    assert [part.item() for part in action] == [1, 0, 2, 4]


def test_masks_of_real_valued_actions_mean_nothing():
    assert act(gymnasium.spaces.Box(-1, 1, (3,)), {0: {"action_mask": np.zeros(7)}})[0]["action"].shape == (3,)


@pytest.mark.parametrize(("mask", "word"), [(np.zeros(3), "no legal action"), (np.ones(4), "fit")])
def test_a_mask_of_which_no_action_follows_is_refused(mask, word):
    with pytest.raises(ValueError, match=word):
        act(gymnasium.spaces.Discrete(3), {0: {"action_mask": mask}})


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_box_action_is_its_sample_in_the_dtype_of_a_policy_output(dtype):
    action = act(gymnasium.spaces.Box(-1, 1, (3,), dtype))[0]["action"]
    assert action.shape == (3,)
    assert action.dtype == torch.float32


def test_a_multi_binary_action_is_its_sample():
    assert act(gymnasium.spaces.MultiBinary(4))[0]["action"].shape == (4,)


def test_a_dict_space_is_stacked():
    space = gymnasium.spaces.Dict({"a": gymnasium.spaces.Discrete(2), "b": gymnasium.spaces.Discrete(2)})
    assert act(space)[0]["action"].shape == (2,)


def test_a_list_of_spaces_has_an_action_and_logits_per_agent():
    out = act([gymnasium.spaces.Discrete(4)] * 2)[0]
    assert out["action"].shape == (2,)
    assert out["logit"].tolist() == [[1.0] * 4] * 2
    out = act([gymnasium.spaces.Box(-1, 1, (3,), np.float32)] * 2)[0]
    assert out["logit"].shape == out["action"].shape == (2, 3)


def test_agents_with_a_mask_take_allowed_actions():
    mask = np.array([[0, 1, 0], [0, 0, 1]])
    out = act([gymnasium.spaces.Discrete(3)] * 2, {0: {"global_state": np.zeros(2), "action_mask": mask}})[0]
    assert out["action"].tolist() == [1, 2]
    assert out["logit"].argmax(-1).tolist() == [1, 2]


def test_a_given_forward_acts():
    policy = PolicyFactory.get_random_policy(COLLECT_MODE, forward_fn=lambda data: {k: {"action": 1} for k in data})
    assert policy.forward({5: None}) == {5: {"action": 1}}


def test_exactly_one_source_of_actions_is_needed():
    with pytest.raises(AssertionError, match="action_space"):
        PolicyFactory.get_random_policy(COLLECT_MODE)
    assert PolicyFactory.get_random_policy(COLLECT_MODE, gymnasium.spaces.Discrete(2), lambda data: data) is None


def test_a_policy_whose_outputs_are_needed_stays_itself():
    env = SimpleNamespace(action_space=gymnasium.spaces.Discrete(2))
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


def test_a_policy_that_has_a_command_mode_is_its_own_twin(register):
    class Mine(DQNPolicy, EpsCommandModePolicy):
        pass

    register(mine=Mine)
    assert get_policy_cls(EasyDict(type="mine_command")) is Mine


def test_a_command_twin_of_nothing_is_an_unknown_type(register):
    register(foreign=object)
    for name, text in (
        ("dqnn_command", r"unknown type 'dqnn'; did you mean 'dqn'\?"),
        ("dqnn", r"unknown type 'dqnn'; did you mean 'dqn'\?"),
        ("foreign_command", "unknown type 'foreign_command'; registered"),
    ):
        with pytest.raises(KeyError, match=text):
            get_policy_cls(EasyDict(type=name))
