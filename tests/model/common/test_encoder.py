"""Encoders."""

from functools import partial

import pytest
import torch
from torch import nn

from ding.model.common.encoder import ConvEncoder, DictEncoder, FCEncoder, IMPALAConvEncoder, build_encoder
from ding.model.template.q_learning import C51DQN, DQN, DRQN
from ding.model.template.vac import PG, VAC
from ding.torch_utils.network.nn_module import Dropout
from ding.torch_utils.network.resnet import ResBlock, ResFCBlock


def test_fc_encoder_is_a_chain_of_linear_layers_and_activations():
    encoder = FCEncoder(4, [8, 6, 5], activation=nn.Tanh())
    assert list(encoder.state_dict()) == [
        f"{layer}.{name}" for layer in ("init", "main.0", "main.2") for name in ("weight", "bias")
    ]
    x = torch.rand(3, 4)
    expected = torch.tanh(encoder.init(x))
    for index in (0, 2):
        expected = torch.tanh(encoder.main[index](expected))
    assert torch.equal(encoder(x), expected)


def test_fc_encoder_dropout_follows_each_inner_activation():
    encoder = FCEncoder(4, [8, 6, 5], dropout=0.2)
    assert [type(layer) for layer in encoder.main] == [nn.Linear, nn.ReLU, Dropout] * 2
    assert encoder.main[2].p == 0.2


def test_fc_encoder_with_residual_blocks():
    encoder = FCEncoder(4, [8, 8], res_block=True, norm_type="LN", dropout=0.1)
    assert "main.1.fc2.0.weight" in encoder.state_dict()
    assert isinstance(encoder.main[0].dropout, Dropout)
    assert encoder(torch.rand(3, 4)).shape == (3, 8)
    assert isinstance(FCEncoder(4, [8], res_block=True).main, ResFCBlock)
    with pytest.raises(AssertionError):
        FCEncoder(4, [8, 6], res_block=True)


def test_an_encoder_needs_a_size():
    with pytest.raises(AssertionError):
        FCEncoder(4, [])
    with pytest.raises(AssertionError):
        ConvEncoder((3, 84, 84), [])


def test_conv_encoder_has_the_documented_parts():
    encoder = ConvEncoder((4, 84, 84))
    assert list(encoder.state_dict()) == [
        f"{layer}.{name}" for layer in ("main.0", "main.2", "main.4", "mid") for name in ("weight", "bias")
    ]
    assert encoder.output_size == 128
    assert encoder(torch.rand(2, 4, 84, 84)).shape == (2, 128)


def test_conv_encoder_with_padding_layer_norm_and_residual_blocks():
    encoder = ConvEncoder(
        (3, 9, 7),
        [8, 16, 16, 16, 10],
        kernel_size=[3, 3],
        stride=[2, 1],
        padding=[1, 1],
        layer_norm=True,
        norm_type="LN",
    )
    assert sum(isinstance(layer, ResBlock) for layer in encoder.main) == 2
    assert encoder(torch.rand(2, 3, 9, 7)).shape == (2, 10)
    assert encoder.mid.in_features == 16 * 5 * 4


@pytest.mark.differs("cannot encode images with a side below 36", "encodes them by 3 x 3 kernels")
def test_models_encode_small_images_by_small_kernels():
    encoder = build_encoder((4, 10, 10), [16, 8, 32])
    kernels = [layer.kernel_size for layer in encoder.main if isinstance(layer, nn.Conv2d)]
    assert kernels == [(3, 3), (3, 3)] and encoder(torch.rand(2, 4, 10, 10)).shape == (2, 32)
    assert encoder(torch.ones(2, 4, 10, 10, dtype=torch.bool)).shape == (2, 32)
    assert build_encoder((4, 10, 10), [32])(torch.rand(1, 4, 10, 10)).shape == (1, 32)
    large = build_encoder((4, 36, 36), [16, 16, 8])
    assert [layer.kernel_size for layer in large.main if isinstance(layer, nn.Conv2d)] == [(8, 8), (4, 4), (3, 3)]


def test_impala_encoder_scales_pixels_and_keeps_leading_dimensions():
    torch.manual_seed(0)
    encoder = IMPALAConvEncoder((3, 17, 16), channels=(4, 8), outsize=12, nblock=1)
    images = torch.randint(256, (2, 5, 3, 17, 16), dtype=torch.uint8)
    out = encoder(images)
    assert out.shape == (2, 5, 12)
    assert (out >= 0).all()
    assert torch.allclose(out[1, 2], encoder(images[1, 2].unsqueeze(0))[0], atol=1e-6)
    raw = IMPALAConvEncoder((3, 17, 16), channels=(4, 8), outsize=12, nblock=1, scale_ob=1.0, final_relu=False)
    raw.load_state_dict(encoder.state_dict())
    assert torch.allclose(torch.relu(raw(images / 255.0)), out, atol=1e-6)
    assert (raw(images / 255.0) < 0).any()


