"""The actor-critic network: what it computes, its parts, its state dict."""

import pytest
import torch
from easydict import EasyDict
from torch import nn
from torch.distributions import Categorical, Independent, Normal

from ding.model import ACER, PG, PPG, VAC
from ding.model.common.head import DiscreteHead

X = torch.rand(3, 4, generator=torch.Generator().manual_seed(0))
HYBRID = EasyDict(action_type_shape=3, action_args_shape=2)


def shapes(item):
    if isinstance(item, torch.Tensor):
        return tuple(item.shape)
    if isinstance(item, dict):
        return {key: shapes(value) for key, value in item.items()}
    return [shapes(value) for value in item]


def leaves(item):
    if isinstance(item, torch.Tensor):
        return [item]
    return [leaf for value in (item.values() if isinstance(item, dict) else item) for leaf in leaves(value)]


GAUSSIAN = {"mu": (3, 2), "sigma": (3, 2)}
SPACES = [
    ("discrete", 5, (3, 5)),
    ("discrete", [2, 3], [(3, 2), (3, 3)]),
    ("continuous", 2, GAUSSIAN),
    ("continuous", (2,), GAUSSIAN),
    ("hybrid", HYBRID, {"action_type": (3, 3), "action_args": GAUSSIAN}),
]


@pytest.mark.parametrize("share", [True, False])
@pytest.mark.parametrize(("space", "action_shape", "logit"), SPACES)
@pytest.mark.parametrize("sizes", [{}, {"actor_head_hidden_size": 16, "critic_head_hidden_size": 24}])
def test_each_mode_gives_its_outputs(share, space, action_shape, logit, sizes):
    model = VAC(4, action_shape, action_space=space, share_encoder=share, **sizes)
    both = model(X, mode="compute_actor_critic")
    actor, critic = model(X, mode="compute_actor"), model(X, mode="compute_critic")
    assert shapes(both) == {"logit": logit, "value": (3,)}
    assert shapes(actor) == {"logit": logit} and shapes(critic) == {"value": (3,)}
    assert torch.equal(critic["value"], both["value"])
    assert all(torch.equal(a, b) for a, b in zip(leaves(actor), leaves(both), strict=False))


def test_names_of_actor_heads():
    def head(space, shape, **kwargs):
        model = VAC(4, shape, action_space=space, **kwargs)
        return [name[len("actor_head.") :] for name in model.state_dict() if name.startswith("actor_head.")]

    gaussian = ["log_sigma_param", "main.0.weight", "main.0.bias", "mu.weight", "mu.bias"]
    assert head("continuous", 2) == gaussian
    assert head("continuous", 2, sigma_type="fixed") == gaussian[1:]
    discrete = [f"Q.{layer}.0.{kind}" for layer in (0, 1) for kind in ("weight", "bias")]
    assert head("hybrid", HYBRID) == [f"0.{name}" for name in discrete] + [f"1.{name}" for name in gaussian]
    assert head("discrete", [2, 3]) == [f"pred.{k}.{name}" for k in (0, 1) for name in discrete]


@pytest.mark.parametrize("share", [True, False])
def test_actor_and_critic_list_their_encoder_and_head(share):
    model = VAC(4, 2, share_encoder=share)
    assert list(model.actor) == [model.encoder if share else model.actor_encoder, model.actor_head]
    assert list(model.critic) == [model.encoder if share else model.critic_encoder, model.critic_head]
    assert (model.actor[0] is model.critic[0]) is share
    if not share:
        assert not torch.equal(model.actor[0].init.weight, model.critic[0].init.weight)


def test_another_width_of_the_actor_head_gets_a_projection():
    model = VAC(4, 2, encoder_hidden_size_list=[8, 8], actor_head_hidden_size=16)
    projection, head = model.actor_head
    assert (projection[0].in_features, projection[0].out_features) == (8, 16)
    assert isinstance(projection[1], nn.ReLU) and isinstance(head, DiscreteHead)
    assert set(map(id, projection.parameters())) <= set(map(id, model.actor.parameters()))


