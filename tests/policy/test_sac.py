"""SAC: what it learns, how it acts, what it keeps."""

import copy
import math
from functools import partial

import numpy as np
import pytest
import torch
from torch.distributions import Normal

from ding.policy import DiscreteSACCommandModePolicy
from ding.policy.sac import DiscreteSACPolicy, SACPolicy, Temperature
from ding.utils import set_pkg_seed
from ding.utils.config_helper import ConfigError
from tests.generators import reseed, rng_of
from tests.policy.continuous_samples import (
    columns,
    make_batch,
    make_config,
    make_discrete_batch,
    make_sample,
    parameters,
)
from tests.policy.learning import model_of, target_of

OBS = {3: torch.zeros(3), 0: torch.ones(3)}


def make_policy(*fields, seed=0, model=None, **settings):
    set_pkg_seed(seed, use_cuda=False)
    return SACPolicy(make_config(SACPolicy, **settings), model=model, enable_field=list(fields) or None)


def learn(policy, data, seed=1):
    reseed(policy, seed)
    return policy.learn_mode.forward(data)


class SoftOracle:
    """Soft actor-critic written out with torch's distributions, in double precision."""

    def __init__(self, policy, alpha=0.2, gamma=0.99):
        self.net = copy.deepcopy(model_of(policy)).double()
        self.target = copy.deepcopy(self.net)
        self.log_alpha = torch.tensor(math.log(alpha), dtype=torch.float64, requires_grad=True)
        self.gamma = gamma
        self.q_step, self.policy_step, self.alpha_step = (
            torch.optim.Adam(parameters, 3e-4)
            for parameters in (self.net.critic.parameters(), self.net.actor.parameters(), [self.log_alpha])
        )

    def step(self, optimizer, loss):
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    def follow(self):
        for own, online in zip(self.target.parameters(), self.net.parameters(), strict=True):
            own.data += 0.005 * (online.data - own.data)

    def check_learns_alike(self, policy, learn, make_batch, weighted):
        """Three steps tell the numbers of this oracle, and leave its networks."""
        for _ in range(3):
            data = make_batch(8)
            output, expected = learn(data), self.learn(data, weighted)
            assert {key: output[key] for key in expected} == {
                key: pytest.approx(value, rel=1e-4, abs=1e-5) for key, value in expected.items()
            }
        assert torch.allclose(parameters(model_of(policy)).double(), parameters(self.net), atol=1e-5)
        assert torch.allclose(parameters(target_of(policy)).double(), parameters(self.target), atol=1e-5)


class Oracle(SoftOracle):
    """SAC with real-valued actions."""

    def __init__(self, policy, auto_alpha=True):
        super().__init__(policy)
        self.auto_alpha = auto_alpha

    def draw(self, obs, rng):
        mu, sigma = self.net(obs, mode="compute_actor")["logit"]
        noise = torch.from_numpy(rng.standard_normal(mu.shape, np.float32)).double()  # as the policy draws
        u = mu + sigma * noise
        log_prob = Normal(mu, sigma).log_prob(u) - torch.log(1 - torch.tanh(u) ** 2)
        return torch.tanh(u), log_prob.sum(-1)

    def learn(self, data, weighted=False):
        obs, next_obs, action, reward, done, weight = (column.double() for column in columns(data))
        weight = weight if weighted else torch.ones_like(weight)
        alpha = self.log_alpha.exp().detach()
        rng = rng_of(1)
        with torch.no_grad():
            next_action, next_log_prob = self.draw(next_obs, rng)
            next_q = self.target({"obs": next_obs, "action": next_action}, mode="compute_critic")["q_value"]
            next_value = torch.minimum(*next_q) - alpha * next_log_prob
            y = reward + self.gamma * (1 - done) * next_value
        errors = [(q - y) ** 2 for q in self.net({"obs": obs, "action": action}, mode="compute_critic")["q_value"]]
        q_losses = [(error * weight).mean() for error in errors]
        self.step(self.q_step, sum(q_losses))
        new_action, log_prob = self.draw(obs, rng)
        q = torch.minimum(*self.net({"obs": obs, "action": new_action}, mode="compute_critic")["q_value"])
        policy_loss = (alpha * log_prob - q).mean()
        self.step(self.policy_step, policy_loss)
        losses = {"critic_loss": q_losses[0], "twin_critic_loss": q_losses[1], "policy_loss": policy_loss}
        entropy_gap = log_prob.detach().mean() - (2 if self.auto_alpha else 0)
        if self.auto_alpha:
            losses["alpha_loss"] = -self.log_alpha * entropy_gap
            self.step(self.alpha_step, losses["alpha_loss"])
        self.follow()
        return {
            "priority": (sum(errors) / 2).tolist(),
            "td_error": (sum(errors) / 2).mean().item(),
            "target_q_value": next_value.mean().item(),
            "transformed_log_prob": entropy_gap.item(),
            "alpha": self.log_alpha.exp().item(),
            **{name: loss.item() for name, loss in losses.items()},
            "total_loss": sum(losses.values()).item(),
        }


