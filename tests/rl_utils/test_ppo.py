"""The losses of PPO against a twin that goes sample by sample in plain Python, gradients by finite differences."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.distributions import Categorical, Independent, Normal

from ding.rl_utils.log_prob import ActionTerms
from ding.rl_utils.ppo import (
    a2c_data,
    a2c_error,
    a2c_error_continuous,
    a2c_loss,
    a2c_terms_error,
    clipped_surrogate,
    ppg_data,
    ppg_joint_error,
    ppo_data,
    ppo_data_continuous,
    ppo_error,
    ppo_error_continuous,
    ppo_policy_data,
    ppo_policy_data_continuous,
    ppo_policy_error,
    ppo_policy_error_continuous,
    ppo_value_data,
    ppo_value_error,
)

B, N, A = 6, 3, 2
MU_SIGMA, MU_SIGMA_OLD = ("mu", "sigma"), ("mu_old", "sigma_old")


# --- the twin ---


def naive_categorical(logit, action):
    weights = [math.exp(x - max(logit)) for x in logit]
    probs = [w / sum(weights) for w in weights]
    return math.log(probs[action]), -sum(p * math.log(p) for p in probs)


def naive_gaussian(mu, sigma, action):
    log_prob = entropy = 0.0
    for m, s, a in zip(mu, sigma, action, strict=True):
        log_prob += -((a - m) ** 2) / (2 * s**2) - math.log(s) - 0.5 * math.log(2 * math.pi)
        entropy += 0.5 * math.log(2 * math.pi * math.e * s**2)
    return log_prob, entropy


def naive_policy(new, old, adv, weight, clip, dual):
    """new: [(log_prob, entropy)] of each sample; old: [log_prob]."""
    loss = entropy_loss = kl = clipped = 0.0
    for (log_prob, entropy), log_prob_old, a, w in zip(new, old, adv, weight, strict=True):
        ratio = math.exp(log_prob - log_prob_old)
        objective = min(ratio * a, min(max(ratio, 1 - clip), 1 + clip) * a)
        if dual is not None and a < 0:
            objective = max(objective, dual * a)
        loss -= objective * w / len(adv)
        entropy_loss += entropy * w / len(adv)
        kl += (log_prob_old - log_prob) / len(adv)
        clipped += (not 1 - clip <= ratio <= 1 + clip) / len(adv)
    return loss, entropy_loss, kl, clipped


def naive_value(value, old, target, weight, clip, use_clip):
    loss = 0.0
    for v, v_old, r, w in zip(value, old, target, weight, strict=True):
        error = (r - v) ** 2
        if use_clip:
            error = max(error, (r - v_old - min(max(v - v_old, -clip), clip)) ** 2)
        loss += 0.5 * error * w / len(value)
    return loss


def finite_differences(fn, array, eps=1e-6):
    gradient = np.zeros_like(array)
    for index in np.ndindex(array.shape):
        moved = array.copy()
        moved[index] += eps
        above = fn(moved)
        moved[index] -= 2 * eps
        gradient[index] = (above - fn(moved)) / (2 * eps)
    return gradient


def draw(seed):
    rng = np.random.default_rng(seed)
    return {
        "logit": rng.normal(size=(B, N)),
        "logit_old": rng.normal(size=(B, N)),
        "mu": rng.normal(size=(B, A)),
        "sigma": rng.uniform(0.3, 1.5, (B, A)),
        "mu_old": rng.normal(size=(B, A)),
        "sigma_old": rng.uniform(0.3, 1.5, (B, A)),
        "action": rng.integers(N, size=B),
        "action_args": rng.normal(size=(B, A)),
        "value": rng.normal(size=B),
        "value_old": rng.normal(size=B),
        "adv": rng.normal(size=B) * 3,
        "return_": rng.normal(size=B),
        "weight": rng.uniform(0.1, 2, B),
    }


def leaf(array):
    return torch.tensor(array, requires_grad=True)


@settings(max_examples=25)
@given(
    seed=st.integers(0, 10_000),
    dual=st.sampled_from([None, 1.5, 3.0]),
    use_clip=st.booleans(),
    weighted=st.booleans(),
    clip=st.sampled_from([0.1, 0.2, 0.5]),
)
def test_discrete_losses_and_gradients_equal_the_twins(seed, dual, use_clip, weighted, clip):
    d = draw(seed)
    weight = d["weight"] if weighted else np.ones(B)
    old = [naive_categorical(logit, a)[0] for logit, a in zip(d["logit_old"], d["action"], strict=True)]

    def twin(logit):
        new = [naive_categorical(row, a) for row, a in zip(logit, d["action"], strict=True)]
        return naive_policy(new, old, d["adv"], weight, clip, dual)

    def value_twin(value):
        return naive_value(value, d["value_old"], d["return_"], weight, clip, use_clip)

    logit, value = leaf(d["logit"]), leaf(d["value"])
    fixed = [torch.tensor(d[key]) for key in ("logit_old", "action", "value_old", "adv", "return_", "weight")]
    data = ppo_data(logit, *fixed[:2], value, *fixed[2:5], fixed[5] if weighted else None, None)
    loss, info = ppo_error(data, clip, use_clip, dual)
    policy, entropy, kl, clipped = twin(d["logit"])
    assert loss.policy_loss.item() == pytest.approx(policy)
    assert loss.entropy_loss.item() == pytest.approx(entropy)
    assert loss.value_loss.item() == pytest.approx(value_twin(d["value"]))
    assert loss.kl_div.item() == 0
    assert info == pytest.approx((kl, clipped), abs=1e-6)
    assert [type(x) for x in info] == [float, float]
    (loss.policy_loss - 0.1 * loss.entropy_loss + 0.5 * loss.value_loss).backward()
    expected = finite_differences(lambda x: twin(x)[0] - 0.1 * twin(x)[1], d["logit"])
    assert logit.grad.numpy() == pytest.approx(expected, abs=1e-5)
    assert value.grad.numpy() == pytest.approx(0.5 * finite_differences(value_twin, d["value"]), abs=1e-5)


@settings(max_examples=25)
@given(seed=st.integers(0, 10_000), dual=st.sampled_from([None, 1.5]), weighted=st.booleans())
def test_continuous_losses_and_gradients_equal_the_twins(seed, dual, weighted):
    d = draw(seed)
    weight = d["weight"] if weighted else np.ones(B)
    rows = zip(d["mu_old"], d["sigma_old"], d["action_args"], strict=True)
    old = [naive_gaussian(*row)[0] for row in rows]

    def twin(mu, sigma):
        new = [naive_gaussian(*row) for row in zip(mu, sigma, d["action_args"], strict=True)]
        return naive_policy(new, old, d["adv"], weight, 0.2, dual)

    mu, sigma, value = leaf(d["mu"]), leaf(d["sigma"]), leaf(d["value"])
    fixed = {key: torch.tensor(d[key]) for key in ("mu_old", "sigma_old", "action_args", "value_old", "adv", "return_")}
    data = ppo_data_continuous(
        {"mu": mu, "sigma": sigma},
        {"mu": fixed["mu_old"], "sigma": fixed["sigma_old"]},
        fixed["action_args"],
        value,
        fixed["value_old"],
        fixed["adv"],
        fixed["return_"],
        torch.tensor(d["weight"]) if weighted else None,
        None,
    )
    loss, info = ppo_error_continuous(data, dual_clip=dual)
    policy, entropy, kl, clipped = twin(d["mu"], d["sigma"])
    assert loss.policy_loss.item() == pytest.approx(policy)
    assert loss.entropy_loss.item() == pytest.approx(entropy)
    value_loss = naive_value(d["value"], d["value_old"], d["return_"], weight, 0.2, True)
    assert loss.value_loss.item() == pytest.approx(value_loss)
    assert info == pytest.approx((kl, clipped), abs=1e-6)
    (loss.policy_loss - 0.1 * loss.entropy_loss).backward()

    def total(mu, sigma):
        policy, entropy, *_ = twin(mu, sigma)
        return policy - 0.1 * entropy

    # Log-probabilities may be steep; compare relative to the largest entry.
    for tensor, fn in ((mu, lambda x: total(x, d["sigma"])), (sigma, lambda x: total(d["mu"], x))):
        expected = finite_differences(fn, tensor.detach().numpy())
        assert tensor.grad.numpy() == pytest.approx(expected, rel=1e-3, abs=1e-4 * max(1, np.abs(expected).max()))


# --- clipping ---


def surrogate(ratio, adv, dual_clip=None):
    log_prob = leaf(np.log([float(ratio)]))
    result = clipped_surrogate(log_prob, torch.zeros(1).double(), torch.tensor([adv]).double(), None, 0.2, dual_clip)
    result.loss.backward()
    return result.loss.item(), log_prob.grad.item()


@pytest.mark.parametrize(
    ("ratio", "adv", "loss", "has_gradient"),
    [
        (1.1, 2.0, -2.2, True),
        (1.5, 2.0, -2.4, False),  # gained enough
        (0.5, 2.0, -1.0, True),  # got worse: must be able to come back
        (0.5, -2.0, 1.6, False),
        (1.5, -2.0, 3.0, True),
    ],
)
def test_the_ratio_is_clipped_where_moving_on_would_gain(ratio, adv, loss, has_gradient):
    found, gradient = surrogate(ratio, adv)
    assert found == pytest.approx(loss)
    assert (gradient != 0) is has_gradient


@pytest.mark.differs(
    "applies the dual clip of continuous PPO to positive advantages, and kills their gradient",
    "applies it to negative ones only",
)
@pytest.mark.parametrize("error", ["discrete", "continuous"])
def test_the_dual_clip_bounds_negative_advantages_only(error):
    assert surrogate(10.0, -1.0, dual_clip=3.0) == (pytest.approx(3.0), 0.0)
    assert surrogate(2.0, -1.0, dual_clip=3.0) == (pytest.approx(2.0), pytest.approx(2.0))
    # A positive advantage with a small ratio lies below dual_clip * adv, and must keep its gradient.
    adv = torch.tensor([1.0])
    if error == "discrete":
        logit = leaf([[-2.0, 0.0]])
        data = ppo_policy_data(logit, torch.zeros(1, 2).double(), torch.tensor([0]), adv, None, None)
        loss, _ = ppo_policy_error(data, dual_clip=1.5)
    else:
        logit = leaf([[1.0]])
        sigma = torch.ones(1, 1).double()
        old = {"mu": torch.zeros(1, 1).double(), "sigma": sigma}
        action = torch.tensor([[-1.0]]).double()
        data = ppo_policy_data_continuous({"mu": logit, "sigma": sigma}, old, action, adv, None, None)
        loss, _ = ppo_policy_error_continuous(data, dual_clip=1.5)
    loss.policy_loss.backward()
    assert logit.grad.abs().min() > 0


@pytest.mark.parametrize("dual_clip", [1.0, 0.5, -1])
def test_a_dual_clip_of_one_or_less_is_refused(dual_clip):
    with pytest.raises(AssertionError):
        clipped_surrogate(torch.zeros(1), torch.zeros(1), torch.zeros(1), dual_clip=dual_clip)


def test_without_value_clip_the_value_loss_is_half_the_squared_error():
    data = ppo_value_data(torch.tensor([1.0, 2.0]), torch.zeros(2), torch.tensor([3.0, 2.0]), None)
    loss = ppo_value_error(data, use_value_clip=False)
    assert loss.item() == 1.0 and loss.dim() == 0
    assert ppo_value_error(data).item() == pytest.approx(0.25 * (2.8**2 + 1.8**2))


# --- agents, entropy, divergence ---


def agents():
    torch.manual_seed(0)
    return torch.randn(B, 4, N), torch.randn(B, 4, N), torch.randint(N, (B, 4))


def test_agents_with_advantages_of_their_own_are_samples_of_their_own():
    new, old, action = agents()
    adv = torch.randn(B, 4)
    loss, info = ppo_policy_error(ppo_policy_data(new, old, action, adv, None, None))
    flat = ppo_policy_data(new.flatten(0, 1), old.flatten(0, 1), action.flatten(), adv.flatten(), None, None)
    expected, expected_info = ppo_policy_error(flat)
    assert [x.item() for x in loss] == pytest.approx([x.item() for x in expected], rel=1e-5)
    assert info == pytest.approx(expected_info, rel=1e-4)


def test_agents_that_share_an_advantage_share_the_mean_of_their_ratios():
    new, old, action = agents()
    adv, weight = torch.randn(B), torch.rand(B)
    loss, _ = ppo_policy_error(ppo_policy_data(new, old, action, adv, weight, None))
    log_probs = [torch.log_softmax(x, -1).gather(-1, action[..., None]).squeeze(-1) for x in (new, old)]
    ratio = (log_probs[0] - log_probs[1]).exp().mean(1)
    expected = -(torch.min(ratio * adv, ratio.clamp(0.8, 1.2) * adv) * weight).mean()
    entropy = torch.distributions.Categorical(logits=new).entropy().mean(1)
    assert loss.policy_loss.item() == pytest.approx(expected.item(), rel=1e-5)
    assert loss.entropy_loss.item() == pytest.approx((entropy * weight).mean().item(), rel=1e-5)


def test_a_policy_loss_may_go_without_the_entropy():
    logit, action = torch.zeros(B, N), torch.zeros(B, dtype=torch.int64)
    data = ppo_policy_data(logit, logit, action, torch.ones(B), None, None)
    assert ppo_policy_error(data, entropy_bonus=False)[0].entropy_loss.item() == 0


@pytest.mark.parametrize(
    ("kl_type", "formula"),
    [("k1", lambda d: d), ("k2", lambda d: d**2 / 2), ("k3", lambda d: math.exp(-d) - 1 + d)],
)
@pytest.mark.parametrize("kind", ["discrete", "continuous"])
def test_the_divergence_from_a_pretrained_policy(kl_type, formula, kind):
    d = draw(3)
    adv = torch.tensor(d["adv"])
    if kind == "discrete":
        new, old, reference = (torch.tensor(d[key]) for key in ("logit", "logit_old", "logit_old"))
        data = ppo_policy_data(new, old, torch.tensor(d["action"]), adv, None, reference)
        loss, _ = ppo_policy_error(data, kl_type=kl_type)
        pairs = [[naive_categorical(x, a)[0] for x in (n, o)] for n, o, a in zip(new, old, d["action"], strict=True)]
    else:
        new, old = ({"mu": torch.tensor(d[m]), "sigma": torch.tensor(d[s])} for m, s in (MU_SIGMA, MU_SIGMA_OLD))
        data = ppo_policy_data_continuous(new, old, torch.tensor(d["action_args"]), adv, None, old)
        loss, _ = ppo_policy_error_continuous(data, kl_type=kl_type)
        rows = zip(d["mu"], d["sigma"], d["mu_old"], d["sigma_old"], d["action_args"], strict=True)
        pairs = [[naive_gaussian(m, s, a)[0], naive_gaussian(mo, so, a)[0]] for m, s, mo, so, a in rows]
    expected = sum(formula(p - q) for p, q in pairs) / B
    assert loss.kl_div.item() == pytest.approx(expected)


# The auxiliary phase of PPG.


def make_data(weight=None):
    torch.manual_seed(0)
    return ppg_data(
        logit_new=torch.randn(3, 4, requires_grad=True),
        logit_old=torch.randn(3, 4, requires_grad=True),
        action=torch.tensor([0, 1, 3]),
        value_new=torch.tensor([0.5, 2.0, -1.0], requires_grad=True),
        value_old=torch.tensor([0.0, 1.9, 1.0]),
        return_=torch.tensor([1.0, 0.0, 0.0]),
        weight=weight,
    )


@pytest.mark.differs(
    "returns NaN as the cloning loss of PPG",
    "returns the mean divergence KL(old, new) over all actions",
)
def test_cloning_is_the_divergence_of_the_old_policy_from_the_new_over_all_actions():
    data = make_data()
    old, new = data.logit_old.softmax(-1).tolist(), data.logit_new.softmax(-1).tolist()
    expected = [sum(p * math.log(p / q) for p, q in zip(*row, strict=True)) for row in zip(old, new, strict=True)]
    assert ppg_joint_error(data).behavioral_cloning_loss.item() == pytest.approx(sum(expected) / 3, abs=1e-6)


def test_cloning_pulls_the_new_policy_only():
    data = make_data()
    ppg_joint_error(data).behavioral_cloning_loss.backward()
    assert data.logit_old.grad is None
    difference = (data.logit_new.softmax(-1) - data.logit_old.softmax(-1)) / 3
    assert torch.allclose(data.logit_new.grad, difference, atol=1e-6)


@pytest.mark.parametrize("weight", [None, torch.tensor([1.0, 2.0, 0.5])])
@pytest.mark.parametrize("use_value_clip", [True, False])
def test_the_auxiliary_loss_is_the_value_loss_of_ppo(weight, use_value_clip):
    data = make_data(weight)
    loss = ppg_joint_error(data, clip_ratio=0.3, use_value_clip=use_value_clip).auxiliary_loss
    expected = []
    for new, old, target in zip(data.value_new.tolist(), data.value_old.tolist(), data.return_.tolist(), strict=True):
        clipped = old + min(max(new - old, -0.3), 0.3)
        expected.append(max((target - new) ** 2, (target - clipped) ** 2) if use_value_clip else (target - new) ** 2)
    factors = [1.0] * 3 if weight is None else weight.tolist()
    assert loss.item() == pytest.approx(0.5 * sum(e * w for e, w in zip(expected, factors, strict=True)) / 3)


# The losses of A2C against torch's distributions.


def check(loss, dist, data):
    weight = torch.ones(5) if data.weight is None else data.weight
    assert type(loss) is a2c_loss
    expected = -(dist.log_prob(data.action) * data.adv * weight).mean()
    assert loss.policy_loss.item() == pytest.approx(expected.item(), rel=1e-5)
    assert loss.value_loss.item() == pytest.approx(((data.return_ - data.value) ** 2 * weight).mean().item(), rel=1e-5)
    assert loss.entropy_loss.item() == pytest.approx((dist.entropy() * weight).mean().item(), rel=1e-5)


def columns(weighted):
    """Value, advantage, return and weight of 5 samples."""
    torch.manual_seed(0)
    return *torch.randn(3, 5).unbind(0), torch.rand(5) if weighted else None


@pytest.mark.parametrize("weighted", [False, True])
def test_discrete_losses(weighted):
    rest = columns(weighted)
    logit = torch.randn(5, 3)
    data = a2c_data(logit, torch.randint(3, (5,)), *rest)
    check(a2c_error(data), Categorical(logits=logit), data)


@pytest.mark.parametrize("weighted", [False, True])
def test_continuous_losses(weighted):
    rest = columns(weighted)
    mu, sigma = torch.randn(5, 2), torch.rand(5, 2) + 0.1
    data = a2c_data({"mu": mu, "sigma": sigma}, torch.randn(5, 2), *rest)
    check(a2c_error_continuous(data), Independent(Normal(mu, sigma), 1), data)


def test_the_parts_of_an_action_have_their_losses_added():
    data = a2c_data(None, None, torch.zeros(2), torch.tensor([1.0, 2.0]), torch.ones(2), torch.tensor([1.0, 3.0]))
    parts = [
        ActionTerms(torch.tensor([-0.5, -1.0]), torch.tensor([0.1, 0.2])),
        ActionTerms(torch.tensor([0.25, 0.5]), torch.tensor([1.0, 2.0])),
    ]
    loss = a2c_terms_error(parts, data)
    assert loss.policy_loss.item() == pytest.approx(((0.5 - 0.25) * 1 + (1.0 - 0.5) * 2 * 3) / 2)
    assert loss.value_loss.item() == pytest.approx((1 + 3) / 2)
    assert loss.entropy_loss.item() == pytest.approx((0.1 + 1.0 + 3 * (0.2 + 2.0)) / 2)
