"""What PPO learns, against a twin that goes sample by sample."""

import copy
import math

import numpy as np
import pytest
import torch
from torch import nn

from ding.policy.a2c import A2CPolicy
from ding.policy.common_utils import default_preprocess_learn
from ding.policy.pg import PPOPGPolicy
from ding.policy.ppo import PPOPolicy
from ding.policy.ppo_offpolicy import PPOOffPolicy
from ding.utils.file_helper import save_file
from tests.generators import reseed, rng_of
from tests.policy.learning import model_of, parameters_of
from tests.policy.on_policy_samples import (
    TERMINATED,
    AgentModel,
    batched,
    judge,
    make_episodes,
    make_fragment,
    make_fragments,
    make_policy,
    scale_of,
)

SPACES = ["discrete", "continuous", "hybrid", "multi-discrete"]


# --- the twin ---


class NaiveNorm:
    """Mean and variance of all returns so far, with one pseudo-return of weight 1e-4."""

    def __init__(self):
        self.count, self.sum, self.squares = 1e-4, 0.0, 1e-4

    def add(self, values):
        self.count += len(values)
        self.sum += sum(values)
        self.squares += sum(v * v for v in values)

    @property
    def std(self):
        mean = self.sum / self.count
        return math.sqrt(self.squares / self.count - mean * mean + 1e-8)


class NaivePPO:
    def __init__(self, policy, space):
        self.model = copy.deepcopy(model_of(policy))
        self.cfg, self.space = policy.cfg, space
        self.norm = NaiveNorm()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.05)

    def value(self, obs):
        with torch.no_grad():
            return self.model(obs[None], mode="compute_critic")["value"].item()

    def scale(self):
        return self.norm.std if self.cfg.learn.value_norm else 1.0

    def advantages(self, data, scale):
        values, adv, running = [self.value(s["obs"]) for s in data], [0.0] * len(data), 0.0
        for t in reversed(range(len(data))):
            is_over = data[t].get("terminated", data[t]["done"]) and not self.cfg.learn.ignore_done
            after = 0.0 if is_over else self.value(data[t]["next_obs"])
            delta = data[t]["reward"].item() + 0.99 * after * scale - values[t] * scale
            running = delta + (0.0 if data[t]["traj_flag"] else 0.99 * 0.95 * running)
            adv[t] = running
        return values, adv

    def loss(self, samples, values, adv, returns):
        learn, losses = self.cfg.learn, []
        if learn.adv_norm:
            mean = sum(adv) / len(adv)
            std = math.sqrt(sum((a - mean) ** 2 for a in adv) / (len(adv) - 1))
            adv = [(a - mean) / (std + 1e-8) for a in adv]
        for sample, v_old, a, target in zip(samples, values, adv, returns, strict=True):
            output = self.model(sample["obs"][None], mode="compute_actor_critic")
            new = judge(output["logit"], sample["action"], self.space)
            old = judge(batched(sample["logit"]), sample["action"], self.space)
            policy = entropy = 0.0
            for (log_prob, h), (log_prob_old, _) in zip(new, old, strict=True):
                ratio = (log_prob - log_prob_old).exp()
                objective = torch.min(ratio * a, ratio.clamp(0.8, 1.2) * a)
                if learn.dual_clip is not None and a < 0:
                    objective = objective.clamp(min=learn.dual_clip * a)
                policy, entropy = policy - objective, entropy + h
            v = output["value"][0]
            near = v_old + (v - v_old).clamp(-0.2, 0.2) if learn.get("value_clip", True) else v
            value = 0.5 * torch.max((target - v) ** 2, (target - near) ** 2)
            weight = sample.get("weight", 1.0)
            losses.append((policy + 0.5 * value - learn.entropy_weight * entropy) * weight)
        return sum(losses) / len(losses)

    def learn(self, data, rng):
        totals, scale = [], self.scale()
        if not self.cfg.recompute_adv:
            values, adv = [s["value"].item() for s in data], [s["adv"].item() for s in data]
            raw = [a + v * scale for a, v in zip(adv, values, strict=True)]
        for _ in range(self.cfg.learn.epoch_per_collect):
            scale = self.scale()
            if self.cfg.recompute_adv:
                values, adv = self.advantages(data, scale)
                raw = [a + v * scale for a, v in zip(adv, values, strict=True)]
            returns = [r / scale for r in raw]
            self.norm.add(raw)
            order = rng.permutation(len(data)).tolist()
            for start in range(0, len(data), 8):
                rows = order[min(start, len(data) - 8) :][:8]
                columns = ([column[i] for i in rows] for column in (data, values, adv, returns))
                total = self.loss(*columns)
                self.optimizer.zero_grad()
                total.backward()
                self.optimizer.step()
                totals.append(total.item())
        return totals


