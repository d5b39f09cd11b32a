"""IMPALA and ACER: what they learn from sequences, and how they act."""

import copy
from collections import namedtuple

import numpy as np
import pytest
import torch

from ding.policy import ACERPolicy, IMPALAPolicy
from ding.rl_utils import (
    acer_policy_error,
    acer_trust_region_update,
    compute_q_retraces,
    vtrace_data,
    vtrace_error_continuous_action,
    vtrace_error_discrete_action,
)
from tests.policy.learning import model_of, parameters_of, set_paths, set_target, target_of

Timestep = namedtuple("Timestep", ("obs", "reward", "done", "info"))
LEARN = {"discount_factor": 0.9, "lambda_": 0.8, "rho_clip_ratio": 1.1, "c_clip_ratio": 0.9, "rho_pg_clip_ratio": 1.2}


def make_impala(*fields, seed=0, action_space="discrete", **settings):
    cfg = IMPALAPolicy.default_config()
    cfg.model.update(obs_shape=3, action_shape=2, encoder_hidden_size_list=[8, 64])
    cfg.update(unroll_len=4, action_space=action_space)
    cfg.learn.update(LEARN)
    set_paths(cfg, settings)
    torch.manual_seed(seed)
    return IMPALAPolicy(cfg, enable_field=list(fields) or None)


def make_episode(length, seed=0, *, continuous=False, last=None):
    """Transitions as a collector hands them over; the last one has the entries `last`."""
    generator = torch.Generator().manual_seed(seed)
    obs = [torch.rand(3, generator=generator) for _ in range(length + 1)]

    def numbers():
        return torch.rand(2, generator=generator)

    episode = [
        {
            "obs": obs[i],
            "next_obs": obs[i + 1],
            "action": numbers() if continuous else torch.tensor([i % 2]),
            "logit": {"mu": numbers(), "sigma": numbers() + 0.5} if continuous else numbers(),
            "reward": torch.rand(1, generator=generator),
            "done": False,
            "collect_iter": 0,
        }
        for i in range(length)
    ]
    episode[-1].update(last or {})
    return episode


def make_sequences(policy, number, length=4, **kwargs):
    return [
        {**sample, "IS": 1.0}
        for seed in range(number)
        for sample in policy._get_train_sample(make_episode(length, seed, **kwargs))
    ]


# --- learn ---


@pytest.mark.parametrize("action_space", ["discrete", "continuous"])
@pytest.mark.parametrize("end", [{}, {"done": True}, {"done": True, "terminated": False, "truncated": True}])
def test_a_learning_step_is_v_trace_with_adam(action_space, end):
    is_continuous = action_space == "continuous"
    policy = make_impala("learn", action_space=action_space)
    model = copy.deepcopy(model_of(policy))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.0005)
    flags = dict.fromkeys(end.keys() - {"done"}, False)
    samples = make_sequences(policy, 3, continuous=is_continuous, last=end)
    for sample in samples:
        for flag in flags:
            sample[flag] = [*[False] * 3, end[flag]]
    stack = torch.stack
    obs = stack([stack([*s["obs"], s["next_obs"][-1]]) for s in samples], 1)  # [T + 1, B, 3]
    output = model(obs, mode="compute_actor_critic")
    value = output["value"]
    if end == {"done": True}:
        value = torch.cat([value[:-1], torch.zeros_like(value[-1:])])
    reward = stack([torch.cat(s["reward"]) for s in samples], 1)
    action = stack([stack(s["action"]) for s in samples], 1)
    if is_continuous:
        logit = {key: column[:-1] for key, column in output["logit"].items()}
        old = {key: stack([stack([step[key] for step in _steps(s["logit"])]) for s in samples], 1) for key in logit}
        error = vtrace_error_continuous_action
    else:
        logit, old, action = output["logit"][:-1], stack([stack(s["logit"]) for s in samples], 1), action.squeeze(-1)
        error = vtrace_error_discrete_action
    limits = [LEARN[name] for name in ("lambda_", "rho_clip_ratio", "c_clip_ratio", "rho_pg_clip_ratio")]
    loss = error(vtrace_data(logit, old, action, value, reward, None), 0.9, *limits)
    total = loss.policy_loss + 0.5 * loss.value_loss - 0.0001 * loss.entropy_loss
    optimizer.zero_grad()
    total.backward()
    optimizer.step()

    result = policy.learn_mode.forward(samples)
    assert list(result) == ["cur_lr", "total_loss", "policy_loss", "value_loss", "entropy_loss"]
    assert policy.learn_mode.monitor_vars() == list(result)
    expected = [0.0005, total.item(), *(part.item() for part in loss)]
    assert list(result.values()) == pytest.approx(expected, rel=1e-4, abs=1e-6)
    parameters = torch.cat([p.detach().flatten() for p in model.parameters()])
    assert torch.allclose(parameters_of(policy), parameters, atol=1e-6)


