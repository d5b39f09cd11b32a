"""Models of dict observations: an encoder for each entry, and encoders of the user's own."""

import pytest
import torch
from torch import nn

from ding.model import DQN, VAC

SHAPE = {"pos": 2, "camera": (1, 36, 36), "speed": 1}
SIZES = {"encoder_hidden_size_list": [4, 4, 8]}
G = torch.Generator().manual_seed(0)


def batch(size=3):
    return {
        "pos": torch.rand(size, 2, generator=G),
        "camera": torch.rand(size, 1, 36, 36, generator=G),
        "speed": torch.rand(size, generator=G),  # entries [1] are collated to [B]
    }


def dqn(x):
    return DQN(SHAPE, 2, **SIZES)(x)["logit"]


def vac(x):
    model = VAC(SHAPE, 2, actor_head_hidden_size=8, critic_head_hidden_size=8, **SIZES)
    return model(x, "compute_actor_critic")["logit"]


def seeded(make, x):
    torch.manual_seed(0)
    return make(x)


@pytest.mark.parametrize("make", [dqn, vac])
def test_observations_may_lie_beside_or_under_a_mask(make):
    x, mask = batch(), torch.tensor([[1, 0]] * 3)
    logit = seeded(make, x)
    assert torch.equal(seeded(make, {**x, "action_mask": mask}), logit)
    assert torch.equal(seeded(make, {"observation": x, "action_mask": mask}), logit)
    assert torch.equal(DQN({"pos": 2}, 2)({"pos": x["pos"], "action_mask": mask})["action_mask"], mask)


def test_actor_and_critic_may_have_encoders_of_their_own():
    model = VAC(SHAPE, 2, share_encoder=False, actor_head_hidden_size=8, critic_head_hidden_size=8, **SIZES)
    x = batch()
    embedding = model.critic_encoder({**x, "speed": x["speed"].unsqueeze(1)})
    assert torch.equal(model(x, "compute_critic")["value"], model.critic_head(embedding)["pred"])
    assert model.critic_encoder is not model.actor_encoder


# --- an encoder of the user's own ---


class Sum(nn.Module):
    """Takes `{'hand': [B, 2], 'table': {'cards': [B, 2]}}`."""

    output_size = 6

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(2, 6)

    def forward(self, x):
        return self.layer(x["hand"] + x["table"]["cards"])


@pytest.mark.parametrize("obs_shape", [{"hand": 2, "table": {"cards": 2}}, None, 4])
@pytest.mark.parametrize("share", [True, False])
@pytest.mark.parametrize("space", ["discrete", "continuous"])
def test_nested_observations_reach_an_encoder_of_ones_own(obs_shape, share, space):
    model = VAC(obs_shape, 2, action_space=space, share_encoder=share, encoder=Sum())
    x = {"hand": torch.rand(3, 2), "table": {"cards": torch.rand(3, 2)}}
    output = model(x, "compute_actor_critic")
    embedding = (model.encoder if share else model.critic_encoder)(x)
    assert torch.equal(output["value"], model.critic_head(embedding)["pred"])
    masked = model({"observation": x, "action_mask": torch.ones(3, 2)}, "compute_actor_critic")
    assert torch.equal(masked["value"], output["value"])
    assert ("action_mask" in masked) is (space == "discrete")