def learn_both(space, weight=None, rounds=2, **settings):
    """Learn from the same collections; returns the policy, the twin, and the total losses of both."""
    policy = make_policy(space=space, **settings)
    policy.learn_mode.set_attribute("optimizer", torch.optim.SGD(model_of(policy).parameters(), lr=0.05))
    twin, totals = NaivePPO(policy, space), ([], [])
    for seed in range(rounds):
        torch.manual_seed(seed)
        data = make_fragments(policy)
        if weight is not None:
            data = [{**sample, "weight": weight * (1 + i % 2)} for i, sample in enumerate(data)]
        reseed(policy, seed)
        totals[0].extend(entry["total_loss"] for entry in policy.learn_mode.forward([dict(s) for s in data]))
        totals[1].extend(twin.learn(data, rng_of(seed)))
    return policy, twin, totals


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"learn__value_norm": False, "learn__entropy_weight": 0.1},
        {"recompute_adv": False},
        {"recompute_adv": False, "learn__value_norm": False},
        {"learn__adv_norm": False, "learn__dual_clip": 1.05},
        {"learn__ignore_done": True},
        {"learn__value_clip": False, "learn__value_norm": False},
        {"weight": 0.7},
    ],
)
def test_learning_equals_its_twin(settings):
    policy, twin, (ours, theirs) = learn_both("discrete", **settings)
    assert len(ours) == 12
    assert ours == pytest.approx(theirs, rel=1e-3, abs=1e-5)
    expected = torch.cat([p.detach().flatten() for p in twin.model.parameters()])
    assert torch.allclose(parameters_of(policy), expected, atol=2e-5)
    if policy.cfg.learn.value_norm:
        assert scale_of(policy.learn_mode) == pytest.approx(twin.scale(), rel=1e-4)


@pytest.mark.parametrize("space", SPACES[1:])
def test_learning_in_other_action_spaces_equals_its_twin(space):
    policy, twin, (ours, theirs) = learn_both(space, learn__entropy_weight=0.1)
    assert ours == pytest.approx(theirs, rel=1e-3, abs=1e-5)
    expected = torch.cat([p.detach().flatten() for p in twin.model.parameters()])
    assert torch.allclose(parameters_of(policy), expected, atol=2e-5)


@pytest.mark.parametrize("eps", [1e-8, 1e-3])
def test_a_step_is_adam_with_the_norm_of_the_gradients_clipped(eps):
    settings = {} if eps == 1e-8 else {"learn__eps": eps}
    policy = make_policy(learn__epoch_per_collect=1, learn__batch_size=64, learn__grad_clip_value=1e-3, **settings)
    data, model = make_fragments(policy), copy.deepcopy(model_of(policy))
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-4, eps=eps)
    policy.learn_mode.forward(data)
    for theirs, ours in zip(model.parameters(), model_of(policy).parameters(), strict=True):
        theirs.grad = ours.grad.clone()  # clipped already
    assert nn.utils.clip_grad_norm_(model.parameters(), 1e9).item() == pytest.approx(1e-3, rel=1e-2)
    optimizer.step()
    expected = torch.cat([p.detach().flatten() for p in model.parameters()])
    assert torch.allclose(parameters_of(policy), expected, atol=1e-7)


# --- what comes out ---

LOGGED = [
    *("cur_lr", "total_loss", "policy_loss", "value_loss", "entropy_loss"),
    *("adv_max", "adv_mean", "value_mean", "value_max", "approx_kl", "clipfrac", "kl_div"),
]


def test_a_subclass_may_have_another_loss():
    class Regularized(PPOPolicy):
        def _loss(self, output, batch):
            total, terms = super()._loss(output, batch)
            return total + 0.5 * output["value"].square().mean(), terms

    def first_step(cls):
        policy = make_policy(cls=cls)
        return policy.learn_mode.forward(make_fragments(policy))[0]

    plain, regularized = first_step(PPOPolicy), first_step(Regularized)
    assert regularized["total_loss"] > plain["total_loss"] and regularized["policy_loss"] == plain["policy_loss"]


