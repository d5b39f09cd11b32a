"""The actor-critic network: what it computes, its parts, its state dict."""

import numpy as np
import pytest
import torch
from easydict import EasyDict
from torch import nn
from torch.distributions import Categorical, Independent, Normal

from ding.model import ACER, MAVAC, PG, PPG, VAC
from ding.model.common.head import DiscreteHead
from ding.policy import PPOPolicy
from tests.policy.learning import model_of, parameters_of
from tests.policy.on_policy_samples import TERMINATED, TRUNCATED, make_fragment

X = torch.rand(3, 4, generator=torch.Generator().manual_seed(0))
HYBRID = EasyDict(action_type_shape=3, action_args_shape=2)


def shapes(item):
    if isinstance(item, torch.Tensor):
        return tuple(item.shape)
    if isinstance(item, dict):
        return {key: shapes(value) for key, value in item.items()}
    return [shapes(value) for value in item]


def leaves(item):
    if isinstance(item, torch.Tensor):
        return [item]
    return [leaf for value in (item.values() if isinstance(item, dict) else item) for leaf in leaves(value)]


GAUSSIAN = {"mu": (3, 2), "sigma": (3, 2)}
SPACES = [
    ("discrete", 5, (3, 5)),
    ("discrete", [2, 3], [(3, 2), (3, 3)]),
    ("continuous", 2, GAUSSIAN),
    ("continuous", (2,), GAUSSIAN),
    ("hybrid", HYBRID, {"action_type": (3, 3), "action_args": GAUSSIAN}),
]


@pytest.mark.parametrize("share", [True, False])
@pytest.mark.parametrize(("space", "action_shape", "logit"), SPACES)
@pytest.mark.parametrize("sizes", [{}, {"actor_head_hidden_size": 16, "critic_head_hidden_size": 24}])
def test_each_mode_gives_its_outputs(share, space, action_shape, logit, sizes):
    model = VAC(4, action_shape, action_space=space, share_encoder=share, **sizes)
    both = model(X, mode="compute_actor_critic")
    actor, critic = model(X, mode="compute_actor"), model(X, mode="compute_critic")
    assert shapes(both) == {"logit": logit, "value": (3,)}
    assert shapes(actor) == {"logit": logit} and shapes(critic) == {"value": (3,)}
    assert torch.equal(critic["value"], both["value"])
    assert all(torch.equal(a, b) for a, b in zip(leaves(actor), leaves(both), strict=False))


def test_names_of_actor_heads():
    def head(space, shape, **kwargs):
        model = VAC(4, shape, action_space=space, **kwargs)
        return [name[len("actor_head.") :] for name in model.state_dict() if name.startswith("actor_head.")]

    gaussian = ["log_sigma_param", "main.0.weight", "main.0.bias", "mu.weight", "mu.bias"]
    assert head("continuous", 2) == gaussian
    assert head("continuous", 2, sigma_type="fixed") == gaussian[1:]
    discrete = [f"Q.{layer}.0.{kind}" for layer in (0, 1) for kind in ("weight", "bias")]
    assert head("hybrid", HYBRID) == [f"0.{name}" for name in discrete] + [f"1.{name}" for name in gaussian]
    assert head("discrete", [2, 3]) == [f"pred.{k}.{name}" for k in (0, 1) for name in discrete]


@pytest.mark.parametrize("share", [True, False])
def test_actor_and_critic_list_their_encoder_and_head(share):
    model = VAC(4, 2, share_encoder=share)
    assert list(model.actor) == [model.encoder if share else model.actor_encoder, model.actor_head]
    assert list(model.critic) == [model.encoder if share else model.critic_encoder, model.critic_head]
    assert (model.actor[0] is model.critic[0]) is share
    if not share:
        assert not torch.equal(model.actor[0].init.weight, model.critic[0].init.weight)


def test_another_width_of_the_actor_head_gets_a_projection():
    model = VAC(4, 2, encoder_hidden_size_list=[8, 8], actor_head_hidden_size=16)
    projection, head = model.actor_head
    assert (projection[0].in_features, projection[0].out_features) == (8, 16)
    assert isinstance(projection[1], nn.ReLU) and isinstance(head, DiscreteHead)
    assert set(map(id, projection.parameters())) <= set(map(id, model.actor.parameters()))


def test_heads_are_as_deep_and_wide_as_they_are_asked_to_be():
    model = VAC(
        4,
        2,
        action_space="continuous",
        encoder_hidden_size_list=[8],
        actor_head_hidden_size=16,
        actor_head_layer_num=2,
        critic_head_hidden_size=24,
        critic_head_layer_num=0,
        activation=nn.Tanh(),
    )
    widths = [layer.out_features for layer in model.actor_head.modules() if isinstance(layer, nn.Linear)]
    assert widths == [16, 16, 2]
    assert [layer.in_features for layer in model.critic_head.modules() if isinstance(layer, nn.Linear)] == [8]
    assert not any(isinstance(layer, nn.ReLU) for layer in model.modules())


