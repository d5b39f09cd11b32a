"""The actor-critic network of several agents: what it computes, its parts, its state dict, PPO with it."""

import numpy as np
import pytest
import torch
from easydict import EasyDict
from torch import nn

from ding.model import MAVAC
from ding.policy import PPOPolicy
from tests.policy.learning import model_of, parameters_of
from tests.policy.on_policy_samples import TERMINATED, TRUNCATED, make_piece

G = torch.Generator().manual_seed(0)
X = {
    "agent_state": torch.rand(4, 3, 8, generator=G),
    "global_state": torch.rand(4, 3, 12, generator=G),
    "action_mask": torch.tensor([[[1, 0, 1, 1, 1]] * 3] * 4),
}
SIZES = {"actor_head_hidden_size": 16, "critic_head_hidden_size": 20}


def make(**kwargs):
    torch.manual_seed(0)
    return MAVAC(8, 12, 5, 3, **{**SIZES, **kwargs})


def test_each_mode_gives_its_outputs():
    model = make()
    both, actor, critic = (model(X, mode) for mode in ("compute_actor_critic", "compute_actor", "compute_critic"))
    assert both.keys() == {"logit", "action_mask", "value"}
    assert both["logit"].shape == (4, 3, 5) and both["value"].shape == (4, 3)
    assert torch.equal(actor["logit"], both["logit"]) and torch.equal(critic["value"], both["value"])
    assert torch.equal(both["action_mask"], X["action_mask"])
    assert "action_mask" not in model({**X, "action_mask": X["action_mask"]}, "compute_critic")


def test_agents_share_the_actor_and_are_judged_each():
    model = make()
    output = model(X, "compute_actor_critic")
    for agent in range(3):
        alone = {key: value[:, agent : agent + 1] for key, value in X.items()}
        one = model(alone, "compute_actor_critic")
        assert torch.allclose(one["logit"][:, 0], output["logit"][:, agent], atol=1e-6)
        assert torch.allclose(one["value"][:, 0], output["value"][:, agent], atol=1e-6)


def test_one_global_state_has_one_value():
    assert make()({"global_state": torch.rand(4, 12)}, "compute_critic")["value"].shape == (4,)


def test_the_layers_are_applied_in_order():
    model = make()
    expected = model.actor_head.Q(model.actor_encoder[1](model.actor_encoder[0](X["agent_state"])))
    assert torch.equal(model(X, "compute_actor")["logit"], expected)
    names = [
        name for name in model.state_dict() if name.endswith("weight") and not name.startswith(("actor.", "critic."))
    ]
    assert names == [
        *("actor_encoder.0.weight", "actor_head.Q.0.0.weight", "actor_head.Q.0.2.weight", "actor_head.Q.1.0.weight"),
        *("critic_encoder.0.weight", "critic_head.main.0.weight", "critic_head.last.weight"),
    ]
    assert model.actor[1] is model.actor_head and model.critic[1] is model.critic_head


def test_continuous_actions_have_a_mean_and_a_deviation_for_each_agent():
    logit = make(action_space="continuous")(X, "compute_actor")["logit"]
    assert logit["mu"].shape == logit["sigma"].shape == (4, 3, 5)
    bounded = make(action_space="continuous", sigma_type="conditioned", bound_type="tanh")
    assert bounded.actor_head.sigma_type == "conditioned" and bounded.actor_head.bound_type == "tanh"


def test_encoders_of_ones_own_stand_before_the_heads():
    encoder = nn.Linear(8, 6), nn.Linear(12, 7)
    for part in encoder:
        part.output_size = part.out_features
    model = make(encoder=encoder)
    assert model.actor_encoder is encoder[0] and model.critic_encoder is encoder[1]
    assert torch.equal(model(X, "compute_critic")["value"], model.critic_head(encoder[1](X["global_state"]))["pred"])


def test_what_does_not_fit_is_refused():
    with pytest.raises(ValueError):
        make(action_space="hybrid")
    with pytest.raises(ValueError):
        make(encoder=[nn.Linear(8, 8)])
    with pytest.raises(ValueError):
        MAVAC((3, 8, 8), 12, 5, 3)
    with pytest.raises(ValueError):
        MAVAC(8, 12, [2, 3], 3)


# --- multi-agent PPO ---


def make_ppo(space, recompute=True):
    torch.manual_seed(0)
    cfg = PPOPolicy.default_config()
    cfg.multi_agent, cfg.action_space, cfg.recompute_adv = True, space, recompute
    cfg.model = EasyDict(agent_obs_shape=4, global_obs_shape=6, action_shape=3, agent_num=2, **SIZES)
    cfg.learn.update(epoch_per_collect=2, batch_size=8)
    return PPOPolicy(cfg)


def make_obs():
    return {
        "agent_state": torch.rand(2, 4),
        "global_state": torch.rand(2, 6),
        "action_mask": torch.tensor([[1, 0, 1], [1, 1, 1]]),
    }


@pytest.mark.parametrize("space", ["discrete", "continuous"])
@pytest.mark.parametrize("recompute", [True, False])
def test_ppo_of_several_agents_has_this_model_and_learns(space, recompute):
    policy = make_ppo(space, recompute)
    assert type(model_of(policy)) is MAVAC and model_of(policy).action_space == space
    output = policy.collect_mode.forward({3: make_obs(), 0: make_obs()})
    action = (2,) if space == "discrete" else (2, 3)
    assert {env_id: (out["action"].shape, out["value"].shape) for env_id, out in output.items()} == dict.fromkeys(
        (3, 0), (action, (2,))
    )
    if space == "discrete":
        draws = policy.collect_mode.forward({i: make_obs() for i in range(50)})
        assert all(out["action"][0] != 1 for out in draws.values())
    samples = []
    for length, end in ((9, TERMINATED), (7, TRUNCATED)):
        samples += policy.collect_mode.get_train_sample(make_piece(policy, length, end, make_obs))
    assert samples[0]["adv"].shape == (2,)
    before = parameters_of(policy)
    steps = policy.learn_mode.forward(samples)
    assert len(steps) == 4 and not np.isnan([list(step.values()) for step in steps]).any()
    assert not torch.equal(parameters_of(policy), before)