def test_monitored_names(tmp_path):
    monitored = [name for name in LOGGED if name != "kl_div"]
    assert make_policy().learn_mode.monitor_vars() == monitored
    continuous = make_policy(space="continuous").learn_mode.monitor_vars()
    assert continuous == [*monitored, "act", "mu_mean", "sigma_mean", "sigma_grad"]
    path = str(tmp_path / "pretrained.pth.tar")
    save_file(path, model_of(make_policy()).state_dict())
    assert make_policy(learn__pretrained_model_path=path).learn_mode.monitor_vars() == LOGGED


@pytest.mark.differs("makes the loss of PPO NaN for a minibatch of one sample", "does not normalize a single advantage")
def test_fewer_samples_than_a_minibatch_are_one_batch_and_one_sample_is_no_nan():
    policy = make_policy(learn__epoch_per_collect=1)
    data = make_fragments(policy)
    assert len(policy.learn_mode.forward(data[:3])) == 1
    (step,) = policy.learn_mode.forward(data[:1])
    assert not any(math.isnan(value) for value in step.values())


def test_a_learner_may_set_the_weight_of_the_entropy():
    policy = make_policy()
    data = make_fragments(policy)
    policy.learn_mode.set_attribute("entropy_weight", -5.0)
    step = policy.learn_mode.forward(data)[0]
    rest = step["policy_loss"] + 0.5 * step["value_loss"]
    assert step["total_loss"] == pytest.approx(rest + 5 * step["entropy_loss"], rel=1e-4)


# --- masks ---


def masked_obs(mask=(1, 0, 1)):
    return {"observation": torch.rand(4), "action_mask": torch.tensor(mask)}


def test_an_illegal_action_is_neither_drawn_nor_learnt_of():
    policy = make_policy(learn__entropy_weight=0.5, learn__epoch_per_collect=3)
    policy.learn_mode.set_attribute("optimizer", torch.optim.SGD(model_of(policy).parameters(), lr=0.5))
    data = make_fragments(policy, make_obs=masked_obs)
    assert {sample["action"].item() for sample in data} == {0, 2}
    last = model_of(policy).actor_head.Q[-1][0]
    weight, bias = last.weight[1].clone(), last.bias[1].clone()
    steps = policy.learn_mode.forward(data)
    assert torch.equal(last.weight[1], weight) and torch.equal(last.bias[1], bias)
    assert max(step["entropy_loss"] for step in steps) <= math.log(2) + 1e-6
    assert all(step["approx_kl"] < 1 for step in steps)


def test_each_head_of_a_multi_discrete_action_has_its_mask():
    def obs():
        return {"observation": torch.rand(4), "action_mask": [torch.tensor([0, 1]), torch.tensor([1, 1, 0])]}

    policy = make_policy(space="multi-discrete", learn__entropy_weight=0.5)
    data = make_fragments(policy, make_obs=obs)
    assert {sample["action"][0].item() for sample in data} == {1}
    assert {sample["action"][1].item() for sample in data} == {0, 1}
    steps = policy.learn_mode.forward(data)
    assert max(step["entropy_loss"] for step in steps) <= math.log(2) + 1e-6


# --- the limit of the divergence ---


@pytest.mark.parametrize("cls", [PPOPolicy, PPOPGPolicy])
@pytest.mark.parametrize("space", ["discrete", "continuous"])
def test_epochs_end_before_a_step_on_a_minibatch_where_the_policy_has_moved_too_far(cls, space):
    settings = {"learn__batch_size": 64, "learn__epoch_per_collect": 12, "learn__learning_rate": 0.02}
    free = make_policy(cls=cls, space=space, **settings)
    make = make_fragments if cls is PPOPolicy else make_episodes
    data = make(free)
    obs = torch.stack([sample["obs"] for sample in data])
    kind, action = free._kind, default_preprocess_learn(data)["action"]

    def log_prob(policy):
        with torch.no_grad():
            logit = (
                model_of(policy)(obs, mode="compute_actor")["logit"]
                if cls is PPOPolicy
                else model_of(policy)(obs)["logit"]
            )
            return kind.terms(logit, action)[0].log_prob

    def learned(policy):
        np.random.seed(3)
        return policy.learn_mode.forward(copy.deepcopy(data))

    before, moved = log_prob(free), []
    for epochs in range(12):  # the divergence before each step, as all samples are one minibatch
        policy = make_policy(cls=cls, space=space, **{**settings, "learn__epoch_per_collect": epochs + 1})
        learned(policy)
        log_ratio = (log_prob(policy) - before).double()
        moved.append((log_ratio.exp() - 1 - log_ratio).mean().item())
    target = max(moved) / 1.5 / 2
    steps = 1 + next(i for i, divergence in enumerate(moved) if divergence > 1.5 * target)
    limited = make_policy(cls=cls, space=space, **settings, learn__target_kl=target)
    expected = learned(free)
    assert len(expected) == 12 and learned(limited) == expected[:steps] and steps < 12