# --- learn ---


@pytest.mark.parametrize(("auto_alpha", "weighted"), [(True, False), (False, False), (True, True)])
def test_learning_steps_are_those_of_soft_actor_critic(auto_alpha, weighted):
    policy = make_policy("learn", learn__auto_alpha=auto_alpha, priority=weighted, priority_IS_weight=weighted)
    Oracle(policy, auto_alpha).check_learns_alike(policy, partial(learn, policy), make_batch, weighted)


class OwnModel(torch.nn.Module):
    """A user's model: names of its own, and logits in a dict."""

    def __init__(self):
        super().__init__()
        self.actor, self.critic = torch.nn.Linear(3, 4), torch.nn.Linear(5, 2)

    def forward(self, inputs, mode):
        if mode == "compute_actor":
            mu, log_sigma = self.actor(inputs).chunk(2, -1)
            return {"logit": {"mu": mu, "sigma": log_sigma.exp()}}
        return {"q_value": list(self.critic(torch.cat([inputs["obs"], inputs["action"]], 1)).unbind(1))}


@pytest.mark.guarantees("overrides")
def test_a_model_of_the_users_own_learns_and_acts():
    policy = make_policy(model=OwnModel())
    output = policy.learn_mode.forward(make_batch(8))
    assert set(policy.learn_mode.monitor_vars()) == output.keys() - {"priority"}
    assert policy.collect_mode.forward(OBS)[3]["action"].abs().max() < 1
    expected = torch.tanh(model_of(policy).actor.bias[:2])
    assert torch.allclose(policy.eval_mode.forward(OBS)[3]["action"], expected)


def test_the_last_layers_of_the_actor_start_small():
    head = model_of(make_policy("learn", learn__init_w=0.25)).actor_head[2]
    for layer in (head.mu, head.log_sigma_layer):
        values = torch.cat([layer.weight.flatten(), layer.bias])
        assert values.abs().max() <= 0.25 and values.abs().max() > 0.1
    assert head.main[0].weight.abs().max() > 0.25


@pytest.mark.parametrize(("shape", "expected"), [(2, -2.0), ((3,), -3.0)])
def test_the_usual_target_entropy_is_minus_the_number_of_dimensions(shape, expected):
    policy = make_policy("learn", model__action_shape=shape)
    data = make_batch(8, action=torch.rand(-int(expected)))
    fixed = make_policy("learn", model__action_shape=shape, learn__auto_alpha=False)
    log_prob = learn(fixed, data)["transformed_log_prob"]
    other = make_policy("learn", model__action_shape=shape, learn__target_entropy=expected + 1)
    for one, target in ((policy, expected), (other, expected + 1)):
        output = learn(one, data)
        assert output["transformed_log_prob"] == pytest.approx(log_prob + target, rel=1e-5)
        assert output["alpha_loss"] == pytest.approx(-math.log(0.2) * (log_prob + target), rel=1e-5)


# --- temperature ---


def test_the_loss_of_the_temperature_is_that_of_the_paper():
    settings = {"alpha": 0.5, "auto_alpha": True, "learning_rate_alpha": 0.01}
    log_prob = torch.tensor([1.0, -3.0])
    loss = Temperature({**settings, "log_space": True}, -2.0).loss(log_prob)
    assert loss.item() == pytest.approx(-math.log(0.5) * (-1.0 - 2.0))
    assert Temperature({**settings, "log_space": False}, -2.0).loss(log_prob).item() == pytest.approx(-0.5 * (-3.0))


@pytest.mark.differs("crashes in SAC with `log_space=False` once alpha is 0", "keeps alpha at 0 or above")
def test_a_temperature_that_is_learned_itself_does_not_fall_below_zero():
    policy = make_policy("learn", learn__log_space=False, learn__alpha=0.001, learn__learning_rate_alpha=0.1)
    for _ in range(3):
        output = policy.learn_mode.forward(make_batch(8))
    assert output["alpha"] == 0.0
    assert math.isfinite(output["total_loss"])


