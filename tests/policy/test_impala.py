"""IMPALA: what it learns from sequences, and how it acts."""

import copy
from collections import namedtuple

import numpy as np
import pytest
import torch

from ding.policy import IMPALAPolicy
from ding.rl_utils import vtrace_data, vtrace_error_continuous_action, vtrace_error_discrete_action
from tests.policy.learning import model_of, parameters_of, set_paths

Timestep = namedtuple("Timestep", ("obs", "reward", "done", "info"))
LEARN = {"discount_factor": 0.9, "lambda_": 0.8, "rho_clip_ratio": 1.1, "c_clip_ratio": 0.9, "rho_pg_clip_ratio": 1.2}


def make_policy(*fields, seed=0, action_space="discrete", **settings):
    cfg = IMPALAPolicy.default_config()
    cfg.model.update(obs_shape=3, action_shape=2, encoder_hidden_size_list=[8, 64])
    cfg.update(unroll_len=4, action_space=action_space)
    cfg.learn.update(LEARN)
    set_paths(cfg, settings)
    torch.manual_seed(seed)
    return IMPALAPolicy(cfg, enable_field=list(fields) or None)


def make_episode(length, seed=0, *, continuous=False, last=None):
    """Transitions as a collector hands them over; the last one has the entries `last`."""
    generator = torch.Generator().manual_seed(seed)
    obs = [torch.rand(3, generator=generator) for _ in range(length + 1)]

    def numbers():
        return torch.rand(2, generator=generator)

    episode = [
        {
            "obs": obs[i],
            "next_obs": obs[i + 1],
            "action": numbers() if continuous else torch.tensor([i % 2]),
            "logit": {"mu": numbers(), "sigma": numbers() + 0.5} if continuous else numbers(),
            "reward": torch.rand(1, generator=generator),
            "done": False,
            "collect_iter": 0,
        }
        for i in range(length)
    ]
    episode[-1].update(last or {})
    return episode


def make_sequences(policy, number, length=4, **kwargs):
    return [
        {**sample, "IS": 1.0}
        for seed in range(number)
        for sample in policy._get_train_sample(make_episode(length, seed, **kwargs))
    ]


# --- learn ---


@pytest.mark.parametrize("action_space", ["discrete", "continuous"])
@pytest.mark.parametrize("end", [{}, {"done": True}, {"done": True, "terminated": False, "truncated": True}])
def test_a_learning_step_is_v_trace_with_adam(action_space, end):
    is_continuous = action_space == "continuous"
    policy = make_policy("learn", action_space=action_space)
    model = copy.deepcopy(model_of(policy))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.0005)
    flags = dict.fromkeys(end.keys() - {"done"}, False)
    samples = make_sequences(policy, 3, continuous=is_continuous, last=end)
    for sample in samples:
        for flag in flags:
            sample[flag] = [*[False] * 3, end[flag]]
    stack = torch.stack
    obs = stack([stack([*s["obs"], s["next_obs"][-1]]) for s in samples], 1)  # [T + 1, B, 3]
    output = model(obs, mode="compute_actor_critic")
    value = output["value"]
    if end == {"done": True}:
        value = torch.cat([value[:-1], torch.zeros_like(value[-1:])])
    reward = stack([torch.cat(s["reward"]) for s in samples], 1)
    action = stack([stack(s["action"]) for s in samples], 1)
    if is_continuous:
        logit = {key: column[:-1] for key, column in output["logit"].items()}
        old = {key: stack([stack([step[key] for step in _steps(s["logit"])]) for s in samples], 1) for key in logit}
        error = vtrace_error_continuous_action
    else:
        logit, old, action = output["logit"][:-1], stack([stack(s["logit"]) for s in samples], 1), action.squeeze(-1)
        error = vtrace_error_discrete_action
    limits = [LEARN[name] for name in ("lambda_", "rho_clip_ratio", "c_clip_ratio", "rho_pg_clip_ratio")]
    loss = error(vtrace_data(logit, old, action, value, reward, None), 0.9, *limits)
    total = loss.policy_loss + 0.5 * loss.value_loss - 0.0001 * loss.entropy_loss
    optimizer.zero_grad()
    total.backward()
    optimizer.step()

    result = policy.learn_mode.forward(samples)
    assert list(result) == ["cur_lr", "total_loss", "policy_loss", "value_loss", "entropy_loss"]
    assert policy.learn_mode.monitor_vars() == list(result)
    expected = [0.0005, total.item(), *(part.item() for part in loss)]
    assert list(result.values()) == pytest.approx(expected, rel=1e-4, abs=1e-6)
    parameters = torch.cat([p.detach().flatten() for p in model.parameters()])
    assert torch.allclose(parameters_of(policy), parameters, atol=1e-6)


