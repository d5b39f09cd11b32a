"""ACER's network: state dict names, outputs, what is apart."""

import pytest
import torch

from ding.model import ACER


@pytest.mark.parametrize("obs_shape", [4, (3, 40, 36)])
def test_actor_and_critic_share_nothing(obs_shape):
    model = ACER(obs_shape, 3, encoder_hidden_size_list=[8, 8, 8], actor_head_hidden_size=6, critic_head_hidden_size=5)
    obs = torch.rand(2, *((obs_shape,) if isinstance(obs_shape, int) else obs_shape))
    logit, q_value = model(obs, mode="compute_actor")["logit"], model(obs, mode="compute_critic")["q_value"]
    assert logit.shape == q_value.shape == (2, 3)
    q_value.sum().backward()
    assert all(p.grad is None for p in model.actor.parameters())
    assert all(p.grad is not None for p in model.critic.parameters())
