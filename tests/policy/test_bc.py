"""Behaviour cloning: what it learns, how it acts, what it keeps, and how it is trained."""

import copy

import numpy as np
import pytest
import torch
from easydict import EasyDict
from torch import nn
from torch.nn import functional as F

from ding.policy import BehaviourCloningCommandModePolicy, BehaviourCloningPolicy
from tests.policy.learning import model_of, set_paths

OBS = {3: torch.zeros(3), 0: torch.ones(3)}


def make_config(continuous=False, space="regression", cls=BehaviourCloningPolicy, **settings):
    cfg = cls.default_config()
    cfg.continuous = continuous
    cfg.model = EasyDict(obs_shape=3, action_shape=2, activation="relu")
    if continuous:
        cfg.model.update(action_space=space, actor_head_hidden_size=8)
    else:
        cfg.model.encoder_hidden_size_list = [8]
    set_paths(cfg, settings)
    return cfg


def make_policy(*fields, **settings):
    torch.manual_seed(0)
    cls = settings.pop("cls", BehaviourCloningPolicy)
    return cls(make_config(cls=cls, **settings), enable_field=list(fields) or None)


def demonstrations(size=8, continuous=False):
    rng = np.random.default_rng(0)
    return [
        {
            "obs": torch.tensor(rng.normal(size=3), dtype=torch.float32),
            "action": torch.tensor(rng.uniform(-1, 1, 2), dtype=torch.float32) if continuous else torch.tensor([i % 2]),
        }
        for i in range(size)
    ]


def columns(data):
    return torch.stack([row["obs"] for row in data]), torch.stack([row["action"] for row in data])


# --- learn ---


@pytest.mark.parametrize("smooth", [False, True])
def test_discrete_actions_are_learned_as_classes_by_sgd_with_momentum(smooth):
    policy = make_policy("learn", learn__ce_label_smooth=smooth, learn__learning_rate=0.1)
    net, velocity = copy.deepcopy(model_of(policy)), None
    data = demonstrations()
    obs, action = columns(data)
    for _ in range(3):
        log_probs = torch.log_softmax(net(obs)["logit"], -1)
        target = F.one_hot(action[:, 0], 2) * (0.9 if smooth else 1.0) + (0.05 if smooth else 0.0)
        loss = -(target * log_probs).sum(-1).mean()
        gradients = torch.autograd.grad(loss, list(net.parameters()))
        gradients = [gradient + 1e-4 * own.detach() for gradient, own in zip(gradients, net.parameters(), strict=True)]
        old = velocity or [torch.zeros_like(gradient) for gradient in gradients]
        velocity = [0.9 * v + gradient for v, gradient in zip(old, gradients, strict=True)]
        for parameter, change in zip(net.parameters(), velocity, strict=True):
            parameter.data -= 0.1 * change
        output = policy.learn_mode.forward(data)
        assert output["total_loss"] == pytest.approx(loss.item(), rel=1e-5) and output["cur_lr"] == 0.1
    for own, expected in zip(model_of(policy).parameters(), net.parameters(), strict=True):
        assert torch.allclose(own, expected, atol=1e-6)


@pytest.mark.parametrize("space", ["regression", "reparameterization"])
@pytest.mark.parametrize("loss_type", ["l1_loss", "mse_loss"])
def test_real_valued_actions_are_learned_by_their_distance(space, loss_type):
    policy = make_policy("learn", continuous=True, space=space, loss_type=loss_type)
    data = demonstrations(continuous=True)
    obs, action = columns(data)
    output = model_of(policy)(obs)
    gap = (output["action"] if space == "regression" else output["logit"][0]).detach() - action
    expected = gap.abs().mean() if loss_type == "l1_loss" else gap.square().mean()
    assert policy.learn_mode.forward(data)["total_loss"] == pytest.approx(expected.item(), rel=1e-5)