def _steps(columns):
    """A dict of lists as a list of dicts."""
    return [dict(zip(columns, step, strict=True)) for step in zip(*columns.values(), strict=True)]


@pytest.mark.parametrize("end", [{"done": True}, {"done": True, "terminated": False, "truncated": True}, {}])
def test_steps_after_the_end_are_not_learnt(end):
    policy = make_policy("learn")
    short, long = make_sequences(policy, 1, length=2, last=end), make_sequences(policy, 1, last=end)
    data = short + long
    assert short[0]["done"] == [False, "done" in end, True, True] and short[0]["null"] == [False, False, True, True]
    changed = copy.deepcopy(data)
    for key in ("obs", "next_obs", "action", "logit", "reward"):
        changed[0][key][2:] = [torch.ones_like(value) for value in changed[0][key][2:]]
    expected = copy.deepcopy(policy).learn_mode.forward(data)
    assert policy.learn_mode.forward(changed) == expected
    alone = make_policy("learn", unroll_len=2)
    of_two_steps = alone.learn_mode.forward(make_sequences(alone, 1, length=2, last=end))
    of_four_steps = make_policy("learn").learn_mode.forward(short)
    assert list(of_four_steps.values()) == pytest.approx(list(of_two_steps.values()), rel=1e-5)


def test_how_an_episode_ended_decides_about_the_value_after_it():
    def loss(end):
        policy = make_policy("learn")
        return policy.learn_mode.forward(make_sequences(policy, 1, last=end))["value_loss"]

    assert loss({"done": True, "terminated": True, "truncated": False}) == loss({"done": True})
    assert loss({"done": True, "truncated": True}) == loss({}) != loss({"done": True})


def test_importance_weights_scale_the_losses_of_their_sequence():
    data = make_sequences(make_policy("learn"), 2)

    def learn(weights, **settings):
        policy = make_policy("learn", priority=True, **settings)
        return policy.learn_mode.forward([{**s, "IS": w} for s, w in zip(data, weights, strict=True)])

    plain, weighted = learn([0.5, 0.0]), learn([0.5, 0.0], priority_IS_weight=True)
    alone = make_policy("learn", priority=True).learn_mode.forward(data[:1])
    assert weighted["value_loss"] == pytest.approx(alone["value_loss"] * 0.5 / 2, rel=1e-5)
    assert weighted["priority"] == plain["priority"] and weighted["value_loss"] != pytest.approx(plain["value_loss"])
    assert len(plain["priority"]) == 2 and plain["priority"][0] == pytest.approx(alone["priority"][0])
    assert all(type(priority) is float and priority > 0 for priority in plain["priority"])


# --- collect and eval ---


def test_pieces_have_the_length_of_the_setting():
    policy = make_policy("collect")
    assert policy.collect_mode.get_attribute("unroll_len") == 4
    assert policy.collect_mode.get_train_sample([]) == []
    samples = policy.collect_mode.get_train_sample(make_episode(6))
    assert [[action.item() for action in sample["action"]] for sample in samples] == [[0, 1, 0, 1], [0, 1, 0, 1]]
    assert np.allclose(samples[1]["obs"][0], make_episode(6)[2]["obs"])
