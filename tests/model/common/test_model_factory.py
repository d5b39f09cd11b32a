"""Values of the arguments of models, and the setting net_arch."""

import inspect
import sys

import pytest
import torch
from easydict import EasyDict
from torch import nn

from ding.model import DQN, create_model
from ding.policy import DQNPolicy
from ding.utils.config_helper import ConfigError

SHAPES = {"obs_shape": 4, "action_shape": 2}
KINDS = {
    "dqn": {}, "c51dqn": {}, "rainbowdqn": {}, "qrdqn": {}, "iqn": {}, "fqf": {}, "sqn": {}, "drqn": {},
    "vac": {}, "acer": {}, "ppg": {}, "pg": {}, "discrete_bc": {}, "discrete_qac": {}, "qac_dist": {},
    "continuous_qac": {"action_space": "regression"}, "continuous_qvac": {"action_space": "regression"},
    "continuous_bc": {"action_space": "regression"},
}  # fmt: skip


def model_of(kind, **arguments):
    return create_model({"type": kind, **SHAPES, **KINDS.get(kind, {}), **arguments})


@pytest.mark.parametrize(
    ("kind", "key", "value"),
    [
        ("dqn", "encoder_hidden_size_list", 64),
        ("dqn", "encoder_hidden_size_list", None),
        ("vac", "encoder_hidden_size_list", []),
        ("pg", "encoder_hidden_size_list", [0]),
        ("acer", "encoder_hidden_size_list", [64.0]),
        ("vac", "actor_head_hidden_size", 0),
        ("qac_dist", "critic_head_hidden_size", None),
        ("fqf", "head_layer_num", -1),
        ("drqn", "activation", "rely"),
        ("vac", "activation", nn.Linear),
        ("iqn", "norm_type", "layer"),
        ("dqn", "dropout", 2),
        ("ppg", "share_encoder", "no"),
        *((kind, "net_arch", value) for kind in KINDS for value in (64, [0])),
        *(("vac", "net_arch", value) for value in ([], "64", [64, None], {"pi": [64]}, {"pi": 64, "vf": 64})),
        ("dqn", "net_arch", {"pi": [64], "vf": [64]}),
    ],
)
def test_a_value_that_is_not_allowed_is_named_with_what_is(kind, key, value):
    with pytest.raises(ConfigError, match=key):
        model_of(kind, **{key: value})


def test_images_with_their_channels_last_name_the_wrapper_that_turns_them():
    with pytest.raises(ConfigError):
        model_of("dqn", obs_shape=[84, 84, 3])
    for shape in ([3, 3, 3], [4, 84, 84], [64, 1, 1]):
        assert model_of("dqn", obs_shape=shape)(torch.rand(1, *shape))["logit"].shape == (1, 2)


def widths(model):
    """The widths of the linear layers, in order, each layer once."""
    return [(layer.in_features, layer.out_features) for layer in model.modules() if isinstance(layer, nn.Linear)]


@pytest.mark.parametrize(
    ("kind", "arch", "expected"),
    [
        ("dqn", [8, 6], [(4, 8), (8, 6), (6, 2), (6, 1)]),
        ("vac", [8, 6], [(4, 8), (8, 6), (6, 1), (4, 8), (8, 6), (6, 2)]),
        ("vac", {"pi": [8], "vf": [7, 5]}, [(4, 7), (7, 5), (5, 1), (4, 8), (8, 2)]),
        ("acer", {"pi": [8], "qf": [7]}, [(4, 7), (7, 2), (4, 8), (8, 2)]),
        ("pg", [8], [(4, 8), (8, 2)]),
        ("continuous_qac", {"pi": [8], "qf": [7, 5]}, [(4, 8), (8, 2), (6, 7), (7, 5), (5, 1)]),
        ("discrete_qac", [8], [(4, 8), (8, 2), (4, 8), (8, 2)]),
        ("continuous_bc", [8, 6], [(4, 8), (8, 6), (6, 2)]),
        ("drqn", [8, 6], [(4, 8), (8, 6), (6, 2), (6, 1)]),
    ],
)
def test_net_arch_has_the_widths_of_the_hidden_layers_of_each_network(kind, arch, expected):
    assert sorted(widths(model_of(kind, net_arch=arch))) == sorted(expected)


