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


@pytest.mark.parametrize(
    ("space", "actor"),
    [
        ("regression", ["actor.0", "actor.2.main.0", "actor.2.last"]),
        ("reparameterization", ["actor.0", "actor.2.main.0", "actor.2.mu", "actor.2.log_sigma_layer"]),
    ],
)
def test_names(space, actor):
    state = QACDIST(3, 1, space).state_dict()
    names = [*actor, "critic.0", "critic.2.Q.0.0", "critic.2.Q.1.0"]
    assert list(state) == [f"{name}.{part}" for name in names for part in ("weight", "bias")]
    assert state["critic.2.Q.1.0.weight"].shape == (51, 64)


def test_wrong_arguments_are_refused():
    with pytest.raises(AssertionError, match="action_space 'hybrid' is unknown; allowed: regression, "):
        QACDIST(4, 2, "hybrid")
    with pytest.raises(AssertionError, match="critic_head_type 'quantile' is unknown; allowed: categorical"):
        QACDIST(4, 2, critic_head_type="quantile")
    with pytest.raises(RuntimeError, match="must be a number for vectors"):
        QACDIST((3, 8, 8), 2)
    with pytest.raises(ValueError, match="made for obs_shape"):
        QACDIST(4, 2)(torch.rand(3, 5), mode="compute_actor")