def _steps(columns):
    """A dict of lists as a list of dicts."""
    return [dict(zip(columns, step, strict=True)) for step in zip(*columns.values(), strict=True)]


# --- collect and eval ---


def test_fragments_have_the_length_of_the_setting():
    policy = make_impala("collect")
    assert policy.collect_mode.get_attribute("unroll_len") == 4
    assert policy.collect_mode.get_train_sample([]) == []
    samples = policy.collect_mode.get_train_sample(make_episode(6))
    assert [[action.item() for action in sample["action"]] for sample in samples] == [[0, 1, 0, 1], [0, 1, 0, 1]]
    assert np.allclose(samples[1]["obs"][0], make_episode(6)[2]["obs"])


# ACER: what it learns from sequences, and how it acts.


def make_acer(*fields, seed=0, **settings):
    cfg = ACERPolicy.default_config()
    cfg.model.update(obs_shape=3, action_shape=2, encoder_hidden_size_list=[8, 64])
    cfg.collect.unroll_len = 4
    cfg.learn.update(c_clip_ratio=1.2, trust_region_value=0.5, entropy_weight=0.1)
    set_paths(cfg, settings)
    torch.manual_seed(seed)
    return ACERPolicy(cfg, enable_field=list(fields) or None)


@pytest.mark.differs(
    "compares ACER's `learn.trust_region_value` with gradients that are divided by the number of steps, so that it "
    "hardly matters",
    "compares it with the gradient of each step, as in the paper: multiply a tuned value by the number of steps",
)
@pytest.mark.parametrize("trust_region", [True, False])
@pytest.mark.parametrize("end", [{}, {"done": True}])
def test_a_learning_step_is_retrace_and_a_policy_gradient_in_a_trust_region(trust_region, end):
    policy = make_acer("learn", learn__trust_region=trust_region, learn__trust_region_value=0.1)
    model, average_net = copy.deepcopy(model_of(policy)), target_of(policy)
    with torch.no_grad():
        for parameter in average_net.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    set_target(policy, average_net)
    adams = [torch.optim.Adam(part.parameters(), lr=0.0005) for part in (model.actor, model.critic)]
    behaviour = make_acer(seed=3)
    for parameter in model_of(behaviour).parameters():
        parameter.data.mul_(3)
    samples = make_sequences(behaviour, 3, last={**end, "reward": torch.tensor([-50.0])})

    def column(key):
        return torch.stack([torch.stack(s[key]) for s in samples], 1)

    obs = torch.cat([column("obs"), column("next_obs")[-1:]])
    action, reward = column("action").squeeze(-1), column("reward").squeeze(-1)
    weights = torch.ones(4, 3)
    weights[-1] = 0 if end else 1
    all_log_prob = model(obs, mode="compute_actor")["logit"].log_softmax(-1)
    log_prob = all_log_prob[:-1]
    q = model(obs, mode="compute_critic")["q_value"]
    ratio = (log_prob - column("logit").log_softmax(-1)).exp().detach()
    value = (all_log_prob.exp() * q).sum(-1, keepdim=True).detach()
    retrace = compute_q_retraces(q.detach(), value, reward, action, weights, ratio, 0.9)
    critic_loss = 0.5 * (retrace[:-1, :, 0] - q[:-1].gather(-1, action[..., None])[..., 0]).square().mean()
    terms = acer_policy_error(q[:-1], retrace[:-1], value[:-1], log_prob, action, ratio, 1.2)
    assert (ratio > 1.2).any()  # so that there is a correction of the bias
    entropy = -(log_prob.exp() * log_prob).sum(-1)
    total = -(terms[0] + terms[1]).sum() - 0.1 * entropy.sum()
    with torch.no_grad():
        average = average_net(obs[:-1], mode="compute_actor")["logit"].log_softmax(-1)
    (gradient,) = torch.autograd.grad(total, log_prob, retain_graph=True)
    if trust_region:
        (limited,) = acer_trust_region_update([gradient], log_prob, average, 0.1)
        assert not torch.equal(limited, gradient)
        gradient = limited
    log_prob.backward(gradient / 12)
    critic_loss.backward(inputs=list(model.critic.parameters()))
    for adam in adams:
        adam.step()

    result = policy.learn_mode.forward(samples)
    monitored = ["actor_loss", "bc_loss", "policy_loss", "critic_loss", "entropy_loss", "kl_div"]
    assert list(result) == ["cur_actor_lr", "cur_critic_lr", *monitored]
    assert policy.learn_mode.monitor_vars() == monitored
    actor_loss, bc_loss = (term.mean().item() for term in terms)
    kl = torch.nn.functional.kl_div(log_prob, average, reduction="sum", log_target=True).item() / 12
    policy_loss = actor_loss + bc_loss + 0.1 * entropy.mean().item()
    expected = [actor_loss, bc_loss, policy_loss, critic_loss.item(), entropy.mean().item(), kl]
    assert list(result.values()) == pytest.approx([0.0005, 0.0005, *expected], rel=1e-3, abs=1e-5)
    parameters = torch.cat([p.detach().flatten() for p in model.parameters()])
    assert torch.allclose(parameters_of(policy), parameters, atol=2e-6)
    gradients = [torch.cat([p.grad.flatten() for p in one.actor.parameters()]) for one in (model_of(policy), model)]
    assert torch.allclose(*gradients, rtol=1e-4, atol=1e-6)  # of which the first step of Adam sees little
    pairs = zip(target_of(policy).parameters(), average_net.parameters(), model.parameters(), strict=True)
    assert all(torch.allclose(own, 0.99 * old + 0.01 * new, atol=1e-6) for own, old, new in pairs)


