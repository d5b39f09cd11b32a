"""DQfD: what it learns, what its samples hold, and how it is trained."""

import copy

import numpy as np
import pytest
import torch

from ding.policy import DQFDPolicy
from ding.rl_utils import dqfd_nstep_td_data, dqfd_nstep_td_error
from ding.utils.data.samples import Samples, Table
from tests.policy.learning import model_of, set_paths, target_of


def make_policy(*fields, **settings):
    cfg = DQFDPolicy.default_config()
    cfg.model.update(obs_shape=4, action_shape=2, encoder_hidden_size_list=[8])
    cfg.nstep = 2
    set_paths(cfg, settings)
    torch.manual_seed(0)
    return DQFDPolicy(cfg, enable_field=list(fields) or None)


def make_batch(size=6, **extra):
    rng = np.random.default_rng(0)

    def obs():
        return torch.tensor(rng.normal(size=4), dtype=torch.float32)

    return [
        {
            "obs": obs(),
            "next_obs": obs(),
            "next_obs_1": obs(),
            "action": torch.tensor([i % 2]),
            "reward": torch.tensor(rng.normal(size=2), dtype=torch.float32),
            "done": i % 3 == 0,
            "done_1": i == 0,
            "value_gamma": 0.99**2,
            "is_expert": i % 2,
            "IS": 0.5 + i,
            **extra,
        }
        for i in range(size)
    ]


def expected_errors(policy, data, lambda1=1.0, lambda2=1.0, margin=0.8):
    """The error of each sample, in plain loops."""
    net, target, gamma = copy.deepcopy(model_of(policy)), target_of(policy), 0.99
    errors = []
    for row in data:
        q = net(row["obs"][None])["logit"][0]

        def value(obs):
            return target(obs[None])["logit"][0][net(obs[None])["logit"][0].argmax()]

        taken, (first, second) = row["action"].item(), row["reward"].tolist()
        y_n = first + gamma * second + (0 if row["done"] else row["value_gamma"] * value(row["next_obs"]))
        y_1 = first + (0 if row["done_1"] else gamma * value(row["next_obs_1"]))
        error = lambda1 * (q[taken] - y_n) ** 2 + (q[taken] - y_1) ** 2
        if row.get("is_expert"):
            error = error + lambda2 * (max(q[a] + (0 if a == taken else margin) for a in range(2)) - q[taken])
        errors.append(float(error.detach()))
    return errors


@pytest.mark.parametrize("unmarked", [0, 3])
def test_samples_without_a_mark_are_the_policy_s_own_whatever_the_others_are(unmarked):
    data = make_batch(is_expert=1)
    data[unmarked]["is_expert"] = 0
    marked = make_policy("learn").learn_mode.forward(data)
    del data[unmarked]["is_expert"]
    assert make_policy("learn").learn_mode.forward(data) == marked


@pytest.mark.parametrize("weights", [{}, {"lambda1": 0.5, "lambda2": 0.0}, {"lambda2": 3.0, "margin_function": 0.1}])
def test_loss_and_priority_are_those_of_the_paper(weights):
    policy = make_policy("learn", **{f"learn__{key}": value for key, value in weights.items()})
    data = make_batch()
    names = {"lambda1": "lambda1", "lambda2": "lambda2", "margin_function": "margin"}
    errors = expected_errors(policy, data, **{names[key]: value for key, value in weights.items()})
    output = policy.learn_mode.forward(data)
    assert output["priority"] == pytest.approx(errors, rel=1e-4)
    weighted = np.mean([error * row["IS"] for error, row in zip(errors, data, strict=True)])
    assert output["total_loss"] == pytest.approx(weighted, rel=1e-4)
    assert set(output) == {"cur_lr", "total_loss", "q_value", "target_q_value", "priority"}


def test_the_margin_pushes_a_demonstrated_action_up_and_its_best_rival_down():
    q = torch.tensor([[1.0, 0.9, -5.0]], requires_grad=True)
    action, one = torch.tensor([0]), torch.ones(1)
    next_q = torch.zeros(1, 3, requires_grad=True)
    data = dqfd_nstep_td_data(q, next_q, action, action, one[None], one, one, None, next_q, action, one)
    loss, _, (n_step, one_step, margin) = dqfd_nstep_td_error(data, 0.9, 1.0, 2.0, 0.8)
    assert margin.item() == pytest.approx(0.7) and n_step.item() == one_step.item() == 0.0
    loss.backward()
    assert q.grad.tolist() == [[-2.0, 2.0, 0.0]] and next_q.grad is None


def test_parameters_decay_by_themselves():
    policy = make_policy("learn", learn__lambda3=0.5, learn__learning_rate=0.1)
    before = [parameter.detach().clone() for parameter in model_of(policy).parameters()]
    for row in (data := make_batch()):
        row["IS"] = 0.0
    policy.learn_mode.forward(data)
    for parameter, old in zip(model_of(policy).parameters(), before, strict=True):
        assert torch.allclose(parameter, old * (1 - 0.1 * 0.5), atol=1e-6)


@pytest.mark.parametrize("as_columns", [False, True])
def test_samples_know_what_follows_after_one_step_and_after_n(as_columns):
    steps = [
        {
            "obs": torch.full((4,), float(i)),
            "next_obs": torch.full((4,), i + 1.0),
            "action": torch.tensor([0]),
            "reward": torch.tensor([float(i)]),
            "done": i == 3,
            "terminated": False,
            "truncated": i == 3,
        }
        for i in range(4)
    ]
    policy = make_policy("collect")
    samples = policy.collect_mode.get_train_sample(Samples(Table.of(steps)) if as_columns else steps)
    assert [row["next_obs"][0].item() for row in samples] == [2, 3, 4, 4]
    assert [row["next_obs_1"][0].item() for row in samples] == [1, 2, 3, 4]
    assert [row["done_1"] for row in samples] == [False] * 4  # a time limit is no end
    for step in steps:
        del step["terminated"], step["truncated"]
    samples = policy.collect_mode.get_train_sample(Samples(Table.of(steps)) if as_columns else steps)
    assert [row["done_1"] for row in samples] == [False, False, False, True]
    assert [row["reward"].tolist() for row in samples] == [[0, 1], [1, 2], [2, 3], [3, 0]]
