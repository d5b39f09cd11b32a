"""What each registered network promises; its own test file has what it computes and how it is built."""

import copy
import pickle

import pytest
import torch
from torch import Tensor, nn

import ding.model
from ding.model import BDQ, DQN, DRQN, MAVAC, PG, QACDIST, VAC, ContinuousBC, ContinuousQAC, DiscreteQAC, create_model
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


# Attributes of the models that other programs read.


HYBRID = {"action_type_shape": 3, "action_args_shape": 2}
VAC_ATTRIBUTES = {"obs_shape": 4, "impala_cnn_encoder": False, "share_encoder": True}
CASES = [
    (DRQN(4, 2), {"res_link": False}),
    (BDQ(4, 2, 3), {"num_branches": 2, "action_bins_per_branch": 3}),
    (VAC(4, 2), {**VAC_ATTRIBUTES, "action_shape": 2, "action_space": "discrete", "multi_head": False}),
    (VAC([4], (2,)), {**VAC_ATTRIBUTES, "action_shape": 2, "action_space": "discrete", "multi_head": False}),
    (VAC(4, [2, 3]), {**VAC_ATTRIBUTES, "action_shape": (2, 3), "action_space": "discrete", "multi_head": True}),
    (VAC(4, 2, "continuous"), {"action_shape": 2, "action_space": "continuous", "multi_head": False}),
    (VAC(4, HYBRID, "hybrid"), {"action_shape": HYBRID, "action_space": "hybrid", "multi_head": False}),
    (VAC([3, 36, 36], 2), {"obs_shape": (3, 36, 36)}),
    (VAC({"arm": 3}, 2), {"obs_shape": {"arm": 3}}),
    (
        ContinuousQAC(4, (2,), "regression"),
        {"action_shape": 2, "action_space": "regression", "share_encoder": False, "twin_critic": False},
    ),
    (ContinuousQAC(4, HYBRID, "hybrid", twin_critic=True), {"action_shape": HYBRID, "twin_critic": True}),
    (DiscreteQAC(4, 2), {"share_encoder": False, "twin_critic": False}),
    (QACDIST(4, 2), {"action_space": "regression", "critic_head_type": "categorical"}),
    (PG(4, 2), {"action_space": "discrete"}),
    (
        MAVAC(4, (6,), 2, 3),
        {"agent_obs_shape": 4, "global_obs_shape": 6, "action_shape": 2, "action_space": "discrete"},
    ),
    (ContinuousBC(4, 2, "regression"), {"action_shape": 2, "action_space": "regression"}),
]


@pytest.mark.parametrize(("model", "attributes"), CASES, ids=lambda value: type(value).__name__)
def test_models_show_what_they_were_made_for(model, attributes):
    assert {name: getattr(model, name) for name in attributes} == attributes


# Models of dict observations: an encoder for each entry, and encoders of the user's own.


SHAPE = {"pos": 2, "camera": (1, 36, 36), "speed": 1}
SIZES = {"encoder_hidden_size_list": [4, 4, 8]}
G = torch.Generator().manual_seed(0)


def batch(size=3):
    return {
        "pos": torch.rand(size, 2, generator=G),
        "camera": torch.rand(size, 1, 36, 36, generator=G),
        "speed": torch.rand(size, generator=G),  # entries [1] are collated to [B]
    }


def dqn(x):
    return DQN(SHAPE, 2, **SIZES)(x)["logit"]


def vac(x):
    model = VAC(SHAPE, 2, actor_head_hidden_size=8, critic_head_hidden_size=8, **SIZES)
    return model(x, "compute_actor_critic")["logit"]


def seeded(make, x):
    torch.manual_seed(0)
    return make(x)


@pytest.mark.parametrize("make", [dqn, vac])
def test_observations_may_lie_beside_or_under_a_mask(make):
    x, mask = batch(), torch.tensor([[1, 0]] * 3)
    logit = seeded(make, x)
    assert torch.equal(seeded(make, {**x, "action_mask": mask}), logit)
    assert torch.equal(seeded(make, {"observation": x, "action_mask": mask}), logit)
    assert torch.equal(DQN({"pos": 2}, 2)({"pos": x["pos"], "action_mask": mask})["action_mask"], mask)


def test_actor_and_critic_may_have_encoders_of_their_own():
    model = VAC(SHAPE, 2, share_encoder=False, actor_head_hidden_size=8, critic_head_hidden_size=8, **SIZES)
    x = batch()
    embedding = model.critic_encoder({**x, "speed": x["speed"].unsqueeze(1)})
    assert torch.equal(model(x, "compute_critic")["value"], model.critic_head(embedding)["pred"])
    assert model.critic_encoder is not model.actor_encoder


# --- an encoder of the user's own ---


class Sum(nn.Module):
    """Takes `{'hand': [B, 2], 'table': {'cards': [B, 2]}}`."""

    output_size = 6

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(2, 6)

    def forward(self, x):
        return self.layer(x["hand"] + x["table"]["cards"])


@pytest.mark.parametrize("obs_shape", [{"hand": 2, "table": {"cards": 2}}, None, 4])
@pytest.mark.parametrize("share", [True, False])
@pytest.mark.parametrize("space", ["discrete", "continuous"])
def test_nested_observations_reach_an_encoder_of_ones_own(obs_shape, share, space):
    model = VAC(obs_shape, 2, action_space=space, share_encoder=share, encoder=Sum())
    x = {"hand": torch.rand(3, 2), "table": {"cards": torch.rand(3, 2)}}
    output = model(x, "compute_actor_critic")
    embedding = (model.encoder if share else model.critic_encoder)(x)
    assert torch.equal(output["value"], model.critic_head(embedding)["pred"])
    masked = model({"observation": x, "action_mask": torch.ones(3, 2)}, "compute_actor_critic")
    assert torch.equal(masked["value"], output["value"])
    assert ("action_mask" in masked) is (space == "discrete")