def test_a_start_without_logarithm_is_refused():
    with pytest.raises(ConfigError):
        make_policy("learn", learn__alpha=0.0)
    assert make_policy("learn", learn__alpha=0.0, learn__auto_alpha=False)


# --- collect and eval ---


def test_collecting_draws_squashed_gaussian_actions():
    policy = make_policy("collect")
    reseed(policy, 5)
    output = policy.collect_mode.forward(OBS)
    assert list(output) == [3, 0] and list(output[3]) == ["logit", "action"]
    mu, sigma = model_of(policy)(torch.stack(list(OBS.values())), mode="compute_actor")["logit"]
    noise = torch.from_numpy(rng_of(5).standard_normal(mu.shape, np.float32))
    expected = torch.tanh(mu + sigma * noise)
    for row, env_id in enumerate(OBS):
        assert torch.equal(output[env_id]["action"], expected[row])
        assert [part.shape for part in output[env_id]["logit"]] == [(2,), (2,)]
        assert torch.equal(output[env_id]["logit"][0], mu[row])


class Step:
    obs, reward, done, info = torch.ones(3), torch.ones(1), False, {}


@pytest.mark.parametrize("keeps", [False, True])
def test_transitions_hold_the_logit_where_it_is_asked_for(keeps):
    policy = make_policy("collect", collect__collector_logit=keeps)
    output = policy.collect_mode.forward(OBS)[3]
    transition = policy.collect_mode.process_transition(OBS[3], output, Step)
    names = ["action", "logit"] if keeps else ["action"]
    assert list(transition) == ["obs", "next_obs", *names, "reward", "done"]
    assert all(transition[name] is output[name] for name in names)


# --- settings ---


def test_a_model_without_actor_and_critic_is_refused():
    with pytest.raises(ConfigError):
        make_policy("learn", model=torch.nn.Linear(3, 2))


# SAC with discrete actions: what it learns, how it acts, what it keeps.


def make_discrete_policy(*fields, cls=DiscreteSACPolicy, seed=0, **settings):
    torch.manual_seed(seed)
    return cls(make_config(cls, "discrete", **settings), enable_field=list(fields) or None)


class DiscreteOracle(SoftOracle):
    """SAC with discrete actions."""

    goal = 0.98 * math.log(2)

    def q(self, net, obs):
        q = net(obs, mode="compute_critic")["q_value"]
        return q if isinstance(q, list) else [q]

    def learn(self, data, weighted=False):
        obs, next_obs, action, reward, done, weight = (column.double() for column in columns(data))
        weight = weight if weighted else torch.ones_like(weight)
        alpha = self.log_alpha.exp().detach()
        with torch.no_grad():
            policy = torch.distributions.Categorical(logits=self.net(next_obs, mode="compute_actor")["logit"])
            next_q = self.q(self.target, next_obs)
            expected_q = (policy.probs * torch.stack(next_q).min(0).values).sum(-1)
            next_value = expected_q + alpha * policy.entropy()
            y = reward + self.gamma * (1 - done) * next_value
        errors = [(q.gather(1, action.long()).squeeze(1) - y) ** 2 for q in self.q(self.net, obs)]
        q_losses = [(error * weight).mean() for error in errors]
        self.step(self.q_step, sum(q_losses))
        policy = torch.distributions.Categorical(logits=self.net(obs, mode="compute_actor")["logit"])
        entropy = policy.entropy()
        q = torch.stack(self.q(self.net, obs)).min(0).values.detach()
        policy_loss = -(alpha * entropy + (policy.probs * q).sum(-1)).mean()
        self.step(self.policy_step, policy_loss)
        alpha_loss = -self.log_alpha * (self.goal - entropy.detach().mean())
        self.step(self.alpha_step, alpha_loss)
        self.follow()
        names = ["critic_loss", "twin_critic_loss"]
        losses = {name: loss.item() for name, loss in zip(names, q_losses, strict=False)}
        losses |= {"policy_loss": policy_loss.item(), "alpha_loss": alpha_loss.item()}
        error = sum(errors) / len(errors)
        return {
            **losses,
            **{name: q.mean().item() for name, q in zip(["q_value_1", "q_value_2"], next_q, strict=False)},
            "total_loss": sum(losses.values()),
            "target_value": next_value.mean().item(),
            "entropy": entropy.mean().item(),
            "alpha": self.log_alpha.exp().item(),
            "td_error": error.mean().item(),
            "priority": error.tolist(),
            "cur_lr_q": 3e-4,
            "cur_lr_p": 3e-4,
        }