def test_sigma_and_bound_reach_the_actor_head():
    fixed = VAC(4, 2, action_space="continuous", sigma_type="fixed", fixed_sigma_value=0.7, bound_type="tanh")
    logit = fixed(1e3 * X, "compute_actor")["logit"]
    assert logit["sigma"].eq(0.7).all() and logit["mu"].abs().max() <= 1
    default = VAC(4, 2, action_space="continuous", sigma_type="fixed")
    assert default(X, "compute_actor")["logit"]["sigma"].eq(0.3).all()


# --- observations ---


def test_images_go_through_a_convolutional_encoder():
    model = VAC([4, 84, 84], 6, encoder_hidden_size_list=[32, 64, 64, 128], actor_head_hidden_size=128)
    assert shapes(model(torch.rand(2, 4, 84, 84), "compute_actor_critic")) == {"logit": (2, 6), "value": (2,)}


@pytest.mark.parametrize("share", [True, False])
def test_images_may_go_through_the_impala_encoder(share):
    model = VAC(
        [3, 16, 16],
        2,
        share_encoder=share,
        encoder_hidden_size_list=[4, 8],
        actor_head_hidden_size=16,
        critic_head_hidden_size=24,
        impala_cnn_encoder=True,
    )
    assert shapes(model(torch.zeros(2, 3, 16, 16), "compute_actor_critic")) == {"logit": (2, 2), "value": (2,)}
    assert model.critic[0].output_size == (16 if share else 24)
    with pytest.raises(RuntimeError, match="impala_cnn_encoder"):
        VAC(4, 2, impala_cnn_encoder=True)


# --- an encoder of one's own ---


def test_an_encoder_of_ones_own_is_shared_or_copied():
    encoder = nn.Linear(4, 64)
    shared = VAC(4, 2, encoder=encoder)
    assert shared.encoder is encoder
    own = VAC(4, 2, encoder=encoder, share_encoder=False)
    assert own.actor_encoder is encoder is not own.critic_encoder
    assert torch.equal(own.critic_encoder.weight, encoder.weight)
    assert shapes(own(X, "compute_actor_critic")) == {"logit": (3, 2), "value": (3,)}


# --- construction ---


def test_unknown_action_spaces_and_shapes_that_do_not_fit_are_refused():
    with pytest.raises(ValueError):
        VAC(4, 2, action_space="mixed")
    for shape in (2, {"action_type_shape": 2}):
        with pytest.raises(ValueError):
            VAC(4, shape, action_space="hybrid")
    with pytest.raises(ValueError):
        VAC(4, [2, 3], action_space="continuous")


# ACER's network: state dict names, outputs, what is apart.


@pytest.mark.parametrize("obs_shape", [4, (3, 40, 36)])
def test_actor_and_critic_share_nothing(obs_shape):
    model = ACER(obs_shape, 3, encoder_hidden_size_list=[8, 8, 8], actor_head_hidden_size=6, critic_head_hidden_size=5)
    obs = torch.rand(2, *((obs_shape,) if isinstance(obs_shape, int) else obs_shape))
    logit, q_value = model(obs, mode="compute_actor")["logit"], model(obs, mode="compute_critic")["q_value"]
    assert logit.shape == q_value.shape == (2, 3)
    q_value.sum().backward()
    assert all(p.grad is None for p in model.actor.parameters())
    assert all(p.grad is not None for p in model.critic.parameters())


# The network of policy gradient methods: what it computes, its parts, its state dict.


def test_discrete_actions_have_a_categorical_distribution():
    output = PG(4, 3)(X)
    assert output.keys() == {"logit", "dist"} and output["logit"].shape == (3, 3)
    assert isinstance(output["dist"], Categorical)
    assert torch.allclose(output["dist"].probs, torch.softmax(output["logit"], -1))


def test_parts_of_a_multi_discrete_action_have_a_distribution_each():
    output = PG(4, [2, 3])(X)
    assert [logit.shape for logit in output["logit"]] == [(3, 2), (3, 3)]
    assert [dist.probs.shape for dist in output["dist"]] == [(3, 2), (3, 3)]


def test_continuous_actions_have_a_gaussian_distribution():
    model = PG(4, 2, "continuous")
    output = model(X)
    mu, sigma = output["logit"]["mu"], output["logit"]["sigma"]
    expected = Independent(Normal(mu, sigma), 1)
    action = torch.rand(3, 2)
    assert torch.equal(output["dist"].log_prob(action), expected.log_prob(action))
    assert torch.equal(sigma, model.head.log_sigma_param.exp().expand(3, 2))


