"""What on-policy policies collect: actions, transitions, advantages; and what all PPO policies are made of."""

import pytest
import torch
from torch import nn

from ding.model.template.vac import VAC
from ding.policy import A2CPolicy, PPOPolicy
from ding.policy.ppo import initialise_actor_critic
from ding.utils.config_helper import ConfigError
from ding.utils.data.samples import Samples, Table
from tests.policy.learning import model_of, parameters_of
from tests.policy.on_policy_samples import (
    TERMINATED,
    TRUNCATED,
    AgentModel,
    make_fragment,
    make_fragments,
    make_policy,
    scale_of,
)

OBS = {3: torch.zeros(4), 0: torch.ones(4)}


# --- acting ---


def shapes(item):
    if isinstance(item, torch.Tensor):
        return tuple(item.shape)
    if isinstance(item, dict):
        return {key: shapes(value) for key, value in item.items()}
    return tuple(shapes(value) for value in item)


def test_actions_are_drawn_from_the_policy():
    policy = make_policy("collect")
    output = policy._act_collect(torch.ones(3000, 4), list(range(3000)))
    probs = output["logit"][0].softmax(-1)
    shares = torch.bincount(output["action"], minlength=3) / 3000
    assert shares.tolist() == pytest.approx(probs.tolist(), abs=0.03)


def test_continuous_actions_are_drawn_around_their_mean():
    policy = make_policy("collect", space="continuous")
    output = policy._act_collect(torch.ones(3000, 4), list(range(3000)))
    mu, sigma = output["logit"]["mu"][0], output["logit"]["sigma"][0]
    assert torch.allclose(output["action"].mean(0), mu, atol=0.06)
    assert torch.allclose(output["action"].std(0), sigma, rtol=0.05)


@pytest.mark.differs(
    "draws hybrid actions of PPO at random in evaluations",
    "takes the likeliest type with the mean of its arguments",
)
def test_evaluation_takes_the_likeliest_action():
    out = make_policy("eval").eval_mode.forward(OBS)[0]
    assert out["action"].item() == out["logit"].argmax().item()
    out = make_policy("eval", space="continuous").eval_mode.forward(OBS)[0]
    assert torch.equal(out["action"], out["logit"]["mu"])
    out = make_policy("eval", space="hybrid").eval_mode.forward(OBS)[0]
    assert out["action"]["action_type"].item() == out["logit"]["action_type"].argmax().item()
    assert torch.equal(out["action"]["action_args"], out["logit"]["action_args"]["mu"])


def test_illegal_actions_are_never_taken():
    policy = make_policy("collect", "eval")
    masks = torch.tensor([[i % 2, 1, 0] for i in range(500)])
    observations = {"observation": torch.rand(500, 4), "action_mask": masks}
    collected = policy._act_collect(observations, list(range(500)))["action"]
    assert set(collected[::2].tolist()) == {1} and set(collected[1::2].tolist()) == {0, 1}
    with torch.no_grad():
        model_of(policy).actor_head.Q[-1][0].bias.copy_(torch.tensor([1.0, 0.0, 5.0]))
    evaluated = policy._act_eval(observations, list(range(500)))["action"]
    assert evaluated[:4].tolist() == [1, 0, 1, 0]


# --- advantages ---


def naive_advantages(fragment, values, after, gamma=0.99, lambda_=0.95):
    """`after[t]` is the value after step t where the trace ends, None where it goes on."""
    adv, running = [], 0.0
    for t in reversed(range(len(fragment))):
        next_value = values[t + 1] if after[t] is None else after[t]
        running = (
            fragment[t]["reward"].item()
            + gamma * next_value
            - values[t]
            + (gamma * lambda_ * running if after[t] is None else 0.0)
        )
        adv.insert(0, running)
    return adv


def value_of(policy, obs):
    with torch.no_grad():
        return model_of(policy)(obs[None], mode="compute_critic")["value"].item()