# --- learning rate, pretrained policy, value norm ---


def test_the_learning_rate_falls_linearly_once_a_collection():
    policy = make_policy(learn__lr_scheduler={"epoch_num": 4, "min_lr_lambda": 0.5}, learn__learning_rate=0.1)
    rates = [policy.learn_mode.forward(make_fragments(policy))[-1]["cur_lr"] for _ in range(6)]
    assert rates == pytest.approx([0.1, 0.0875, 0.075, 0.0625, 0.05, 0.05])


@pytest.mark.parametrize("kl_type", ["k1", "k2", "k3"])
@pytest.mark.parametrize("whole_checkpoint", [True, False])
def test_a_policy_stays_close_to_a_pretrained_one(kl_type, whole_checkpoint, tmp_path):
    path = str(tmp_path / "ckpt.pth.tar")
    pretrained = make_policy(seed=5, learn__ppo_param_init=False)
    save_file(path, pretrained.learn_mode.state_dict() if whole_checkpoint else model_of(pretrained).state_dict())
    settings = {
        "learn__pretrained_model_path": path,
        "learn__kl_type": kl_type,
        "learn__batch_size": 64,
        "learn__epoch_per_collect": 1,
    }
    policy = make_policy(**settings)
    data = make_fragments(policy)
    old = [categorical(model_of(policy), s) for s in data]
    reference = [categorical(model_of(pretrained), s) for s in data]
    d = torch.tensor(old) - torch.tensor(reference)
    expected = {"k1": d, "k2": d**2 / 2, "k3": (-d).exp() - 1 + d}[kl_type].mean().item()
    (step,) = policy.learn_mode.forward(data)
    assert step["kl_div"] == pytest.approx(expected, rel=1e-4)
    pulled = make_policy(**settings, learn__kl_beta=2.0)
    (with_weight,) = pulled.learn_mode.forward(data)
    assert with_weight["total_loss"] == pytest.approx(step["total_loss"] + 2 * expected, rel=1e-4)
    assert torch.equal(pulled._pretrained_model.encoder.init.weight, model_of(pretrained).encoder.init.weight)


def categorical(model, sample):
    with torch.no_grad():
        logit = model(sample["obs"][None], "compute_actor")["logit"]
    return torch.log_softmax(logit, -1)[0, sample["action"]].item()


@pytest.mark.differs(
    "lets PPO's returns drift from epoch to epoch with the value scale, without `recompute_adv`",
    "computes them once",
)
def test_returns_do_not_drift_over_the_epochs_without_recomputing():
    policy = make_policy(recompute_adv=False, learn__epoch_per_collect=3, learn__learning_rate=1e-12)
    data = make_fragments(policy)
    expected = [s["adv"].item() + s["value"].item() for s in data]
    policy.learn_mode.forward(data)
    assert scale_of(policy.learn_mode) == pytest.approx(np.std(expected), rel=1e-3)


# --- agents ---


def test_agents_with_values_of_their_own_learn():
    torch.manual_seed(0)
    policy = make_policy(model=AgentModel(), multi_agent=True, learn__ppo_param_init=False)
    data = make_fragments(policy)
    assert data[0]["action"].shape == data[0]["value"].shape == data[0]["adv"].shape == (2,)
    steps = policy.learn_mode.forward(data)
    assert len(steps) == 6 and not any(math.isnan(v) for step in steps for v in step.values())


# What off-policy PPO makes of trajectories, and what it learns, against a twin that goes sample by sample.


def make(*fields, **settings):
    return make_policy(*fields, cls=PPOOffPolicy, **settings)


def deviation(returns):
    """Of the returns and one pseudo-return of weight 1e-4."""
    count = len(returns) + 1e-4
    mean = sum(returns) / count
    return math.sqrt((sum(r * r for r in returns) + 1e-4) / count - mean * mean + 1e-8)


