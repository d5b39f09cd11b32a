"""PPG's networks: names, sizes, and what the auxiliary critic shares."""

import pytest
import torch

from ding.model import PPG


def make_model(**kwargs):
    torch.manual_seed(0)
    sizes = {"encoder_hidden_size_list": [64, 64, 128], "actor_head_hidden_size": 128, "critic_head_hidden_size": 128}
    return PPG(4, 2, **{**sizes, **kwargs})


@pytest.mark.parametrize("share_encoder", [True, False])
def test_the_auxiliary_critic_begins_as_a_copy_and_learns_by_itself(share_encoder):
    model = make_model(share_encoder=share_encoder)
    obs = torch.rand(3, 4)
    both, aux = model(obs, mode="compute_actor_critic"), model(obs, mode="compute_critic")
    assert both["value"].shape == (3,) and torch.equal(both["value"], aux["value"])
    assert torch.equal(model(obs, mode="compute_actor")["logit"], both["logit"])
    aux["value"].sum().backward()
    assert all(p.grad is None for p in model.actor_critic.parameters())
    assert all(p.grad is not None for p in model.aux_critic.parameters())


def test_images_and_continuous_actions_and_masks():
    model = PPG((3, 40, 36), 2, action_space="continuous", encoder_hidden_size_list=[8, 8, 64])
    output = model(torch.rand(2, 3, 40, 36), mode="compute_actor_critic")
    assert output["logit"]["mu"].shape == (2, 2) and output["value"].shape == (2,)
    mask = torch.ones(2, 2)
    assert (
        make_model()({"observation": torch.rand(2, 4), "action_mask": mask}, mode="compute_actor")["action_mask"]
        is mask
    )
    assert make_model()({"observation": torch.rand(2, 4), "action_mask": mask}, mode="compute_critic").keys() == {
        "value"
    }
