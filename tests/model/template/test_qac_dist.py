"""The actor-critic with a distribution of returns."""

import pytest
import torch

from ding.model import QACDIST

X = torch.rand(3, 4, generator=torch.Generator().manual_seed(0))


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


def test_wrong_arguments_are_refused():
    with pytest.raises(AssertionError):
        QACDIST(4, 2, "hybrid")
    with pytest.raises(AssertionError):
        QACDIST(4, 2, critic_head_type="quantile")
