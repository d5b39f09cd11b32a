"""The direct forward pass of an actor-critic equals calling its modules, and steps aside where it would not."""

import pytest
import torch
from torch import nn

from ding.model.common.plain_layers import PlainModel
from ding.model.template.vac import VAC

X = torch.rand(6, 4, generator=torch.Generator().manual_seed(0))


def leaves(item):
    if isinstance(item, torch.Tensor):
        return [item]
    return [leaf for value in (item.values() if isinstance(item, dict) else item) for leaf in leaves(value)]


def by_modules(model, mode):
    return leaves(getattr(model, mode)(X))


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"share_encoder": False},
        {"actor_head_hidden_size": 16, "critic_head_hidden_size": 8},
        {"actor_head_layer_num": 0, "critic_head_layer_num": 0},
        {"actor_head_layer_num": 3, "critic_head_layer_num": 2},
        {"activation": nn.Tanh()},
        {"action_shape": [2, 3]},
        {"action_shape": [2, 3], "actor_head_hidden_size": 16},
        {"action_space": "continuous"},
        {"action_space": "continuous", "sigma_type": "conditioned", "bound_type": "tanh"},
        {"action_space": "continuous", "sigma_type": "fixed"},
        {"action_space": "continuous", "sigma_type": "happo", "share_encoder": False},
    ],
)
@pytest.mark.parametrize("mode", VAC.mode)
def test_values_and_gradients_equal_those_of_the_modules(options, mode):
    model = VAC(4, **{"action_shape": 2, **options})
    assert model._plain_for(X) is not None
    outputs = leaves(model(X, mode)), by_modules(model, mode)
    assert all(torch.equal(a, b) for a, b in zip(*outputs, strict=True))
    parameters = list(model.parameters())
    fast, slow = (
        torch.autograd.grad(sum(x.pow(2).sum() for x in out if x.requires_grad), parameters, allow_unused=True)
        for out in outputs
    )
    for a, b in zip(fast, slow, strict=True):
        assert a is b is None or torch.equal(a, b)


@pytest.mark.parametrize(
    "options",
    [
        {"norm_type": "LN"},
        {"activation": nn.PReLU()},
        {"encoder": nn.Linear(4, 64)},
        {"action_space": "hybrid", "action_shape": {"action_type_shape": 2, "action_args_shape": 1}},
        {"action_space": "continuous", "activation": nn.PReLU()},
        {"action_shape": [2, 3], "activation": nn.PReLU()},
    ],
)
def test_other_layers_are_called_as_modules(options):
    model = VAC(4, **{"action_shape": 2, **options})
    assert model._plain_for(X) is None
    model(X, "compute_actor_critic")


@pytest.mark.parametrize("part", ["actor_head", "critic_head"])
def test_a_head_that_is_not_plain_is_called_as_a_module(part):
    model = VAC(4, 2)
    head = getattr(model, part)
    (head.Q if part == "actor_head" else head.main).append(nn.Dropout())
    assert model._plain_for(X) is None


def test_an_activation_that_follows_no_layer_is_called_as_a_module():
    model = VAC(4, 2)
    model.actor_head.Q.extend([nn.ReLU(), nn.ReLU()])
    assert model._plain_for(X) is None
    assert model(X, "compute_actor")["logit"].min() >= 0


def test_a_subclass_that_computes_something_else_is_asked():
    class Doubled(VAC):
        def compute_critic(self, x):
            return {"value": 2 * super().compute_critic(x)["value"]}

    torch.manual_seed(0)
    theirs = Doubled(4, 2)
    torch.manual_seed(0)
    ours = VAC(4, 2)
    assert torch.equal(theirs(X, "compute_critic")["value"], 2 * ours(X, "compute_critic")["value"])


def test_a_hook_is_called():
    model, calls = VAC(4, 2), []
    model.critic_head.last.register_forward_hook(lambda *args: calls.append(1))
    model(X, "compute_critic")
    assert calls == [1]


def test_a_replaced_module_counts():
    model = VAC(4, 2)
    model(X, "compute_actor")
    model.actor_head.Q[1] = nn.Linear(64, 2)
    assert torch.equal(model(X, "compute_actor")["logit"], by_modules(model, "compute_actor")[0])


def test_observations_without_a_batch_axis_have_a_value_each():
    model = VAC(4, 2)
    assert model(X[0], "compute_critic")["value"].shape == (1,)


def test_a_model_says_itself_what_its_plain_form_is():
    with pytest.raises(NotImplementedError):
        PlainModel()._plain_for(X)
