"""DQN: state dict names, shapes, masks, options, errors."""

import pytest
import torch
from torch import nn

from ding.model import BDQ, C51DQN, DQN, DRQN, FQF, IQN, QRDQN, SQN, RainbowDQN, create_model
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


# The relatives of DQN: registered names, constructors, state dict names, outputs.


# For 3 observations and 2 actions.
OUTPUTS = {
    C51DQN: {"logit": (3, 2), "distribution": (3, 2, 51)},
    RainbowDQN: {"logit": (3, 2), "distribution": (3, 2, 51)},
    QRDQN: {"logit": (3, 2), "q": (3, 2, 32), "tau": (3, 32, 1)},
    IQN: {"logit": (3, 2), "q": (32, 3, 2), "quantiles": (96, 1)},
    FQF: {
        "logit": (3, 2),
        "q": (3, 32, 2),
        "quantiles": (3, 33),
        "quantiles_hats": (3, 32),
        "q_tau_i": (3, 31, 2),
        "entropies": (3, 1),
    },
}


@pytest.mark.parametrize("cls", OUTPUTS)
def test_outputs_have_the_documented_shapes_and_names(cls):
    output = cls(4, 2)(torch.rand(3, 4))
    assert {key: tuple(value.shape) for key, value in output.items()} == OUTPUTS[cls]


def test_the_atoms_of_the_constructor_count():
    model = C51DQN(4, 2, v_min=0, v_max=1, n_atom=5)
    assert model(torch.rand(3, 4))["distribution"].shape == (3, 2, 5)
    assert model.head.support.tolist() == [0.0, 0.25, 0.5, 0.75, 1.0]


@pytest.mark.parametrize("cls", OUTPUTS)
@pytest.mark.parametrize("obs_shape", [4, (3, 40, 36), {"pos": 2, "goal": 2}])
def test_all_kinds_of_observations_and_multi_discrete_actions_and_another_head_width(cls, obs_shape):
    model = cls(obs_shape, [2, 3], encoder_hidden_size_list=[8, 8, 8], head_hidden_size=12, head_layer_num=2)
    if isinstance(obs_shape, dict):
        x = {name: torch.rand(5, size) for name, size in obs_shape.items()}
    else:
        x = torch.rand(5, *([obs_shape] if isinstance(obs_shape, int) else obs_shape))
    output = model(x)
    assert [logit.shape for logit in output["logit"]] == [(5, 2), (5, 3)]
    assert model.projection[0].out_features == 12


def test_a_branching_network():
    model = create_model({"type": "bdq", "obs_shape": 3, "num_branches": 1, "action_bins_per_branch": 11})
    hidden = ["0.0", "0.2", "0.4", "1.0"]
    names = pairs(*[f"head.V.{layer}" for layer in hidden], *[f"head.branches.0.{layer}" for layer in hidden])
    assert list(model.state_dict()) == ENCODER + names
    assert BDQ(3, num_branches=2, action_bins_per_branch=5)(torch.rand(4, 3))["logit"].shape == (4, 2, 5)
    assert (model.num_branches, model.action_bins_per_branch) == (1, 11)
    assert [BDQ(3, shape, 5).num_branches for shape in (2, (2,), [2])] == [2, 2, 2]
    for wrong in (0, (2, 3)):
        with pytest.raises(ValueError, match=r"num_branches = (0|\(2, 3\)) is not allowed"):
            BDQ(3, wrong)


def test_soft_q_networks_are_two_of_the_same_kind():
    model = SQN(4, 2, encoder_hidden_size_list=[64, 64])
    x = torch.rand(3, 4)
    output = model(x)
    assert list(model.q0.state_dict()) == list(model.q1.state_dict())
    assert [name.split(".")[0] for name in model.state_dict()].count("q0") == len(model.q0.state_dict())
    q0, q1 = model.q0(x)["logit"], model.q1(x)["logit"]
    assert isinstance(output["q_value"], tuple)
    assert torch.equal(output["q_value"][0], q0) and torch.equal(output["q_value"][1], q1)
    assert torch.equal(output["logit"], torch.min(q0, q1)) and not torch.equal(q0, q1)
    assert set(output) == {"q_value", "logit"}


# DRQN: state dict names, states, sequences, options.


def batch_of(states):
    return {key: torch.cat([state[key] for state in states], dim=1) for key in states[0]}


@pytest.mark.parametrize("lstm_type", ["normal", "pytorch", "gru"])
@pytest.mark.parametrize("res_link", [False, True])
@pytest.mark.parametrize("obs_shape", [4, (3, 40, 36)])
def test_a_sequence_gives_what_its_steps_give_one_by_one(obs_shape, res_link, lstm_type):
    torch.manual_seed(0)
    model = DRQN(obs_shape, 3, encoder_hidden_size_list=[8, 8, 8], lstm_type=lstm_type, res_link=res_link)
    shape = (obs_shape,) if isinstance(obs_shape, int) else obs_shape
    obs = torch.rand(5, 2, *shape)
    whole = model({"obs": obs, "prev_state": None}, saved_state_timesteps=[3, 0, 5])
    state, states = [None, None], [None]
    for step in range(5):
        one = model({"obs": obs[step], "prev_state": state}, inference=True)
        assert one.keys() == {"logit", "next_state"} and one["logit"].shape == (2, 3)
        assert torch.allclose(one["logit"], whole["logit"][step], atol=1e-6)
        state = one["next_state"]
        states.append(state)
        assert torch.allclose(batch_of(state)["h"][0], whole["hidden_state"][step], atol=1e-6)
    after_three, before, after_five = whole["saved_state"]
    assert before is None
    for found, expected in ((after_three, states[3]), (after_five, states[5]), (whole["next_state"], states[5])):
        assert all(state["h"].shape == (1, 1, 8) for state in found)
        for key in ("h", "c"):
            assert torch.allclose(batch_of(found)[key], batch_of(expected)[key], atol=1e-6)


def test_the_embedding_is_added_with_res_link():
    torch.manual_seed(0)
    model = DRQN(4, 2, encoder_hidden_size_list=[8, 8], res_link=True)
    obs = torch.rand(3, 2, 4)
    found = model({"obs": obs, "prev_state": None})
    assert torch.allclose(found["logit"], model.head(found["hidden_state"] + model.encoder(obs))["logit"])


def test_every_parameter_learns_and_the_last_step_depends_on_the_first():
    torch.manual_seed(0)
    model = DRQN(4, [3, 2], encoder_hidden_size_list=[8, 8], head_hidden_size=6)
    obs = torch.rand(4, 2, 4, requires_grad=True)
    output = model({"obs": obs, "prev_state": None})
    assert [head.shape for head in output["logit"]] == [(4, 2, 3), (4, 2, 2)]
    assert output["hidden_state"].shape == (4, 2, 6) and "saved_state" not in output
    is_differentiable(sum(head[-1].pow(2).sum() for head in output["logit"]), model)
    assert obs.grad[0].abs().sum() > 0