class Twin:
    def __init__(self, policy, space):
        self.model, self.cfg, self.space = copy.deepcopy(model_of(policy)), policy.cfg, space
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=0.01, weight_decay=policy.cfg.learn.weight_decay)
        self.returns = []

    @property
    def scale(self):
        return deviation(self.returns) if self.cfg.learn.value_norm else 1.0

    def return_of(self, sample):
        if "return" in sample:
            return sample["return"].item()
        if not self.cfg.nstep_return:
            return sample["value"].item() * self.scale + sample["adv"].item()
        with torch.no_grad():
            after = self.model(sample["next_obs"][None], mode="compute_critic")["value"].item() * self.scale
        is_over = sample.get("terminated", sample["done"]) and not self.cfg.learn.ignore_done
        rewards = sum(0.99**k * reward for k, reward in enumerate(sample["reward"].tolist()))
        return rewards + (0.0 if is_over else sample["value_gamma"] * after)

    def step(self, data):
        learn, size = self.cfg.learn, len(data)
        adv = torch.cat([sample["adv"] for sample in data])
        if learn.adv_norm:
            adv = (adv - adv.mean()) / (adv.std() + 1e-8)
        returns, scale = [self.return_of(sample) for sample in data], self.scale
        policy = value = entropy = total_value = kl = 0.0
        clipped = 0
        for sample, a, target in zip(data, adv, returns, strict=True):
            weight, output = sample.get("weight", 1.0), self.model(sample["obs"][None], mode="compute_actor_critic")
            new = judge(output["logit"], sample["action"], self.space)
            old = judge(batched(sample["logit"]), sample["action"], self.space)
            for (log_prob, h), (log_prob_old, _) in zip(new, old, strict=True):
                ratio = (log_prob - log_prob_old).exp()
                policy = policy - torch.min(ratio * a, ratio.clamp(0.8, 1.2) * a) * weight / size
                entropy = entropy + h * weight / size
                kl += (log_prob_old - log_prob).item() / size
                clipped += abs(ratio.item() - 1) > 0.2
            v, v_old = output["value"][0], sample["value"][0]
            error = (target / scale - v) ** 2
            if not self.cfg.nstep_return:
                near = v_old + (v - v_old).clamp(-0.2, 0.2)
                error = 0.5 * torch.max(error, (target / scale - near) ** 2)
            value, total_value = value + error * weight / size, total_value + v_old.item() / size
        self.returns += returns
        total = policy + 0.5 * value - 0.01 * entropy
        self.optimizer.zero_grad()
        total.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 0.5)
        self.optimizer.step()
        return {
            "cur_lr": 0.01,
            "total_loss": total.item(),
            "policy_loss": policy.item(),
            "value": total_value,
            "value_loss": value.item(),
            "entropy_loss": entropy.item(),
            "adv_abs_max": adv.abs().max().item(),
            "approx_kl": kl,
            "clipfrac": clipped / size,
        }


SETTINGS = {
    "plain": {"learn__value_norm": False, "learn__adv_norm": True, "learn__weight_decay": 0.1},
    "nstep": {"nstep_return": True},
    "nstep plain": {"nstep_return": True, "learn__value_norm": False},
    "nstep ignore_done": {"nstep_return": True, "learn__ignore_done": True},
}


@pytest.mark.differs("fails with hybrid actions in off-policy PPO", "adds up the losses of both parts")
@pytest.mark.parametrize(
    ("space", "settings"), [*((space, "default") for space in SPACES), *(("discrete", name) for name in SETTINGS)]
)
def test_steps_are_those_of_the_twin(space, settings):
    policy = make(space=space, learn__learning_rate=0.01, **SETTINGS.get(settings, {}))
    data = make_fragments(policy)
    for i, sample in enumerate(data):
        sample["weight"] = torch.tensor([0.5 + i % 3])
    twin = Twin(policy, space)
    for _ in range(3):  # the value scale of one step comes from those before it
        ours, theirs = policy.learn_mode.forward(data), twin.step(data)
        assert list(ours) == policy.learn_mode.monitor_vars()
        if space == "hybrid":  # the larger one of the parts' is told
            theirs.pop("approx_kl"), theirs.pop("clipfrac")
        assert {key: ours[key] for key in theirs} == pytest.approx(theirs, rel=2e-3, abs=1e-4)
    parameters = torch.cat([p.detach().flatten() for p in twin.model.parameters()])
    assert torch.allclose(parameters_of(policy), parameters, atol=1e-3)