def test_illegal_actions_are_never_wanted():
    policy = make_acer("learn")
    (sample,) = make_sequences(policy, 1)
    legal = torch.tensor([1.0, 0.0])
    sample["obs"], sample["next_obs"] = (
        {"observation": sample[key], "action_mask": [legal] * 4} for key in ("obs", "next_obs")
    )
    sample["action"] = [torch.tensor([0])] * 4
    sample["logit"] = [torch.tensor([0.3, -1e8])] * 4
    result = policy.learn_mode.forward([sample])
    assert result["entropy_loss"] == 0 and result["actor_loss"] == 0 and result["critic_loss"] > 0
    assert all(torch.isfinite(p).all() for p in model_of(policy).parameters())


# What IMPALA and ACER do alike with sequences: their ends, the steps after them, their weights.


MAKE = {"impala": make_impala, "acer": make_acer}
# How long a sequence is, and the losses of its values and of the policy.
LENGTH = {"impala": "unroll_len", "acer": "collect__unroll_len"}
LOSSES = {"impala": ("value_loss",), "acer": ("critic_loss", "actor_loss", "entropy_loss")}

each_policy = pytest.mark.parametrize("name", MAKE)


@each_policy
@pytest.mark.parametrize("end", [{"done": True}, {"done": True, "terminated": False, "truncated": True}, {}])
def test_steps_after_the_end_are_not_learnt(name, end):
    policy = MAKE[name]("learn")
    short, long = make_sequences(policy, 1, length=2, last=end), make_sequences(policy, 1, last=end)
    assert short[0]["done"] == [False, "done" in end, True, True] and short[0]["null"] == [False, False, True, True]
    changed = copy.deepcopy(short + long)
    for key in ("obs", "next_obs", "action", "logit", "reward"):
        changed[0][key][2:] = [value * 0 + 1 for value in changed[0][key][2:]]
    expected = copy.deepcopy(policy).learn_mode.forward(short + long)
    assert policy.learn_mode.forward(changed) == expected
    alone = MAKE[name]("learn", **{LENGTH[name]: 2})
    of_two_steps = alone.learn_mode.forward(make_sequences(alone, 1, length=2, last=end))
    of_four_steps = MAKE[name]("learn").learn_mode.forward(short)
    assert of_four_steps == pytest.approx(of_two_steps, rel=1e-4, abs=1e-6)


@each_policy
def test_how_an_episode_ended_decides_about_the_value_after_it(name):
    def loss(end):
        policy = MAKE[name]("learn")
        return policy.learn_mode.forward(make_sequences(policy, 1, last=end))[LOSSES[name][0]]

    assert loss({"done": True, "terminated": True, "truncated": False}) == loss({"done": True})
    assert loss({"done": True, "truncated": True}) == loss({}) != loss({"done": True})


@pytest.mark.differs(
    "returns no priorities from IMPALA, ACER and SQN",
    "returns them; importance weights scale the losses of IMPALA and ACER",
)
@each_policy
def test_importance_weights_scale_the_losses_of_their_sequence(name):
    data = make_sequences(MAKE[name]("learn"), 2)

    def learn(samples, **settings):
        return MAKE[name]("learn", priority=True, **settings).learn_mode.forward(samples)

    data = [{**sample, "IS": weight} for sample, weight in zip(data, (0.5, 0.0), strict=True)]
    plain, weighted, alone = learn(data), learn(data, priority_IS_weight=True), learn(data[:1])
    for key in LOSSES[name]:
        assert weighted[key] == pytest.approx(alone[key] * 0.5 / 2, rel=1e-4)
    assert weighted["priority"] == plain["priority"] and len(plain["priority"]) == 2
    assert plain["priority"][0] == pytest.approx(alone["priority"][0])
    assert all(type(priority) is float and priority > 0 for priority in plain["priority"])
