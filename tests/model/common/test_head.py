"""Heads."""

import math

import pytest
import torch
from torch import nn

from ding.model.common.head import (
    DiscreteHead,
    DuelingHead,
    MultiHead,
    RegressionHead,
    ReparameterizationHead,
    independent_normal_dist,
)
from ding.torch_utils.network.nn_module import Dropout, NoiseLinearLayer


def names(module):
    return list(module.state_dict())


def pairs(*layers):
    return [f"{layer}.{name}" for layer in layers for name in ("weight", "bias")]


def test_discrete_head():
    head = DiscreteHead(8, 3)
    assert names(head) == pairs("Q.0.0", "Q.1.0")
    assert head(torch.rand(2, 8))["logit"].shape == (2, 3)


def test_head_options_reach_the_hidden_layers_only():
    head = DiscreteHead(8, 3, layer_num=2, activation=nn.Tanh(), norm_type="BN", dropout=0.2)
    assert [type(layer) for layer in head.Q[0]] == [nn.Linear, nn.BatchNorm1d, nn.Tanh, Dropout] * 2
    assert head.Q[0][3].p == 0.2
    assert [type(layer) for layer in head.Q[1]] == [nn.Linear]


def test_dueling_head_centres_the_advantages_around_the_value():
    head = DuelingHead(8, 3)
    assert names(head) == pairs("A.0.0", "A.1.0", "V.0.0", "V.1.0")
    x = torch.rand(2, 8)
    logit = head(x)["logit"]
    assert torch.allclose(logit.mean(-1, keepdim=True), head.V(x), atol=1e-6)
    advantage = head.A(x)
    assert torch.allclose(logit[:, 1] - logit[:, 0], advantage[:, 1] - advantage[:, 0], atol=1e-6)


@pytest.mark.parametrize("cls", [DiscreteHead, DuelingHead])
def test_noisy_heads_consist_of_noisy_layers(cls):
    head = cls(8, 3, noise=True)
    assert not any(isinstance(layer, nn.Linear) for layer in head.modules())
    layers = [layer for layer in head.modules() if isinstance(layer, NoiseLinearLayer)]
    x = torch.rand(2, 8)
    quiet = head(x)["logit"]
    for layer in layers:
        layer.enable_noise = True
    assert not torch.equal(quiet, head(x)["logit"])


def test_regression_head_squeezes_a_single_value():
    head = RegressionHead(8, 1, layer_num=1, hidden_size=6)
    assert names(head) == pairs("main.0", "last")
    assert head.main[0].out_features == 6
    assert head(torch.rand(4, 8))["pred"].shape == (4,)
    assert head(torch.rand(8))["pred"].shape == (1,)
    assert RegressionHead(8, 3)(torch.rand(4, 8))["pred"].shape == (4, 3)
    assert RegressionHead(8, 3, layer_num=0, hidden_size=6)(torch.rand(4, 8))["pred"].shape == (4, 3)


@pytest.mark.parametrize(
    ("sigma_type", "sigma", "extra"),
    [
        ("fixed", 0.3, []),
        ("independent", 1.0, ["log_sigma_param"]),
        ("happo", 0.5 / (1 + math.exp(-1)), ["log_sigma_param"]),
    ],
)
def test_shared_sigmas(sigma_type, sigma, extra):
    head = ReparameterizationHead(8, 2, layer_num=1, sigma_type=sigma_type, fixed_sigma_value=0.3)
    assert sorted(names(head)) == sorted(pairs("main.0", "mu") + extra)
    out = head(torch.rand(4, 8))
    assert torch.allclose(out["sigma"], torch.full((4, 2), sigma))
    out["sigma"].detach().zero_()
    assert torch.allclose(head(torch.rand(8))["sigma"], torch.full((2,), sigma))


def test_conditioned_sigma_is_the_exponential_of_a_clamped_layer():
    head = ReparameterizationHead(8, 2, layer_num=1, sigma_type="conditioned")
    assert names(head) == pairs("main.0", "mu", "log_sigma_layer")
    nn.init.zeros_(head.log_sigma_layer.weight)
    with torch.no_grad():
        head.log_sigma_layer.bias.copy_(torch.tensor([100.0, -100.0]))
    sigma = head(torch.rand(4, 8))["sigma"]
    assert torch.allclose(sigma[0], torch.tensor([math.exp(2), math.exp(-20)]))


def test_tanh_bounds_mu_only():
    head = ReparameterizationHead(8, 2, sigma_type="conditioned")
    bounded = ReparameterizationHead(8, 2, sigma_type="conditioned", bound_type="tanh")
    bounded.load_state_dict(head.state_dict())
    x = torch.rand(4, 8)
    assert torch.equal(torch.tanh(head(x)["mu"]), bounded(x)["mu"])
    assert torch.equal(head(x)["sigma"], bounded(x)["sigma"])


def test_multi_head_gives_a_list_for_each_key():
    head = MultiHead(ReparameterizationHead, 8, [2, 1], sigma_type="independent")
    out = head(torch.rand(4, 8))
    assert [mu.shape for mu in out["mu"]] == [(4, 2), (4, 1)]
    assert [sigma.shape for sigma in out["sigma"]] == [(4, 2), (4, 1)]
    assert all(name.startswith(("pred.0.", "pred.1.")) for name in names(head))


def test_independent_normal_dist_takes_dicts_and_pairs():
    mu, sigma = torch.zeros(4, 2), torch.ones(4, 2)
    for logits in ({"mu": mu, "sigma": sigma}, (mu, sigma), [mu, sigma]):
        dist = independent_normal_dist(logits)
        assert dist.log_prob(mu).shape == (4,)
    for logits in (mu, [mu], 3):
        with pytest.raises(TypeError):
            independent_normal_dist(logits)
