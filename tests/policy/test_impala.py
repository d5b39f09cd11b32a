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


# --- collect and eval ---


def test_pieces_have_the_length_of_the_setting():
    policy = make_policy("collect")
    assert policy.collect_mode.get_attribute("unroll_len") == 4
    assert policy.collect_mode.get_train_sample([]) == []
    samples = policy.collect_mode.get_train_sample(make_episode(6))
    assert [[action.item() for action in sample["action"]] for sample in samples] == [[0, 1, 0, 1], [0, 1, 0, 1]]
    assert np.allclose(samples[1]["obs"][0], make_episode(6)[2]["obs"])
