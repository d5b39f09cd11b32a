"""DDPG and TD3: what they learn, how they act, what they keep."""

import copy
import math

import numpy as np
import pytest
import torch
from easydict import EasyDict

from ding.entry import serial_pipeline
from ding.policy import DDPGCommandModePolicy, TD3BCPolicy, TD3CommandModePolicy
from ding.policy.d4pg import D4PGPolicy
from ding.policy.ddpg import DDPGPolicy, TD3Policy
from ding.utils import set_pkg_seed
from ding.utils.config_helper import ConfigError
from tests.generators import reseed, rng_of
from tests.own_folder import own_folder as own_folder
from tests.policy.continuous_samples import columns, make_batch, make_config, parameters
from tests.policy.learning import before_each_step, model_of, target_of

OBS = {3: torch.zeros(3), 0: torch.ones(3)}


def make_policy(*fields, cls=DDPGPolicy, space="regression", seed=0, model=None, **settings):
    set_pkg_seed(seed, use_cuda=False)
    if space == "hybrid":
        settings["action_space"] = "hybrid"
    return cls(make_config(cls, space, **settings), model=model, enable_field=list(fields) or None)


def learn(policy, data, seed=1):
    reseed(policy, seed)
    return policy.learn_mode.forward(data)


class Oracle:
    """DDPG and TD3 written out, in double precision."""

    def __init__(self, policy, freq, noise=0.0, bound=math.inf, gamma=0.99, target_freq=1):
        self.net = copy.deepcopy(model_of(policy)).double()
        self.target = copy.deepcopy(self.net)
        self.freq, self.noise, self.bound, self.gamma, self.count = freq, noise, bound, gamma, 0
        self.target_freq = target_freq
        self.critic_step = torch.optim.Adam(self.net.critic.parameters(), 1e-3)
        self.actor_step = torch.optim.Adam(self.net.actor.parameters(), 1e-3)

    @staticmethod
    def q(net, obs, action):
        q = net({"obs": obs, "action": action}, mode="compute_critic")["q_value"]
        return q if isinstance(q, list) else [q]

    def learn(self, data, weighted=False, normalised=False):
        obs, next_obs, action, reward, done, weight = (column.double() for column in columns(data))
        weight = weight if weighted else torch.ones_like(weight)
        if normalised:
            reward = (reward - reward.mean()) / reward.std()
        with torch.no_grad():
            next_action = self.target(next_obs, mode="compute_actor")["action"]
            if self.noise:
                smoothing = torch.from_numpy(rng_of(1).standard_normal(next_action.shape, np.float32)) * self.noise
                next_action = (next_action + smoothing.clamp(-self.bound, self.bound)).clamp(-1, 1)
            next_value = torch.stack(self.q(self.target, next_obs, next_action)).min(0).values
            y = reward + self.gamma * (1 - done) * next_value
        q = self.q(self.net, obs, action)
        errors = [(one - y) ** 2 for one in q]
        losses = [(error * weight).mean() for error in errors]
        self.critic_step.zero_grad()
        sum(losses).backward()
        self.critic_step.step()
        names = ["critic_loss", "critic_twin_loss"]
        expected = {name: loss.item() for name, loss in zip(names, losses, strict=False)}
        self.count += 1
        if self.count % self.freq == 0:
            loss = -self.q(self.net, obs, self.net(obs, mode="compute_actor")["action"])[0].mean()
            self.actor_step.zero_grad()
            loss.backward()
            self.actor_step.step()
            expected["actor_loss"] = loss.item()
        for own, online in zip(self.target.parameters(), self.net.parameters(), strict=True):
            own.data += (self.count % self.target_freq == 0) * 0.005 * (online.data - own.data)
        error = sum(errors) / len(errors)
        expected |= {name: one.mean().item() for name, one in zip(["q_value", "q_value_twin"], q, strict=False)}
        return {
            **expected,
            "total_loss": sum(value for name, value in expected.items() if "loss" in name),
            "target q_value": next_value.mean().item(),
            "action": action.mean().item(),
            "td_error": error.mean().item(),
            "priority": error.tolist(),
        }


