"""Policies of DQN's family for tests: small networks, any settings."""

import copy

import torch

from ding.policy import create_policy
from ding.utils import set_pkg_seed
from ding.utils.registry_factory import POLICY_REGISTRY
from tests.policy.learning import set_paths

OBS = {3: torch.zeros(4), 0: torch.ones(4)}
MODEL = {"obs_shape": 4, "action_shape": 2, "encoder_hidden_size_list": [16, 8]}
MODELS = {
    "bdq": {"obs_shape": 4, "num_branches": 1, "action_bins_per_branch": 2, "encoder_hidden_size_list": [16, 8]},
    "iqn": {**MODEL, "num_quantiles": 8},
    "fqf": {**MODEL, "num_quantiles": 8},
    "qrdqn": {**MODEL, "num_quantiles": 8},
}


def make_policy(name, *fields, seed=0, command=False, model=None, **settings):
    cfg = POLICY_REGISTRY.get(name).default_config()
    cfg.model.update(MODELS.get(name, MODEL))
    set_paths(cfg, settings)
    cfg.type = name + "_command" if command else name
    set_pkg_seed(seed, use_cuda=False)
    return create_policy(cfg, model=model, enable_field=list(fields) or None)


def plain(name):
    """The settings that make samples of one step, without weights, right for a policy."""
    return {"priority_IS_weight": False, "nstep": 1} if name == "rainbow" else {}


def collect(policy, data):
    kwargs = {} if policy.cfg.type.startswith("sqn") else {"eps": 0.5}
    return policy.collect_mode.forward(data, **kwargs)


def state_of(policy):
    return copy.deepcopy(policy.learn_mode.state_dict())


def stack(data, key):
    return torch.stack([torch.as_tensor(sample[key], dtype=torch.float32) for sample in data])
