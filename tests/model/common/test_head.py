"""Heads."""

import math

import pytest
import torch
from torch import nn

from ding.model.common.head import (
    BranchingHead,
    DiscreteHead,
    DistributionHead,
    DuelingHead,
    FQFHead,
    MultiHead,
    QRDQNHead,
    QuantileHead,
    RainbowHead,
    RegressionHead,
    ReparameterizationHead,
    independent_normal_dist,
)
from ding.rl_utils.distributional import beta_function_map
from ding.torch_utils.network.nn_module import Dropout, NoiseLinearLayer
from tests.generators import reseed


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


# Heads of value distributions and of branches against loops over actions, atoms and fractions.


def noisy(*layers):
    return [
        f"{layer}.{name}_{part}" for layer in layers for part in ("mu", "sigma", "eps") for name in ("weight", "bias")
    ]


def test_a_distribution_is_a_softmax_over_atoms_and_the_logit_is_its_mean():
    head = DistributionHead(8, 2, n_atom=3, v_min=-1, v_max=3)
    assert list(head.state_dict()) == pairs("Q.0.0", "Q.1.0")
    x = torch.rand(4, 8)
    output = head(x)
    scores = head.Q(x)
    for b in range(4):
        for n in range(2):
            expected = scores[b, 3 * n : 3 * n + 3].softmax(0) + 1e-6
            assert torch.allclose(output["distribution"][b, n], expected)
            assert output["logit"][b, n].item() == pytest.approx(
                (expected * torch.tensor([-1.0, 1.0, 3.0])).sum().item()
            )


def test_a_rainbow_head_is_dueling_for_each_atom_and_noisy():
    head = RainbowHead(8, 2, n_atom=3, v_min=0, v_max=2)
    assert sorted(head.state_dict()) == sorted(noisy("A.0.0", "A.1.0", "Q.0.0", "Q.1.0"))
    assert sum(isinstance(layer, NoiseLinearLayer) for layer in head.modules()) == 4
    x = torch.rand(4, 8)
    output = head(x)
    advantage, value = head.A(x).view(4, 2, 3), head.Q(x)
    for n in range(2):
        scores = advantage[:, n] - (advantage[:, 0] + advantage[:, 1]) / 2 + value
        assert torch.allclose(output["distribution"][:, n], scores.softmax(-1) + 1e-6)
        mean = (output["distribution"][:, n] * torch.tensor([0.0, 1.0, 2.0])).sum(-1)
        assert torch.allclose(output["logit"][:, n], mean)


def test_quantiles_at_fixed_fractions():
    head = QRDQNHead(8, 2, num_quantiles=4)
    assert list(head.state_dict()) == pairs("Q.0.0", "Q.1.0")
    x = torch.rand(3, 8)
    output = head(x)
    assert torch.equal(output["q"], head.Q(x).view(3, 2, 4))
    assert torch.allclose(output["logit"], output["q"].mean(-1))
    assert output["tau"].tolist() == [[[0.125], [0.375], [0.625], [0.875]]] * 3


def test_values_at_random_fractions_are_those_of_their_embedding():
    head = QuantileHead(8, 2, num_quantiles=5, quantile_embedding_size=6)
    assert list(head.state_dict()) == pairs("Q.0.0", "Q.1.0", "iqn_fc")
    x = torch.rand(3, 8)
    output = head(x)
    fractions = output["quantiles"].view(5, 3)
    assert ((fractions > 0) & (fractions < 1)).all() and len(set(fractions.flatten().tolist())) == 15
    for t in range(5):
        for b in range(3):
            cosines = torch.tensor([math.cos(math.pi * i * fractions[t, b].item()) for i in range(1, 7)])
            value = head.Q(x[b] * torch.relu(head.iqn_fc(cosines)))
            assert torch.allclose(output["q"][t, b], value, atol=1e-5)
    assert torch.allclose(output["logit"], output["q"].mean(0))
    assert head(x, num_quantiles=2)["q"].shape == (2, 3, 2)


