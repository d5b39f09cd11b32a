"""Configs and train samples for the tests of the policies that learn Q(s, a)."""

import torch
from easydict import EasyDict

from tests.policy import samples
from tests.policy.learning import set_paths


def make_config(policy_cls, space="reparameterization", **settings):
    """The defaults of the policy for 3 observations and 2 action dimensions, with small nets.

    `learn__batch_size=8` sets `cfg.learn.batch_size`. The space 'discrete' has 2 actions, 'hybrid' 3 types with 2
    arguments; None leaves `model.action_space` out.
    """
    cfg = policy_cls.default_config()
    cfg.model.obs_shape, cfg.model.action_shape = 3, 2
    cfg.model.actor_head_hidden_size = cfg.model.critic_head_hidden_size = 8
    if space == "hybrid":
        cfg.model.action_shape = EasyDict(action_type_shape=3, action_args_shape=2)
    if space not in (None, "discrete"):
        cfg.model.action_space = space
    set_paths(cfg, settings)
    return cfg


def make_sample(i, action=None, **extra):
    """One transition as a buffer hands it out."""
    action = torch.rand(2) * 2 - 1 if action is None else action
    sizes = {"obs": torch.rand(3), "next_obs": torch.rand(3), "action": action, "IS": 0.5 + i}
    return samples.make_sample(i, **{**sizes, **extra})


def make_batch(size=6, **extra):
    return [make_sample(i, **extra) for i in range(size)]


def make_discrete_batch(size=6, actions=2):
    return [make_sample(i, torch.tensor([i % actions]), logit=torch.zeros(actions)) for i in range(size)]


def columns(data):
    """`obs, next_obs, action, reward, done, IS` of a batch, for oracles."""
    stacked = [torch.stack([sample[key] for sample in data]) for key in ("obs", "next_obs", "action")]
    numbers = [torch.tensor([float(sample[key]) for sample in data]) for key in ("reward", "done", "IS")]
    return (*stacked, *numbers)


def parameters(module):
    return torch.cat([p.detach().flatten() for p in module.parameters()]).clone()
