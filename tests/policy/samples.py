"""Train samples and configs for the tests of the policies."""

import torch

from ding.policy.dqn import DQNPolicy
from tests.policy.learning import set_paths


def make_config(**settings):
    """DQN's defaults for 4 observations and 2 actions; `learn__batch_size=8` sets `cfg.learn.batch_size`."""
    cfg = DQNPolicy.default_config()
    cfg.model.obs_shape, cfg.model.action_shape = 4, 2
    set_paths(cfg, settings)
    return cfg


def make_sample(i, actions=2, **extra):
    """One transition as a buffer hands it out."""
    sample = {
        "obs": torch.rand(4),
        "next_obs": torch.rand(4),
        "action": torch.tensor([i % actions]),
        "reward": torch.rand(1),
        "done": i % 3 == 0,
        "collect_iter": 0,
        "replay_unique_id": f"buffer_{i}",
        "replay_buffer_idx": i,
        "priority": 1.0,
        "staleness": 0,
        "use": 1,
        "IS": 0.5,
    }
    sample.update(extra)
    return sample


def make_batch(size=8, **extra):
    return [make_sample(i, **extra) for i in range(size)]