def assert_learns_like(policy, oracle, steps=3, **kwargs):
    for _ in range(steps):
        data = make_batch(8)
        output, expected = learn(policy, data), oracle.learn(data, **kwargs)
        rates = {"cur_lr_actor": 1e-3, "cur_lr_critic": 1e-3}
        assert output == {key: pytest.approx(value, rel=1e-4, abs=1e-5) for key, value in {**expected, **rates}.items()}
    assert torch.allclose(parameters(model_of(policy)).double(), parameters(oracle.net), atol=1e-5)
    assert torch.allclose(parameters(target_of(policy)).double(), parameters(oracle.target), atol=1e-5)


# --- learn ---


@pytest.mark.parametrize("twin", [False, True])
def test_learning_steps_are_those_of_ddpg(twin):
    policy = make_policy("learn", model__twin_critic=twin)
    assert_learns_like(policy, Oracle(policy, freq=1))


def test_learning_steps_are_those_of_td3():
    policy = make_policy("learn", cls=TD3Policy, learn__noise_sigma=0.5)
    assert_learns_like(policy, Oracle(policy, freq=2, noise=0.5, bound=0.5), steps=5)


def test_targets_of_td3_follow_every_target_update_freq_steps_as_in_the_paper():
    policy = make_policy("learn", cls=TD3Policy, learn__target_update_freq=2)
    assert_learns_like(policy, Oracle(policy, freq=2, noise=0.2, bound=0.5, target_freq=2), steps=5)


def test_importance_weights_scale_the_losses_but_not_the_priority():
    policy = make_policy("learn", priority=True, priority_IS_weight=True)
    assert_learns_like(policy, Oracle(policy, freq=1), weighted=True)


def test_rewards_are_normalised_in_each_batch_where_asked_for():
    policy = make_policy("learn", reward_batch_norm=True)
    assert_learns_like(policy, Oracle(policy, freq=1), normalised=True)


# --- collect and eval ---


class Step:
    obs, reward, done, info = torch.ones(3), torch.ones(1), False, {}


def test_collecting_adds_noise_within_the_bounds():
    policy = make_policy("collect", collect__noise_sigma=0.3)
    reseed(policy, 5)
    output = policy.collect_mode.forward(OBS)
    action = model_of(policy)(torch.stack(list(OBS.values())), mode="compute_actor")["action"]
    noise = torch.from_numpy(rng_of(5).standard_normal((2, 2), np.float32))
    expected = (action + 0.3 * noise).clamp(-1, 1)
    assert list(output) == [3, 0]
    assert torch.equal(torch.stack([output[env_id]["action"] for env_id in OBS]), expected)
    loud = make_policy("collect", collect__noise_sigma=100.0).collect_mode.forward(OBS)
    assert all(out["action"].abs().max() == 1 for out in loud.values())


# --- hybrid actions ---


def make_hybrid_batch(size):
    def action():
        return {"action_type": torch.randint(3, (1,)), "action_args": torch.rand(2)}

    return [{**sample, "action": action(), "logit": torch.randn(3)} for sample in make_batch(size)]


def test_hybrid_actions_learn_by_the_probabilities_of_their_types():
    policy = make_policy("learn", space="hybrid")
    net, target = copy.deepcopy(model_of(policy)), copy.deepcopy(model_of(policy))
    data = make_hybrid_batch(8)
    obs, next_obs, logit = (torch.stack([s[key] for s in data]) for key in ("obs", "next_obs", "logit"))
    args = torch.stack([s["action"]["action_args"] for s in data])
    reward, done = (torch.tensor([float(s[key]) for s in data]) for key in ("reward", "done"))

    def judge(model, obs, logit, args):
        return model.critic_head(torch.cat([obs, logit.softmax(-1), args], 1))["pred"]

    def act(model, obs):
        return model.actor_head[0](obs)["logit"], model.actor_head[1](obs)["pred"]

    with torch.no_grad():
        y = reward + 0.99 * (1 - done) * judge(target, next_obs, *act(target, next_obs))
    error = (judge(net, obs, logit, args) - y) ** 2
    critic = torch.optim.Adam(net.critic.parameters(), 1e-3)
    error.mean().backward()
    critic.step()
    actor_loss = -judge(net, obs, *act(net, obs)).mean()
    actor = torch.optim.Adam(net.actor.parameters(), 1e-3)
    actor.zero_grad()
    actor_loss.backward()
    actor.step()
    output = policy.learn_mode.forward(data)
    assert output["priority"] == pytest.approx(error.tolist(), rel=1e-4, abs=1e-6)
    assert output["actor_loss"] == pytest.approx(actor_loss.item(), rel=1e-4)
    assert output["action"] == pytest.approx(args.mean().item(), rel=1e-5)
    assert torch.allclose(parameters(model_of(policy)), parameters(net), atol=1e-5)