def test_heads_are_as_deep_and_wide_as_they_are_asked_to_be():
    model = VAC(
        4,
        2,
        action_space="continuous",
        encoder_hidden_size_list=[8],
        actor_head_hidden_size=16,
        actor_head_layer_num=2,
        critic_head_hidden_size=24,
        critic_head_layer_num=0,
        activation=nn.Tanh(),
    )
    widths = [layer.out_features for layer in model.actor_head.modules() if isinstance(layer, nn.Linear)]
    assert widths == [16, 16, 2]
    assert [layer.in_features for layer in model.critic_head.modules() if isinstance(layer, nn.Linear)] == [8]
    assert not any(isinstance(layer, nn.ReLU) for layer in model.modules())


def test_sigma_and_bound_reach_the_actor_head():
    fixed = VAC(4, 2, action_space="continuous", sigma_type="fixed", fixed_sigma_value=0.7, bound_type="tanh")
    logit = fixed(1e3 * X, "compute_actor")["logit"]
    assert logit["sigma"].eq(0.7).all() and logit["mu"].abs().max() <= 1
    default = VAC(4, 2, action_space="continuous", sigma_type="fixed")
    assert default(X, "compute_actor")["logit"]["sigma"].eq(0.3).all()


# --- observations ---


def test_images_go_through_a_convolutional_encoder():
    model = VAC([4, 84, 84], 6, encoder_hidden_size_list=[32, 64, 64, 128], actor_head_hidden_size=128)
    assert shapes(model(torch.rand(2, 4, 84, 84), "compute_actor_critic")) == {"logit": (2, 6), "value": (2,)}


@pytest.mark.parametrize("share", [True, False])
def test_images_may_go_through_the_impala_encoder(share):
    model = VAC(
        [3, 16, 16],
        2,
        share_encoder=share,
        encoder_hidden_size_list=[4, 8],
        actor_head_hidden_size=16,
        critic_head_hidden_size=24,
        impala_cnn_encoder=True,
    )
    assert shapes(model(torch.zeros(2, 3, 16, 16), "compute_actor_critic")) == {"logit": (2, 2), "value": (2,)}
    assert model.critic[0].output_size == (16 if share else 24)
    with pytest.raises(RuntimeError, match="impala_cnn_encoder"):
        VAC(4, 2, impala_cnn_encoder=True)


# --- an encoder of one's own ---


def test_an_encoder_of_ones_own_is_shared_or_copied():
    encoder = nn.Linear(4, 64)
    shared = VAC(4, 2, encoder=encoder)
    assert shared.encoder is encoder
    own = VAC(4, 2, encoder=encoder, share_encoder=False)
    assert own.actor_encoder is encoder is not own.critic_encoder
    assert torch.equal(own.critic_encoder.weight, encoder.weight)
    assert shapes(own(X, "compute_actor_critic")) == {"logit": (3, 2), "value": (3,)}


# --- construction ---


def test_unknown_action_spaces_and_shapes_that_do_not_fit_are_refused():
    with pytest.raises(ValueError):
        VAC(4, 2, action_space="mixed")
    for shape in (2, {"action_type_shape": 2}):
        with pytest.raises(ValueError):
            VAC(4, shape, action_space="hybrid")
    with pytest.raises(ValueError):
        VAC(4, [2, 3], action_space="continuous")


# ACER's network: state dict names, outputs, what is apart.