@pytest.mark.parametrize(
    ("end", "bootstraps"),
    [
        (TERMINATED, False),
        (TRUNCATED, True),
        ({"done": False}, True),
        ({"done": True, "truncated": True}, True),
        ({"done": True}, False),  # an env that tells no more
    ],
)
@pytest.mark.parametrize("scale", [None, 3.0])
def test_advantages_end_with_the_fragment_and_bootstrap_unless_the_episode_is_over(end, bootstraps, scale):
    policy = make_policy("collect", learn__value_norm=scale is not None)
    if scale is not None:
        policy._running_mean_std.merge(0.0, scale**2, 1e9)
    fragment = make_fragment(policy, 6, end)
    values = [(scale or 1) * transition["value"].item() for transition in fragment]
    last = (scale or 1) * value_of(policy, fragment[-1]["next_obs"]) if bootstraps else 0.0
    expected = naive_advantages(fragment, values, [None] * 5 + [last])
    before = [dict(transition) for transition in fragment]
    samples = policy.collect_mode.get_train_sample(fragment)
    assert [sample["adv"].item() for sample in samples] == pytest.approx(expected, rel=1e-4, abs=1e-5)
    assert all(sample["adv"].shape == (1,) for sample in samples)
    assert [sample["traj_flag"] for sample in samples] == [False] * 5 + [True]
    for sample, transition in zip(samples, before, strict=True):
        assert all(sample[key] is transition[key] for key in transition)


def test_advantages_do_not_leak_over_the_end_of_an_episode_within_a_fragment():
    policy = make_policy("collect")
    fragment = make_fragment(policy, 3, TERMINATED) + make_fragment(policy, 2, TRUNCATED) + make_fragment(policy, 4)
    values = [transition["value"].item() for transition in fragment]
    truncated, last = (value_of(policy, fragment[t]["next_obs"]) for t in (4, 8))
    after = [None, None, 0.0, None, truncated, None, None, None, last]
    samples = policy.collect_mode.get_train_sample(fragment)
    expected = naive_advantages(fragment, values, after)
    assert [sample["adv"].item() for sample in samples] == pytest.approx(expected, rel=1e-4, abs=1e-5)
    assert [t for t, sample in enumerate(samples) if sample["traj_flag"]] == [2, 4, 8]


@pytest.mark.parametrize("form", [list, lambda fragment: Samples(Table.of(fragment))], ids=["list", "columns"])
@pytest.mark.parametrize("recomputes", [True, False])
def test_samples_of_ppo_keep_next_observations_only_to_recompute_advantages(form, recomputes):
    policy = make_policy("collect", recompute_adv=recomputes)
    samples = policy.collect_mode.get_train_sample(form(make_fragment(policy, 3)))
    assert ["next_obs" in sample for sample in samples] == [recomputes] * 3


def test_ignoring_done_bootstraps_from_a_terminal_state_and_clears_its_flag():
    policy = make_policy("collect", learn__ignore_done=True)
    fragment = make_fragment(policy, 3, TERMINATED)
    last = value_of(policy, fragment[-1]["next_obs"])
    expected = naive_advantages(fragment, [t["value"].item() for t in fragment], [None, None, last])
    samples = policy.collect_mode.get_train_sample(fragment)
    assert [sample["adv"].item() for sample in samples] == pytest.approx(expected, rel=1e-4, abs=1e-5)
    assert samples[-1]["done"] is False and samples[-1]["traj_flag"] is True


def test_agents_have_advantages_of_their_own():
    policy = make_policy(model=AgentModel(), multi_agent=True, learn__ppo_param_init=False)
    fragment = make_fragment(policy, 4)
    with torch.no_grad():
        last = model_of(policy)(fragment[-1]["next_obs"][None], "compute_critic")["value"][0]
    columns = [
        naive_advantages(fragment, [t["value"][agent].item() for t in fragment], [None] * 3 + [last[agent].item()])
        for agent in range(2)
    ]
    samples = policy.collect_mode.get_train_sample(fragment)
    assert torch.stack([s["adv"] for s in samples]).T.tolist() == [pytest.approx(c, rel=1e-4) for c in columns]


def test_agents_may_have_rewards_of_their_own():
    policy = make_policy(model=AgentModel(), multi_agent=True, learn__ppo_param_init=False, collect__gae_lambda=0.0)
    fragment = make_fragment(policy, 3, TERMINATED)
    for transition in fragment:
        transition["reward"] = torch.tensor([1.0, 10.0])
    samples = policy.collect_mode.get_train_sample(fragment)
    assert torch.allclose(samples[-1]["adv"], torch.tensor([1.0, 10.0]) - fragment[-1]["value"])


# --- state ---


@pytest.mark.differs("never sends PPO's value scale to collecting processes", "sends it with the weights")
def test_a_collecting_process_takes_weights_and_scale_from_the_learner():
    learner, collector = make_policy("learn", "collect"), make_policy("collect", seed=4)
    learner.learn_mode.forward(make_fragments(learner))
    collector.collect_mode.load_state_dict(learner.learn_mode.state_dict())
    assert torch.equal(parameters_of(learner), parameters_of(collector))
    assert scale_of(collector.collect_mode) == scale_of(learner.learn_mode) != 1.0
    make_policy("eval").eval_mode.load_state_dict(learner.learn_mode.state_dict())