def test_hybrid_actions_are_explored_in_both_parts():
    policy = make_policy("collect", space="hybrid", collect__noise_sigma=0.3)
    obs = {env_id: torch.zeros(3) for env_id in range(3000)}
    for parameter in model_of(policy).actor_head[0][2].parameters():
        parameter.data.zero_()
    model_of(policy).actor_head[0][2].Q[1][0].bias.data[1] = 100.0  # one type is as good as certain
    args = model_of(policy)(torch.zeros(1, 3), mode="compute_actor")["action_args"]
    outputs = list(policy.collect_mode.forward(obs, eps=0.3).values())
    types = torch.cat([output["action"]["action_type"] for output in outputs])
    assert types.dtype is torch.int64
    assert (torch.bincount(types, minlength=3) / 3000).tolist() == pytest.approx([0.1, 0.8, 0.1], abs=0.03)
    noisy = torch.stack([output["action"]["action_args"] for output in outputs])
    assert (noisy - args).std(0).tolist() == pytest.approx([0.3, 0.3], abs=0.03)
    assert noisy.abs().max() <= 1
    transition = policy.collect_mode.process_transition(obs[0], outputs[0], Step)
    assert list(transition) == ["obs", "next_obs", "action", "logit", "reward", "done"]


def test_hybrid_evaluation_takes_the_likeliest_type():
    policy = make_policy("eval", space="hybrid")
    output = policy.eval_mode.forward(OBS)[0]
    expected = model_of(policy)(torch.ones(1, 3), mode="compute_actor")
    assert output["action"]["action_type"].tolist() == [expected["logit"].argmax().item()]
    assert torch.allclose(output["action"]["action_args"], expected["action_args"][0])


def test_hybrid_actions_go_through_a_pipeline():
    eps = {"type": "linear", "start": 1.0, "end": 0.1, "decay": 100}
    main = EasyDict(
        exp_name="hybrid",
        env={"collector_env_num": 2, "evaluator_env_num": 1, "n_evaluator_episode": 1, "stop_value": 1e9},
        policy={
            "action_space": "hybrid",
            "random_collect_size": 40,
            "model": {"obs_shape": 3, "action_shape": {"action_type_shape": 3, "action_args_shape": 2}},
            "learn": {"update_per_collect": 2, "batch_size": 16},
            "collect": {"n_sample": 24},
            "other": {"eps": eps, "replay_buffer": {"replay_buffer_size": 1000}},
        },
    )
    create = EasyDict(
        env={"type": "outside_hybrid", "import_names": ["tests.policy.outside_envs"]},
        env_manager={"type": "base"},
        policy={"type": "ddpg", "import_names": ["ding.policy.ddpg"]},
        replay_buffer={"type": "naive"},
    )
    assert isinstance(serial_pipeline((main, create), seed=0, max_train_iter=3), DDPGCommandModePolicy)


def test_the_command_mode_has_an_epsilon_for_hybrid_actions_only():
    info = {"envstep": 0, "learner_step": 0}
    eps = {"type": "linear", "start": 0.9, "end": 0.1, "decay": 10}
    hybrid = make_policy("command", cls=DDPGCommandModePolicy, space="hybrid", other__eps=eps)
    assert hybrid.command_mode.get_setting_collect(info) == {"eps": 0.9}
    assert make_policy("command", cls=DDPGCommandModePolicy).command_mode.get_setting_collect(info) == {}
    assert make_policy("command", cls=TD3CommandModePolicy).command_mode.get_setting_collect(info) == {}
    with pytest.raises(ConfigError):
        make_policy("command", cls=DDPGCommandModePolicy, space="hybrid")


# --- settings ---


@pytest.mark.parametrize(("space", "expected"), [("continuous", "regression"), ("hybrid", "hybrid")])
def test_the_model_follows_the_action_space(space, expected):
    cfg = make_config(DDPGPolicy, None, action_space=space)
    if space == "hybrid":
        cfg.model.action_shape = {"action_type_shape": 3, "action_args_shape": 2}
    policy = DDPGPolicy(cfg, enable_field=["eval"])
    assert model_of(policy).action_space == policy.cfg.model.action_space == expected
    assert policy.has_discrete_actions is (None if space == "hybrid" else False)


