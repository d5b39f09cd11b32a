"""FQF: what it shows of its batches; its updates are in the recorded steps of `tests/compat`."""

import pytest
import torch

from ding.torch_utils.network.nn_module import NoiseLinearLayer
from tests.policy.learning import model_of
from tests.policy.samples import make_batch
from tests.policy.value_policies import make_policy, stack


def test_histograms_tell_the_actions_and_the_midpoints_of_the_first_sample():
    policy = make_policy("fqf", "learn")
    data = make_batch(6)
    hats = model_of(policy)(stack(data, "obs"))["quantiles_hats"][0]
    output = policy.learn_mode.forward(data)
    assert output["[histogram]action_distribution"].tolist() == [sample["action"].item() for sample in data]
    assert torch.allclose(output["[histogram]quantiles_hats"], hats)


def test_the_optimizers_of_fractions_and_of_the_rest_have_the_settings_of_the_paper():
    state = make_policy("fqf", "learn", learn__batch_size=64).learn_mode.state_dict()
    groups = [part["param_groups"][0] for part in state.values() if isinstance(part, dict) and "param_groups" in part]
    assert [(group.get("alpha"), group["eps"]) for group in groups] == [(0.95, 1e-5), (None, 0.01 / 64)]


@pytest.mark.parametrize("noisy", [True, False])
def test_noise_of_both_networks_is_drawn_for_each_update_of_a_noisy_net(noisy):
    model = model_of(make_policy("fqf", "learn"))
    model.encoder.main[0] = NoiseLinearLayer(16, 8)
    policy = make_policy("fqf", "learn", model=model, noisy_net=noisy)
    layers = [policy.learn_mode.get_attribute(name).encoder.main[0] for name in ("model", "target_net")]
    before = [layer.weight_eps.clone() for layer in layers]
    policy.learn_mode.forward(make_batch(4))
    assert [torch.equal(a, b.weight_eps) for a, b in zip(before, layers, strict=True)] == [not noisy] * 2
