"""Policy gradients with returns: what PG and PPO without a critic learn, against twins that go sample by sample."""

import copy
import math

import numpy as np
import pytest
import torch

from ding.policy import A2CPolicy, PPOOffPolicy
from ding.policy.pg import PGPolicy, PPOPGPolicy
from tests.generators import reseed, rng_of
from tests.policy.learning import model_of, parameters_of
from tests.policy.on_policy_samples import (
    TERMINATED,
    TRUNCATED,
    batched,
    judge,
    make_episodes,
    make_fragment,
    make_fragments,
    make_policy,
)

SPACES = ["discrete", "continuous", "multi-discrete"]


def weights_of(data, weighted):
    for i, sample in enumerate(data if weighted else []):
        sample["weight"] = torch.tensor([0.5 + i % 3])


def minibatches(data, size, rng):
    order = rng.permutation(len(data))
    starts = [min(start, len(data) - size) for start in range(0, len(data), size)]
    return [[data[i] for i in order[start : start + size]] for start in starts]


def learned(policy, data):
    reseed(policy, 3)
    return policy.learn_mode.forward(data)


# --- pg ---


@pytest.mark.differs(
    "multiplies each log-probability by the returns of all samples in PG with continuous actions",
    "multiplies it by the return of its sample",
)
@pytest.mark.parametrize("space", SPACES)
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("grad_norm", [5, 1e-3])
def test_a_pass_of_pg_is_that_of_the_twin(space, weighted, grad_norm):
    policy = make_policy(cls=PGPolicy, space=space, learn__grad_norm=grad_norm, learn__learning_rate=0.01)
    data = make_episodes(policy)
    weights_of(data, weighted)
    model = copy.deepcopy(model_of(policy))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    output = learned(policy, data)
    rng, expected = rng_of(3), []
    for minibatch in minibatches(data, 8, rng):
        policy_loss = entropy = 0.0
        for sample in minibatch:
            weight = sample.get("weight", 1.0)
            ((log_prob, h),) = judge(model(sample["obs"][None])["logit"], sample["action"], space)
            policy_loss = policy_loss - log_prob * sample["return"][0] * weight / 8
            entropy = entropy + h * weight / 8
        total = policy_loss - 0.01 * entropy
        optimizer.zero_grad()
        total.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), grad_norm)
        optimizer.step()
        expected.append(
            {
                "cur_lr": 0.01,
                "total_loss": total.item(),
                "policy_loss": policy_loss.item(),
                "entropy_loss": -0.01 * entropy.item(),
                "return_abs_max": max(sample["return"].abs().item() for sample in minibatch),
                "grad_norm": norm.item(),
            }
        )
    assert len(output) == len(expected) == 3
    for ours, theirs in zip(output, expected, strict=True):
        assert ours == pytest.approx(theirs, rel=1e-4, abs=1e-6)
        assert list(ours) == policy.learn_mode.monitor_vars()
    theirs = torch.cat([p.detach().flatten() for p in model.parameters()])
    assert torch.allclose(parameters_of(policy), theirs, atol=1e-4)


@pytest.mark.parametrize("cls", [PGPolicy, PPOPGPolicy])
@pytest.mark.parametrize("end", [TERMINATED, TRUNCATED, {"done": True}])
def test_returns_are_discounted_sums_up_to_the_end_of_the_episode(cls, end):
    policy = make_policy(cls=cls, collect__discount_factor=0.9)
    fragment = make_fragment(policy, 4, end)
    samples = policy.collect_mode.get_train_sample(fragment)
    rewards = [sample["reward"].item() for sample in samples]
    for t, sample in enumerate(samples):
        expected = sum(0.9**k * reward for k, reward in enumerate(rewards[t:]))
        assert sample["return"].shape == (1,) and sample["return"].item() == pytest.approx(expected)
    logit = {"logit"} if cls is PPOPGPolicy else set()
    assert samples[0].keys() == {"obs", "action", "reward", "done", "return"} | logit


@pytest.mark.parametrize("cls", [PGPolicy, PPOPGPolicy])
def test_a_part_of_an_episode_is_refused(cls):
    policy = make_policy(cls=cls)
    with pytest.raises(AssertionError):
        policy.collect_mode.get_train_sample(make_fragment(policy, 3))
    assert policy.collect_mode.get_train_sample([]) == []


@pytest.mark.parametrize("space", ["discrete", "continuous"])
def test_evaluation_may_draw_its_actions(space):
    obs = {i: torch.ones(4) for i in range(64)}
    likeliest = make_policy("eval", cls=PGPolicy, space=space).eval_mode.forward(obs)
    drawn = make_policy("eval", cls=PGPolicy, space=space, deterministic_eval=False).eval_mode.forward(obs)
    assert len({tuple(output["action"].tolist()) for output in likeliest.values()}) == 1
    assert len({tuple(output["action"].tolist()) for output in drawn.values()}) > 1


# --- ppo_pg ---