def test_another_width_of_the_head_gets_a_projection():
    model = PG(4, 2, head_hidden_size=16, head_layer_num=2)
    assert model(X)["logit"].shape == (3, 2)
    assert [layer.out_features for layer in model.head.modules() if isinstance(layer, torch.nn.Linear)] == [
        16,
        16,
        16,
        2,
    ]


def test_what_it_cannot_do_is_refused():
    with pytest.raises(ValueError, match="hybrid"):
        PG(4, 2, "hybrid")
    with pytest.raises(RuntimeError):
        PG((2, 3), 2)


# PPG's networks: names, sizes, and what the auxiliary critic shares.


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


# The actor-critic network of several agents: what it computes, its parts, its state dict, PPO with it.


G = torch.Generator().manual_seed(0)
AGENTS_OBS = {
    "agent_state": torch.rand(4, 3, 8, generator=G),
    "global_state": torch.rand(4, 3, 12, generator=G),
    "action_mask": torch.tensor([[[1, 0, 1, 1, 1]] * 3] * 4),
}
SIZES = {"actor_head_hidden_size": 16, "critic_head_hidden_size": 20}


def make(**kwargs):
    torch.manual_seed(0)
    return MAVAC(8, 12, 5, 3, **{**SIZES, **kwargs})


def test_each_mode_of_several_agents_gives_its_outputs():
    model = make()
    both, actor, critic = (
        model(AGENTS_OBS, mode) for mode in ("compute_actor_critic", "compute_actor", "compute_critic")
    )
    assert both.keys() == {"logit", "action_mask", "value"}
    assert both["logit"].shape == (4, 3, 5) and both["value"].shape == (4, 3)
    assert torch.equal(actor["logit"], both["logit"]) and torch.equal(critic["value"], both["value"])
    assert torch.equal(both["action_mask"], AGENTS_OBS["action_mask"])
    assert "action_mask" not in model({**AGENTS_OBS, "action_mask": AGENTS_OBS["action_mask"]}, "compute_critic")


def test_agents_share_the_actor_and_are_judged_each():
    model = make()
    output = model(AGENTS_OBS, "compute_actor_critic")
    for agent in range(3):
        alone = {key: value[:, agent : agent + 1] for key, value in AGENTS_OBS.items()}
        one = model(alone, "compute_actor_critic")
        assert torch.allclose(one["logit"][:, 0], output["logit"][:, agent], atol=1e-6)
        assert torch.allclose(one["value"][:, 0], output["value"][:, agent], atol=1e-6)


def test_one_global_state_has_one_value():
    assert make()({"global_state": torch.rand(4, 12)}, "compute_critic")["value"].shape == (4,)


def test_the_layers_are_applied_in_order():
    model = make()
    expected = model.actor_head.Q(model.actor_encoder[1](model.actor_encoder[0](AGENTS_OBS["agent_state"])))
    assert torch.equal(model(AGENTS_OBS, "compute_actor")["logit"], expected)
    names = [
        name for name in model.state_dict() if name.endswith("weight") and not name.startswith(("actor.", "critic."))
    ]
    assert names == [
        *("actor_encoder.0.weight", "actor_head.Q.0.0.weight", "actor_head.Q.0.2.weight", "actor_head.Q.1.0.weight"),
        *("critic_encoder.0.weight", "critic_head.main.0.weight", "critic_head.last.weight"),
    ]
    assert model.actor[1] is model.actor_head and model.critic[1] is model.critic_head


def test_continuous_actions_have_a_mean_and_a_deviation_for_each_agent():
    logit = make(action_space="continuous")(AGENTS_OBS, "compute_actor")["logit"]
    assert logit["mu"].shape == logit["sigma"].shape == (4, 3, 5)
    bounded = make(action_space="continuous", sigma_type="conditioned", bound_type="tanh")
    assert bounded.actor_head.sigma_type == "conditioned" and bounded.actor_head.bound_type == "tanh"


def test_encoders_of_ones_own_stand_before_the_heads():
    encoder = nn.Linear(8, 6), nn.Linear(12, 7)
    for part in encoder:
        part.output_size = part.out_features
    model = make(encoder=encoder)
    assert model.actor_encoder is encoder[0] and model.critic_encoder is encoder[1]
    assert torch.equal(
        model(AGENTS_OBS, "compute_critic")["value"], model.critic_head(encoder[1](AGENTS_OBS["global_state"]))["pred"]
    )


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
        samples += policy.collect_mode.get_train_sample(make_fragment(policy, length, end, make_obs))
    assert samples[0]["adv"].shape == (2,)
    before = parameters_of(policy)
    steps = policy.learn_mode.forward(samples)
    assert len(steps) == 4 and not np.isnan([list(step.values()) for step in steps]).any()
    assert not torch.equal(parameters_of(policy), before)
