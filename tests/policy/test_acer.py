"""ACER: what it learns from sequences, and how it acts."""

import copy

import pytest
import torch

from ding.policy import ACERPolicy
from ding.rl_utils import acer_policy_error, acer_trust_region_update, compute_q_retraces
from tests.policy.learning import model_of, parameters_of, set_paths, set_target, target_of
from tests.policy.test_impala import make_sequences


def make_policy(*fields, seed=0, **settings):
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
    policy = make_policy("learn", learn__trust_region=trust_region, learn__trust_region_value=0.1)
    model, average_net = copy.deepcopy(model_of(policy)), target_of(policy)
    with torch.no_grad():
        for parameter in average_net.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    set_target(policy, average_net)
    adams = [torch.optim.Adam(part.parameters(), lr=0.0005) for part in (model.actor, model.critic)]
    behaviour = make_policy(seed=3)
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
    policy = make_policy("learn")
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