@pytest.mark.parametrize("space", SPACES)
@pytest.mark.parametrize("weighted", [False, True])
def test_epochs_of_ppo_pg_are_those_of_the_twin(space, weighted):
    settings = {"learn__entropy_weight": 0.1, "learn__clip_ratio": 0.02, "learn__learning_rate": 0.01}
    policy = make_policy(cls=PPOPGPolicy, space=space, **settings)
    data = make_episodes(policy)
    weights_of(data, weighted)
    model = copy.deepcopy(model_of(policy))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    output = learned(policy, data)
    rng, expected = rng_of(3), []
    for _ in range(2):
        for minibatch in minibatches(data, 8, rng):
            objective = entropy = kl = 0.0
            clipped, sums = 0, np.zeros(3)
            for sample in minibatch:
                weight, logit = sample.get("weight", 1.0), model(sample["obs"][None])["logit"]
                ((log_prob, h),) = judge(logit, sample["action"], space)
                ((old, _),) = judge(batched(sample["logit"]), sample["action"], space)
                ratio, return_ = (log_prob - old).exp(), sample["return"][0]
                objective = objective + torch.min(ratio * return_, ratio.clamp(0.98, 1.02) * return_) * weight / 8
                entropy = entropy + h * weight / 8
                kl += (old - log_prob).item() / 8
                clipped += abs(ratio.item() - 1) > 0.02
                if space == "continuous":
                    parts = (sample["action"], logit["mu"], logit["sigma"])
                    sums += [part.mean().item() / 8 for part in parts]
            total = -objective - 0.1 * entropy
            optimizer.zero_grad()
            total.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
            optimizer.step()
            row = [0.01, total.item(), -objective.item(), entropy.item(), kl, clipped / 8]
            expected.append(row + (list(sums) if space == "continuous" else []))
    assert len(output) == len(expected) == 6
    for ours, theirs in zip(output, expected, strict=True):
        assert list(ours) == policy.learn_mode.monitor_vars()
        assert list(ours.values()) == pytest.approx(theirs, rel=1e-3, abs=1e-5)
    assert output[-1]["clipfrac"] > 0
    theirs = torch.cat([p.detach().flatten() for p in model.parameters()])
    assert torch.allclose(parameters_of(policy), theirs, atol=1e-4)


def test_ppo_pg_begins_orthogonal_where_it_is_asked_to():
    def product(**settings):
        weight = model_of(make_policy("learn", cls=PPOPGPolicy, **settings)).head.Q[0][0].weight.detach()
        return weight @ weight.T

    assert torch.allclose(product(), torch.eye(8), atol=1e-5)
    assert not torch.allclose(product(learn__ppo_param_init=False), torch.eye(8), atol=1e-1)
    gaussian = model_of(make_policy("learn", cls=PPOPGPolicy, space="continuous")).head
    assert (gaussian.log_sigma_param == -0.5).all() and gaussian.mu.weight.norm() < 0.03


# What all policy gradient methods have in common: modes, state, ranks, columns, masks, images, dicts, pipelines.


CLASSES = {"a2c": A2CPolicy, "pg": PGPolicy, "ppo_pg": PPOPGPolicy, "ppo_offpolicy": PPOOffPolicy}
OBS = {3: torch.rand(4), 0: torch.rand(4)}

each_policy = pytest.mark.parametrize("name", CLASSES)


def make(name, *fields, **settings):
    return make_policy(*fields, cls=CLASSES[name], **settings)


def make_data(policy, **kwargs):
    is_episodic = isinstance(policy, (PGPolicy, PPOPGPolicy))
    return (make_episodes if is_episodic else make_fragments)(policy, **kwargs)


def learn(policy, data):
    np.random.seed(0)
    output = policy.learn_mode.forward(data)
    return output if isinstance(output, list) else [output]


# --- modes ---


@each_policy
def test_actions_and_logits_have_the_documented_shapes(name):
    expected = {"discrete": ((1,), (3,)), "continuous": ((2,), {"mu": (2,), "sigma": (2,)})}
    for space, (action, logit) in expected.items():
        policy = make(name, "collect", "eval", space=space)
        for forward in (policy.collect_mode.forward, policy.eval_mode.forward):
            output = forward(OBS)
            assert list(output) == [3, 0]
            for entry in output.values():
                found = entry["logit"]
                shapes = {k: v.shape for k, v in found.items()} if isinstance(found, dict) else found.shape
                assert (entry["action"].shape, shapes) == (action, logit)


@pytest.mark.differs(
    "ignores `action_mask` in discrete SAC, PG and PPO without a critic",
    "excludes illegal actions, in acting and learning",
)
@each_policy
def test_illegal_actions_are_never_taken_nor_learned(name):
    policy, mask = make(name), torch.tensor([1, 0, 1])
    obs = {i: {"observation": torch.rand(4), "action_mask": mask} for i in range(50)}
    assert all(output["action"].item() != 1 for output in policy.collect_mode.forward(obs).values())
    data = make_data(policy, make_obs=lambda: {"observation": torch.rand(4), "action_mask": mask})
    before = parameters_of(policy)
    for output in learn(policy, data):
        assert not any(math.isnan(value) for value in output.values())
    assert not torch.equal(parameters_of(policy), before)
