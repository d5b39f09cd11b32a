"""Actor-critics that judge actions: what they compute, their parts, their state dict."""

import pytest
import torch
from easydict import EasyDict
from torch import nn

from ding.model import QACDIST, ContinuousQAC, DiscreteQAC, create_model

X = torch.rand(3, 4, generator=torch.Generator().manual_seed(0))
HYBRID = EasyDict(action_type_shape=3, action_args_shape=2)


def names(model):
    return [name.rsplit(".", 1)[0] for name in model.state_dict() if not name.endswith(".bias")]


def critic_names(prefix, *layers):
    return [f"{prefix}.{name}" for name in ("0", *(f"2.{layer}" for layer in layers))]


def shapes(item):
    if isinstance(item, torch.Tensor):
        return tuple(item.shape)
    return {k: shapes(v) for k, v in item.items()} if isinstance(item, dict) else [shapes(v) for v in item]


@pytest.mark.parametrize("twin", [False, True])
@pytest.mark.parametrize(
    ("space", "action_shape", "actor", "action"),
    [
        ("regression", 2, {"action": (3, 2)}, torch.rand(3, 2)),
        ("regression", (1,), {"action": (3,)}, torch.rand(3)),
        ("regression", 1, {"action": (3,)}, torch.rand(3, 1)),
        ("reparameterization", 2, {"logit": [(3, 2), (3, 2)]}, torch.rand(3, 2)),
        ("reparameterization", 1, {"logit": [(3, 1), (3, 1)]}, torch.rand(3, 1)),
        ("hybrid", HYBRID, {"logit": (3, 3), "action_args": (3, 2)}, {"action_args": torch.rand(3, 2)}),
    ],
)
def test_continuous_modes_give_their_outputs(space, action_shape, actor, action, twin):
    model = ContinuousQAC(4, action_shape, space, twin_critic=twin)
    assert shapes(model(X, mode="compute_actor")) == actor
    inputs = {"obs": X, "action": action, "logit": torch.rand(3, 3)}
    assert shapes(model(inputs, mode="compute_critic")) == {"q_value": [(3,), (3,)] if twin else (3,)}


@pytest.mark.parametrize("twin", [False, True])
def test_discrete_modes_give_their_outputs(twin):
    model = DiscreteQAC(4, 2, twin_critic=twin)
    assert shapes(model(X, mode="compute_actor")) == {"logit": (3, 2)}
    assert shapes(model(X, mode="compute_critic")) == {"q_value": [(3, 2), (3, 2)] if twin else (3, 2)}


def test_the_critic_judges_the_observation_beside_the_action():
    model = ContinuousQAC(4, 2, "regression")
    action = torch.rand(3, 2)
    q = model({"obs": X, "action": action}, mode="compute_critic")["q_value"]
    assert torch.equal(q, model.critic_head(torch.cat([X, action], 1))["pred"])


def test_the_critic_of_a_hybrid_action_sees_the_probabilities_of_its_types():
    model = ContinuousQAC(4, HYBRID, "hybrid")
    args, logit = torch.rand(3, 2), torch.rand(3, 3)
    q = model({"obs": X, "logit": logit, "action": {"action_args": args}}, mode="compute_critic")["q_value"]
    assert torch.equal(q, model.critic_head(torch.cat([X, logit.softmax(-1), args], 1))["pred"])


def test_deterministic_actions_are_within_the_bounds():
    model = ContinuousQAC(4, 2, "regression")
    for parameter in model.actor.parameters():
        parameter.data.mul_(1000)
    action = model(X, mode="compute_actor")["action"]
    assert action.abs().max() == 1


def test_names_of_a_hybrid_model():
    model = ContinuousQAC(3, HYBRID, "hybrid")
    own = [
        *critic_names("actor_head.0", "Q.0.0", "Q.1.0"),
        *critic_names("actor_head.1", "main.0", "last"),
        *critic_names("critic_head", "main.0", "last"),
    ]
    assert names(model) == own + [name.replace("_head", ".1", 1) for name in own]