@pytest.mark.parametrize("twin", [True, False])
@pytest.mark.parametrize("weighted", [True, False])
def test_learning_steps_of_discrete_actions_are_those_of_soft_actor_critic(twin, weighted):
    priority = {"priority": weighted, "priority_IS_weight": weighted}
    policy = make_discrete_policy("learn", model__twin_critic=twin, **priority)
    oracle = DiscreteOracle(policy)
    oracle.check_learns_alike(policy, policy.learn_mode.forward, make_discrete_batch, weighted)
    assert policy.learn_mode.forward(make_discrete_batch(8)).keys() == oracle.learn(make_discrete_batch(8)).keys()


@pytest.mark.differs(
    "aims at a negative entropy in discrete SAC, so that its temperature can only fall",
    "aims at 0.98 of the largest entropy, unless `target_entropy` is set",
)
@pytest.mark.parametrize(("actions", "expected"), [(2, 0.98 * math.log(2)), ((5,), 0.98 * math.log(5))])
def test_the_usual_target_entropy_can_be_met(actions, expected):
    """A policy with less entropy than the target has its temperature raised, one with more has it lowered."""
    for lean, rises in ((5.0, True), (0.0, False)):
        policy = make_discrete_policy("learn", model__action_shape=actions)
        last = [module for module in model_of(policy).actor.modules() if isinstance(module, torch.nn.Linear)][-1]
        with torch.no_grad():
            last.weight.zero_()
            last.bias.zero_()[0] = lean  # to the first action
        output = policy.learn_mode.forward(make_discrete_batch(8))
        assert target_entropy(output) == pytest.approx(expected, rel=1e-5)
        assert (output["entropy"] < expected) == rises == (output["alpha"] > 0.2)


def target_entropy(output, alpha=0.2):
    """The entropy at which the loss of the temperature, which began with `alpha`, would have been 0."""
    return output["entropy"] - output["alpha_loss"] / math.log(alpha)


def test_a_target_entropy_of_the_user_takes_effect():
    output = make_discrete_policy("learn", learn__target_entropy=0.3).learn_mode.forward(make_discrete_batch(8))
    assert target_entropy(output) == pytest.approx(0.3, rel=1e-4)


def test_actions_that_a_mask_rules_out_have_no_value_and_are_never_taken():
    def obs(mask):
        return {"observation": torch.rand(3), "action_mask": torch.tensor(mask)}

    policy = make_discrete_policy()
    data = [make_sample(i, torch.tensor([0]), obs=obs([1, 0]), next_obs=obs([1, 0]), done=False) for i in range(4)]
    next_obs = torch.stack([sample["next_obs"]["observation"] for sample in data])
    q = torch.stack(target_of(policy)(next_obs, mode="compute_critic")["q_value"]).min(0).values
    output = policy.learn_mode.forward(data)
    assert output["target_value"] == pytest.approx(q[:, 0].mean().item(), rel=1e-5)
    assert output["entropy"] == 0
    for mode in (policy.collect_mode, policy.eval_mode):
        for mask, expected in (([1, 0], 0), ([0, 1], 1)):
            assert mode.forward({0: obs(mask)})[0]["action"].tolist() == [expected]


def test_collecting_mixes_draws_of_the_policy_with_uniform_ones():
    policy = make_discrete_policy("collect")
    for parameter in model_of(policy).actor_head.parameters():
        parameter.data.zero_()
    model_of(policy).actor_head[2].Q[1][0].bias.data.copy_(torch.tensor([0.8, 0.2]).log())
    obs = {env_id: torch.zeros(3) for env_id in range(4000)}
    for settings, expected in (({}, 0.2), ({"eps": 0.5}, 0.35)):
        torch.manual_seed(0)
        outputs = policy.collect_mode.forward(obs, **settings)
        share = torch.cat([output["action"] for output in outputs.values()]).float().mean()
        assert share.item() == pytest.approx(expected, abs=0.03)
    output = outputs[0]
    transition = policy.collect_mode.process_transition(obs[0], output, Step)
    assert list(transition) == ["obs", "next_obs", "action", "logit", "reward", "done"]
    assert transition["logit"] is output["logit"] and output["logit"].shape == (2,)


def test_the_command_mode_needs_an_epsilon_schedule():
    eps = {"type": "linear", "start": 0.9, "end": 0.1, "decay": 10}
    policy = make_discrete_policy("command", cls=DiscreteSACCommandModePolicy, other__eps=eps)
    assert policy.command_mode.get_setting_collect({"envstep": 0}) == {"eps": 0.9}
    with pytest.raises(ConfigError):
        make_discrete_policy("command", cls=DiscreteSACCommandModePolicy)
