"""FQF: one step of the fractions, one of the quantiles."""

import copy

import pytest
import torch

from ding.rl_utils import fqf_calculate_fraction_loss, fqf_nstep_td_data, fqf_nstep_td_error
from tests.policy.learning import model_of
from tests.policy.samples import make_batch
from tests.policy.value_policies import make_policy, stack


def make_fqf(**settings):
    rates = {"learn__learning_rate_fraction": 0.01, "learn__learning_rate_quantile": 0.001}
    return make_policy("fqf", "learn", **{**rates, "model__num_quantiles": 5, **settings})


def losses_of(online, target, data, ent_coef=0.0):
    """The two losses, in terms of the two networks alone."""
    obs, next_obs, reward = stack(data, "obs"), stack(data, "next_obs"), stack(data, "reward")
    action, done = stack(data, "action").long().squeeze(1), stack(data, "done")
    output = online(obs)
    with torch.no_grad():
        best = online(next_obs)["logit"].argmax(-1)
        next_q = target(next_obs)["q"]
    regression = fqf_nstep_td_data(output["q"], next_q, action, best, reward.T, done, output["quantiles_hats"], None)
    quantile_loss, error = fqf_nstep_td_error(regression, 0.97)
    fraction_loss = fqf_calculate_fraction_loss(output["q_tau_i"], output["q"], output["quantiles"], action)
    return fraction_loss - ent_coef * output["entropies"].mean(), quantile_loss, error


@pytest.mark.parametrize("ent_coef", [0, 0.5])
def test_two_optimizers_take_a_step_each(ent_coef):
    policy = make_fqf(learn__ent_coef=ent_coef)
    online, target = copy.deepcopy(model_of(policy)), copy.deepcopy(model_of(policy))
    proposal = list(online.head.quantiles_proposal.parameters())
    rest = [*online.encoder.parameters(), *online.head.Q.parameters(), *online.head.fqf_fc.parameters()]
    rms = torch.optim.RMSprop(proposal, lr=0.01, alpha=0.95, eps=1e-5)
    adam = torch.optim.Adam(rest, lr=0.001, eps=0.01 / 64)
    for _ in range(3):
        data = make_batch(6)
        fraction_loss, quantile_loss, error = losses_of(online, target, data, ent_coef)
        online.zero_grad()
        fraction_loss.backward(retain_graph=True)
        assert all(parameter.grad is None for parameter in rest)
        quantile_loss.backward()
        norms = {
            f"total_norm_{name}": sum(p.grad.pow(2).sum() for p in part.parameters()) ** 0.5
            for name, part in (
                ("quantiles_proposal", online.head.quantiles_proposal),
                ("Q", online.head.Q),
                ("fqf_fc", online.head.fqf_fc),
                ("encoder", online.encoder),
            )
        }
        rms.step()
        adam.step()
        output = policy.learn_mode.forward(data)
        assert output["fraction_loss"] == pytest.approx(fraction_loss.item(), rel=1e-4, abs=1e-6)
        assert output["quantile_loss"] == pytest.approx(quantile_loss.item(), rel=1e-4)
        assert output["priority"] == pytest.approx(error.tolist(), rel=1e-3)
        assert {name: output[name] for name in norms} == pytest.approx(
            {name: norm.item() for name, norm in norms.items()}, rel=1e-3, abs=1e-6
        )
        assert (output["cur_lr_fraction_loss"], output["cur_lr_quantile_loss"]) == (0.01, 0.001)
    for name, tensor in model_of(policy).state_dict().items():
        assert torch.allclose(tensor, online.state_dict()[name], atol=1e-5), name
    assert not torch.equal(online.head.quantiles_proposal[0].weight, target.head.quantiles_proposal[0].weight)


def test_histograms_tell_the_actions_and_the_midpoints_of_the_first_sample():
    policy = make_fqf()
    data = make_batch(6)
    hats = model_of(policy)(stack(data, "obs"))["quantiles_hats"][0]
    output = policy.learn_mode.forward(data)
    assert output["[histogram]action_distribution"].tolist() == [sample["action"].item() for sample in data]
    assert torch.allclose(output["[histogram]quantiles_hats"], hats)