def test_widths_and_depths_are_those_asked_for():
    model = create_model(
        {
            "type": "continuous_qac",
            "obs_shape": 4,
            "action_shape": 2,
            "action_space": "reparameterization",
            "actor_head_hidden_size": 16,
            "actor_head_layer_num": 2,
            "critic_head_hidden_size": 24,
            "critic_head_layer_num": 3,
            "activation": "tanh",
        }
    )
    layers = [layer for part in (model.actor_head, model.critic_head) for layer in part.modules()]
    assert [(x.in_features, x.out_features) for x in layers if isinstance(x, nn.Linear)] == [
        *[(4, 16), (16, 16), (16, 16), (16, 2), (16, 2)],
        *[(6, 24), (24, 24), (24, 24), (24, 24), (24, 1)],
    ]
    assert not any(isinstance(layer, nn.ReLU) for layer in layers)


@pytest.mark.parametrize("share", [False, True])
@pytest.mark.parametrize("is_discrete", [False, True])
def test_images_are_encoded_by_one_encoder_or_two(share, is_discrete):
    settings = {"encoder_hidden_size_list": [4, 8, 16], "share_encoder": share, "twin_critic": True}
    shape = (3, 12, 12)
    model = DiscreteQAC(shape, 2, **settings) if is_discrete else ContinuousQAC(shape, 2, "regression", **settings)
    assert (model.actor_encoder is model.critic_encoder) == share
    convolutions = [layer for layer in model.actor_encoder.modules() if isinstance(layer, nn.Conv2d)]
    assert [(c.kernel_size, c.stride) for c in convolutions] == [((3, 3), (2, 2)), ((3, 3), (1, 1)), ((3, 3), (1, 1))]
    images = torch.rand(5, *shape)
    inputs = images if is_discrete else {"obs": images, "action": model(images, mode="compute_actor")["action"]}
    q = model(inputs, mode="compute_critic")["q_value"]
    assert shapes(q) == ([(5, 2)] * 2 if is_discrete else [(5,)] * 2)
    sum(value.sum() for value in q).backward()
    assert all(p.grad is not None for p in model.critic.parameters())


def test_wrong_arguments_are_refused():
    with pytest.raises(AssertionError):
        ContinuousQAC(4, 2, "discrete")
    with pytest.raises(AssertionError):
        ContinuousQAC(4, 2, "regression", encoder_hidden_size_list=[8])
    with pytest.raises(AssertionError):
        DiscreteQAC(4, 2, share_encoder=True)
    with pytest.raises(ValueError, match="action_type_shape"):
        ContinuousQAC(4, 2, "hybrid")
    with pytest.raises(ValueError):
        ContinuousQAC(4, [2, 3], "regression")
    with pytest.raises(ValueError):
        DiscreteQAC(4, [2, 3])


# The actor-critic with a distribution of returns.


@pytest.mark.parametrize("action", [torch.rand(3, 1), torch.rand(3)])
def test_the_value_is_the_mean_of_the_distribution(action):
    model = QACDIST(4, 1, v_min=-2, v_max=2, n_atom=5)
    output = model({"obs": X, "action": action}, mode="compute_critic")
    assert output["q_value"].shape == (3, 1) and output["distribution"].shape == (3, 1, 5)
    assert torch.allclose(output["distribution"].sum(-1), torch.ones(3, 1), atol=1e-4)
    mean = (output["distribution"] * torch.tensor([-2.0, -1.0, 0.0, 1.0, 2.0])).sum(-1)
    assert torch.allclose(output["q_value"], mean, atol=1e-6)


def test_each_action_space_has_its_output():
    assert QACDIST(4, 2)(X, mode="compute_actor")["action"].shape == (3, 2)
    assert QACDIST(4, 1)(X, mode="compute_actor")["action"].shape == (3,)
    mu, sigma = QACDIST(4, 2, "reparameterization")(X, mode="compute_actor")["logit"]
    assert mu.shape == sigma.shape == (3, 2) and (sigma > 0).all()


def test_a_distributional_critic_with_wrong_arguments_is_refused():
    with pytest.raises(AssertionError):
        QACDIST(4, 2, "hybrid")
    with pytest.raises(AssertionError):
        QACDIST(4, 2, critic_head_type="quantile")
