"""The relatives of DQN: registered names, constructors, state dict names, outputs."""

import pytest
import torch

from ding.model import BDQ, C51DQN, FQF, IQN, QRDQN, SQN, RainbowDQN, create_model


def pairs(*layers):
    return [f"{layer}.{name}" for layer in layers for name in ("weight", "bias")]


ENCODER = pairs("encoder.init", "encoder.main.0", "encoder.main.2")
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
