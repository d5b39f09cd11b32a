"""The actor-critic network: what it computes, its parts, its state dict."""

import pytest
import torch
from easydict import EasyDict
from torch import nn

from ding.model import VAC
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
