"""SAC with discrete actions: what it learns, how it acts, what it keeps."""

import copy
import math

import pytest
import torch

from ding.policy import DiscreteSACCommandModePolicy
from ding.policy.sac import DiscreteSACPolicy
from ding.utils.config_helper import ConfigError
from tests.policy.continuous_samples import (
    columns,
    make_config,
    make_discrete_batch,
    make_sample,
    parameters,
)
from tests.policy.learning import model_of, target_of


def make_policy(*fields, cls=DiscreteSACPolicy, seed=0, **settings):
    torch.manual_seed(seed)
    return cls(make_config(cls, "discrete", **settings), enable_field=list(fields) or None)


class Oracle:
    """Discrete SAC written out with torch's distributions, in double precision."""

    def __init__(self, policy, alpha=0.2, gamma=0.99):
        self.net = copy.deepcopy(model_of(policy)).double()
        self.target = copy.deepcopy(self.net)
        self.log_alpha = torch.tensor(math.log(alpha), dtype=torch.float64, requires_grad=True)
        self.goal, self.gamma = 0.98 * math.log(2), gamma
        self.q_step, self.policy_step, self.alpha_step = (
            torch.optim.Adam(parameters, 3e-4)
            for parameters in (self.net.critic.parameters(), self.net.actor.parameters(), [self.log_alpha])
        )

    def step(self, optimizer, loss):
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

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
        for own, online in zip(self.target.parameters(), self.net.parameters(), strict=True):
            own.data += 0.005 * (online.data - own.data)
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
def test_learning_steps_are_those_of_soft_actor_critic(twin, weighted):
    priority = {"priority": weighted, "priority_IS_weight": weighted}
    policy = make_policy("learn", model__twin_critic=twin, **priority)
    oracle = Oracle(policy)
    for _ in range(3):
        data = make_discrete_batch(8)
        output, expected = policy.learn_mode.forward(data), oracle.learn(data, weighted)
        assert output == {key: pytest.approx(value, rel=1e-4, abs=1e-5) for key, value in expected.items()}
    assert torch.allclose(parameters(model_of(policy)).double(), parameters(oracle.net), atol=1e-5)
    assert torch.allclose(parameters(target_of(policy)).double(), parameters(oracle.target), atol=1e-5)


@pytest.mark.differs(
    "aims at a negative entropy in discrete SAC, so that its temperature can only fall",
    "aims at 0.98 of the largest entropy, unless `target_entropy` is set",
)
@pytest.mark.parametrize(("actions", "expected"), [(2, 0.98 * math.log(2)), ((5,), 0.98 * math.log(5))])
def test_the_usual_target_entropy_can_be_met(actions, expected):
    """A policy with less entropy than the target has its temperature raised, one with more has it lowered."""
    for lean, rises in ((5.0, True), (0.0, False)):
        policy = make_policy("learn", model__action_shape=actions)
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
    output = make_policy("learn", learn__target_entropy=0.3).learn_mode.forward(make_discrete_batch(8))
    assert target_entropy(output) == pytest.approx(0.3, rel=1e-4)


def test_actions_that_a_mask_rules_out_have_no_value_and_are_never_taken():
    def obs(mask):
        return {"observation": torch.rand(3), "action_mask": torch.tensor(mask)}

    policy = make_policy()
    data = [make_sample(i, torch.tensor([0]), obs=obs([1, 0]), next_obs=obs([1, 0]), done=False) for i in range(4)]
    next_obs = torch.stack([sample["next_obs"]["observation"] for sample in data])
    q = torch.stack(target_of(policy)(next_obs, mode="compute_critic")["q_value"]).min(0).values
    output = policy.learn_mode.forward(data)
    assert output["target_value"] == pytest.approx(q[:, 0].mean().item(), rel=1e-5)
    assert output["entropy"] == 0
    for mode in (policy.collect_mode, policy.eval_mode):
        for mask, expected in (([1, 0], 0), ([0, 1], 1)):
            assert mode.forward({0: obs(mask)})[0]["action"].tolist() == [expected]


class Step:
    obs, reward, done, info = torch.ones(3), torch.ones(1), False, {}


def test_collecting_mixes_draws_of_the_policy_with_uniform_ones():
    policy = make_policy("collect")
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
    policy = make_policy("command", cls=DiscreteSACCommandModePolicy, other__eps=eps)
    assert policy.command_mode.get_setting_collect({"envstep": 0}) == {"eps": 0.9}
    with pytest.raises(ConfigError):
        make_policy("command", cls=DiscreteSACCommandModePolicy)
