"""The networks that imitate."""

import pytest
import torch

from ding.model import ContinuousBC, DiscreteBC

OBSERVED_DISCRETE = {
    "encoder.init": (64, 4),
    "encoder.main.0": (64, 64),
    "encoder.main.2": (128, 64),
    "head.A.0.0": (128, 128),
    "head.A.1.0": (2, 128),
    "head.V.0.0": (128, 128),
    "head.V.1.0": (1, 128),
}


def shapes(model):
    return {
        name.removesuffix(".weight"): tuple(value.shape)
        for name, value in model.state_dict().items()
        if name.endswith("weight")
    }


def test_a_discrete_network_has_the_documented_parameters():
    model = DiscreteBC(4, 2, [64, 64, 128])
    assert shapes(model) == OBSERVED_DISCRETE
    assert model(torch.rand(3, 4))["logit"].shape == (3, 2)
    heads = DiscreteBC(4, [2, 3], [8])(torch.rand(3, 4))["logit"]
    assert [logit.shape for logit in heads] == [(3, 2), (3, 3)]


def test_strides_are_those_of_the_convolutions():
    images = torch.rand(2, 3, 36, 36)
    usual, coarse = DiscreteBC((3, 36, 36), 4, [8, 8, 8]), DiscreteBC((3, 36, 36), 4, [8, 8, 8], strides=[1, 1, 1])
    assert usual(images)["logit"].shape == coarse(images)["logit"].shape == (2, 4)
    assert [layer.stride for layer in coarse.encoder.main if isinstance(layer, torch.nn.Conv2d)] == [(1, 1)] * 3
    with pytest.raises(ValueError, match=r"strides"):
        DiscreteBC(4, 2, [8], strides=[1])


@pytest.mark.parametrize("size", [1, 2])
def test_a_continuous_network_gives_actions_or_gaussians(size):
    model = ContinuousBC(3, size, "regression", 16)
    assert shapes(model) == {"actor.0": (16, 3), "actor.2.main.0": (16, 16), "actor.2.last": (size, 16)}
    action = model(100 * torch.rand(5, 3))["action"]
    assert action.shape == (5, size) and action.abs().max() <= 1
    mu, sigma = ContinuousBC(3, size, "reparameterization", 16)(torch.rand(5, 3))["logit"]
    assert mu.shape == sigma.shape == (5, size) and sigma.min() > 0


def test_what_a_continuous_network_cannot_do_is_refused():
    with pytest.raises(AssertionError):
        ContinuousBC(3, 1, "hybrid")
    with pytest.raises(ValueError):
        ContinuousBC((3, 8, 8), 1, "regression")