def test_saturated_actions_may_be_left_out():
    class Fixed(nn.Module):
        def __init__(self, predicted):
            super().__init__()
            self.predicted = nn.Parameter(predicted)

        def forward(self, obs):
            return {"action": self.predicted}

    def loss_of(predicted, action):
        cfg = make_config(continuous=True, learn__tanh_mask=True)
        policy = BehaviourCloningPolicy(cfg, model=Fixed(predicted), enable_field=["learn"])
        return policy.learn_mode.forward([{"obs": torch.zeros(3), "action": row} for row in action])["total_loss"]

    predicted = torch.tensor([[0.1, 0.9], [-0.99, 0.2]])
    assert loss_of(predicted, torch.tensor([[0.2, 5.0], [7.0, 0.4]])) == pytest.approx(0.15)
    saturated = torch.full((10, 1), 0.99)
    saturated[0] = 0.0
    assert loss_of(saturated, torch.zeros(10, 1)) == pytest.approx(0.99 * 0.9)


def test_parts_of_an_action_are_learned_side_by_side():
    cfg = make_config(learn__show_accuracy=True)
    cfg.model.action_shape = [2, 3]
    policy = BehaviourCloningPolicy(cfg, enable_field=["learn"])
    data = [{"obs": row["obs"], "action": torch.tensor([i % 2, i % 3])} for i, row in enumerate(demonstrations())]
    obs, action = columns(data)
    heads = model_of(policy)(obs)["logit"]
    expected = (F.cross_entropy(heads[0], action[:, 0]) + F.cross_entropy(heads[1], action[:, 1])) / 2
    assert policy.learn_mode.forward(data)["total_loss"] == pytest.approx(expected.item(), rel=1e-5)


def test_the_learning_rate_warms_up_and_decays_by_epochs():
    policy = make_policy(
        "learn",
        learn__lr_decay=True,
        learn__learning_rate=0.5,
        learn__warmup_lr=0.1,
        learn__warmup_epoch=2,
        learn__decay_epoch=2,
    )
    rates = []
    for _ in range(7):
        rates.append(policy.learn_mode.forward(demonstrations())["cur_lr"])
        policy.end_epoch()
    assert rates == pytest.approx([0.1, 0.1, 0.5, 0.5, 0.05, 0.05, 0.005])


@pytest.mark.parametrize(("name", "kind"), [("SGD", "SGD"), ("Adam", "Adam"), ("AdamW", "AdamW")])
def test_the_optimizer_is_the_one_that_is_named(name, kind):
    assert type(make_policy("learn", learn__optimizer=name)._optimizer).__name__ == kind


# --- collect and eval ---


def test_discrete_actions_are_explored_with_epsilon():
    policy = make_policy("collect")
    many = {i: torch.zeros(3) for i in range(200)}
    greedy = {int(out["action"]) for out in policy.collect_mode.forward(many).values()}
    assert len(greedy) == 1
    assert {int(out["action"]) for out in policy.collect_mode.forward(many, eps=1.0).values()} == {0, 1}


def test_noise_is_added_to_real_valued_actions_on_demand():
    quiet = make_policy("collect", continuous=True)
    noisy = make_policy("collect", continuous=True, collect__noise=True)
    clean = quiet.collect_mode.forward(OBS)[0]["action"]
    torch.manual_seed(0)
    changes = torch.stack([noisy.collect_mode.forward(OBS, sigma=10.0)[0]["action"] - clean for _ in range(20)])
    assert changes.abs().max() == pytest.approx(0.5) and changes.std() > 0.2
    assert torch.equal(noisy.collect_mode.forward(OBS, sigma=0.0)[0]["action"], clean)


def test_schedules_are_those_of_the_config():
    def settings(info, **more):
        policy = make_policy("command", cls=BehaviourCloningCommandModePolicy, **more)
        return policy.command_mode.get_setting_collect(info)

    info = {"envstep": 5, "learner_step": 5}
    schedule = {"type": "linear", "start": 1.0, "end": 0.0, "decay": 10}
    assert settings(info) == {"eps": 0.0}
    assert settings(info, other=EasyDict(eps=schedule)) == {"eps": 0.5}
    assert settings(info, continuous=True) == {"sigma": 0.2}
    assert settings(info, continuous=True, collect__noise_sigma=schedule) == {"sigma": 0.5}
