"""Draws from generators of one's own."""

import copy

import numpy as np
import pytest
import torch

from ding.torch_utils.network.nn_module import NoiseLinearLayer
from ding.utils import set_pkg_seed
from ding.utils.random_draws import draw_index, draw_normal, draw_uniform, seeded_weights
from tests.generators import rng_of


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.bool])
def test_indices_are_drawn_by_their_weights_and_never_with_weight_zero(dtype):
    weight = torch.tensor([[0, 1, 0, 1, 1, 0], [0, 0, 0, 0, 1, 0]], dtype=dtype).repeat(3000, 1, 1)
    index = draw_index(rng_of(0), weight)
    assert index.shape == (3000, 2) and index.dtype is torch.int64
    assert torch.equal(index[:, 1], torch.full((3000,), 4))
    assert (torch.bincount(index[:, 0], minlength=6) / 3000).tolist() == pytest.approx(
        [0, 1 / 3, 0, 1 / 3, 1 / 3, 0], abs=0.03
    )


def test_the_largest_and_the_smallest_draw_choose_an_index_of_some_weight():
    class Fixed:
        def __init__(self, value):
            self.value = value

        def random(self, shape, dtype):
            return np.full(shape, self.value, dtype)

    weight = torch.tensor([0.0, 0.3, 0.1, 0.6, 0.0])
    assert draw_index(Fixed(1 - 2**-24), weight).item() == 3
    assert draw_index(Fixed(0.0), weight).item() == 1


def test_draws_have_the_type_of_their_model_and_are_those_of_the_generator():
    like = torch.zeros(1, dtype=torch.float64)
    for draw, name in ((draw_uniform, "random"), (draw_normal, "standard_normal")):
        drawn = draw(rng_of(3), (2, 3), like=like)
        assert drawn.dtype is torch.float64
        assert drawn.tolist() == getattr(rng_of(3), name)((2, 3), dtype="float32").tolist()


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList(
            [torch.nn.Linear(3, 2), torch.nn.Conv2d(1, 2, 3), torch.nn.GRU(2, 2), torch.nn.Embedding(3, 2)]
        )
        self.free = torch.nn.Parameter(torch.randn(3) + torch.rand(3))
        for init in (torch.nn.init.orthogonal_, torch.nn.init.xavier_normal_, torch.nn.init.trunc_normal_):
            self.register_parameter(init.__name__, torch.nn.Parameter(init(torch.empty(3, 3))))


def weights(seed):
    set_pkg_seed(seed, use_cuda=False)
    torch.manual_seed(5)
    before = torch.get_rng_state()
    with seeded_weights():
        weights = torch.nn.utils.parameters_to_vector(Net().parameters())
    assert torch.equal(torch.get_rng_state(), before)
    return weights


def test_weights_follow_the_seed_of_the_package_alone():
    one, same, other = weights(0), weights(0), weights(1)
    assert torch.equal(one, same)
    assert (one != other).float().mean() > 0.9


def test_a_copy_of_a_noisy_layer_has_noise_of_its_own():
    layer = NoiseLinearLayer(3, 2)
    copied = copy.deepcopy(layer)
    assert torch.equal(copied.weight_eps, layer.weight_eps) and torch.equal(copied.weight_mu, layer.weight_mu)
    for one in (layer, copied):
        one.reset_noise()
    assert not torch.equal(copied.weight_eps, layer.weight_eps)
