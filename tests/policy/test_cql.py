"""CQL for continuous actions: what it learns, what it keeps, and how it is trained."""

import math
from functools import partial

import pytest
import torch
from torch.distributions import Normal

from ding.policy import CQLPolicy, SACPolicy
from ding.utils import set_pkg_seed
from tests.generators import reseed
from tests.policy.continuous_samples import columns, make_batch, make_config
from tests.policy.learning import model_of, set_target


def make_policy(*fields, cls=CQLPolicy, **settings):
    set_pkg_seed(0, use_cuda=False)
    return cls(make_config(cls, **settings), enable_field=list(fields) or None)


def learn(policy, data, seed=1):
    reseed(policy, seed)
    return policy.learn_mode.forward(data)


def _filled(value, rng, shape, like):
    return like.new_full(shape, value)


def fixed_draws(monkeypatch, policy):
    """Let all draws be the same: uniform actions 0.3, Gaussian noise 0.5."""
    for name, value in (("draw_uniform", 0.65), ("draw_normal", 0.5)):
        monkeypatch.setattr(f"ding.policy.sac.{name}", partial(_filled, value))


def gaps_by_hand(policy, data, number):
    """For each critic: the mean over samples of log sum exp(Q - log p) - Q(data), action by action."""
    obs, next_obs, action, *_ = columns(data)
    results = [[], []]
    for row in range(len(obs)):
        drawn = [(torch.full((2,), 0.3), -2 * math.log(2.0))] * number
        for place in (obs, next_obs):
            mu, sigma = (part[0] for part in model_of(policy)(place[row : row + 1], mode="compute_actor")["logit"])
            u = mu + 0.5 * sigma
            log_prob = (Normal(mu, sigma).log_prob(u) - torch.log(1 - torch.tanh(u) ** 2)).sum()
            drawn += [(torch.tanh(u), log_prob)] * number

        def q(a, row=row):
            return model_of(policy)({"obs": obs[row : row + 1], "action": a[None]}, mode="compute_critic")["q_value"]

        for critic in range(2):
            terms = torch.stack([q(a)[critic][0] - log_prob for a, log_prob in drawn])
            results[critic].append(terms.exp().sum().log() - q(action[row])[critic][0])
    return [torch.stack(values).mean().item() for values in results]


def test_the_gap_is_added_to_the_loss_of_soft_actor_critic(monkeypatch):
    data = make_batch(5)
    settings = {"learn__num_actions": 2, "learn__with_q_entropy": True}
    policy, sac = make_policy("learn", learn__min_q_weight=3.0, **settings), make_policy("learn", cls=SACPolicy)
    model_of(sac).load_state_dict(model_of(policy).state_dict())
    set_target(sac, model_of(policy))
    fixed_draws(monkeypatch, policy)
    gaps = gaps_by_hand(policy, data, 2)
    output, plain = policy.learn_mode.forward(data), sac.learn_mode.forward(data)
    for name, gap in zip(("critic_loss", "twin_critic_loss"), gaps, strict=True):
        assert output[name] == pytest.approx(plain[name] + 3 * gap, rel=1e-4)
    assert output["conservative_loss"] == pytest.approx(3 * sum(gaps) / 2, rel=1e-4)
    assert output["priority"] == pytest.approx(plain["priority"], rel=1e-4)


def test_targets_hold_the_entropy_only_where_it_is_asked_for(monkeypatch):
    data = make_batch(5)
    with_entropy, without = make_policy("learn", learn__with_q_entropy=True), make_policy("learn")
    fixed_draws(monkeypatch, without)
    outputs = [policy.learn_mode.forward(data)["target_q_value"] for policy in (with_entropy, without)]
    fresh = make_policy("learn")
    _, next_obs, *_ = columns(data)
    mu, sigma = model_of(fresh)(next_obs, mode="compute_actor")["logit"]
    u = mu + 0.5 * sigma
    log_prob = (Normal(mu, sigma).log_prob(u) - torch.log(1 - torch.tanh(u) ** 2)).sum(-1)
    q = model_of(fresh)({"obs": next_obs, "action": torch.tanh(u)}, mode="compute_critic")["q_value"]
    value = torch.minimum(*q).mean().item()
    assert outputs == pytest.approx([value - 0.2 * log_prob.mean().item(), value], rel=1e-4)


def test_a_multiplier_keeps_the_gap_at_the_threshold():
    settings = {"learn__with_lagrange": True, "learn__lagrange_thresh": 5.0, "learn__num_actions": 4}
    policy, data = make_policy("learn", **settings), make_batch(8)
    plain = make_policy("learn", learn__num_actions=4)
    output, other = learn(policy, data), learn(plain, data)
    gap = output["conservative_loss"] - 5.0
    assert output["alpha_prime"] == 1.0 and output["alpha_prime_loss"] == pytest.approx(-gap, rel=1e-4)
    assert output["critic_loss"] == pytest.approx(other["critic_loss"] - 5.0, rel=1e-3)
    expected = math.exp(math.copysign(3e-4, gap))  # the first step of Adam
    assert learn(policy, data)["alpha_prime"] == pytest.approx(expected, rel=1e-5)