def test_net_arch_follows_the_default_encoder_of_images_and_of_dicts():
    image = model_of("vac", obs_shape=[3, 40, 40], net_arch=[8])
    assert [layer.out_channels for layer in image.modules() if isinstance(layer, nn.Conv2d)] == [32, 64, 64]
    assert image.encoder.output_size == 128 and (128, 8) in widths(image)
    entries = model_of("dqn", obs_shape={"place": 2, "goal": 3}, net_arch=[8])
    assert widths(entries) == [(5, 128), (128, 8), (8, 2), (8, 1)]


@pytest.mark.parametrize("kind", KINDS)
def test_every_model_takes_net_arch_and_activation(kind):
    model = model_of(kind, net_arch=[9], activation=nn.ELU)
    assert any(size == 9 for _, size in widths(model)) and any(isinstance(part, nn.ELU) for part in model.modules())


def test_net_arch_overrides_defaults_but_not_what_is_given():
    cfg = {"type": "dqn", **SHAPES, "net_arch": [8], "encoder_hidden_size_list": [16], "dueling": False}
    with pytest.raises(ConfigError):
        create_model(cfg)
    assert widths(create_model(cfg, optional=["encoder_hidden_size_list"])) == [(4, 8), (8, 2)]
    policy_cfg = DQNPolicy.default_config()
    policy_cfg.model.update(SHAPES, net_arch=[8])
    assert widths(DQNPolicy(policy_cfg).learn_mode.get_attribute("model"))[0] == (4, 8)


def test_an_activation_is_a_class_a_module_a_name_or_what_a_saved_config_calls_it():
    for activation in (nn.Tanh, nn.Tanh(), "tanh", "torch.nn.modules.activation:Tanh"):
        assert isinstance(model_of("dqn", activation=activation).encoder.act, nn.Tanh)
    assert not any(isinstance(module, nn.ReLU) for module in model_of("dqn", activation=None).modules())


@pytest.mark.parametrize("size", [12, 40])
@pytest.mark.parametrize("kind", ["continuous_qac", "discrete_qac"])
def test_actors_and_critics_of_images_have_an_encoder_by_default(kind, size):
    model = model_of(kind, obs_shape=[3, size, size])
    convolutions = [layer.out_channels for layer in model.actor_encoder.modules() if isinstance(layer, nn.Conv2d)]
    assert convolutions == [32, 64, 64] and model.actor_encoder.output_size == 128
    output = model(torch.rand(5, 3, size, size), mode="compute_actor")
    assert output["action" if kind == "continuous_qac" else "logit"].shape == (5, 2)


# create_model.


def test_all_other_keys_are_constructor_arguments():
    cfg = EasyDict(type="dqn", obs_shape=4, action_shape=2, dueling=False, encoder_hidden_size_list=[8, 8])
    before = dict(cfg)
    model = create_model(cfg)
    assert type(model) is DQN
    assert "head.Q.1.0.weight" in model.state_dict()
    assert cfg == before


def test_modules_in_import_names_are_imported_first(import_folder):
    (import_folder / "my_tiny_model.py").write_text(
        "from torch import nn\n"
        "from ding.utils.registry_factory import MODEL_REGISTRY\n"
        "@MODEL_REGISTRY.register('my_tiny')\n"
        "class Tiny(nn.Linear):\n"
        "    pass\n"
    )
    model = create_model({"type": "my_tiny", "import_names": ["my_tiny_model"], "in_features": 2, "out_features": 1})
    assert isinstance(model, nn.Linear)
    assert "my_tiny_model" in sys.modules


def test_a_missing_or_unknown_type_fails():
    with pytest.raises(KeyError):
        create_model({"obs_shape": 4})
    with pytest.raises(KeyError):
        create_model({"type": "no_such"})


@pytest.mark.parametrize("error", [ConfigError, TypeError])
def test_an_unknown_argument_is_named_with_the_known_ones_the_nearest_first(error):
    with pytest.raises(error) as e:
        create_model({"type": "dqn", "obs_shape": 4, "action_shape": 2, "hidden_sizes": [3]})
    start, known = str(e.value).split("; it knows ")
    assert start == "policy.model.hidden_sizes is unknown to the model DQN"
    assert known.split(", ")[0] == "head_hidden_size"
    assert set(known.split(", ")) == set(inspect.signature(DQN).parameters)


def test_a_missing_argument_is_named_with_its_meaning():
    with pytest.raises(ConfigError, match="obs_shape"):
        create_model({"type": "dqn", "action_shape": 2})
    with pytest.raises(ConfigError):
        create_model({"type": "dqn", "obs_shape": 2})
