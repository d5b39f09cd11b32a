"""DQN: state dict names, shapes, masks, options, errors."""

import pytest
import torch
from torch import nn

from ding.model import DQN
from ding.torch_utils.network.nn_module import Dropout, NoiseLinearLayer
from ding.torch_utils.optimizer_helper import is_differentiable


def pairs(*layers):
    return [f"{layer}.{name}" for layer in layers for name in ("weight", "bias")]


ENCODER = pairs("encoder.init", "encoder.main.0", "encoder.main.2")


def test_state_dict_names_without_dueling_and_of_multi_discrete_nets():
    model = DQN(4, 2, dueling=False)
    assert list(model.state_dict()) == ENCODER + pairs("head.Q.0.0", "head.Q.1.0")
    model = DQN(4, [2, 3], dueling=False)
    assert list(model.state_dict()) == ENCODER + pairs(*[f"head.pred.{i}.Q.{j}.0" for i in (0, 1) for j in (0, 1)])


@pytest.mark.parametrize("dueling", [True, False])
@pytest.mark.parametrize("obs_shape", [4, (3, 40, 36)])
@pytest.mark.parametrize("action_shape", [3, [3, 2]])
def test_all_kinds_of_observations_and_actions_learn(obs_shape, action_shape, dueling):
    model = DQN(obs_shape, action_shape, dueling=dueling, encoder_hidden_size_list=[8, 8, 8])
    batch = torch.rand(5, *([obs_shape] if isinstance(obs_shape, int) else obs_shape))
    logit = model(batch)["logit"]
    if action_shape == 3:
        assert logit.shape == (5, 3)
        is_differentiable(logit.pow(2).sum(), model)
    else:
        assert [head.shape for head in logit] == [(5, 3), (5, 2)]
        is_differentiable(sum(head.pow(2).sum() for head in logit), model)


def test_image_encoder_defaults_to_three_convolutions():
    model = DQN((4, 84, 84), 6)
    assert [name for name in model.state_dict() if name.startswith("encoder")] == pairs(
        "encoder.main.0", "encoder.main.2", "encoder.main.4", "encoder.mid"
    )
    assert model(torch.randint(256, (2, 4, 84, 84), dtype=torch.uint8))["logit"].shape == (2, 6)


@pytest.mark.differs(
    "crashes at the first forward of a model if a head is wider or narrower than its encoder",
    "puts a linear layer between them; names stay if the widths are equal",
)
def test_another_head_width_gets_a_projection():
    model = DQN(4, 2, head_hidden_size=32)
    assert list(model.state_dict()) == (
        ENCODER + pairs("projection.0", "head.A.0.0", "head.A.1.0", "head.V.0.0", "head.V.1.0")
    )
    assert model.head.A[0][0].in_features == 32
    is_differentiable(model(torch.rand(3, 4))["logit"].pow(2).sum(), model)
    assert list(DQN(4, 2, head_hidden_size=64).state_dict()) == list(DQN(4, 2).state_dict())


def test_options_of_the_layers():
    model = DQN(4, 2, activation=nn.Tanh(), norm_type="BN", dropout=0.5, head_layer_num=2)
    kinds = [type(layer) for layer in model.modules()]
    assert nn.ReLU not in kinds
    assert kinds.count(Dropout) == 2 + 4
    assert kinds.count(nn.BatchNorm1d) == 4
    model.eval()
    x = torch.rand(3, 4)
    assert torch.equal(model(x)["logit"], model(x)["logit"])
    model.train()
    assert not torch.equal(model(x)["logit"], model(x)["logit"])


@pytest.mark.parametrize("noise", [True, False])
def test_init_bias_fills_the_last_layer(noise):
    dueling = DQN(4, 2, init_bias=0.25, noise=noise).head.A[1][0]
    plain = DQN(4, 2, init_bias=0.25, noise=noise, dueling=False).head.Q[1][0]
    for layer in (dueling, plain):
        assert (layer.bias_mu if noise else layer.bias).tolist() == [0.25, 0.25]
    multi = DQN(4, [2, 3], init_bias=-1.0, noise=noise)
    assert [(head.A[1][0].bias_mu if noise else head.A[1][0].bias).tolist() for head in multi.head.pred] == [
        [-1.0] * 2,
        [-1.0] * 3,
    ]


def test_noise_changes_the_values_only_while_it_is_enabled():
    model = DQN(4, 2, noise=True)
    layers = [layer for layer in model.modules() if isinstance(layer, NoiseLinearLayer)]
    assert len(layers) == 4
    x = torch.rand(3, 4)
    quiet = model(x)["logit"]
    for layer in layers:
        layer.enable_noise = True
    noisy = model(x)["logit"]
    assert not torch.equal(quiet, noisy)
    for layer in layers:
        layer.reset_noise()
    assert not torch.equal(noisy, model(x)["logit"])