@pytest.mark.parametrize("obs_shape", [4, (3, 40, 36)])
def test_actor_and_critic_share_nothing(obs_shape):
    model = ACER(obs_shape, 3, encoder_hidden_size_list=[8, 8, 8], actor_head_hidden_size=6, critic_head_hidden_size=5)
    obs = torch.rand(2, *((obs_shape,) if isinstance(obs_shape, int) else obs_shape))
    logit, q_value = model(obs, mode="compute_actor")["logit"], model(obs, mode="compute_critic")["q_value"]
    assert logit.shape == q_value.shape == (2, 3)
    q_value.sum().backward()
    assert all(p.grad is None for p in model.actor.parameters())
    assert all(p.grad is not None for p in model.critic.parameters())


# The network of policy gradient methods: what it computes, its parts, its state dict.


def test_discrete_actions_have_a_categorical_distribution():
    output = PG(4, 3)(X)
    assert output.keys() == {"logit", "dist"} and output["logit"].shape == (3, 3)
    assert isinstance(output["dist"], Categorical)
    assert torch.allclose(output["dist"].probs, torch.softmax(output["logit"], -1))


def test_parts_of_a_multi_discrete_action_have_a_distribution_each():
    output = PG(4, [2, 3])(X)
    assert [logit.shape for logit in output["logit"]] == [(3, 2), (3, 3)]
    assert [dist.probs.shape for dist in output["dist"]] == [(3, 2), (3, 3)]


def test_continuous_actions_have_a_gaussian_distribution():
    model = PG(4, 2, "continuous")
    output = model(X)
    mu, sigma = output["logit"]["mu"], output["logit"]["sigma"]
    expected = Independent(Normal(mu, sigma), 1)
    action = torch.rand(3, 2)
    assert torch.equal(output["dist"].log_prob(action), expected.log_prob(action))
    assert torch.equal(sigma, model.head.log_sigma_param.exp().expand(3, 2))


def test_another_width_of_the_head_gets_a_projection():
    model = PG(4, 2, head_hidden_size=16, head_layer_num=2)
    assert model(X)["logit"].shape == (3, 2)
    assert [layer.out_features for layer in model.head.modules() if isinstance(layer, torch.nn.Linear)] == [
        16,
        16,
        16,
        2,
    ]


def test_what_it_cannot_do_is_refused():
    with pytest.raises(ValueError, match="hybrid"):
        PG(4, 2, "hybrid")
    with pytest.raises(RuntimeError):
        PG((2, 3), 2)


# PPG's networks: names, sizes, and what the auxiliary critic shares.


def make_model(**kwargs):
    torch.manual_seed(0)
    sizes = {"encoder_hidden_size_list": [64, 64, 128], "actor_head_hidden_size": 128, "critic_head_hidden_size": 128}
    return PPG(4, 2, **{**sizes, **kwargs})


@pytest.mark.parametrize("share_encoder", [True, False])
def test_the_auxiliary_critic_begins_as_a_copy_and_learns_by_itself(share_encoder):
    model = make_model(share_encoder=share_encoder)
    obs = torch.rand(3, 4)
    both, aux = model(obs, mode="compute_actor_critic"), model(obs, mode="compute_critic")
    assert both["value"].shape == (3,) and torch.equal(both["value"], aux["value"])
    assert torch.equal(model(obs, mode="compute_actor")["logit"], both["logit"])
    aux["value"].sum().backward()
    assert all(p.grad is None for p in model.actor_critic.parameters())
    assert all(p.grad is not None for p in model.aux_critic.parameters())


def test_images_and_continuous_actions_and_masks():
    model = PPG((3, 40, 36), 2, action_space="continuous", encoder_hidden_size_list=[8, 8, 64])
    output = model(torch.rand(2, 3, 40, 36), mode="compute_actor_critic")
    assert output["logit"]["mu"].shape == (2, 2) and output["value"].shape == (2,)
    mask = torch.ones(2, 2)
    assert (
        make_model()({"observation": torch.rand(2, 4), "action_mask": mask}, mode="compute_actor")["action_mask"]
        is mask
    )
    assert make_model()({"observation": torch.rand(2, 4), "action_mask": mask}, mode="compute_critic").keys() == {
        "value"
    }
