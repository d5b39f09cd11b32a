"""DRQN: state dict names, states, sequences, options."""

import pytest
import torch

from ding.model import DRQN
from ding.torch_utils.nn_test_helper import is_differentiable


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