# --- initialisation ---


def is_orthogonal(weight, gain):
    rows, columns = weight.shape
    product = weight @ weight.T if rows <= columns else weight.T @ weight
    return torch.allclose(product, gain**2 * torch.eye(min(rows, columns)), atol=1e-4)


def linears(model):
    return [layer for layer in model.modules() if isinstance(layer, nn.Linear)]


def test_a_discrete_model_begins_orthogonal_with_gain_1():
    model = VAC(4, 2)
    initialise_actor_critic(model, is_gaussian=False)
    assert all(is_orthogonal(layer.weight, 1) and layer.bias.eq(0).all() for layer in linears(model))


@pytest.mark.differs(
    "scales every initial actor layer of continuous PPO down to almost nothing, including a shared encoder",
    "scales down only the last layer of the policy",
)
@pytest.mark.parametrize("share", [True, False])
@pytest.mark.parametrize("space", ["continuous", "hybrid"])
def test_only_the_last_layer_of_a_gaussian_policy_begins_small(share, space):
    shape = {"action_type_shape": 3, "action_args_shape": 2} if space == "hybrid" else 2
    model = VAC(4, shape, action_space=space, share_encoder=share)
    initialise_actor_critic(model, is_gaussian=True)
    head = model.actor_head[1] if space == "hybrid" else model.actor_head
    for layer in linears(model):
        gain = 0.01 * 2**0.5 if layer is head.mu else 2**0.5
        assert is_orthogonal(layer.weight / gain, 1) and layer.bias.eq(0).all()
    assert head.log_sigma_param.eq(-0.5).all()
    embedding = model.actor[0](torch.rand(5, 4))
    assert embedding.abs().max() > 0.1
    assert model(torch.rand(5, 4), "compute_critic")["value"].abs().max() > 0.01


def test_a_policy_initialises_its_model_if_it_learns_and_is_asked_to():
    def weight(*fields, **settings):
        return model_of(make_policy(*fields, **settings)).encoder.init.weight

    assert is_orthogonal(weight("learn"), 1)
    assert not is_orthogonal(weight("learn", learn__ppo_param_init=False), 1)
    assert not is_orthogonal(weight("collect"), 1)


@pytest.mark.parametrize("cls", [PPOPolicy, A2CPolicy])
@pytest.mark.parametrize("space", ["discrete", "continuous"])
def test_gains_of_ones_own_are_those_of_hidden_layers_and_of_the_last_of_actor_and_critic(cls, space):
    policy = make_policy("learn", cls=cls, space=space, learn__init_gains=[1.5, 0.01, 0.5])
    model = model_of(policy)
    last = model.actor_head.mu if space == "continuous" else linears(model.actor_head)[-1]
    for layer in linears(model):
        gain = 0.01 if layer is last else 0.5 if layer is model.critic_head.last else 1.5
        assert is_orthogonal(layer.weight / gain, 1) and layer.bias.eq(0).all()
    if space == "continuous":
        assert model.actor_head.log_sigma_param.eq(0).all()
    with pytest.raises(ConfigError):
        make_policy("learn", cls=cls, learn__init_gains=[1, 2])


# --- configuration ---


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("priority", True),
        ("learn__lr_scheduler", {"epoch_num": 0, "min_lr_lambda": 0.1}),
        ("model__action_space", "continuous"),
    ],
)
def test_wrong_settings_are_refused_at_construction(key, value):
    with pytest.raises(ConfigError, match=key.replace("__", ".")):
        make_policy(**{key: value})


@pytest.mark.differs(
    "fails inside the loss if `model.action_space` does not repeat `policy.action_space`",
    "copies it to the model, and refuses contradictions",
)
def test_the_model_follows_the_action_space_of_the_policy():
    policy = make_policy(space="continuous")
    assert policy.cfg.model.action_space == model_of(policy).action_space == "continuous"
    assert model_of(make_policy(space="continuous", model__action_space="continuous")).action_space == "continuous"


def test_a_policy_tells_which_kind_of_actions_it_chooses():
    spaces = ("discrete", "multi-discrete", "continuous", "hybrid")
    assert [make_policy("eval", space=space).has_discrete_actions for space in spaces] == [True, True, False, None]