def test_noise_without_a_deviation_or_with_bounds_in_the_wrong_order_is_refused():
    with pytest.raises(ConfigError):
        make_policy("learn", learn__noise=True)
    with pytest.raises(ConfigError):
        make_policy("learn", cls=TD3Policy, learn__noise_range={"min": 0.5, "max": -0.5})


# D4PG: importance weights; its updates are in the recorded steps of `tests/compat`.


def test_importance_weights_of_each_sample_scale_the_loss_of_the_critic_and_not_the_priority():
    torch.manual_seed(0)
    policy = D4PGPolicy(make_config(D4PGPolicy, None, model__n_atom=5, model__v_min=-2, model__v_max=2))
    data = policy.collect_mode.get_train_sample(make_batch(6, done=False))
    output = policy.learn_mode.forward(data)
    weighted = [sample["IS"] * error for sample, error in zip(data, output["priority"], strict=True)]
    assert output["critic_loss"] == pytest.approx(np.mean(weighted), rel=1e-4)
    assert output["total_loss"] == pytest.approx(output["critic_loss"] + output["actor_loss"], rel=1e-4)


# TD3+BC: what it learns, and how it is trained.


def make_td3_bc(*fields, **settings):
    torch.manual_seed(0)
    cfg = make_config(TD3BCPolicy, "regression", **settings)
    return TD3BCPolicy(cfg, enable_field=list(fields) or None)


def policies_with_and_without_an_actors_step(**settings):
    """Two policies alike in whose first step only one moves its actor, after the same step of the critic."""
    return [make_td3_bc("learn", learn__noise=False, learn__actor_update_freq=freq, **settings) for freq in (1, 2)]


@pytest.mark.differs(
    "compares an action of one dimension with those of all samples in TD3+BC",
    "compares it with that of its sample",
)
@pytest.mark.parametrize("alpha", [2.5, 0.1])
def test_the_actor_weighs_values_of_mean_size_one_against_the_distance_to_the_data(alpha):
    policy, twin = policies_with_and_without_an_actors_step(learn__alpha=alpha)
    data = make_batch(8)
    obs, _, action, *_ = columns(data)
    output, _ = (one.learn_mode.forward(data) for one in (policy, twin))
    mu = model_of(twin)(obs, mode="compute_actor")["action"]
    q = model_of(twin)({"obs": obs, "action": mu}, mode="compute_critic")["q_value"][0]
    expected = (mu - action).square().mean() - alpha * q.mean() / q.abs().mean()
    assert output["actor_loss"] == pytest.approx(expected.item(), rel=1e-4)


@pytest.mark.differs(
    "smooths the targets of TD3+BC twice, and once without `learn.noise`",
    "smooths them once, and only with `learn.noise`",
)
def test_targets_are_smoothed_once_as_in_td3():
    data, losses = make_batch(8), []
    for cls in (TD3Policy, TD3BCPolicy):
        sizes = {"model__actor_head_hidden_size": 64, "model__critic_head_hidden_size": 64}
        set_pkg_seed(0, use_cuda=False)
        policy = cls(
            make_config(cls, "regression", learn__noise=True, learn__noise_sigma=1.0, **sizes), None, ["learn"]
        )
        losses.append(policy.learn_mode.forward(data)["critic_loss"])
        losses.append(policy.learn_mode.forward(data)["critic_loss"])
    assert losses[0] == losses[2] and losses[0] != losses[1]


def test_large_gradients_are_scaled_down_to_a_norm_of_one():
    policy, norms = make_td3_bc("learn", learn__noise=False), []

    def measure(optimizer):
        gradients = [p.grad for group in optimizer.param_groups for p in group["params"]]
        norms.append(torch.stack([gradient.norm() for gradient in gradients]).norm().item())

    data = [{**sample, "reward": sample["reward"] + 100.0} for sample in make_batch(8)]
    with before_each_step(measure):
        policy.learn_mode.forward(data)
        policy.learn_mode.forward(data)
    assert len(norms) == 3 and norms[:2] == pytest.approx([1.0, 1.0], rel=1e-4) and norms[2] <= 1.0001