# --- the encoder for a shape ---


@pytest.mark.parametrize(
    ("obs_shape", "cls"),
    [(4, FCEncoder), ([4], FCEncoder), ((3, 40, 40), ConvEncoder), ({"a": 1, "b": 2}, DictEncoder)],
)
def test_each_kind_of_shape_gets_its_encoder(obs_shape, cls):
    encoder = build_encoder(obs_shape, [8, 8, 6])
    assert type(encoder) is cls and encoder.output_size == 6


def test_the_entries_of_a_dict_are_encoded_each_and_joined():
    encoder = build_encoder({"goal": 2, "camera": (1, 36, 36), "arm": {"left": 3, "right": 3}}, [4, 4, 6])
    batch = {
        "arm": {"right": torch.rand(5, 3), "left": torch.rand(5, 3)},
        "camera": torch.rand(5, 1, 36, 36),
        "goal": torch.rand(5, 2),
        "unused": torch.rand(5, 9),
    }
    arm, camera, goal = encoder.encoders  # by name
    assert [type(part) for part in (arm, camera, goal)] == [DictEncoder, ConvEncoder, FCEncoder]
    parts = torch.cat([arm(batch["arm"]), camera(batch["camera"]), goal(batch["goal"])], 1)
    assert torch.equal(encoder(batch), torch.relu(encoder.join(parts)))
    assert encoder(batch).shape == (5, 6)


def test_images_may_have_an_encoder_of_their_own():
    make = partial(IMPALAConvEncoder, channels=[4], outsize=7)
    encoder = build_encoder({"camera": (1, 8, 8), "goal": 2}, [5, 6], image_encoder=make)
    camera, goal = encoder.encoders
    assert type(camera) is IMPALAConvEncoder and camera.output_size == 7 and type(goal) is FCEncoder
    assert encoder({"camera": torch.rand(3, 1, 8, 8), "goal": torch.rand(3, 2)}).shape == (3, 6)
    assert type(build_encoder((1, 8, 8), [5, 6], image_encoder=make)) is IMPALAConvEncoder


@pytest.mark.parametrize("obs_shape", [(2, 3), {}, {"a": 2, "b": (2, 3)}])
def test_shapes_without_an_encoder_are_refused(obs_shape):
    with pytest.raises(RuntimeError, match="obs_shape"):
        build_encoder(obs_shape, [4])


RECURRENT = partial(DRQN, action_shape=3, encoder_hidden_size_list=(4, 4, 8))
IMAGES = torch.arange(3 * 2 * 40 * 40).reshape(3, 2, 40, 40) % 256


@pytest.mark.parametrize(
    "make",
    [
        lambda shape, **kwargs: DQN(shape, 3, (4, 4, 8), **kwargs),
        lambda shape, **kwargs: C51DQN(shape, 3, (4, 4, 8), **kwargs),
        lambda shape, **kwargs: PG(shape, 3, encoder_hidden_size_list=(4, 4, 8), **kwargs),
        lambda shape, **kwargs: VAC(shape, 3, encoder_hidden_size_list=(4, 4, 8), share_encoder=False, **kwargs),
        lambda shape, **kwargs: VAC(shape, 3, encoder_hidden_size_list=(4,), impala_cnn_encoder=True, **kwargs),
        RECURRENT,
    ],
)
def test_models_divide_images_by_scale_ob_and_leave_other_observations(make):
    def outputs(model, obs):
        if isinstance(model, VAC):
            return model(obs, mode="compute_actor_critic")["value"]
        if isinstance(model, DRQN):
            return model({"obs": obs, "prev_state": None}, inference=True)["logit"]
        return model(obs)["logit"]

    torch.manual_seed(0)
    for shape, obs, scaled in [
        ((2, 40, 40), IMAGES, IMAGES / 255),
        ({"image": (2, 40, 40), "speed": 1}, {"image": IMAGES, "speed": torch.ones(3, 1)}, {"image": IMAGES / 255}),
    ]:
        if isinstance(shape, dict):
            if make is RECURRENT:
                continue  # it takes no dicts
            scaled["speed"] = obs["speed"]
        model, plain = make(shape, scale_ob=255.0), make(shape, scale_ob=1.0)
        plain.load_state_dict(model.state_dict())
        assert torch.equal(outputs(model, obs), outputs(plain, scaled))
        assert not torch.allclose(outputs(model, obs), outputs(plain, obs))
