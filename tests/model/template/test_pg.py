"""The network of policy gradient methods: what it computes, its parts, its state dict."""

import pytest
import torch
from torch.distributions import Categorical, Independent, Normal

from ding.model import PG

X = torch.rand(3, 4, generator=torch.Generator().manual_seed(0))


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
