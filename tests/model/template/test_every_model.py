"""What each registered network promises; its own test file has what it computes and how it is built."""

import copy
import pickle

import pytest
import torch
from torch import Tensor

import ding.model
from ding.model import create_model
from ding.policy.common_utils import set_noise_mode
from ding.utils.registry_factory import MODEL_REGISTRY
from tests.generators import reseed

SHAPES = {"obs_shape": 4, "action_shape": 2}
KINDS = {
    "dqn": "DQN", "c51dqn": "C51DQN", "rainbowdqn": "RainbowDQN", "qrdqn": "QRDQN", "iqn": "IQN", "fqf": "FQF",
    "sqn": "SQN", "drqn": "DRQN", "vac": "VAC", "acer": "ACER", "ppg": "PPG", "pg": "PG", "discrete_bc": "DiscreteBC",
    "discrete_qac": "DiscreteQAC", "qac_dist": "QACDIST", "continuous_qac": "ContinuousQAC",
    "continuous_qvac": "ContinuousQVAC", "continuous_bc": "ContinuousBC", "bdq": "BDQ", "mavac": "MAVAC",
}  # fmt: skip
REAL_VALUED = ("continuous_qac", "continuous_qvac", "continuous_bc", "qac_dist")
OTHER_SHAPES = {
    "bdq": {"obs_shape": 4, "num_branches": 2, "action_bins_per_branch": 2},
    "mavac": {"agent_obs_shape": 4, "global_obs_shape": 6, "action_shape": 2, "agent_num": 2},
}
X = torch.rand(3, 4, generator=torch.Generator().manual_seed(0))
each_model = pytest.mark.parametrize("kind", KINDS)


def make(kind, **arguments):
    more = {"action_space": "regression"} if kind in REAL_VALUED else {}
    return create_model({"type": kind, **OTHER_SHAPES.get(kind, SHAPES), **more, **arguments})


def inputs(kind, obs, mode):
    if kind == "drqn":
        return {"obs": obs.unsqueeze(0), "prev_state": None}
    if kind == "mavac":
        return {"agent_state": torch.stack([obs, obs], 1), "global_state": torch.rand(3, 2, 6)}
    return {"obs": obs, "action": torch.ones(3, 2)} if kind in REAL_VALUED and "critic" in str(mode) else obs


def tensors(item):
    if isinstance(item, Tensor):
        return [item]
    parts = item.values() if isinstance(item, dict) else item if isinstance(item, list | tuple) else ()
    return [tensor for part in parts for tensor in tensors(part)]


def outputs(kind, model, obs=X):
    """All tensors that a network returns, in all of its modes."""
    reseed(model, 0)  # for quantiles at random fractions
    torch.manual_seed(0)
    modes = [{"mode": mode} for mode in getattr(model, "mode", ())] or [{}]
    return [out for mode in modes for out in tensors(model(inputs(kind, obs, mode), **mode))]


def assert_equal(one, other):
    assert len(one) == len(other) > 0
    assert all(torch.equal(*pair) for pair in zip(one, other, strict=True))


@each_model
def test_it_is_made_by_its_name_and_exported(kind):
    assert type(make(kind)) is getattr(ding.model, KINDS[kind])


@each_model
def test_a_state_loads_strictly_and_a_forward_pass_leaves_its_names(kind):
    one, other = make(kind), make(kind)
    other.load_state_dict(one.state_dict())
    names = list(one.state_dict())
    assert_equal(outputs(kind, one), outputs(kind, other))
    assert list(one.state_dict()) == names


@each_model
@pytest.mark.parametrize("copier", [copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))])
def test_copies_are_equal_and_independent(kind, copier):
    model = make(kind)
    expected, twin = outputs(kind, model), copier(model)
    assert_equal(outputs(kind, twin), expected)
    with torch.no_grad():
        for parameter in twin.parameters():
            parameter.zero_()
    assert_equal(outputs(kind, model), expected)


@each_model
def test_every_parameter_learns(kind):
    model = make(kind)
    set_noise_mode(model, True)  # else the deviation of noisy layers counts nothing
    sum(out.square().sum() for out in outputs(kind, model) if out.requires_grad).backward()
    assert [name for name, parameter in model.named_parameters() if parameter.grad is None] == []


@each_model
def test_integer_observations_are_converted(kind):
    model, x = make(kind), torch.arange(12).view(3, 4)
    assert_equal(outputs(kind, model, x), outputs(kind, model, x.float()))


@each_model
def test_observations_of_another_shape_are_refused(kind):
    with pytest.raises(ValueError, match="obs_shape"):
        outputs(kind, make(kind), torch.rand(3, 5))


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in (*REAL_VALUED, "mavac", "bdq")])
def test_a_mask_of_legal_actions_travels_along(kind):
    model, mask = make(kind), torch.tensor([[1, 0]] * 3)
    mode = {"mode": "compute_actor"} if hasattr(model, "mode") else {}
    obs = {"observation": X, "action_mask": mask}
    plain = inputs(kind, X, mode)
    if kind == "drqn":
        obs, mode = {"obs": obs, "prev_state": [None] * 3}, {"inference": True}
        plain = {"obs": X, "prev_state": [None] * 3}
    reseed(model, 0)
    masked = model(obs, **mode)
    assert masked["action_mask"] is mask
    reseed(model, 0)
    bare = model(plain, **mode)
    assert "action_mask" not in bare and (kind == "pg" or torch.equal(masked["logit"], bare["logit"]))


@pytest.mark.parametrize("kind", [kind for kind in KINDS if hasattr(getattr(ding.model, KINDS[kind]), "mode")])
def test_an_unknown_mode_is_refused(kind):
    with pytest.raises(AssertionError):
        make(kind)(X, mode="compute_nothing")


@pytest.mark.differs("fails to construct a model whose `obs_shape` is a dict", "encodes each entry and joins them")
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in ("drqn", "mavac", "qac_dist", "continuous_bc")])
def test_the_entries_of_a_dict_observation_are_encoded_and_count(kind):
    sizes = {} if kind in REAL_VALUED or kind == "discrete_qac" else {"encoder_hidden_size_list": [8, 8]}
    model = make(kind, obs_shape={"place": 2, "goal": 1}, **sizes)
    place, goal = torch.rand(3, 2), torch.rand(3)  # entries [1] are collated to [B]
    found = [outputs(kind, model, {"place": place, "goal": goal + shift}) for shift in (0, 0, 1)]
    assert_equal(found[0], found[1])
    assert not all(torch.equal(*pair) for pair in zip(found[0], found[2], strict=True))


def test_these_are_all_networks():
    own = {name for name, cls in MODEL_REGISTRY.items() if cls.__module__.startswith("ding.model.")}
    assert own == {*KINDS, "qac", "qac_pixel"}  # the last two are earlier names
