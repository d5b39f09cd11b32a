"""ACER's network: state dict names, outputs, what is apart."""

import pytest
import torch

from ding.model import ACER


def pairs(*layers):
    return [f"{layer}.{name}" for layer in layers for name in ("weight", "bias")]


def test_parameter_names_and_the_aliases_of_the_state_dict():
    model = ACER(4, 2, encoder_hidden_size_list=[64, 64])
    encoders = [f"{who}_encoder.{layer}" for who in ("actor", "critic") for layer in ("init", "main.0")]
    heads = ["critic_head.main.0", "critic_head.last", "actor_head.Q.0.0", "actor_head.Q.1.0"]
    assert [name for name, _ in model.named_parameters()] == pairs(*encoders, *heads)
    assert model.critic_head.last.weight.shape == (2, 64)
    aliases = ["actor.0.init", "actor.0.main.0", "actor.1.Q.0.0", "actor.1.Q.1.0"]
    aliases += ["critic.0.init", "critic.0.main.0", "critic.1.main.0", "critic.1.last"]
    assert list(model.state_dict()) == pairs(*encoders, *heads, *aliases)


@pytest.mark.parametrize("obs_shape", [4, (3, 40, 36)])
def test_actor_and_critic_share_nothing(obs_shape):
    model = ACER(obs_shape, 3, encoder_hidden_size_list=[8, 8, 8], actor_head_hidden_size=6, critic_head_hidden_size=5)
    obs = torch.rand(2, *((obs_shape,) if isinstance(obs_shape, int) else obs_shape))
    logit, q_value = model(obs, mode="compute_actor")["logit"], model(obs, mode="compute_critic")["q_value"]
    assert logit.shape == q_value.shape == (2, 3)
    q_value.sum().backward()
    assert all(p.grad is None for p in model.actor.parameters())
    assert all(p.grad is not None for p in model.critic.parameters())


def test_an_unknown_mode_is_refused():
    with pytest.raises(AssertionError, match="compute_actor_critic"):
        ACER(4, 2)(torch.rand(1, 4), mode="compute_actor_critic")