@pytest.mark.differs(
    "reads old samples of off-policy PPO in units of the present value scale, so that returns grow without bound, "
    "and ignores `value_norm` with `nstep_return`",
    "keeps returns of samples in units of the reward",
)
def test_returns_keep_the_scale_of_their_collection():
    policy = make()
    data = make_fragments(policy)
    returns = [sample["return"].item() for sample in data]
    assert returns == pytest.approx([(sample["value"] + sample["adv"]).item() for sample in data])
    for number in range(1, 4):  # the same returns again and again leave their mean and deviation as they are
        policy.learn_mode.forward(data)
        assert policy._value_scale() == pytest.approx(deviation(returns * number))
    later = make_fragments(policy)
    scaled = [(sample["value"] * policy._value_scale() + sample["adv"]).item() for sample in later]
    assert [sample["return"].item() for sample in later] == pytest.approx(scaled)


def test_n_step_transitions_keep_the_advantages_of_their_first_step():
    one, many = make(learn__value_norm=False), make(learn__value_norm=False, nstep_return=True)
    fragment = make_fragment(one, 5, TERMINATED)
    singles = one.collect_mode.get_train_sample(copy.deepcopy(fragment))
    samples = many.collect_mode.get_train_sample(copy.deepcopy(fragment))
    for t, (sample, single) in enumerate(zip(samples, singles, strict=True)):
        end = min(t + 2, 4)
        assert torch.equal(sample["adv"], single["adv"])
        assert torch.equal(sample["next_obs"], fragment[end]["next_obs"])
        assert sample["value_gamma"] == pytest.approx(0.99 ** (end - t + 1)) and sample["done"] is (end == 4)
        rewards = [step["reward"].item() for step in fragment[t : t + 3]] + [0.0] * 3
        assert sample["reward"].tolist() == pytest.approx(rewards[:3])


# What A2C makes of trajectories, and what it learns, against a twin that goes sample by sample.


def make_a2c(*fields, **settings):
    return make_policy(*fields, cls=A2CPolicy, **settings)


def naive_loss(model, samples, space, adv_norm):
    """The terms of the loss of a minibatch, and its largest advantage."""
    adv = torch.cat([sample["adv"] for sample in samples])
    returns = adv + torch.cat([sample["value"] for sample in samples])
    if adv_norm:
        adv = (adv - adv.mean()) / (adv.std() + 1e-8)
    policy = value = entropy = 0.0
    for sample, a, target in zip(samples, adv, returns, strict=True):
        output, weight = model(sample["obs"][None], mode="compute_actor_critic"), sample.get("weight", 1.0)
        for log_prob, h in judge(output["logit"], sample["action"], space):
            policy, entropy = policy - log_prob * a * weight, entropy + h * weight
        value = value + (target - output["value"][0]) ** 2 * weight
    return policy / len(samples), value / len(samples), entropy / len(samples), adv.abs().max()


@pytest.mark.parametrize("space", SPACES)
@pytest.mark.parametrize(
    "settings", [{}, {"learn__adv_norm": True, "learn__grad_norm": 1e-3, "learn__betas": (0.5, 0.9)}]
)
@pytest.mark.parametrize("weighted", [False, True])
def test_a_pass_of_minibatches_is_that_of_the_twin(space, settings, weighted):
    policy = make_a2c(space=space, **settings)
    data = make_fragments(policy)
    if weighted:
        for i, sample in enumerate(data):
            sample["weight"] = torch.tensor([0.5 + i % 3])
    model, learn = copy.deepcopy(model_of(policy)), policy.cfg.learn
    optimizer = torch.optim.Adam(model.parameters(), lr=0.001, betas=learn.betas)
    reseed(policy, 3)
    output = policy.learn_mode.forward(data)
    order = rng_of(3).permutation(21)
    for start in (0, 8, 13):  # the last minibatch is filled up
        minibatch = [data[i] for i in order[start : start + 8]]
        policy_loss, value_loss, entropy, adv_abs_max = naive_loss(model, minibatch, space, learn.adv_norm)
        total = policy_loss + 0.5 * value_loss - 0.01 * entropy
        optimizer.zero_grad()
        total.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), learn.grad_norm)
        optimizer.step()
    expected = {
        "cur_lr": 0.001,
        "total_loss": total.item(),
        "policy_loss": policy_loss.item(),
        "value_loss": value_loss.item(),
        "entropy_loss": entropy.item(),
        "adv_abs_max": adv_abs_max.item(),
        "grad_norm": norm.item(),
    }
    assert output == pytest.approx(expected, rel=1e-4, abs=1e-5)
    assert policy.learn_mode.monitor_vars() == list(output)
    theirs = torch.cat([p.detach().flatten() for p in model.parameters()])
    assert torch.allclose(parameters_of(policy), theirs, atol=1e-5)