def test_distorted_risk_changes_what_is_acted_on_and_not_what_is_learnt():
    torch.manual_seed(0)
    neutral = QuantileHead(8, 2, num_quantiles=2000)
    torch.manual_seed(0)
    averse = QuantileHead(8, 2, num_quantiles=2000, beta_function_type="CVaR")
    x = torch.rand(1, 8)
    for head in (neutral, averse):
        reseed(head, 1)
    expected = neutral(x)
    output = averse(x)
    assert torch.equal(output["q"], expected["q"])
    low = expected["quantiles"].flatten() < 0.71
    assert torch.allclose(output["logit"][0], expected["q"][low, 0].mean(0), atol=2e-2)
    assert not torch.allclose(output["logit"], expected["logit"], atol=1e-4)
    with pytest.raises(KeyError):
        QuantileHead(8, 2, beta_function_type="bold")


@pytest.mark.parametrize(
    ("name", "at_half"),
    [
        ("uniform", 0.5),
        ("CVaR", 0.355),
        ("CPW", 0.5**0.71 / (2 * 0.5**0.71) ** (1 / 0.71)),
        ("Pow", 0.5),
    ],
)
def test_distortions(name, at_half):
    assert beta_function_map[name](torch.tensor([0.5])).item() == pytest.approx(at_half)


def test_fractions_are_proposed_and_values_taken_at_their_midpoints():
    head = FQFHead(8, 2, num_quantiles=4, quantile_embedding_size=6)
    assert list(head.state_dict()) == ["sigma_pi", *pairs("Q.0.0", "Q.1.0", "fqf_fc.0", "quantiles_proposal.0")]
    assert head.sigma_pi.shape == (1, 1, 6)
    with torch.no_grad():
        head.quantiles_proposal[0].weight.normal_()
    x = torch.rand(3, 8, requires_grad=True)
    output = head(x)
    width = head.quantiles_proposal[0](x).softmax(-1)

    def value(b, fraction):
        cosines = torch.tensor([math.cos(math.pi * i * fraction) for i in range(1, 7)])
        return head.Q(x[b] * head.fqf_fc(cosines))

    for b in range(3):
        edges = [0.0]
        for part in width[b].tolist():
            edges.append(edges[-1] + part)
        assert output["quantiles"][b].tolist() == pytest.approx(edges, abs=1e-6)
        midpoints = [(low + high) / 2 for low, high in zip(edges, edges[1:], strict=False)]
        assert output["quantiles_hats"][b].tolist() == pytest.approx(midpoints, abs=1e-6)
        assert torch.allclose(output["q"][b], torch.stack([value(b, tau) for tau in midpoints]), atol=1e-5)
        assert torch.allclose(output["q_tau_i"][b], torch.stack([value(b, tau) for tau in edges[1:-1]]), atol=1e-5)
        entropy = -sum(part * math.log(part) for part in width[b].tolist())
        assert output["entropies"][b].tolist() == pytest.approx([entropy], rel=1e-5)
    assert torch.allclose(output["logit"], output["q"].mean(1))


def test_the_proposal_and_the_values_have_gradients_of_their_own():
    head = FQFHead(8, 2, num_quantiles=4)
    x = torch.rand(3, 8, requires_grad=True)
    output = head(x)
    assert not output["quantiles_hats"].requires_grad and not output["q_tau_i"].requires_grad
    (output["quantiles"].pow(2).sum() + output["entropies"].sum()).backward()
    assert x.grad is None and head.Q[1][0].weight.grad is None
    assert head.quantiles_proposal[0].weight.grad is not None
    head.zero_grad()
    head(x)["q"].sum().backward()
    assert x.grad is not None and head.quantiles_proposal[0].weight.grad is None


def test_branches_share_one_value():
    head = BranchingHead(8, num_branches=2, action_bins_per_branch=3, layer_num=2, v_layer_num=1)
    names = pairs("V.0.0", "V.1.0", *[f"branches.{i}.{layer}" for i in (0, 1) for layer in ("0.0", "0.2", "1.0")])
    assert list(head.state_dict()) == names
    x = torch.rand(4, 8)
    logit = head(x)["logit"]
    assert logit.shape == (4, 2, 3)
    assert torch.allclose(logit.mean(-1), head.V(x).expand(-1, 2), atol=1e-6)
    for branch in range(2):
        advantage = head.branches[branch](x)
        assert torch.allclose(logit[:, branch].diff(dim=-1), advantage.diff(dim=-1), atol=1e-6)
